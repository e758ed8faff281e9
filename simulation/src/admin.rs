//! What administrators do: taint rules and questions about pools.

use serde_json::{Value, json};

use crate::{
    publish::{GPU, KEYS, NIC, PROFILE, VALUES, in_use, taint},
    run::Story,
};
use dra_inhabitants::cluster::{Cluster, at, name, set};

const RULES: usize = 2;
const REQUESTS: usize = 3;
const CONFIRM: &str = "dra-controller-manager.dev/confirm-all-devices";
const PAUSE: &str = "dra-controller-manager.dev/pause-eviction";

/// The administrators.
#[derive(Debug)]
pub(crate) struct Admin {
    cluster: Cluster,
    random: fastrand::Rng,
}

impl Admin {
    pub(crate) fn new(cluster: Cluster, seed: u64) -> Self {
        Self { cluster, random: fastrand::Rng::with_seed(seed) }
    }

    /// One thing that an administrator does.
    pub(crate) fn act(&mut self, story: &mut Story) {
        match self.random.u8(..20) {
            0..4 => {
                let rule = format!("rule-{}", self.random.usize(..RULES));
                self.rule(&rule, story);
            }
            4..8 => self.change_rule(story),
            8..12 => drop(self.delete("DeviceTaintRule", story)),
            12..13 => {
                // Under the same name.
                if let Some(rule) = self.delete("DeviceTaintRule", story) {
                    self.rule(&rule, story);
                }
            }
            13..14 => self.foreign_condition(story),
            14..18 => self.request(story),
            18 => drop(self.delete("ResourcePoolStatusRequest", story)),
            _ => self.answer(story),
        }
    }

    fn selector(&mut self) -> Value {
        let driver = self.random.choice([GPU, GPU, NIC]).unwrap_or(GPU);
        let pool = self.random.choice(["node-0", "node-1", "shelf"]).unwrap_or("node-0");
        let device = format!("dev-{}", self.random.u8(..3));
        // Mostly something that is in use.
        let [driver, pool, device] = in_use(&mut self.random, &self.cluster)
            .filter(|_| self.random.u8(..4) > 0)
            .unwrap_or([driver.to_owned(), pool.to_owned(), device]);
        match self.random.u8(..12) {
            0 => Value::Null,
            1 => json!({}),
            2 => json!({"driver": driver}),
            3..6 => json!({"driver": driver, "pool": pool}),
            6..9 => json!({"driver": driver, "pool": pool, "device": device}),
            9..11 => json!({"device": device}),
            _ => json!({"pool": pool}),
        }
    }

    fn annotations(&mut self) -> Value {
        let mut of = |one_in: u8| match self.random.u8(..one_in) {
            0 => json!("true"),
            _ => Value::Null,
        };
        json!({CONFIRM: of(2), PAUSE: of(8)})
    }

    fn rule(&mut self, rule: &str, story: &mut Story) {
        let mut spec = json!({"taint": taint(&mut self.random, &self.cluster)});
        let selector = self.selector();
        if !selector.is_null() {
            set(&mut spec, "deviceSelector", selector);
        }
        let mut metadata = json!({"name": rule});
        let annotations = self.annotations();
        let annotations: serde_json::Map<String, Value> =
            annotations.as_object().into_iter().flatten().filter(|(_, v)| !v.is_null()).map(own).collect();
        set(&mut metadata, "annotations", Value::Object(annotations));
        if self.cluster.create("DeviceTaintRule", &json!({"metadata": metadata, "spec": spec})).is_ok() {
            story.tell(&format!("admin: {metadata} {spec}"));
        }
    }

    fn change_rule(&mut self, story: &mut Story) {
        let rules = self.cluster.all("DeviceTaintRule");
        let Some(rule) = self.random.choice(&rules) else { return };
        let new = taint(&mut self.random, &self.cluster);
        let patch = match self.random.u8(..6) {
            0 => json!({"spec": {"taint": {"effect": at(&new, &["effect"])}}}),
            1 => json!({"spec": {"taint": {"key": self.random.choice(KEYS)}}}),
            2 => json!({"spec": {"taint": {"value": self.random.choice(VALUES)}}}),
            3 => json!({"spec": {"taint": new}}),
            4 => {
                // All fields of a selector are named, so that none stays.
                let mut selector = self.selector();
                for field in ["driver", "pool", "device"] {
                    if selector.is_object() && at(&selector, &[field]).is_null() {
                        set(&mut selector, field, Value::Null);
                    }
                }
                json!({"spec": {"deviceSelector": selector}})
            }
            _ => json!({"metadata": {"annotations": self.annotations()}}),
        };
        if self.cluster.patch("DeviceTaintRule", name(rule), "", &patch).is_ok() {
            story.tell(&format!("admin: changes {} by {patch}", name(rule)));
        }
    }

    fn delete(&mut self, kind: &str, story: &mut Story) -> Option<String> {
        let objects = self.cluster.all(kind);
        let object = self.random.choice(&objects)?;
        self.cluster.delete(kind, name(object), &Value::Null).ok()?;
        story.tell(&format!("admin: deletes {kind} {}", name(object)));
        Some(name(object).to_owned())
    }

    /// Another controller reports on a rule, too.
    fn foreign_condition(&mut self, story: &mut Story) {
        let rules = self.cluster.all("DeviceTaintRule");
        let Some(rule) = self.random.choice(&rules) else { return };
        let mut conditions: Vec<Value> = dra_inhabitants::cluster::items(rule, &["status", "conditions"])
            .iter()
            .filter(|c| at(c, &["type"]) != "Testing")
            .cloned()
            .collect();
        conditions.push(json!({"type": "Testing", "status": "True", "reason": "Testing", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}));
        let patch = json!({"metadata": {"resourceVersion": dra_inhabitants::cluster::version(rule)},
            "status": {"conditions": conditions}});
        if self.cluster.patch("DeviceTaintRule", name(rule), "/status", &patch).is_ok() {
            story.tell(&format!("somebody: a condition on {}", name(rule)));
        }
    }

    fn request(&mut self, story: &mut Story) {
        let request = format!("ask-{}", self.random.usize(..REQUESTS));
        let mut spec = json!({"driver": self.random.choice([GPU, GPU, NIC, "nobody.example.com"])});
        if self.random.bool() {
            set(&mut spec, "poolName", json!(self.random.choice(["node-0", "node-1", "shelf", "nowhere"])));
        }
        if self.random.u8(..4) == 0 {
            set(&mut spec, "limit", json!(self.random.u8(1..3)));
        }
        if self.random.u8(..4) == 0 {
            set(&mut spec, "defaultPartitionTypeAttribute", json!(PROFILE));
        }
        self.ask(&request, &spec, story);
    }

    fn ask(&self, request: &str, spec: &Value, story: &mut Story) {
        let body = json!({"metadata": {"name": request}, "spec": spec});
        if self.cluster.create("ResourcePoolStatusRequest", &body).is_ok() {
            story.tell(&format!("admin: asks {request} {spec}"));
        }
    }

    /// Another controller is faster.
    fn answer(&mut self, story: &mut Story) {
        let requests = self.cluster.all("ResourcePoolStatusRequest");
        let Some(request) = self.random.choice(&requests) else { return };
        let time = self.cluster.server.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let status = json!({"poolCount": 0, "conditions": [{"type": "Complete", "status": "True",
            "reason": "CalculationComplete", "message": "by somebody else", "lastTransitionTime": time}]});
        let patch = json!({"metadata": {"resourceVersion": dra_inhabitants::cluster::version(request)}, "status": status});
        if self.cluster.patch("ResourcePoolStatusRequest", name(request), "/status", &patch).is_ok() {
            story.tell(&format!("somebody: answers {}", name(request)));
        }
    }

    /// Taints what is in use, when it is quiet.
    pub(crate) fn taint_at_last(&mut self, story: &mut Story) {
        let mut taint = taint(&mut self.random, &self.cluster);
        set(&mut taint, "effect", json!("NoExecute"));
        let selector = match self.random.u8(..3) {
            0 => json!({"driver": GPU}),
            1 => json!({"pool": "node-0"}),
            _ => json!({"device": "dev-0"}),
        };
        let body = json!({"metadata": {"name": "end"}, "spec": {"deviceSelector": selector, "taint": taint}});
        if self.cluster.create("DeviceTaintRule", &body).is_ok() {
            story.tell(&format!("admin: at last {body}"));
        }
    }

    /// Asks about everything, when it is quiet: about each pool, about all of them, and what rules would do.
    pub(crate) fn ask_about_everything(&self, story: &mut Story) {
        let pools = [(GPU, "node-0"), (GPU, "node-1"), (GPU, "shelf"), (NIC, "node-0")];
        for (number, (driver, pool)) in pools.into_iter().enumerate() {
            self.ask(&format!("last-{number}"), &json!({"driver": driver, "poolName": pool}), story);
        }
        let typed = json!({"driver": GPU, "defaultPartitionTypeAttribute": PROFILE});
        self.ask("last-all", &typed, story);
        self.ask("last-two", &json!({"driver": GPU, "limit": 2}), story);
        self.ask("last-none", &json!({"driver": "nobody.example.com"}), story);
        let selectors = [
            json!({}),
            json!({"driver": GPU}),
            json!({"driver": GPU, "pool": "node-0"}),
            json!({"device": "dev-0"}),
        ];
        for (number, selector) in selectors.into_iter().enumerate() {
            let taint = json!({"key": KEYS[0], "value": VALUES[1], "effect": "None"});
            let body = json!({"metadata": {"name": format!("last-{number}")},
                "spec": {"deviceSelector": selector, "taint": taint}});
            let _ = self.cluster.create("DeviceTaintRule", &body);
        }
    }
}

fn own((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}
