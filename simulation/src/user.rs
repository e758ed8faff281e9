//! What users do: objects come, change and go.

use serde_json::{Value, json};

use crate::{
    publish::{GPU, KEYS, NIC, VALUES},
    run::Story,
};
use dra_inhabitants::cluster::{Cluster, is_deleting, name, owner, set, uid};

/// The namespace that everything happens in.
pub(crate) const NAMESPACE: &str = "sim";
/// Nodes of the cluster.
pub(crate) const NODES: [&str; 2] = ["node-0", "node-1"];
/// Names that Pods take turns in, so that some are replaced under the same name.
const PODS: usize = 6;
const TEMPLATES: usize = 2;
const CLAIMS: usize = 2;
const GROUPS: usize = 2;

/// A user.
#[derive(Debug)]
pub(crate) struct User {
    cluster: Cluster,
    random: fastrand::Rng,
}

/// What a claim asks for.
fn spec(random: &mut fastrand::Rng, most: u32) -> Value {
    let class = if random.u8(..6) == 0 { NIC } else { GPU };
    let mut exactly = json!({"deviceClassName": class, "allocationMode": "ExactCount",
        "count": random.u32(1..=most)});
    if random.u8(..3) == 0 {
        set(
            &mut exactly,
            "capacity",
            json!({"requests": {"memory": random.choice(["5Gi", "10Gi", "20Gi"])}}),
        );
    }
    if random.u8(..12) == 0 {
        set(&mut exactly, "adminAccess", json!(true));
    }
    let tolerations: Vec<Value> = (0..random.u8(..3)).map(|_| toleration(random)).collect();
    if !tolerations.is_empty() {
        set(&mut exactly, "tolerations", json!(tolerations));
    }
    json!({"devices": {"requests": [{"name": "device", "exactly": exactly}]}})
}

/// An entry that PodGroups and their Pods have in common.
fn shared(entry: &str, group: usize) -> Value {
    json!({"name": entry, "resourceClaimTemplateName": format!("template-{}", group % TEMPLATES)})
}

fn toleration(random: &mut fastrand::Rng) -> Value {
    let mut toleration = match random.u8(..4) {
        0 => json!({"operator": "Exists"}),
        1 => json!({"operator": "Exists", "key": random.choice(KEYS)}),
        2 => json!({"operator": "Equal", "key": random.choice(KEYS), "value": random.choice(VALUES)}),
        _ => json!({"key": random.choice(KEYS), "value": random.choice(VALUES)}),
    };
    if let Some(effect) =
        random.choice(["", "NoExecute", "NoExecute", "NoSchedule"]).filter(|e| !e.is_empty())
    {
        set(&mut toleration, "effect", json!(effect));
    }
    if random.u8(..3) > 0 {
        let seconds = random.choice([0, 5, 30, 120, 600, 3_000, -7, 20_000_000_000, i64::MAX]);
        set(&mut toleration, "tolerationSeconds", json!(seconds));
    }
    toleration
}

impl User {
    pub(crate) fn new(cluster: Cluster, seed: u64) -> Self {
        Self { cluster, random: fastrand::Rng::with_seed(seed) }
    }

    /// What is there before anything happens.
    pub(crate) fn prepare(&mut self, story: &mut Story) {
        let cluster = self.cluster.clone();
        let _ = cluster.create("Namespace", &json!({"metadata": {"name": NAMESPACE}}));
        for driver in [GPU, NIC] {
            let _ = cluster.create(
                "DeviceClass",
                &json!({"metadata": {"name": driver},
                    "spec": {"selectors": [{"cel": {"expression": format!("device.driver == '{driver}'")}}]}}),
            );
        }
        for n in 0..TEMPLATES {
            if self.random.u8(..4) > 0 {
                self.template(n, story);
            }
        }
    }

    /// One thing that a user does.
    pub(crate) fn act(&mut self, story: &mut Story) {
        match self.random.u8(..100) {
            0..38 => self.pod(story),
            38..48 => self.delete_pod(story),
            48..55 => self.group(story),
            55..59 => self.delete_one("PodGroup", story),
            59..65 => {
                let n = self.random.usize(..TEMPLATES);
                self.template(n, story);
            }
            65..68 => self.delete_one("ResourceClaimTemplate", story),
            68..76 => self.claim(story),
            76..80 => self.delete_one("ResourceClaim", story),
            80..84 => self.forget_status(story),
            84..92 => self.touch(story),
            _ => self.cluster_events(story),
        }
    }

    fn pod(&mut self, story: &mut Story) {
        let pod = format!("pod-{}", self.random.usize(..PODS));
        let mut entries = Vec::new();
        for n in 0..self.random.usize(..3) {
            let template = format!("template-{}", self.random.usize(..TEMPLATES));
            entries.push(json!({"name": format!("gen-{n}"), "resourceClaimTemplateName": template}));
        }
        if self.random.u8(..3) == 0 {
            let claim = format!("claim-{}", self.random.usize(..CLAIMS));
            entries.push(json!({"name": "own", "resourceClaimName": claim}));
        }
        let mut spec = json!({"terminationGracePeriodSeconds": self.random.u8(1..30),
            "containers": [{"name": "main", "image": "registry.example/app:1"}]});
        if self.random.u8(..3) == 0 {
            let group = self.random.usize(..GROUPS);
            set(&mut spec, "schedulingGroup", json!({"podGroupName": format!("group-{group}")}));
            entries.push(shared("shared", group));
            if self.random.u8(..3) == 0 {
                entries.push(shared("also", group));
            }
        }
        let placed = self.random.u8(..8) == 0;
        if placed {
            set(&mut spec, "nodeName", json!(self.random.choice(NODES)));
        }
        set(&mut spec, "resourceClaims", json!(entries));
        let object = json!({"metadata": {"name": pod}, "spec": spec});
        if self.cluster.create("Pod", &object).is_ok() {
            let where_ = if placed { " with a node" } else { "" };
            story.tell(&format!("user: Pod {pod}{where_} with {} entries", entries.len()));
        }
    }

    fn delete_pod(&mut self, story: &mut Story) {
        let pods = self.cluster.all("Pod");
        let Some(pod) = self.random.choice(&pods) else { return };
        let options = if self.random.u8(..4) == 0 { json!({"gracePeriodSeconds": 0}) } else { Value::Null };
        if self.cluster.delete("Pod", name(pod), &options).is_ok() {
            story.tell(&format!("user: deletes Pod {} {options}", name(pod)));
        }
    }

    fn group(&mut self, story: &mut Story) {
        let n = self.random.usize(..GROUPS);
        let mut entries = Vec::new();
        if self.random.u8(..4) > 0 {
            entries.push(shared("shared", n));
        }
        if self.random.bool() {
            entries.push(shared("also", n));
        }
        let body = json!({"metadata": {"name": format!("group-{n}")},
            "spec": {"schedulingPolicy": {"basic": {}}, "resourceClaims": entries}});
        if self.cluster.create("PodGroup", &body).is_ok() {
            story.tell(&format!("user: PodGroup group-{n} with {} entries", entries.len()));
        }
    }

    fn template(&mut self, n: usize, story: &mut Story) {
        let body = json!({"metadata": {"name": format!("template-{n}")},
            "spec": {"metadata": {"labels": {"from": format!("template-{n}")}}, "spec": spec(&mut self.random, 2)}});
        if self.cluster.create("ResourceClaimTemplate", &body).is_ok() {
            story.tell(&format!("user: template-{n}"));
        }
    }

    fn claim(&mut self, story: &mut Story) {
        let n = self.random.usize(..CLAIMS);
        let body = json!({"metadata": {"name": format!("claim-{n}")}, "spec": spec(&mut self.random, 1)});
        if self.cluster.create("ResourceClaim", &body).is_ok() {
            story.tell(&format!("user: claim-{n}"));
        }
    }

    /// Deletes an object, for claims also one that was generated: by accident.
    fn delete_one(&mut self, kind: &str, story: &mut Story) {
        let objects = self.cluster.all(kind);
        let Some(object) = self.random.choice(&objects) else { return };
        if self.cluster.delete(kind, name(object), &Value::Null).is_ok() {
            let whose = if owner(object, "Pod").is_some() { " (generated)" } else { "" };
            story.tell(&format!("user: deletes {kind} {}{whose}", name(object)));
        }
    }

    /// Somebody erases the claim statuses of a Pod, as an old client may.
    fn forget_status(&mut self, story: &mut Story) {
        let pods = self.cluster.all("Pod");
        let Some(pod) = self.random.choice(&pods) else { return };
        let body = json!({"status": {"resourceClaimStatuses": [{"name": "gen-0", "resourceClaimName": "nonsense"}]}});
        if self.cluster.patch("Pod", name(pod), "/status", &body).is_ok() {
            story.tell(&format!("somebody: writes nonsense into the status of Pod {}", name(pod)));
        }
    }

    /// A label changes, which means nothing.
    fn touch(&mut self, story: &mut Story) {
        let kind = self.random.choice(["Pod", "PodGroup", "ResourceClaim"]).unwrap_or("Pod");
        let objects = self.cluster.all(kind);
        let Some(object) = self.random.choice(&objects) else { return };
        let body = json!({"metadata": {"labels": {"touched": format!("{}", self.random.u32(..))}}});
        if self.cluster.patch(kind, name(object), "", &body).is_ok() {
            story.tell(&format!("somebody: labels {kind} {}", name(object)));
        }
    }

    /// What happens to the server itself.
    fn cluster_events(&mut self, story: &mut Story) {
        match self.random.u8(..4) {
            0 => {
                self.cluster.server.compact();
                story.tell("server: forgets the past");
            }
            1 => {
                let seconds = self.random.i64(-3600..3600);
                self.cluster.server.shift_clock(jiff::SignedDuration::from_secs(seconds));
                story.tell(&format!("server: the clock jumps by {seconds} s"));
            }
            2 => {
                let suffixes = if self.random.bool() { u64::MAX } else { 12 };
                self.cluster.server.narrow_names(suffixes);
                story.tell(&format!("server: {suffixes} different names"));
            }
            _ => {
                // A claim that looks like a generated one, but belongs to nobody who is there.
                let pods = self.cluster.all("Pod");
                let Some(pod) = self.random.choice(&pods).filter(|p| !is_deleting(p)) else { return };
                let body = json!({"metadata": {"generateName": format!("{}-gen-0-", name(pod)),
                    "annotations": {"resource.kubernetes.io/pod-claim-name": "gen-0"},
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name(pod),
                        "uid": format!("not-{}", uid(pod)), "controller": true}]},
                    "spec": spec(&mut self.random, 1)});
                if self.cluster.create("ResourceClaim", &body).is_ok() {
                    story.tell(&format!("somebody: a claim of an earlier Pod {}", name(pod)));
                }
            }
        }
    }
}
