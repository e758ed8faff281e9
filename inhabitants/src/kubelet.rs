//! The kubelets of all nodes: Pods whose claims are ready run, end, and go away after their grace period.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cluster::{
    Cluster, Entry, Tell, at, entries, extended_claim, group_of, has_extended_resources, is_deleting,
    is_reserved_for, name, text, uid,
};

/// The kubelets.
#[derive(Debug)]
pub struct Kubelet {
    cluster: Cluster,
    random: fastrand::Rng,
    /// When a terminating Pod was first seen, by uid.
    terminating: BTreeMap<String, Instant>,
}

impl Kubelet {
    /// The kubelets of all nodes of a cluster.
    pub fn new(cluster: Cluster, seed: u64) -> Self {
        Self { cluster, random: fastrand::Rng::with_seed(seed), terminating: BTreeMap::new() }
    }

    /// Looks at every Pod once. While `ends` is set, some running Pods end.
    pub fn act(&mut self, ends: bool, tell: Tell<'_>) {
        let (pods, groups) = (self.cluster.all("Pod"), self.cluster.all("PodGroup"));
        for pod in pods.iter().filter(|p| !text(p, &["spec", "nodeName"]).is_empty()) {
            if is_deleting(pod) {
                self.terminate(pod, tell);
                continue;
            }
            match text(pod, &["status", "phase"]) {
                "Pending" if self.is_ready(pod, &groups) => self.set_phase(pod, "Running", tell),
                "Running" if ends && self.random.u8(..5) == 0 => {
                    let phase = if self.random.bool() { "Succeeded" } else { "Failed" };
                    self.set_phase(pod, phase, tell);
                }
                _ => {}
            }
        }
    }

    fn terminate(&mut self, pod: &Arc<Value>, tell: Tell<'_>) {
        let now = Instant::now();
        let since = *self.terminating.entry(uid(pod).to_owned()).or_insert(now);
        let grace = at(pod, &["metadata", "deletionGracePeriodSeconds"]).as_u64().unwrap_or_default();
        if now.duration_since(since) >= Duration::from_secs(grace) {
            let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid(pod)}});
            if self.cluster.beside(pod).delete("Pod", name(pod), &options).is_ok() {
                tell(&format!("kubelet: Pod {} is gone", name(pod)));
            }
        }
    }

    fn set_phase(&self, pod: &Value, phase: &str, tell: Tell<'_>) {
        let patch = json!({"metadata": {"uid": uid(pod)}, "status": {"phase": phase}});
        if self.cluster.beside(pod).patch("Pod", name(pod), "/status", &patch).is_ok() {
            tell(&format!("kubelet: Pod {} {phase}", name(pod)));
        }
    }

    /// Each claim is allocated and reserved for the Pod or its PodGroup.
    fn is_ready(&self, pod: &Value, groups: &[Arc<Value>]) -> bool {
        let cluster = self.cluster.beside(pod);
        let (_, group) = group_of(pod, groups);
        let is_reserved = |claim: Option<String>, consumer: &str| {
            let claim = claim.and_then(|claim| cluster.find("ResourceClaim", &claim));
            claim.is_some_and(|claim| {
                !at(&claim, &["status", "allocation"]).is_null() && is_reserved_for(&claim, consumer)
            })
        };
        let extended = extended_claim(pod).map(str::to_owned);
        // Without the scheduler nobody makes a claim for extended resources, and the kubelet does not admit the Pod.
        (!has_extended_resources(pod) || is_reserved(extended, uid(pod)))
            && entries(pod, group.as_deref()).into_iter().all(|entry| match entry {
                Entry::Direct(claim) => is_reserved(Some(claim), uid(pod)),
                Entry::Generated { recorded, .. } => is_reserved(recorded, uid(pod)),
                Entry::Shared { recorded, .. } => is_reserved(recorded, group.as_deref().map_or("", uid)),
            })
    }
}
