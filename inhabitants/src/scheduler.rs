//! A little scheduler on the allocator crate: finds a node, then sets the finalizer, writes allocation and
//! reservation, and binds, one write at a time, with time between them for others to interfere.
//!
//! It looks at claims, extended resources that a class serves, device taints and node selectors only: no resources of
//! nodes, no node taints, no priorities, and Pods of a gang are placed one by one.

use std::{cell::OnceCell, collections::VecDeque, sync::Arc};

use dra_allocator::{
    Answer, Inventory, Limits,
    objects::{Node, NodeSelector, ResourceClaim},
    scheduling::{ExtendedClaim, ExtendedResources, PodSpec, Resources},
    selects,
};
use serde_json::{Value, json};

use crate::cluster::{
    Cluster, EXTENDED, Entry, Tell, at, entries, extended_claim, group_of, has_extended_resources, is_beside,
    is_deleting, is_done, is_reserved_for, items, name, namespace, owner, set, text, uid, version,
};

const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Steps of one allocation are few; more would be a mistake here.
const STEPS_MAX: u64 = 10_000;

/// A write that is still to be made for the Pod in work.
#[derive(Clone, Debug)]
enum Write {
    /// Set the finalizer of the claim, then allocate it.
    Finalizer {
        claim: Arc<Value>,
        allocation: Value,
        consumer: Value,
    },
    /// Write allocation (unless it is there) and reservation.
    Reserve {
        claim: String,
        version: String,
        allocation: Value,
        consumer: Value,
    },
    /// Make the claim for the Pod's extended resources, then allocate it, then record it.
    Extended {
        claim: Value,
        mappings: Value,
        allocation: Value,
        consumer: Value,
    },
    /// Record the claim for the Pod's extended resources.
    Record {
        claim: String,
        mappings: Value,
    },
    Bind,
}

#[derive(Debug)]
struct Work {
    pod: Arc<Value>,
    node: String,
    left: VecDeque<Write>,
    /// Claims that were reserved for the Pod, to be released should the rest fail.
    reserved: Vec<(String, String)>,
    /// The claim that was made for its extended resources, to be deleted in that case.
    made: Option<String>,
}

/// What there is to be had.
#[derive(Debug)]
struct Offer {
    inventory: Inventory,
    extended: ExtendedResources,
}

/// What a Pod needs before it can run.
struct Needs {
    /// Claims, and for whom each is reserved.
    claims: Vec<(Arc<Value>, Value)>,
    /// The claim for extended resources that is to be made.
    extended: Option<ExtendedClaim>,
}

/// The scheduler.
#[derive(Debug)]
pub struct Scheduler {
    cluster: Cluster,
    random: fastrand::Rng,
    work: Option<Work>,
}

impl Scheduler {
    /// A scheduler for a cluster; the seed decides which of the Pods that wait is looked at first.
    pub fn new(cluster: Cluster, seed: u64) -> Self {
        Self { cluster, random: fastrand::Rng::with_seed(seed), work: None }
    }

    /// True while a Pod is in work.
    pub fn is_busy(&self) -> bool {
        self.work.is_some()
    }

    /// One step: a decision, for which the nodes are tried in the order given, or a write.
    pub fn act(&mut self, nodes: &[Node], tell: Tell<'_>) {
        let Some(mut work) = self.work.take() else {
            self.work = self.decide(nodes);
            return;
        };
        let Some(write) = work.left.pop_front() else { return };
        match self.carry_out(&mut work, write, tell) {
            Ok(()) if work.left.is_empty() => {}
            Ok(()) => self.work = Some(work),
            Err(code) => {
                tell(&format!("scheduler: gives Pod {} up for now ({code})", name(&work.pod)));
                self.unreserve(&work);
            }
        }
    }

    /// Picks a Pod that waits and a node where all its claims are available.
    fn decide(&mut self, nodes: &[Node]) -> Option<Work> {
        let (pods, groups) = (self.cluster.all("Pod"), self.cluster.all("PodGroup"));
        let mut waiting: Vec<&Arc<Value>> = pods
            .iter()
            .filter(|p| text(p, &["spec", "nodeName"]).is_empty() && !is_done(p) && !is_deleting(p))
            .filter(|p| items(p, &["spec", "schedulingGates"]).is_empty())
            .collect();
        self.random.shuffle(&mut waiting);
        let claims = self.cluster.all("ResourceClaim");
        let offer = OnceCell::new();
        let offer = || {
            offer.get_or_init(|| Offer {
                inventory: self.cluster.inventory(),
                extended: self.cluster.extended_resources(),
            })
        };
        let mut random = self.random.fork();
        let share = &mut || share_id(&mut random);
        waiting.into_iter().find_map(|pod| place(pod, &groups, nodes, &claims, offer, share))
    }

    fn carry_out(&self, work: &mut Work, write: Write, tell: Tell<'_>) -> Result<(), u16> {
        let cluster = self.cluster.beside(&work.pod);
        match write {
            Write::Finalizer { claim, allocation, consumer } => {
                let mut finalizers = items(&claim, &["metadata", "finalizers"]).to_vec();
                if !finalizers.iter().any(|f| f == FINALIZER) {
                    finalizers.push(json!(FINALIZER));
                }
                let patch = json!({"metadata": {"resourceVersion": version(&claim), "uid": uid(&claim),
                    "finalizers": finalizers}});
                let claim = cluster.patch("ResourceClaim", name(&claim), "", &patch)?;
                work.left.push_front(Write::Reserve {
                    claim: name(&claim).to_owned(),
                    version: version(&claim).to_owned(),
                    allocation,
                    consumer,
                });
            }
            Write::Reserve { claim, version, allocation, consumer } => {
                let now = cluster.find("ResourceClaim", &claim).ok_or(404_u16)?;
                let mut reserved = items(&now, &["status", "reservedFor"]).to_vec();
                reserved.push(consumer.clone());
                let mut status = json!({"reservedFor": reserved});
                if !allocation.is_null() {
                    set(&mut status, "allocation", allocation);
                }
                let patch = json!({"metadata": {"resourceVersion": version}, "status": status});
                cluster.patch("ResourceClaim", &claim, "/status", &patch)?;
                tell(&format!("scheduler: {claim} for {}", text(&consumer, &["name"])));
                work.reserved.push((claim, text(&consumer, &["uid"]).to_owned()));
            }
            Write::Extended { claim, mappings, allocation, consumer } => {
                let claim = cluster.create("ResourceClaim", &claim)?;
                let made = name(&claim).to_owned();
                tell(&format!("scheduler: {made} for extended resources"));
                work.made = Some(made.clone());
                work.left.push_front(Write::Record { claim: made, mappings });
                work.left.push_front(Write::Finalizer { claim: Arc::new(claim), allocation, consumer });
            }
            Write::Record { claim, mappings } => {
                let status = json!({"resourceClaimName": claim, "requestMappings": mappings});
                let patch = json!({"metadata": {"uid": uid(&work.pod)},
                    "status": {"extendedResourceClaimStatus": status}});
                cluster.patch("Pod", name(&work.pod), "/status", &patch)?;
            }
            Write::Bind => {
                cluster.bind(name(&work.pod), uid(&work.pod), &work.node)?;
                tell(&format!("scheduler: Pod {} on {}", name(&work.pod), work.node));
            }
        }
        Ok(())
    }

    /// Gives back what was reserved for the Pod itself; what is reserved for a PodGroup stays with it.
    fn unreserve(&self, work: &Work) {
        let cluster = self.cluster.beside(&work.pod);
        for (claim, consumer) in work.reserved.iter().filter(|(_, consumer)| consumer == uid(&work.pod)) {
            let Some(now) = cluster.find("ResourceClaim", claim) else { continue };
            let left: Vec<Value> = items(&now, &["status", "reservedFor"])
                .iter()
                .filter(|r| text(r, &["uid"]) != consumer)
                .cloned()
                .collect();
            let mut status = json!({"reservedFor": left});
            if left.is_empty() {
                set(&mut status, "allocation", Value::Null);
            }
            let patch = json!({"metadata": {"resourceVersion": version(&now)}, "status": status});
            let _ = cluster.patch("ResourceClaim", claim, "/status", &patch);
        }
        if let Some(made) = &work.made {
            let _ = cluster.delete("ResourceClaim", made, &Value::Null);
        }
    }
}

/// The id of a share of a device.
fn share_id(random: &mut fastrand::Rng) -> String {
    let (n, end) = (random.u32(..), random.u64(..1 << 48));
    let mut part = || random.u16(..0x1000);
    format!("{n:08x}-{:04x}-4{:03x}-9{:03x}-{end:012x}", part(), part(), part())
}

/// Work for a Pod, if a node has all that it needs. The offer is looked at for the first Pod that needs anything.
fn place<'a>(
    pod: &Arc<Value>,
    groups: &[Arc<Value>],
    nodes: &[Node],
    claims: &[Arc<Value>],
    offer: impl Fn() -> &'a Offer,
    share: &mut dyn FnMut() -> String,
) -> Option<Work> {
    let (in_group, group) = group_of(pod, groups);
    if in_group && group.is_none() {
        return None;
    }
    let find = |wanted: &str| claims.iter().find(|c| is_beside(c, wanted, pod));
    let mut needs = Needs { claims: Vec::new(), extended: None };
    for entry in entries(pod, group.as_deref()) {
        let (wanted, of, consumer) = match entry {
            Entry::Direct(claim) => (claim, None, consumer(pod)),
            Entry::Generated { recorded, .. } => (recorded?, Some(("Pod", uid(pod))), consumer(pod)),
            Entry::Shared { recorded, .. } => {
                let group = group.as_deref()?;
                let consumer = json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups",
                    "name": name(group), "uid": uid(group)});
                (recorded?, Some(("PodGroup", uid(group))), consumer)
            }
        };
        let claim = find(&wanted).filter(|claim| !is_deleting(claim))?;
        if of.is_some_and(|(kind, uid)| owner(claim, kind) != Some(uid)) {
            return None;
        }
        needs.claims.push((Arc::clone(claim), consumer));
    }
    if has_extended_resources(pod) {
        let made = extended_claim(pod).and_then(find).filter(|claim| owner(claim, "Pod") == Some(uid(pod)));
        match made {
            Some(claim) if is_deleting(claim) => return None,
            Some(claim) => needs.claims.push((Arc::clone(claim), consumer(pod))),
            None => {
                let spec: PodSpec = serde_json::from_value(at(pod, &["spec"]).clone()).ok()?;
                // What no class serves is a matter of device plugins, of which nothing is known here.
                let claim = offer().extended.claim(namespace(pod), &spec, &Resources::new());
                needs.extended = claim.unwrap_or_default();
            }
        }
    }
    nodes.iter().find_map(|node| place_on(pod, node, &needs, &offer().inventory, share))
}

/// A Pod as one that a claim is reserved for.
fn consumer(pod: &Value) -> Value {
    json!({"resource": "pods", "name": name(pod), "uid": uid(pod)})
}

/// Work for a Pod on this node, if everything it needs is available there.
fn place_on(
    pod: &Arc<Value>,
    node: &Node,
    needs: &Needs,
    inventory: &Inventory,
    share: &mut dyn FnMut() -> String,
) -> Option<Work> {
    let is_allocated = |claim: &Value| !at(claim, &["status", "allocation"]).is_null();
    let wanted_labels = at(pod, &["spec", "nodeSelector"]).as_object().into_iter().flatten();
    let labels_fit = wanted_labels
        .into_iter()
        .all(|(key, value)| node.metadata.labels.get(key).map(String::as_str) == value.as_str());
    let elsewhere = needs.claims.iter().any(|(claim, _)| {
        let selector = at(claim, &["status", "allocation", "nodeSelector"]);
        !selector.is_null()
            && !serde_json::from_value::<NodeSelector>(selector.clone()).is_ok_and(|s| selects(&s, node))
    });
    if !labels_fit || elsewhere {
        return None;
    }
    let open = needs.claims.iter().filter(|(c, _)| !is_allocated(c));
    let mut wanted: Vec<ResourceClaim> =
        open.filter_map(|(c, _)| serde_json::from_value(Value::clone(c)).ok()).collect();
    wanted.extend(needs.extended.as_ref().map(|extended| extended.claim.clone()));
    let limits = Limits { steps: STEPS_MAX, ..Limits::NONE };
    let outcome = inventory.allocate(node, &wanted, limits, share);
    let Ok(Answer::Allocated(results)) = outcome.answer else { return None };
    let mut left = VecDeque::new();
    let mut results = results.into_iter();
    for (claim, consumer) in &needs.claims {
        if is_reserved_for(claim, text(consumer, &["uid"])) {
            continue;
        }
        if is_allocated(claim) {
            left.push_back(Write::Reserve {
                claim: name(claim).to_owned(),
                version: version(claim).to_owned(),
                allocation: Value::Null,
                consumer: consumer.clone(),
            });
        } else {
            let allocation = serde_json::to_value(results.next()?).ok()?;
            left.push_back(Write::Finalizer {
                claim: Arc::clone(claim),
                allocation,
                consumer: consumer.clone(),
            });
        }
    }
    if let Some(extended) = &needs.extended {
        left.push_back(Write::Extended {
            claim: json!({
                "metadata": {
                    "generateName": format!("{}-extended-resources-", name(pod)),
                    "annotations": {EXTENDED: "true"},
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name(pod), "uid": uid(pod),
                        "controller": true, "blockOwnerDeletion": true}],
                },
                "spec": serde_json::to_value(&extended.claim.spec).ok()?,
            }),
            mappings: serde_json::to_value(&extended.mappings).ok()?,
            allocation: serde_json::to_value(results.next()?).ok()?,
            consumer: consumer(pod),
        });
    }
    left.push_back(Write::Bind);
    let (pod, node) = (Arc::clone(pod), node.metadata.name.clone());
    Some(Work { pod, node, left, reserved: Vec::new(), made: None })
}
