//! What users do: objects come, change and go.

use serde_json::{Value, json};

use crate::{
    check::NONSENSE,
    publish::{GPU, KEYS, NIC, VALUES},
    run::Story,
};
use dra_inhabitants::cluster::{Cluster, is_deleting, name, namespace, owner, set, uid};

/// The namespaces that users work in. Names are the same in both.
pub(crate) const NAMESPACES: [&str; 2] = ["sim", "other"];
/// A resource that a class serves.
const RESOURCE: &str = "example.com/gpu";
/// What every class serves is called so and like the class.
const IMPLICIT: &str = "deviceclass.resource.kubernetes.io";
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
        for driver in [GPU, NIC] {
            let mut spec =
                json!({"selectors": [{"cel": {"expression": format!("device.driver == '{driver}'")}}]});
            if driver == GPU {
                set(&mut spec, "extendedResourceName", json!(RESOURCE));
            }
            let _ = cluster.create("DeviceClass", &json!({"metadata": {"name": driver}, "spec": spec}));
        }
        for namespace in NAMESPACES {
            let _ = cluster.create("Namespace", &json!({"metadata": {"name": namespace}}));
            namespace.clone_into(&mut self.cluster.namespace);
            for n in 0..TEMPLATES {
                if self.random.u8(..4) > 0 {
                    self.template(n, story);
                }
            }
        }
    }

    /// One thing that a user does.
    pub(crate) fn act(&mut self, story: &mut Story) {
        // Mostly where others are at work, too.
        let [most, other] = NAMESPACES;
        let namespace = if self.random.u8(..4) == 0 { other } else { most };
        namespace.clone_into(&mut self.cluster.namespace);
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
        let mut container = json!({"name": "main", "image": "registry.example/app:1"});
        let wants_more = self.random.u8(..4) == 0;
        if wants_more {
            let resource = if self.random.bool() { RESOURCE.to_owned() } else { format!("{IMPLICIT}/{NIC}") };
            let amount = self.random.u8(1..3).to_string();
            set(&mut container, "resources", json!({"limits": {resource: amount}}));
        }
        let mut spec =
            json!({"terminationGracePeriodSeconds": self.random.u8(1..30), "containers": [container]});
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
            let more = if wants_more { " and extended resources" } else { "" };
            story.tell(&format!(
                "user: Pod {}/{pod}{where_} with {} entries{more}",
                self.cluster.namespace,
                entries.len()
            ));
        }
    }

    fn delete_pod(&mut self, story: &mut Story) {
        let pods = self.cluster.all("Pod");
        let Some(pod) = self.random.choice(&pods) else { return };
        let options = if self.random.u8(..4) == 0 { json!({"gracePeriodSeconds": 0}) } else { Value::Null };
        if self.cluster.beside(pod).delete("Pod", name(pod), &options).is_ok() {
            story.tell(&format!("user: deletes Pod {}/{} {options}", namespace(pod), name(pod)));
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
        if self.cluster.beside(object).delete(kind, name(object), &Value::Null).is_ok() {
            let whose = if owner(object, "Pod").is_some() { " (generated)" } else { "" };
            story.tell(&format!("user: deletes {kind} {}/{}{whose}", namespace(object), name(object)));
        }
    }

    /// Somebody erases the claim statuses of a Pod, as an old client may.
    fn forget_status(&mut self, story: &mut Story) {
        let pods = self.cluster.all("Pod");
        let Some(pod) = self.random.choice(&pods) else { return };
        let of_entry = json!({"resourceClaimStatuses": [{"name": "gen-0", "resourceClaimName": NONSENSE}]});
        let of_resources = json!({"extendedResourceClaimStatus": {"resourceClaimName": NONSENSE}});
        let status = if self.random.u8(..4) == 0 { of_resources } else { of_entry };
        let body = json!({"status": status});
        if self.cluster.beside(pod).patch("Pod", name(pod), "/status", &body).is_ok() {
            story.tell(&format!("somebody: writes nonsense into the status of Pod {}", name(pod)));
        }
    }

    /// A label changes, which means nothing.
    fn touch(&mut self, story: &mut Story) {
        let kind = self.random.choice(["Pod", "PodGroup", "ResourceClaim"]).unwrap_or("Pod");
        let objects = self.cluster.all(kind);
        let Some(object) = self.random.choice(&objects) else { return };
        let body = json!({"metadata": {"labels": {"touched": format!("{}", self.random.u32(..))}}});
        if self.cluster.beside(object).patch(kind, name(object), "", &body).is_ok() {
            story.tell(&format!("somebody: labels {kind} {}", name(object)));
        }
    }

    /// A namespace goes with all that is in it, and comes again.
    fn namespace(&mut self, story: &mut Story) {
        let [_, namespace] = NAMESPACES;
        let body = json!({"metadata": {"name": namespace}});
        if self.cluster.create("Namespace", &body).is_ok() {
            story.tell(&format!("user: namespace {namespace}"));
        } else if self.random.u8(..3) == 0
            && self.cluster.delete("Namespace", namespace, &Value::Null).is_ok()
        {
            story.tell(&format!("user: deletes namespace {namespace}"));
        }
    }

    /// What happens to the server itself.
    fn cluster_events(&mut self, story: &mut Story) {
        match self.random.u8(..5) {
            4 => self.namespace(story),
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
                if self.cluster.beside(pod).create("ResourceClaim", &body).is_ok() {
                    story.tell(&format!("somebody: a claim of an earlier Pod {}", name(pod)));
                }
            }
        }
    }
}
