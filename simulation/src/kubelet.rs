//! The kubelets of all nodes: Pods whose claims are ready run, end, and go away after their grace period.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    cluster::{Cluster, Entry, at, entries, group_of, is_deleting, items, name, text, uid},
    run::Story,
};

/// The kubelets.
#[derive(Debug)]
pub(crate) struct Kubelet {
    cluster: Cluster,
    random: fastrand::Rng,
    /// When a terminating Pod was first seen, by uid.
    terminating: BTreeMap<String, Instant>,
}

impl Kubelet {
    pub(crate) fn new(cluster: Cluster, seed: u64) -> Self {
        Self { cluster, random: fastrand::Rng::with_seed(seed), terminating: BTreeMap::new() }
    }

    /// Looks at every Pod once. While `ends` is set, some running Pods end.
    pub(crate) fn act(&mut self, ends: bool, story: &mut Story) {
        let (pods, groups) = (self.cluster.all("Pod"), self.cluster.all("PodGroup"));
        for pod in pods.iter().filter(|p| !text(p, &["spec", "nodeName"]).is_empty()) {
            if is_deleting(pod) {
                self.terminate(pod, story);
                continue;
            }
            match text(pod, &["status", "phase"]) {
                "Pending" if self.is_ready(pod, &groups) => self.set_phase(pod, "Running", story),
                "Running" if ends && self.random.u8(..5) == 0 => {
                    let phase = if self.random.bool() { "Succeeded" } else { "Failed" };
                    self.set_phase(pod, phase, story);
                }
                _ => {}
            }
        }
    }

    fn terminate(&mut self, pod: &Arc<Value>, story: &mut Story) {
        let now = Instant::now();
        let since = *self.terminating.entry(uid(pod).to_owned()).or_insert(now);
        let grace = at(pod, &["metadata", "deletionGracePeriodSeconds"]).as_u64().unwrap_or_default();
        if now.duration_since(since) >= Duration::from_secs(grace) {
            let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid(pod)}});
            if self.cluster.delete("Pod", name(pod), &options).is_ok() {
                story.tell(&format!("kubelet: Pod {} is gone", name(pod)));
            }
        }
    }

    fn set_phase(&self, pod: &Value, phase: &str, story: &mut Story) {
        let patch = json!({"metadata": {"uid": uid(pod)}, "status": {"phase": phase}});
        if self.cluster.patch("Pod", name(pod), "/status", &patch).is_ok() {
            story.tell(&format!("kubelet: Pod {} {phase}", name(pod)));
        }
    }

    /// Each claim is allocated and reserved for the Pod or its PodGroup.
    fn is_ready(&self, pod: &Value, groups: &[Arc<Value>]) -> bool {
        let (_, group) = group_of(pod, groups);
        entries(pod, group.as_deref()).into_iter().all(|entry| {
            let (claim, consumer) = match entry {
                Entry::Direct(claim) => (Some(claim), uid(pod)),
                Entry::Generated { recorded, .. } => (recorded, uid(pod)),
                Entry::Shared { recorded, .. } => (recorded, group.as_deref().map_or("", uid)),
            };
            let claim = claim.and_then(|claim| self.cluster.find("ResourceClaim", &claim));
            claim.is_some_and(|claim| {
                !at(&claim, &["status", "allocation"]).is_null()
                    && items(&claim, &["status", "reservedFor"]).iter().any(|r| text(r, &["uid"]) == consumer)
            })
        })
    }
}
