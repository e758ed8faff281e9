//! What the cluster looked like before. Watches lag, each kind by its own time, so that what a manager does may have
//! been right a moment ago: it is judged by every state that it can still have had before its eyes.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use tokio::time::Instant;

use dra_inhabitants::cluster::{Cluster, name, namespace, uid};

/// Slices by name.
pub(crate) type Slices = BTreeMap<String, Arc<Value>>;

/// A state of an object and for how long it lasted.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) since: Instant,
    /// Absent for the state that lasts.
    until: Option<Instant>,
    pub(crate) object: Arc<Value>,
}

impl Version {
    /// True for the state that lasts.
    pub(crate) fn lasts(&self) -> bool {
        self.until.is_none()
    }

    fn was_after(&self, from: Instant) -> bool {
        self.until.is_none_or(|until| until >= from)
    }
}

/// All versions of the objects of one kind, by namespace and name.
#[derive(Debug, Default)]
struct Versions {
    seen: u64,
    of: BTreeMap<(String, String), Vec<Version>>,
}

impl Versions {
    fn follow(&mut self, cluster: &Cluster, kind: &str, now: Instant) {
        for (before, after) in cluster.server.changes_since(kind, self.seen) {
            let Some(object) = after.as_ref().or(before.as_ref()) else { continue };
            let key = (namespace(object).to_owned(), name(object).to_owned());
            let versions = self.of.entry(key).or_default();
            if let Some(last) = versions.last_mut()
                && last.until.is_none()
            {
                last.until = Some(now);
            }
            if let Some(object) = after {
                versions.push(Version { since: now, until: None, object });
            }
        }
        self.seen = cluster.server.revision();
    }
}

/// The past of what decides about taints and pools.
#[derive(Debug, Default)]
pub(crate) struct History {
    pods: Versions,
    claims: Versions,
    rules: Versions,
    requests: Versions,
    slices_seen: u64,
    slices: Vec<(Instant, Option<Instant>, Arc<Slices>)>,
    /// When anything of this last changed, conditions of rules aside.
    changed: Option<Instant>,
}

impl History {
    /// Notes what has happened since the last call. To be called before the server forgets it.
    pub(crate) fn follow(&mut self, cluster: &Cluster) {
        let now = Instant::now();
        let (pods, claims) = (self.pods.seen, self.claims.seen);
        self.pods.follow(cluster, "Pod", now);
        self.claims.follow(cluster, "ResourceClaim", now);
        let spec =
            |rule: &Option<Arc<Value>>| rule.as_ref().map(|r| (uid(r).to_owned(), r.get("spec").cloned()));
        let rules = cluster.server.changes_since("DeviceTaintRule", self.rules.seen);
        let mut any = rules.iter().any(|(before, after)| spec(before) != spec(after));
        self.rules.follow(cluster, "DeviceTaintRule", now);
        self.requests.follow(cluster, "ResourcePoolStatusRequest", now);
        any |= !cluster.server.changes_since("Pod", pods).is_empty();
        any |= !cluster.server.changes_since("ResourceClaim", claims).is_empty();
        let mut slices = self.slices.last().map_or_else(Slices::new, |(_, _, slices)| Slices::clone(slices));
        let changes = cluster.server.changes_since("ResourceSlice", self.slices_seen);
        self.slices_seen = cluster.server.revision();
        for (before, after) in changes {
            any = true;
            match (before, after) {
                (_, Some(after)) => drop(slices.insert(name(&after).to_owned(), after)),
                (Some(before), None) => drop(slices.remove(name(&before))),
                (None, None) => {}
            }
            if let Some(last) = self.slices.last_mut() {
                last.1 = Some(now);
            }
            self.slices.push((now, None, Arc::new(slices.clone())));
        }
        if any {
            self.changed = Some(now);
        }
    }

    /// When Pods, claims, slices or the specs of rules last changed.
    pub(crate) fn changed(&self) -> Option<Instant> {
        self.changed
    }

    /// The states of the claim of that name beside `pod` that were to be seen after `from`, oldest first.
    pub(crate) fn claims(&self, pod: &Value, name: &str, from: Instant) -> impl Iterator<Item = &Version> {
        let key = (namespace(pod).to_owned(), name.to_owned());
        self.claims.of.get(&key).into_iter().flatten().filter(move |version| version.was_after(from))
    }

    /// The same of all claims, one after the other.
    pub(crate) fn all_claims(&self, from: Instant) -> impl Iterator<Item = impl Iterator<Item = &Version>> {
        self.claims.of.values().map(move |versions| versions.iter().filter(move |v| v.was_after(from)))
    }

    /// All states of Pods that were to be seen after `from`.
    pub(crate) fn pods(&self, from: Instant) -> impl Iterator<Item = &Version> {
        self.pods.of.values().flatten().filter(move |version| version.was_after(from))
    }

    /// All states of rules that were to be seen after `from`.
    pub(crate) fn rules(&self, from: Instant) -> impl Iterator<Item = &Version> {
        self.rules.of.values().flatten().filter(move |version| version.was_after(from))
    }

    /// Since when a request about pools has been there.
    pub(crate) fn since_of_request(&self, wanted: &str) -> Option<Instant> {
        let of = self.requests.of.values().flatten();
        of.filter(|version| uid(&version.object) == wanted).map(|version| version.since).min()
    }

    /// All states of the slices, taken together, that were to be seen after `from`, oldest first.
    pub(crate) fn slices(&self, from: Instant) -> impl Iterator<Item = &Slices> {
        self.slices
            .iter()
            .filter(move |(_, until, _)| until.is_none_or(|until| until >= from))
            .map(|(_, _, slices)| &**slices)
    }
}

/// The slices as they are now.
pub(crate) fn slices(cluster: &Cluster) -> Slices {
    cluster.all("ResourceSlice").into_iter().map(|slice| (name(&slice).to_owned(), slice)).collect()
}
