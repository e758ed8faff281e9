//! A tiny API server: objects with resourceVersion and uid, optimistic locks, finalizers, the validation that
//! claims depend on, server-side apply of claim statuses, and a watch per kind that may lag.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use dra_api::ObjectKey;
use dra_controllers::Elapsed;
use serde_json::{Value, json};

/// The kinds that the claim controller reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Pod,
    PodGroup,
    Claim,
    Template,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Pod, Self::PodGroup, Self::Claim, Self::Template];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::PodGroup => "PodGroup",
            Self::Claim => "ResourceClaim",
            Self::Template => "ResourceClaimTemplate",
        }
    }

    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::Pod => "v1",
            Self::PodGroup => "scheduling.k8s.io/v1beta1",
            Self::Claim | Self::Template => "resource.k8s.io/v1",
        }
    }
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// 404.
    NotFound,
    /// 409: a precondition does not hold, or the name is taken.
    Conflict,
    /// 422.
    Invalid(String),
    /// 500.
    Internal,
    /// No answer: the request may have been carried out or not.
    Lost,
}

/// What a watch says.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) due: Elapsed,
    pub(crate) deleted: bool,
    pub(crate) object: Arc<Value>,
}

/// A list that has been taken but not yet been read to its end.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) kind: Kind,
    pub(crate) objects: Vec<Arc<Value>>,
}

/// The API server.
#[derive(Debug, Default)]
pub(crate) struct Server {
    pub(crate) now: Elapsed,
    /// How long each watch lags behind.
    pub(crate) lag: BTreeMap<Kind, Duration>,
    /// False while the PodGroup API is not served.
    pub(crate) pod_groups_served: bool,
    objects: BTreeMap<(Kind, ObjectKey), Arc<Value>>,
    /// Generated claims by the uid of their owner; those that are gone are left out when they are asked for.
    owned: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// Status entries that our field manager owns, by the owner's uid.
    applied: BTreeMap<String, BTreeSet<String>>,
    watches: BTreeMap<Kind, VecDeque<Event>>,
    pub(crate) revision: u64,
    uids: u64,
    suffixes: u64,
    /// Every list of recorded claims that a Pod or PodGroup ever had, by its uid.
    pub(crate) recorded: BTreeMap<String, Vec<BTreeMap<String, String>>>,
    /// Every claim that was ever created: name, owner's uid and entry.
    pub(crate) created: Vec<(String, String, String)>,
}

pub(crate) fn key_of(object: &Value) -> ObjectKey {
    let meta = &object["metadata"];
    ObjectKey::new(meta["namespace"].as_str().unwrap(), meta["name"].as_str().unwrap())
}

pub(crate) fn uid_of(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

pub(crate) fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

pub(crate) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

/// Entry and claim name of each recorded claim.
pub(crate) fn statuses(owner: &Value) -> BTreeMap<String, String> {
    items(&owner["status"]["resourceClaimStatuses"])
        .filter_map(|s| Some((s["name"].as_str()?.to_owned(), s["resourceClaimName"].as_str()?.to_owned())))
        .collect()
}

fn is_dns_subdomain(name: &str) -> bool {
    let label = |l: &str| {
        !l.is_empty()
            && l.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// `ValidateResourceClaimStatusUpdate`, as far as a claim controller can run into it.
fn check_claim(old: &Value, new: &Value) -> Result<(), Refusal> {
    let invalid = |what: &str| Err(Refusal::Invalid(what.to_owned()));
    let uids = |claim: &Value| -> Vec<String> {
        items(&claim["status"]["reservedFor"]).map(|c| text(c, "uid").to_owned()).collect()
    };
    let (before, after) = (uids(old), uids(new));
    if after.len() > 256 {
        return invalid("status.reservedFor: Too many: must have at most 256 items");
    }
    if after.iter().collect::<BTreeSet<_>>().len() != after.len() {
        return invalid("status.reservedFor: Duplicate value");
    }
    if items(&new["status"]["reservedFor"])
        .any(|c| text(c, "resource").is_empty() || text(c, "name").is_empty())
    {
        return invalid("status.reservedFor: Required value");
    }
    if !after.is_empty() && new["status"]["allocation"].is_null() {
        return invalid("status.reservedFor: Forbidden: may not be specified when `allocated` is not set");
    }
    let deleting = !new["metadata"]["deletionTimestamp"].is_null();
    if deleting && after.iter().any(|uid| !before.contains(uid)) {
        return invalid("status.reservedFor: Forbidden: new consumers of a claim that is being deleted");
    }
    let (was, is) = (&old["status"]["allocation"], &new["status"]["allocation"]);
    if !was.is_null() && !is.is_null() && was != is {
        return invalid("status.allocation: Invalid value: field is immutable");
    }
    Ok(())
}

impl Server {
    fn stamp(&mut self, object: &mut Value) {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
    }

    fn announce(&mut self, kind: Kind, deleted: bool, object: Arc<Value>) {
        let due = self.now + self.lag.get(&kind).copied().unwrap_or_default();
        let watch = self.watches.entry(kind).or_default();
        // A watch never overtakes itself, also when its lag gets shorter.
        let due = watch.back().map_or(due, |last| last.due.max(due));
        watch.push_back(Event { due, deleted, object });
    }

    fn remember(&mut self, kind: Kind, object: &Value) {
        if matches!(kind, Kind::Pod | Kind::PodGroup) {
            let history = self.recorded.entry(uid_of(object).to_owned()).or_default();
            let now = statuses(object);
            if history.last() != Some(&now) {
                history.push(now);
            }
        }
    }

    fn store(&mut self, kind: Kind, mut object: Value) -> Arc<Value> {
        self.stamp(&mut object);
        self.remember(kind, &object);
        let object = Arc::new(object);
        let meta = &object["metadata"];
        let last = !meta["deletionTimestamp"].is_null()
            && items(&meta["finalizers"]).next().is_none()
            && kind == Kind::Claim;
        if last {
            self.objects.remove(&(kind, key_of(&object)));
        } else {
            for owner in items(&meta["ownerReferences"]) {
                self.owned.entry(text(owner, "uid").to_owned()).or_default().insert(key_of(&object));
            }
            self.objects.insert((kind, key_of(&object)), Arc::clone(&object));
        }
        self.announce(kind, last, Arc::clone(&object));
        object
    }

    /// POST.
    pub(crate) fn create(&mut self, kind: Kind, mut body: Value) -> Result<Arc<Value>, Refusal> {
        if body["metadata"]["name"].is_null() {
            let mut base = body["metadata"]["generateName"].as_str().unwrap_or_default().to_owned();
            base.truncate(58);
            body["metadata"]["name"] = json!(format!("{base}{}", self.suffix()));
        }
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        if !is_dns_subdomain(name) {
            return Err(Refusal::Invalid(format!("metadata.name: Invalid value: {name:?}")));
        }
        let key = key_of(&body);
        if self.objects.contains_key(&(kind, key)) {
            return Err(Refusal::Conflict);
        }
        if body["metadata"]["uid"].is_null() {
            self.uids += 1;
            body["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
        }
        if kind == Kind::Claim {
            let owner = items(&body["metadata"]["ownerReferences"]).next().map(|o| text(o, "uid"));
            let entry = body["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"].as_str();
            self.created.push((
                body["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
                owner.unwrap_or_default().to_owned(),
                entry.unwrap_or_default().to_owned(),
            ));
        }
        Ok(self.store(kind, body))
    }

    fn suffix(&mut self) -> String {
        self.suffixes += 1;
        let mut n = self.suffixes;
        let alphabet = b"bcdfghjklmnpqrstvwxz2456789";
        let mut suffix = String::new();
        for _ in 0..5 {
            let digit = usize::try_from(n % 27).unwrap();
            suffix.push(char::from(alphabet[digit]));
            n /= 27;
        }
        suffix
    }

    pub(crate) fn get(&self, kind: Kind, key: &ObjectKey) -> Option<Arc<Value>> {
        self.objects.get(&(kind, key.clone())).cloned()
    }

    pub(crate) fn list(&self, kind: Kind) -> Vec<Arc<Value>> {
        self.objects.iter().filter(|((k, _), _)| *k == kind).map(|(_, o)| Arc::clone(o)).collect()
    }

    /// Claims that name this uid as an owner.
    pub(crate) fn owned(&self, uid: &str) -> Vec<Arc<Value>> {
        let keys = self.owned.get(uid).into_iter().flatten();
        keys.filter_map(|key| self.get(Kind::Claim, key)).collect()
    }

    /// A write by anybody, with optional preconditions. A write that changes nothing costs no revision.
    pub(crate) fn change(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        expected: Option<(&str, u64)>,
        edit: impl FnOnce(&mut Value),
    ) -> Result<Arc<Value>, Refusal> {
        let old = self.get(kind, key).ok_or(Refusal::NotFound)?;
        if expected.is_some_and(|(uid, version)| uid != uid_of(&old) || version != version_of(&old)) {
            return Err(Refusal::Conflict);
        }
        let mut new = Value::clone(&old);
        edit(&mut new);
        if kind == Kind::Claim {
            check_claim(&old, &new)?;
        }
        if new == *old { Ok(old) } else { Ok(self.store(kind, new)) }
    }

    /// DELETE with optional preconditions: the object with its deletion mark, or nothing when it is gone.
    pub(crate) fn delete(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        expected: Option<(&str, u64)>,
    ) -> Result<Option<Arc<Value>>, Refusal> {
        let old = self.get(kind, key).ok_or(Refusal::NotFound)?;
        if expected.is_some_and(|(uid, version)| uid != uid_of(&old) || version != version_of(&old)) {
            return Err(Refusal::Conflict);
        }
        let held = items(&old["metadata"]["finalizers"]).next().is_some();
        // A Pod on a node that has not ended waits for its kubelet.
        let running = kind == Kind::Pod
            && old["spec"]["nodeName"].is_string()
            && !matches!(old["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if !held && !running {
            self.vanish(kind, key);
            return Ok(None);
        }
        if !old["metadata"]["deletionTimestamp"].is_null() {
            return Ok(Some(old));
        }
        let mut new = Value::clone(&old);
        new["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        Ok(Some(self.store(kind, new)))
    }

    /// Removes an object at once, whatever holds it (force deletion, end of the grace period).
    pub(crate) fn vanish(&mut self, kind: Kind, key: &ObjectKey) {
        if let Some(old) = self.objects.remove(&(kind, key.clone())) {
            let mut last = Value::clone(&old);
            self.stamp(&mut last);
            self.announce(kind, true, Arc::new(last));
        }
    }

    /// Server-side apply of `status.resourceClaimStatuses` by our field manager: a list map by entry name, in
    /// which entries that the manager applied before and now leaves out are removed.
    pub(crate) fn apply_statuses(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        uid: &str,
        wanted: &[(String, String)],
    ) -> Result<Arc<Value>, Refusal> {
        let old = self.get(kind, key).ok_or(Refusal::NotFound)?;
        if uid != uid_of(&old) {
            return Err(Refusal::Conflict);
        }
        let entries: BTreeSet<&str> =
            items(&old["spec"]["resourceClaims"]).map(|e| text(e, "name")).collect();
        if let Some((entry, _)) = wanted.iter().find(|(entry, _)| !entries.contains(entry.as_str())) {
            return Err(Refusal::Invalid(format!("status.resourceClaimStatuses[{entry}]: Not found")));
        }
        let names: BTreeSet<String> = wanted.iter().map(|(entry, _)| entry.clone()).collect();
        if names.len() != wanted.len() {
            return Err(Refusal::Invalid("status.resourceClaimStatuses: Duplicate value".to_owned()));
        }
        let owned = self.applied.insert(uid.to_owned(), names.clone()).unwrap_or_default();
        self.change(kind, key, None, |object| {
            let mut list: Vec<Value> = items(&object["status"]["resourceClaimStatuses"]).cloned().collect();
            list.retain(|s| {
                let name = text(s, "name");
                names.contains(name) || !owned.contains(name)
            });
            for (entry, claim) in wanted {
                match list.iter_mut().find(|s| text(s, "name") == entry) {
                    Some(status) => status["resourceClaimName"] = json!(claim),
                    None => list.push(json!({"name": entry, "resourceClaimName": claim})),
                }
            }
            if !list.is_empty() || !object["status"]["resourceClaimStatuses"].is_null() {
                object["status"]["resourceClaimStatuses"] = json!(list);
            }
        })
    }

    /// Makes status entries ours, as if an earlier run of this controller (or the in-tree one) applied them.
    pub(crate) fn own_statuses(&mut self, kind: Kind, key: &ObjectKey) {
        let object = self.get(kind, key).unwrap();
        self.applied.insert(uid_of(&object).to_owned(), statuses(&object).into_keys().collect());
    }

    /// Watch events of a kind that are due.
    pub(crate) fn due(&mut self, kind: Kind) -> Option<Event> {
        let watch = self.watches.get_mut(&kind)?;
        if watch.front()?.due <= self.now { watch.pop_front() } else { None }
    }

    /// When the next watch event is due.
    pub(crate) fn next_due(&self) -> Option<Elapsed> {
        self.watches.values().filter_map(|w| w.front().map(|e| e.due)).min()
    }

    /// Makes all watch events due now.
    pub(crate) fn catch_up(&mut self) {
        let now = self.now;
        for event in self.watches.values_mut().flatten() {
            event.due = event.due.min(now);
        }
    }

    /// A consistent list of a kind; the watch goes on behind it.
    pub(crate) fn snapshot(&mut self, kind: Kind) -> Snapshot {
        self.watches.remove(&kind);
        Snapshot { kind, objects: self.list(kind) }
    }
}
