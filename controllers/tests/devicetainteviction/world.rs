//! A cluster small enough to hold in one's head: objects as the API server would store them, a watch, the planner and
//! its queues, and a clock that only the test moves.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use dra_allocator::Features;
use dra_api::{Claim, DeviceTaintRule, Object, ObjectKey, Pod, Uid};
use dra_controllers::{
    Elapsed,
    devicetainteviction::{DeviceTaintEviction, Key},
    plan::{Action, EvictionMode, Pass},
    view::{Change, DeviceClass, ResourceSlice, Source, View},
};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The time at which every world begins.
pub(crate) const T0: &str = "2026-01-01T00:00:00Z";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Pod,
    Claim,
    Slice,
    Class,
    Rule,
}

pub(crate) struct World {
    pub(crate) view: View,
    pub(crate) planner: DeviceTaintEviction,
    pub(crate) now: Elapsed,
    objects: BTreeMap<(Kind, String), Value>,
    version: u64,
    ready: BTreeSet<Key>,
    asleep: BTreeMap<Key, Elapsed>,
    /// Events for people, in order: `kind key reason note`.
    pub(crate) told: Vec<String>,
    /// Pods that were evicted, in order, and when.
    pub(crate) evicted: Vec<(String, u64)>,
    /// Requests of each kind.
    pub(crate) requests: BTreeMap<&'static str, usize>,
    /// What the conditions of rules said, in order: time, rule, status, reason, message.
    pub(crate) said: Vec<(u64, String, String, String, String)>,
    /// Watch events about Pods are not delivered.
    pub(crate) pod_watch_lags: bool,
    /// Conditions are not written: the API server takes its time.
    pub(crate) status_hangs: bool,
    /// A PodDisruptionBudget forbids the eviction of these Pods.
    pub(crate) protected: BTreeSet<String>,
    /// The API server refuses to create rules.
    pub(crate) no_new_rules: bool,
}

pub(crate) fn seconds(n: u64) -> Elapsed {
    Duration::from_secs(n)
}

/// `T0` and so many seconds.
pub(crate) fn at(n: i64) -> String {
    let start: Timestamp = T0.parse().unwrap();
    (start + jiff::SignedDuration::from_secs(n)).to_string()
}

fn name(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

impl World {
    pub(crate) fn new() -> Self {
        let mut view = View::default();
        view.keep_devices(Features::default());
        Self {
            view,
            planner: DeviceTaintEviction::default(),
            now: Elapsed::ZERO,
            objects: BTreeMap::new(),
            version: 0,
            ready: BTreeSet::new(),
            asleep: BTreeMap::new(),
            told: Vec::new(),
            evicted: Vec::new(),
            requests: BTreeMap::new(),
            said: Vec::new(),
            pod_watch_lags: false,
            status_hangs: false,
            protected: BTreeSet::new(),
            no_new_rules: false,
        }
    }

    /// The process after a restart: nothing is known but what the API server lists.
    pub(crate) fn restart(&mut self) {
        self.view = View::default();
        self.view.keep_devices(Features::default());
        self.ready.clear();
        self.asleep.clear();
        for ((kind, _), object) in self.objects.clone() {
            self.show(kind, &object, Source::Watch);
        }
        self.settle();
    }

    pub(crate) fn wall(&self) -> Timestamp {
        let start: Timestamp = T0.parse().unwrap();
        start.checked_add(self.now).unwrap()
    }

    fn note(&mut self, change: Option<Change>) {
        let Some(change) = change else { return };
        self.view.follow(&change);
        let consequence = self.view.follow_evictions(&change, self.now);
        for change in [Some(change), consequence].into_iter().flatten() {
            self.ready.extend(self.planner.affected(&self.view, &change));
        }
    }

    fn show(&mut self, kind: Kind, object: &Value, source: Source) {
        let text = object.to_string();
        let now = self.now;
        let change = match kind {
            Kind::Pod => self.view.observe(Pod::decode(&text).unwrap(), source, now),
            Kind::Claim => self.view.observe(Claim::decode(&text).unwrap(), source, now),
            Kind::Slice => self.view.observe(ResourceSlice::decode(&text).unwrap(), source, now),
            Kind::Class => self.view.observe(DeviceClass::decode(&text).unwrap(), source, now),
            Kind::Rule => self.view.observe(DeviceTaintRule::decode(&text).unwrap(), source, now),
        };
        self.note(change);
    }

    /// Stores an object as the API server would, and lets the watch show it; nothing is planned yet.
    pub(crate) fn event(&mut self, kind: Kind, mut object: Value) {
        self.version += 1;
        let (namespace, own) = {
            let m = &object["metadata"];
            (m["namespace"].as_str().unwrap_or("").to_owned(), m["name"].as_str().unwrap().to_owned())
        };
        let key = if namespace.is_empty() { own } else { format!("{namespace}/{own}") };
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let old = self.objects.get(&(kind, key.clone()));
        if kind == Kind::Rule {
            let same = old.filter(|old| old["metadata"]["uid"] == object["metadata"]["uid"]);
            let generation = match same {
                None => 1,
                Some(old) => {
                    let before = old["metadata"]["generation"].as_i64().unwrap();
                    before + i64::from(old["spec"] != object["spec"])
                }
            };
            object["metadata"]["generation"] = json!(generation);
            if let (Some(old), true) = (same, object["status"].is_null()) {
                object["status"] = old["status"].clone();
            }
        }
        self.objects.insert((kind, key), object.clone());
        if kind == Kind::Pod && self.pod_watch_lags {
            return;
        }
        self.show(kind, &object, Source::Watch);
    }

    /// As [`World::event`], and everything that follows.
    pub(crate) fn put(&mut self, kind: Kind, object: Value) {
        self.event(kind, object);
        self.settle();
    }

    /// The watch shows the end of an object; nothing is planned yet.
    pub(crate) fn remove_event(&mut self, kind: Kind, key: &str) {
        let Some(object) = self.objects.remove(&(kind, key.to_owned())) else { return };
        let uid = Uid::from(object["metadata"]["uid"].as_str().unwrap());
        let (namespace, own) = name(key);
        let key = ObjectKey::new(namespace, own);
        let change = match kind {
            Kind::Pod => self.view.deleted::<Pod>(&key, &uid),
            Kind::Claim => self.view.deleted::<Claim>(&key, &uid),
            Kind::Slice => self.view.deleted::<ResourceSlice>(&key, &uid),
            Kind::Class => self.view.deleted::<DeviceClass>(&key, &uid),
            Kind::Rule => self.view.deleted::<DeviceTaintRule>(&key, &uid),
        };
        self.note(change);
    }

    /// As [`World::remove_event`], and everything that follows.
    pub(crate) fn remove(&mut self, kind: Kind, key: &str) {
        self.remove_event(kind, key);
        self.settle();
    }

    /// The watch catches up with what is stored.
    pub(crate) fn catch_up(&mut self) {
        self.pod_watch_lags = false;
        let pods: Vec<Value> =
            self.objects.iter().filter(|((k, _), _)| *k == Kind::Pod).map(|(_, o)| o.clone()).collect();
        for pod in pods {
            self.show(Kind::Pod, &pod, Source::Watch);
        }
        self.settle();
    }

    pub(crate) fn object(&self, kind: Kind, key: &str) -> Option<&Value> {
        self.objects.get(&(kind, key.to_owned()))
    }

    /// Changes an object as another writer would.
    pub(crate) fn change(&mut self, kind: Kind, key: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.object(kind, key).unwrap().clone();
        change(&mut object);
        self.put(kind, object);
    }

    /// Works until nothing is left to do at this time.
    pub(crate) fn settle(&mut self) {
        // What needs no request comes first, then children and conditions, then evictions, lowest priority first.
        let order = |key: &Key| match key {
            Key::Pod(_) => (0, 0),
            Key::Expand(_) => (1, 0),
            Key::Child { .. } => (2, 0),
            Key::Rule(_) => (3, 0),
            Key::Evict { .. } => (4, key.rank()),
        };
        for _ in 0..100_000 {
            let due: Vec<Key> =
                self.asleep.iter().filter(|(_, at)| **at <= self.now).map(|(key, _)| key.clone()).collect();
            for key in due {
                self.asleep.remove(&key);
                self.ready.insert(key);
            }
            let Some(key) = self.ready.iter().min_by_key(|key| order(key)).cloned() else { return };
            self.ready.remove(&key);
            self.work(&key);
        }
        panic!("never settles");
    }

    fn work(&mut self, key: &Key) {
        self.asleep.remove(key);
        let mut failed = false;
        for _ in 0..10 {
            let pass = Pass { wall: self.wall(), ..Pass::at(self.now) };
            let plan = self.planner.plan(&self.view, key, &pass);
            let mut progress = false;
            for action in &plan.actions {
                match action {
                    Action::Notify(notice) => self.told.push(format!(
                        "{} {} {}: {}",
                        notice.subject.kind.name(),
                        notice.subject.key,
                        notice.reason,
                        notice.note
                    )),
                    action if !failed => {
                        progress = true;
                        failed = !self.act(action);
                    }
                    _ => {}
                }
            }
            if !progress {
                let wake = if failed { Some(self.now + seconds(1)) } else { plan.wake_at };
                if let Some(at) = wake {
                    assert!(at > self.now, "{key} would spin");
                    self.asleep.insert(key.clone(), at);
                }
                return;
            }
        }
        panic!("{key} never settles");
    }

    fn count(&mut self, what: &'static str) {
        *self.requests.entry(what).or_default() += 1;
    }

    /// False when it failed.
    #[expect(clippy::too_many_lines, reason = "one arm for each action")]
    fn act(&mut self, action: &Action) -> bool {
        let now = self.now;
        match action {
            Action::Schedule { pod, eviction } => {
                let eviction = eviction.as_deref().cloned();
                let change = self.view.schedule_eviction(&pod.key, &pod.uid, eviction, now);
                self.note(change);
            }
            Action::Disrupt { pod, since } => {
                self.count("disrupt");
                let key = pod.key.to_string();
                let Some(stored) = self.objects.get_mut(&(Kind::Pod, key)) else { return false };
                assert_eq!(stored["metadata"]["uid"], *pod.uid);
                stored["status"]["conditions"] = json!([{
                    "type": "DisruptionTarget", "status": "True", "reason": "DeletionByDeviceTaintManager",
                    "message": "Device Taint manager: deleting due to NoExecute taint",
                    "lastTransitionTime": since.to_string(),
                }]);
                self.version += 1;
                stored["metadata"]["resourceVersion"] = json!(self.version.to_string());
                let answer = stored.clone();
                self.show(Kind::Pod, &answer, Source::Answer);
            }
            Action::Evict { pod, mode, rules, .. } => {
                self.count("evict");
                let key = pod.key.to_string();
                let forbidden = *mode == EvictionMode::Evict && self.protected.contains(&key);
                let change = self.view.note_blocked(&pod.key, forbidden);
                self.note(change);
                if forbidden {
                    return false;
                }
                let at = self.now.as_secs();
                let deleted = self.wall().to_string();
                let Some(stored) = self.objects.get_mut(&(Kind::Pod, key.clone())) else {
                    let change = self.view.gone::<Pod>(&pod.key, &pod.uid, now);
                    self.note(change);
                    return true;
                };
                if stored["metadata"]["resourceVersion"] != pod.resource_version.to_string() {
                    let answer = stored.clone();
                    self.show(Kind::Pod, &answer, Source::Answer);
                    return true;
                }
                assert_eq!(stored["metadata"]["uid"], *pod.uid);
                assert!(stored["metadata"]["deletionTimestamp"].is_null(), "{key} is deleted twice");
                stored["metadata"]["deletionTimestamp"] = json!(deleted);
                self.version += 1;
                stored["metadata"]["resourceVersion"] = json!(self.version.to_string());
                let answer = stored.clone();
                self.evicted.push((key, at));
                let change = self.view.note_evicted(&pod.key, &pod.uid, rules, now);
                self.note(Some(change));
                self.show(Kind::Pod, &answer, Source::Answer);
            }
            Action::Report(report) => {
                if self.status_hangs {
                    return false;
                }
                self.count("report");
                let key = report.rule.key.to_string();
                let Some(stored) = self.objects.get_mut(&(Kind::Rule, key.clone())) else { return false };
                let condition = &report.condition;
                stored["status"]["conditions"] = json!([{
                    "type": "EvictionInProgress", "status": condition.status.name(), "reason": *condition.reason,
                    "message": *condition.message, "observedGeneration": condition.observed_generation,
                    "lastTransitionTime": condition.last_transition.map(|t| t.to_string()),
                }]);
                self.version += 1;
                stored["metadata"]["resourceVersion"] = json!(self.version.to_string());
                let answer = stored.clone();
                self.said.push((
                    self.now.as_secs(),
                    key,
                    condition.status.name().to_owned(),
                    condition.reason.to_string(),
                    condition.message.to_string(),
                ));
                let uid = report.rule.uid.clone();
                self.view.note_reported(&uid, now);
                self.show(Kind::Rule, &answer, Source::Answer);
            }
            Action::Expand { rule, expansion } => {
                let change = self.view.note_expanded(&rule.key, &rule.uid, expansion.as_deref().cloned());
                self.note(change);
            }
            Action::CreateRule(new) => {
                self.count("create_rule");
                let key = new.key.to_string();
                if let Some(stored) = self.objects.get(&(Kind::Rule, key.clone())) {
                    let answer = stored.clone();
                    self.show(Kind::Rule, &answer, Source::Answer);
                    return true;
                }
                if self.no_new_rules {
                    return false;
                }
                let mut object: Value = serde_json::from_str(&new.body).unwrap();
                assert_eq!(object["metadata"]["name"], *key);
                self.version += 1;
                object["metadata"]["uid"] = json!(format!("uid-{}-{key}", self.version));
                object["metadata"]["generation"] = json!(1);
                object["metadata"]["resourceVersion"] = json!(self.version.to_string());
                self.objects.insert((Kind::Rule, key), object.clone());
                self.show(Kind::Rule, &object, Source::Answer);
            }
            Action::CorrectRule(to) => {
                self.count("correct_rule");
                let now = self.wall().to_string();
                let key = to.rule.key.to_string();
                let Some(stored) = self.objects.get_mut(&(Kind::Rule, key)) else { return false };
                assert_eq!(stored["metadata"]["uid"], *to.rule.uid);
                let text = |part: &Option<std::sync::Arc<str>>| json!(part.as_deref());
                let before = stored["spec"]["taint"].clone();
                let mut taint = json!({"key": *to.taint.key, "value": *to.taint.value, "effect": to.taint.effect.name(),
                    "timeAdded": to.taint.time_added.map(|time| time.to_string())});
                // As the API server does it (spec §2.5).
                if taint["effect"] != before["effect"] && taint["timeAdded"] == before["timeAdded"] {
                    taint["timeAdded"] = json!(now);
                }
                stored["spec"] = json!({"taint": taint, "deviceSelector": {"driver": text(&to.selector.driver),
                    "pool": text(&to.selector.pool), "device": text(&to.selector.device)}});
                let generation = stored["metadata"]["generation"].as_i64().unwrap();
                stored["metadata"]["generation"] = json!(generation + 1);
                self.version += 1;
                stored["metadata"]["resourceVersion"] = json!(self.version.to_string());
                let answer = stored.clone();
                self.show(Kind::Rule, &answer, Source::Answer);
            }
            Action::DeleteRule { rule, .. } => {
                self.count("delete_rule");
                let stored = self.objects.remove(&(Kind::Rule, rule.key.to_string()));
                assert!(stored.is_none_or(|stored| stored["metadata"]["uid"] == *rule.uid));
                let change = self.view.gone::<DeviceTaintRule>(&rule.key, &rule.uid, now);
                self.note(change);
            }
            other => panic!("not an action of this controller: {other}"),
        }
        true
    }

    /// Lets time pass; whatever wakes up meanwhile is worked on at its time.
    pub(crate) fn pass(&mut self, time: Elapsed) {
        let end = self.now + time;
        while let Some(next) = self.asleep.values().min().copied().filter(|at| *at <= end) {
            self.now = self.now.max(next);
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    /// The rules that `parent` is expanded into: the device of each, and effect and time of its taint.
    pub(crate) fn children(&self, parent: &str) -> Vec<String> {
        let is_child = |rule: &&Value| rule["metadata"]["ownerReferences"][0]["name"] == parent;
        let rules =
            self.objects.iter().filter(|((kind, _), _)| *kind == Kind::Rule).map(|(_, object)| object);
        let mut found: Vec<String> = rules
            .filter(is_child)
            .map(|rule| {
                let (selector, taint) = (&rule["spec"]["deviceSelector"], &rule["spec"]["taint"]);
                let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
                let of = ["driver", "pool", "device"].map(|part| text(&selector[part])).join("/");
                format!("{of} {} {}", text(&taint["effect"]), text(&taint["timeAdded"]))
            })
            .collect();
        found.sort();
        found
    }

    /// Names of the rules that `parent` is expanded into.
    pub(crate) fn names_of_children(&self, parent: &str) -> Vec<String> {
        let is_child = |rule: &Value| rule["metadata"]["ownerReferences"][0]["name"] == parent;
        let rules = self.objects.iter().filter(|((kind, _), rule)| *kind == Kind::Rule && is_child(rule));
        rules.map(|((_, name), _)| name.clone()).collect()
    }

    /// True when nothing waits for a time.
    pub(crate) fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.asleep.is_empty()
    }

    /// The condition of a rule: status, reason and message.
    pub(crate) fn condition(&self, rule: &str) -> Option<(String, String, String)> {
        let condition = self.object(Kind::Rule, rule)?["status"]["conditions"].get(0)?;
        let text = |field: &str| condition[field].as_str().unwrap().to_owned();
        Some((text("status"), text("reason"), text("message")))
    }

    /// The Pods that were evicted, in order.
    pub(crate) fn gone(&self) -> Vec<&str> {
        self.evicted.iter().map(|(pod, _)| pod.as_str()).collect()
    }

    /// The events about Pods, by their first two words, with the Pod.
    pub(crate) fn announced(&self) -> Vec<String> {
        self.told
            .iter()
            .filter(|event| event.starts_with("Pod "))
            .map(|event| {
                let (who, note) = event.split_once(" DeviceTaintManagerEviction: ").unwrap();
                let words: Vec<&str> = note.split([' ', ':']).take(2).collect();
                format!("{} {}", who.trim_start_matches("Pod "), words.join(" "))
            })
            .collect()
    }
}

// Objects

/// A Pod on a node that names the claim `claim`.
pub(crate) fn pod(key: &str, uid: &str, claim: &str) -> Value {
    let (namespace, name) = name(key);
    json!({
        "metadata": {"name": name, "namespace": namespace, "uid": uid},
        "spec": {"nodeName": "worker", "resourceClaims": [{"name": "c", "resourceClaimName": claim}]},
        "status": {"phase": "Running"},
    })
}

/// A claim for `device` of pool `worker`, reserved for the Pod with this uid.
pub(crate) fn claim(key: &str, device: &str, (pod, uid): (&str, &str)) -> Value {
    let (namespace, name) = name(key);
    json!({
        "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{namespace}-{name}")},
        "spec": {},
        "status": {
            "allocation": {"devices": {"results": [
                {"request": "r", "driver": "some-driver", "pool": "worker", "device": device}
            ]}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": uid}],
        },
    })
}

/// The tolerations of a claim's allocation results.
pub(crate) fn tolerate(claim: &mut Value, tolerations: Value) {
    for result in claim["status"]["allocation"]["devices"]["results"].as_array_mut().unwrap() {
        result["tolerations"] = tolerations.clone();
    }
}

pub(crate) fn taint(effect: &str, time: &str) -> Value {
    json!({"key": "example.com/taint", "value": "something", "effect": effect, "timeAdded": time})
}

/// A slice of pool `pool` with device `instance`, tainted or not, and two others that are not in use.
pub(crate) fn slice(name: &str, pool: &str, generation: i64, taints: Value) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("uid-{name}")},
        "spec": {
            "driver": "some-driver", "nodeName": pool,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
            "devices": [
                {"name": "instance", "taints": taints},
                {"name": "instance-no-schedule", "taints": [taint("NoSchedule", T0)]},
                {"name": "instance-no-execute", "taints": [taint("None", T0), taint("NoExecute", T0)]},
            ],
        },
    })
}

/// A slice whose device `instance` has a NoExecute taint since `T0`.
pub(crate) fn tainted() -> Value {
    slice("slice", "worker", 1, json!([taint("NoExecute", T0)]))
}

pub(crate) fn untainted() -> Value {
    slice("slice", "worker", 1, json!([]))
}

/// A rule for all devices of the driver.
pub(crate) fn rule(name: &str, effect: &str, time: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("uid-{name}")},
        "spec": {"deviceSelector": {"driver": "some-driver"}, "taint": taint(effect, time)},
    })
}

/// Every order of some events.
pub(crate) fn permutations<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    (0..items.len())
        .flat_map(|first| {
            let mut rest = items.to_vec();
            let head = rest.remove(first);
            permutations(&rest).into_iter().map(move |mut tail| {
                tail.insert(0, head.clone());
                tail
            })
        })
        .collect()
}
