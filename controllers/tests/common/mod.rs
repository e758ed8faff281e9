//! A cluster in memory for planner tests: a tiny API server with lagging watches and failing requests, the
//! driver that does what the executor does, a virtual clock, and the people and controllers around it.

pub(crate) mod driver;
pub(crate) mod guards;
pub(crate) mod objects;
pub(crate) mod server;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use dra_api::ObjectKey;
use dra_controllers::{
    Elapsed,
    resourceclaim::{Gate, Gates, Key, ResourceClaims},
};
use serde_json::{Value, json};

use driver::{Driver, Fault, Verb};
use objects::{ANNOTATION, Draft, FINALIZER, NS, group_consumer, pod_consumer, push};
use server::{Kind, Refusal, Server, items, key_of, statuses, uid_of};

/// How often what was written long ago and never confirmed is read again.
const CHASE_EVERY: Duration = Duration::from_secs(5);

/// Gates with everything on.
pub(crate) const ALL_ON: Gates = Gates {
    generic_workload: Gate::On,
    workload_resource_claims: Gate::On,
    admin_access: true,
    prioritized_list: true,
};

/// The twelve combinations of gates that upstream runs most of its unit tests with: workload claims need
/// `GenericWorkload`.
pub(crate) fn all_gates() -> Vec<Gates> {
    let mut all = Vec::new();
    for (generic_workload, workload_resource_claims) in
        [(Gate::Off, Gate::Off), (Gate::On, Gate::Off), (Gate::On, Gate::On)]
    {
        for admin_access in [false, true] {
            for prioritized_list in [false, true] {
                all.push(Gates {
                    generic_workload,
                    workload_resource_claims,
                    admin_access,
                    prioritized_list,
                });
            }
        }
    }
    all
}

/// The combinations that fulfil a condition.
pub(crate) fn gates_with(condition: impl Fn(&Gates) -> bool) -> Vec<Gates> {
    all_gates().into_iter().filter(condition).collect()
}

/// Those with workload claims.
pub(crate) fn workload_gates() -> Vec<Gates> {
    gates_with(|g| g.workload_resource_claims == Gate::On)
}

pub(crate) fn pod_key(name: &str) -> Key {
    Key::Pod(ObjectKey::new(NS, name))
}

pub(crate) fn group_key(name: &str) -> Key {
    Key::PodGroup(ObjectKey::new(NS, name))
}

pub(crate) fn claim_key(name: &str) -> Key {
    Key::Claim(ObjectKey::new(NS, name))
}

/// Entry and claim, as they are recorded in a status.
pub(crate) fn map<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
}

/// The cluster.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) driver: Driver,
    next_chase: Elapsed,
}

impl Default for World {
    fn default() -> Self {
        Self::new(ALL_ON)
    }
}

impl World {
    /// An empty cluster whose controller has synced.
    pub(crate) fn new(gates: Gates) -> Self {
        let mut world =
            Self { server: Server::default(), driver: Driver::default(), next_chase: Duration::ZERO };
        world.server.pod_groups_served = true;
        world.driver.planner = ResourceClaims { gates };
        world.server.now = Duration::from_secs(1);
        world.restart();
        world
    }

    /// The manager ends, whatever it was doing, and starts again with an empty view.
    pub(crate) fn restart(&mut self) {
        self.restart_in(Kind::ALL);
    }

    /// As [`Self::restart`], with the kinds' first lists ending in this order.
    pub(crate) fn restart_in(&mut self, order: [Kind; 4]) {
        self.driver = std::mem::take(&mut self.driver).reborn();
        self.driver.log.push("-- restart".to_owned());
        self.driver.view.pod_groups_served = self.server.pod_groups_served;
        for kind in order {
            self.driver.list_begins(&mut self.server, kind);
        }
        for kind in order {
            self.driver.list_ends(&self.server, kind);
        }
        self.next_chase = self.server.now + CHASE_EVERY;
    }

    /// The API server begins to serve PodGroups, and the manager notices.
    pub(crate) fn serve_pod_groups(&mut self) {
        self.server.pod_groups_served = true;
        self.driver.view.pod_groups_served = true;
        self.relist(Kind::PodGroup);
        for key in self.driver.planner.everything(&self.driver.view) {
            self.driver.add(key);
        }
    }

    /// The watch of a kind breaks and lists again.
    pub(crate) fn relist(&mut self, kind: Kind) {
        self.driver.list_begins(&mut self.server, kind);
        self.driver.list_ends(&self.server, kind);
    }

    /// All keys are planned again, as after a resync.
    pub(crate) fn resync(&mut self) {
        let view = &self.driver.view;
        let keys: Vec<Key> = view
            .pods
            .iter()
            .map(|o| Key::Pod(o.meta.key.clone()))
            .chain(view.pod_groups.iter().map(|o| Key::PodGroup(o.meta.key.clone())))
            .chain(view.claims.iter().map(|o| Key::Claim(o.meta.key.clone())))
            .collect();
        for key in keys {
            self.driver.add(key);
        }
    }

    /// Hands the watch events that are due to the controller.
    pub(crate) fn deliver(&mut self) {
        self.driver.deliver(&mut self.server);
    }

    /// Delivers everything and clears the queue: the controller has seen the cluster and done nothing yet.
    pub(crate) fn seen(&mut self) {
        self.server.catch_up();
        self.deliver();
        self.driver.forget_queue();
    }

    /// Delivers what is due and returns the keys that this queues.
    pub(crate) fn triggered(&mut self) -> Vec<Key> {
        self.deliver();
        let keys = self.driver.queued();
        self.driver.forget_queue();
        keys
    }

    /// Plans and acts on one key, with nothing else going on; true when nothing failed.
    pub(crate) fn sync(&mut self, key: &Key) -> bool {
        let done = self.driver.process(&mut self.server, key);
        self.driver.forget_queue();
        done
    }

    /// Works while there is something to do at this instant.
    fn work(&mut self) {
        loop {
            self.deliver();
            self.driver.wake(self.server.now);
            if self.driver.dead || !self.driver.work(&mut self.server) {
                return;
            }
        }
    }

    /// Lets virtual time pass.
    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.server.now + time;
        loop {
            self.work();
            if self.driver.dead {
                return;
            }
            if self.server.now >= self.next_chase {
                self.driver.chase(&mut self.server);
                self.next_chase = self.server.now + CHASE_EVERY;
                continue;
            }
            let next = [self.server.next_due(), self.driver.wake(self.server.now), Some(self.next_chase)];
            let next = next.into_iter().flatten().min().unwrap_or(end);
            if next > end {
                self.server.now = self.server.now.max(end);
                return;
            }
            self.server.now = self.server.now.max(next);
        }
    }

    /// Lets time pass until nothing is queued, delayed or on its way.
    pub(crate) fn settle(&mut self) {
        let end = self.server.now + Duration::from_hours(1);
        while self.server.now < end {
            self.work();
            if self.driver.dead {
                return;
            }
            let next = [self.server.next_due(), self.driver.wake(self.server.now)];
            let Some(next) = next.into_iter().flatten().min() else {
                if self.driver.is_idle() {
                    return;
                }
                continue;
            };
            let wait = next.saturating_sub(self.server.now);
            self.run_for(wait);
        }
        panic!("no rest within an hour: {:#?}", self.driver.log.iter().rev().take(20).collect::<Vec<_>>());
    }

    // What people and other controllers do.

    /// Creates an object; its uid.
    pub(crate) fn put(&mut self, draft: Draft) -> String {
        uid_of(&self.server.create(draft.kind, draft.body).unwrap()).to_owned()
    }

    /// Changes an object.
    pub(crate) fn edit(&mut self, kind: Kind, name: &str, edit: impl FnOnce(&mut Value)) {
        self.server.change(kind, &ObjectKey::new(NS, name), None, edit).unwrap();
    }

    /// `kubectl delete`; a Pod that runs stays until its kubelet lets it go.
    pub(crate) fn delete(&mut self, kind: Kind, name: &str) {
        self.server.delete(kind, &ObjectKey::new(NS, name), None).unwrap();
    }

    /// The object goes at once: end of the grace period, or force deletion.
    pub(crate) fn vanish(&mut self, kind: Kind, name: &str) {
        self.server.vanish(kind, &ObjectKey::new(NS, name));
    }

    /// The kubelet reports a phase.
    pub(crate) fn phase(&mut self, pod: &str, phase: &str) {
        self.edit(Kind::Pod, pod, |p| p["status"]["phase"] = json!(phase));
    }

    /// The scheduler allocates a claim, with the finalizer first, and reserves it.
    pub(crate) fn allocate(&mut self, claim: &str, consumer: Value) {
        self.edit(Kind::Claim, claim, |c| {
            let finalizers: Vec<Value> = items(&c["metadata"]["finalizers"]).cloned().collect();
            if !finalizers.iter().any(|f| f == FINALIZER) {
                push(c, "metadata", "finalizers", json!(FINALIZER));
            }
            if c["status"]["allocation"].is_null() {
                c["status"]["allocation"] = json!({"devices": {"results": []}});
            }
            if !items(&c["status"]["reservedFor"]).any(|r| r["uid"] == consumer["uid"]) {
                push(c, "status", "reservedFor", consumer);
            }
        });
    }

    /// The scheduler places a Pod, if all its claims exist: allocates and reserves each, for its PodGroup where
    /// the entries match, and sets the node.
    pub(crate) fn schedule(&mut self, pod: &str) -> bool {
        let Some(object) = self.get(Kind::Pod, pod) else { return false };
        let ended = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if object["spec"]["nodeName"].is_string()
            || !object["metadata"]["deletionTimestamp"].is_null()
            || ended
        {
            return false;
        }
        let group = object["spec"]["schedulingGroup"]["podGroupName"]
            .as_str()
            .map(|name| self.get(Kind::PodGroup, name));
        if group == Some(None) {
            return false;
        }
        let group = group.flatten();
        let recorded = statuses(&object);
        let mut reserve = Vec::new();
        for entry in items(&object["spec"]["resourceClaims"]) {
            let name = entry["resourceClaimName"]
                .as_str()
                .map(str::to_owned)
                .or_else(|| recorded.get(entry["name"].as_str().unwrap()).cloned());
            let Some(claim) = name.and_then(|n| self.get(Kind::Claim, &n)) else { return false };
            if !claim["metadata"]["deletionTimestamp"].is_null() {
                return false;
            }
            let shared =
                group.as_ref().filter(|g| items(&g["spec"]["resourceClaims"]).any(|other| other == entry));
            let consumer = match shared {
                Some(g) => group_consumer(g["metadata"]["name"].as_str().unwrap(), uid_of(g)),
                None => pod_consumer(pod, uid_of(&object)),
            };
            let full = items(&claim["status"]["reservedFor"]).count() >= 256
                && !items(&claim["status"]["reservedFor"]).any(|c| c["uid"] == consumer["uid"]);
            if full {
                return false;
            }
            reserve.push((claim["metadata"]["name"].as_str().unwrap().to_owned(), consumer));
        }
        for (claim, consumer) in reserve {
            self.allocate(&claim, consumer);
        }
        self.edit(Kind::Pod, pod, |p| p["spec"]["nodeName"] = json!("node"));
        true
    }

    /// The garbage collector deletes claims whose controller owner is gone.
    pub(crate) fn collect_garbage(&mut self) {
        let alive: BTreeSet<String> = [Kind::Pod, Kind::PodGroup]
            .iter()
            .flat_map(|kind| self.server.list(*kind))
            .map(|o| uid_of(&o).to_owned())
            .collect();
        for claim in self.server.list(Kind::Claim) {
            let owner = items(&claim["metadata"]["ownerReferences"]).find(|o| o["controller"] == true);
            if owner.is_some_and(|o| !alive.contains(o["uid"].as_str().unwrap()))
                && claim["metadata"]["deletionTimestamp"].is_null()
            {
                self.server.delete(Kind::Claim, &key_of(&claim), None).ok();
            }
        }
    }

    /// The next requests of a kind fail.
    pub(crate) fn fail(&mut self, verb: Verb, about: &str, how: Refusal, times: usize) {
        self.driver.faults.push(Fault { verb, about: about.to_owned(), how, carried_out: false, times });
    }

    /// The next requests of a kind are carried out, but nobody hears of it.
    pub(crate) fn lose_answers(&mut self, verb: Verb, about: &str, times: usize) {
        let how = Refusal::Lost;
        self.driver.faults.push(Fault { verb, about: about.to_owned(), how, carried_out: true, times });
    }

    // What is there.

    pub(crate) fn get(&self, kind: Kind, name: &str) -> Option<Arc<Value>> {
        self.server.get(kind, &ObjectKey::new(NS, name))
    }

    pub(crate) fn claim(&self, name: &str) -> Arc<Value> {
        self.get(Kind::Claim, name).unwrap_or_else(|| panic!("no claim {name}: {:?}", self.claim_names()))
    }

    pub(crate) fn claim_names(&self) -> Vec<String> {
        self.server.list(Kind::Claim).iter().map(|c| key_of(c).name.to_string()).collect()
    }

    pub(crate) fn uid(&self, kind: Kind, name: &str) -> String {
        uid_of(&self.get(kind, name).unwrap()).to_owned()
    }

    /// Claims whose controller owner has this uid, by entry and name.
    pub(crate) fn claims_of(&self, uid: &str) -> BTreeMap<String, Vec<String>> {
        let mut claims: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for claim in self.server.owned(uid) {
            if claim["metadata"]["namespace"] != NS {
                continue;
            }
            let owned = items(&claim["metadata"]["ownerReferences"])
                .any(|o| o["controller"] == true && o["uid"] == uid);
            if owned {
                let entry = claim["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or_default();
                claims.entry(entry.to_owned()).or_default().push(key_of(&claim).name.to_string());
            }
        }
        claims
    }

    /// The one claim that was made for an entry.
    pub(crate) fn only_claim_of(&self, uid: &str, entry: &str) -> String {
        let claims = self.claims_of(uid).remove(entry).unwrap_or_default();
        assert_eq!(claims.len(), 1, "claims of {uid} for {entry}: {claims:?}");
        claims.into_iter().next().unwrap()
    }

    /// The recorded claims of a Pod or PodGroup, by entry.
    pub(crate) fn recorded(&self, kind: Kind, name: &str) -> BTreeMap<String, String> {
        statuses(&self.get(kind, name).unwrap())
    }

    /// Names of a claim's consumers, in order.
    pub(crate) fn reserved(&self, claim: &str) -> Vec<String> {
        items(&self.claim(claim)["status"]["reservedFor"])
            .map(|c| c["name"].as_str().unwrap().to_owned())
            .collect()
    }

    pub(crate) fn is_allocated(&self, claim: &str) -> bool {
        !self.claim(claim)["status"]["allocation"].is_null()
    }

    pub(crate) fn has_finalizer(&self, claim: &str) -> bool {
        items(&self.claim(claim)["metadata"]["finalizers"]).any(|f| f == FINALIZER)
    }

    pub(crate) fn requests(&self, verb: Verb) -> usize {
        self.driver.requests.get(&verb).copied().unwrap_or_default()
    }

    /// All writes so far, refused ones included.
    pub(crate) fn writes(&self) -> usize {
        self.driver.requests.iter().filter(|(verb, _)| verb.is_write()).map(|(_, n)| n).sum()
    }

    /// Whether people were told something that contains `text`, about the object (such as `Pod ns/p`).
    pub(crate) fn was_told(&self, subject: &str, reason: &str, text: &str) -> bool {
        self.driver.told.keys().any(|(s, r, note)| s == subject && *r == reason && note.contains(text))
    }

    /// Why a key was not where it should be when it was last planned.
    pub(crate) fn why(&self, key: &Key) -> String {
        self.driver.why.get(key).map(|w| w.join("; ")).unwrap_or_default()
    }
}
