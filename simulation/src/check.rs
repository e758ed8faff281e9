//! What must hold: in every moment, and when everything has become quiet.

use std::sync::Arc;

use dra_inhabitants::cluster::{
    Cluster, Entry, at, entries, extended_claim, group_of, is_beside, is_deleting, is_done, is_extended,
    is_reserved_for, items, name, owner, text, uid,
};
use serde_json::Value;

const ENTRY: &str = "resource.kubernetes.io/pod-claim-name";

/// What somebody writes who has no idea.
pub(crate) const NONSENSE: &str = "nonsense";

/// Why a change that the manager made to a claim does harm, if it does. What makes it right never ends: a Pod that is
/// done stays done. Managers that do not know of each other (not `alone`) may delete what the other one has just
/// recorded, as long as nobody has it allocated: what comes of it is put right.
pub(crate) fn harm(
    cluster: &Cluster,
    alone: bool,
    before: Option<&Value>,
    after: Option<&Value>,
) -> Option<String> {
    let before = before?;
    let pods = cluster.all("Pod");
    let active = |wanted: &str| pods.iter().find(|p| uid(p) == wanted && !is_done(p));
    let kept: Vec<&str> = after
        .map(|a| items(a, &["status", "reservedFor"]))
        .unwrap_or_default()
        .iter()
        .map(|c| text(c, &["uid"]))
        .collect();
    for consumer in items(before, &["status", "reservedFor"]) {
        let consumer_uid = text(consumer, &["uid"]);
        if kept.contains(&consumer_uid) {
            continue;
        }
        if let Some(pod) = active(consumer_uid) {
            return Some(format!("claim {} was taken from Pod {}, which needs it", name(before), name(pod)));
        }
        if cluster.all("PodGroup").iter().any(|g| uid(g) == consumer_uid) {
            return Some(format!("claim {} was taken from a PodGroup that exists", name(before)));
        }
    }
    let ends = after.is_none_or(is_deleting) && !is_deleting(before);
    let counts = alone || !at(before, &["status", "allocation"]).is_null();
    if ends
        && counts
        && let Some(pod) = owner(before, "Pod").and_then(active)
    {
        let entry = text(before, &["metadata", "annotations", ENTRY]);
        let used = entries(pod, None).into_iter().any(|e| {
            matches!(e, Entry::Generated { entry: e, recorded, .. } if e == entry && recorded.as_deref() == Some(name(before)))
        });
        if used || is_extended(before) {
            return Some(format!("claim {} was deleted, which Pod {} uses", name(before), name(pod)));
        }
    }
    None
}

/// Everything that is not as it should be, once all have had their time.
pub(crate) fn settled(cluster: &Cluster) -> Vec<String> {
    let state = State {
        pods: cluster.all("Pod"),
        groups: cluster.all("PodGroup"),
        claims: cluster.all("ResourceClaim"),
        templates: cluster.all("ResourceClaimTemplate"),
    };
    let mut wrong = Vec::new();
    state.owners(&mut wrong);
    state.claims(&mut wrong);
    state.reservations(&mut wrong);
    state.extended(&mut wrong);
    wrong
}

struct State {
    pods: Vec<Arc<Value>>,
    groups: Vec<Arc<Value>>,
    claims: Vec<Arc<Value>>,
    templates: Vec<Arc<Value>>,
}

impl State {
    /// The claim of that name beside a Pod or PodGroup.
    fn claim(&self, beside: &Value, wanted: &str) -> Option<&Arc<Value>> {
        self.claims.iter().find(|c| is_beside(c, wanted, beside))
    }

    /// Each entry of a Pod or PodGroup has exactly the claim that it should have.
    fn owners(&self, wrong: &mut Vec<String>) {
        // As for Pods: one that is being deleted keeps what it has and gets nothing new.
        for group in self.groups.iter().filter(|g| !is_deleting(g)) {
            for entry in entries(group, None) {
                self.entry("PodGroup", group, entry, wrong);
            }
        }
        for pod in self.pods.iter().filter(|p| !is_done(p) && !is_deleting(p)) {
            let (in_group, group) = group_of(pod, &self.groups);
            if in_group && group.is_none() {
                continue;
            }
            for entry in entries(pod, group.as_deref()) {
                self.entry("Pod", pod, entry, wrong);
            }
        }
    }

    fn entry(&self, kind: &str, object: &Value, entry: Entry, wrong: &mut Vec<String>) {
        let Entry::Generated { entry, template, recorded } = entry else { return };
        let who = format!("{kind} {} entry {entry}", name(object));
        let of_entry: Vec<&Arc<Value>> = self
            .claims
            .iter()
            .filter(|c| {
                owner(c, kind) == Some(uid(object)) && text(c, &["metadata", "annotations", ENTRY]) == entry
            })
            .collect();
        // Somebody deletes it while it is in use: it stands as long as that lasts.
        let ending = recorded.as_deref().and_then(|r| self.claim(object, r)).is_some_and(|c| is_deleting(c));
        let live: Vec<&&Arc<Value>> = of_entry.iter().filter(|c| !is_deleting(c)).collect();
        match live[..] {
            [] if ending => {}
            [] => {
                if self.templates.iter().any(|t| is_beside(t, &template, object)) {
                    wrong.push(format!("{who} has no claim"));
                }
            }
            [claim] => {
                if recorded.as_deref() != Some(name(claim)) && !ending {
                    wrong.push(format!("{who} has claim {}, but {recorded:?} is recorded", name(claim)));
                }
            }
            _ => {
                let names: Vec<&str> = live.iter().map(|c| name(c)).collect();
                wrong.push(format!("{who} has several claims: {}", names.join(", ")));
            }
        }
    }

    /// No claim without a reason, no consumer that needs it no more, no allocation for nobody.
    fn claims(&self, wrong: &mut Vec<String>) {
        for claim in &self.claims {
            let what = format!("claim {}", name(claim));
            let consumers = items(claim, &["status", "reservedFor"]);
            for consumer in consumers {
                let wanted = text(consumer, &["uid"]);
                let needed = match text(consumer, &["resource"]) {
                    "pods" => self.pods.iter().any(|p| uid(p) == wanted && !is_done(p)),
                    "podgroups" => self.groups.iter().any(|g| uid(g) == wanted),
                    _ => true,
                };
                if !needed {
                    wrong.push(format!(
                        "{what} is reserved for {}, which needs it no more",
                        text(consumer, &["name"])
                    ));
                }
            }
            let allocated = !at(claim, &["status", "allocation"]).is_null();
            if allocated && consumers.is_empty() {
                wrong.push(format!("{what} is allocated for nobody"));
            }
            if is_deleting(claim) && consumers.is_empty() {
                wrong.push(format!("{what} is deleted, used by nobody, and still there"));
            }
            if let Some(wanted) = owner(claim, "Pod") {
                match self.pods.iter().find(|p| uid(p) == wanted) {
                    None => wrong.push(format!("{what} belongs to a Pod that is gone")),
                    Some(pod) if is_done(pod) && !is_deleting(claim) => {
                        wrong.push(format!("{what} belongs to Pod {}, which is done", name(pod)));
                    }
                    Some(_) => {}
                }
            }
        }
    }

    /// A Pod that got its node without the scheduler has what can be reserved for it.
    fn reservations(&self, wrong: &mut Vec<String>) {
        for pod in self.pods.iter().filter(|p| !is_done(p) && !is_deleting(p)) {
            let node = text(pod, &["spec", "nodeName"]);
            let (in_group, group) = group_of(pod, &self.groups);
            if node.is_empty() || (in_group && group.is_none()) {
                continue;
            }
            for entry in entries(pod, group.as_deref()) {
                let (claim, of, consumer) = match entry {
                    Entry::Direct(claim) => (Some(claim), None, uid(pod)),
                    Entry::Generated { recorded, .. } => (recorded, Some(("Pod", uid(pod))), uid(pod)),
                    Entry::Shared { recorded, .. } => {
                        let group = group.as_deref().map_or("", uid);
                        (recorded, Some(("PodGroup", group)), group)
                    }
                };
                let Some(claim) = claim.and_then(|c| self.claim(pod, &c)) else { continue };
                let allocated = !at(claim, &["status", "allocation"]).is_null();
                let owned = of.is_none_or(|(kind, uid)| owner(claim, kind) == Some(uid));
                let selector = at(claim, &["status", "allocation", "nodeSelector"]);
                let reachable = selector.is_null() || selector.to_string().contains(node);
                let reserved = is_reserved_for(claim, consumer);
                if allocated && owned && reachable && !is_deleting(claim) && !reserved {
                    wrong.push(format!(
                        "claim {} is not reserved for Pod {} on {node}",
                        name(claim),
                        name(pod)
                    ));
                }
            }
        }
    }

    /// What the scheduler made for extended resources is left alone as long as its Pod needs it: nobody else gives it
    /// back, nobody takes it for the claim of an entry.
    fn extended(&self, wrong: &mut Vec<String>) {
        for claim in self.claims.iter().filter(|claim| is_extended(claim)) {
            let what = format!("claim {} for extended resources", name(claim));
            let Some(pod) = owner(claim, "Pod").and_then(|o| self.pods.iter().find(|p| uid(p) == o)) else {
                continue;
            };
            let recorded = items(pod, &["status", "resourceClaimStatuses"]);
            if recorded.iter().any(|status| text(status, &["resourceClaimName"]) == name(claim)) {
                wrong.push(format!("{what} is recorded for an entry of Pod {}", name(pod)));
            }
        }
        for pod in self.pods.iter().filter(|p| !is_done(p) && !text(p, &["spec", "nodeName"]).is_empty()) {
            // Somebody may have written nonsense.
            let Some(claim) = extended_claim(pod).filter(|claim| *claim != NONSENSE) else { continue };
            if !self.claim(pod, claim).is_some_and(|claim| is_reserved_for(claim, uid(pod))) {
                wrong.push(format!("Pod {} has lost claim {claim} for its extended resources", name(pod)));
            }
        }
    }
}
