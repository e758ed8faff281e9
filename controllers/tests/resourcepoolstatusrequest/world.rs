//! A cluster in memory for the pool status planner: objects in, plans out, time as an argument.

use std::time::Duration;

use dra_allocator::Features;
use dra_api::{Claim, DeviceTaintRule, ObjectKey, ResourcePoolStatusRequest};
use dra_controllers::{
    Elapsed,
    plan::{Action, Pass, Plan},
    resourcepoolstatusrequest::{Key, PoolStatusRequests, SETTLE},
    view::{Change, ResourceSlice, Source, Tracked, View},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// When the manager starts.
const START: &str = "2026-01-01T00:00:00Z";

pub(crate) struct World {
    pub(crate) view: View,
    now: Elapsed,
    version: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        let mut view = View::default();
        view.keep_devices(Features::default());
        Self { view, now: Elapsed::ZERO, version: 0 }
    }

    pub(crate) fn wall(&self) -> Timestamp {
        START.parse::<Timestamp>().unwrap() + SignedDuration::try_from(self.now).unwrap()
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Shows an object to the view; the keys that this concerns.
    pub(crate) fn put<T: Tracked>(&mut self, object: &Value) -> Vec<String> {
        self.version += 1;
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let change = self.view.observe(T::decode(&object.to_string()).unwrap(), Source::Watch, self.now);
        self.follow(change)
    }

    pub(crate) fn delete<T: Tracked>(&mut self, key: &ObjectKey, uid: &str) -> Vec<String> {
        let change = self.view.deleted::<T>(key, &uid.into());
        self.follow(change)
    }

    fn follow(&mut self, change: Option<Change>) -> Vec<String> {
        let mut keys = Vec::new();
        if let Some(change) = change {
            self.view.follow_pool_requests(&change, self.now);
            let affected = PoolStatusRequests.affected(&self.view, &change);
            keys.extend(affected.iter().map(ToString::to_string));
        }
        keys
    }

    pub(crate) fn slice(&mut self, name: &str, spec: Value) -> Vec<String> {
        self.put::<ResourceSlice>(&slice(name, spec))
    }

    pub(crate) fn remove_slice(&mut self, name: &str) -> Vec<String> {
        self.delete::<ResourceSlice>(&ObjectKey::new("", name), name)
    }

    /// A claim that holds devices of `gpu.dev`: pool, device, and more of the result.
    pub(crate) fn claim(&mut self, name: &str, results: &[(&str, &str, Value)]) {
        let results: Vec<Value> = results
            .iter()
            .map(|(pool, device, more)| {
                let mut result = json!({"request": "r", "driver": "gpu.dev", "pool": pool, "device": device});
                for (key, value) in more.as_object().unwrap() {
                    result[key] = value.clone();
                }
                result
            })
            .collect();
        self.put::<Claim>(&json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name},
            "spec": {},
            "status": {"allocation": {"devices": {"results": results}}},
        }));
    }

    pub(crate) fn rule(&mut self, selector: Value, effect: &str) {
        self.put::<DeviceTaintRule>(&json!({
            "metadata": {"name": "rule", "uid": "rule"},
            "spec": {"deviceSelector": selector, "taint": {"key": "k", "effect": effect}},
        }));
    }

    /// Makes a request, so long ago that the watches are up to date; the keys that this concerns.
    pub(crate) fn ask(&mut self, name: &str, spec: Value) -> Vec<String> {
        let keys = self.ask_now(name, spec);
        self.pass(SETTLE);
        keys
    }

    /// Makes a request at this very moment.
    pub(crate) fn ask_now(&mut self, name: &str, spec: Value) -> Vec<String> {
        let request = self.request(name, spec);
        self.put::<ResourcePoolStatusRequest>(&request)
    }

    pub(crate) fn request(&self, name: &str, spec: Value) -> Value {
        let mut full = json!({"driver": "gpu.dev", "limit": 100});
        for (key, value) in spec.as_object().unwrap() {
            full[key] = value.clone();
        }
        let created = self.wall().to_string();
        json!({"metadata": {"name": name, "uid": name, "creationTimestamp": created}, "spec": full})
    }

    pub(crate) fn plan(&self, name: &str) -> Plan {
        let pass = Pass { now: self.now, wall: self.wall(), ..Pass::default() };
        PoolStatusRequests.plan(&self.view, &Key(name.into()), &pass)
    }

    /// The status that the plan writes.
    pub(crate) fn status(&self, name: &str) -> Value {
        let plan = self.plan(name);
        match &plan.actions[..] {
            [Action::Answer(answer)] => serde_json::from_str(&answer.status).unwrap(),
            other => panic!("no answer: {other:?}, {:?}", plan.why),
        }
    }

    /// The status of a request that asks for all pools of `gpu.dev`.
    pub(crate) fn answer(&mut self, spec: Value) -> Value {
        self.ask("r", spec);
        self.status("r")
    }

    /// Writes the status, as the API server would.
    pub(crate) fn write(&mut self, name: &str, spec: Value) -> Vec<String> {
        let mut request = self.request(name, spec);
        request["status"] = self.status(name);
        self.put::<ResourcePoolStatusRequest>(&request)
    }

    /// When the plan wants to be made again, from now.
    pub(crate) fn wait(&self, name: &str) -> Option<Duration> {
        self.plan(name).wake_at.map(|at| at.checked_sub(self.now).unwrap())
    }
}

/// A slice of `pool-1` of `gpu.dev`, generation 1 of one slice, unless `spec` says otherwise.
pub(crate) fn slice(name: &str, spec: Value) -> Value {
    let mut full = json!({
        "driver": "gpu.dev",
        "pool": {"name": "pool-1", "generation": 1, "resourceSliceCount": 1},
    });
    for (key, value) in spec.as_object().unwrap() {
        full[key] = value.clone();
    }
    json!({"metadata": {"name": name, "uid": name}, "spec": full})
}

/// `spec.pool`.
pub(crate) fn pool(name: &str, generation: i64, count: i64) -> Value {
    json!({"name": name, "generation": generation, "resourceSliceCount": count})
}

/// Devices with names only.
pub(crate) fn devices(count: usize) -> Value {
    (0..count).map(|number| json!({"name": format!("device-{number}")})).collect()
}

pub(crate) fn nothing() -> Value {
    json!({})
}

/// Total, allocated, available, unavailable.
pub(crate) fn counts(pool: &Value) -> [i64; 4] {
    ["totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices"]
        .map(|field| pool[field].as_i64().unwrap_or(-1))
}
