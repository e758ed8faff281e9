//! Objects, what happened to them, and reading both.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    call::Call,
    kinds::{KINDS, KindInfo},
    managers::Managers,
    object::{meta, set},
    refusal::Refusal,
    select::Selector,
};

/// Changes of one kind that are remembered; a watch that is further behind is told to list again.
const REMEMBERED: usize = 20_000;
/// Objects in a page are sorted by this: `namespace/name`.
type Key = String;

/// An object and who set its fields.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) object: Arc<Value>,
    pub(crate) managers: Managers,
}

/// A change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    /// When, in the server's monotonic time.
    pub(crate) at: Duration,
    key: Key,
    pub(crate) before: Option<Arc<Value>>,
    /// Absent when it was deleted.
    pub(crate) after: Option<Arc<Value>>,
    /// What a watch shows: the new state, or the last one with the revision of the deletion.
    pub(crate) shown: Arc<Value>,
}

#[derive(Debug, Default)]
struct Collection {
    objects: BTreeMap<Key, Stored>,
    history: VecDeque<Change>,
    /// Changes up to this revision are forgotten.
    forgotten: u64,
}

/// Why the past cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forgotten {
    /// The oldest revision that can be told from.
    pub(crate) oldest: u64,
}

/// The whole state of the server.
#[derive(Debug)]
pub(crate) struct State {
    collections: BTreeMap<&'static str, Collection>,
    revision: u64,
    pub(crate) random: fastrand::Rng,
    /// How many different suffixes generated names have.
    pub(crate) suffixes: u64,
    /// Versions of kinds that are switched off: plural and version.
    unserved: BTreeSet<(&'static str, &'static str)>,
    /// Wall-clock time of the current request.
    pub(crate) now: Timestamp,
    /// Monotonic time of the current request.
    pub(crate) elapsed: Duration,
}

pub(crate) fn key(namespace: &str, name: &str) -> Key {
    format!("{namespace}/{name}")
}

impl State {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            collections: KINDS.iter().map(|k| (k.plural, Collection::default())).collect(),
            revision: 1,
            random: fastrand::Rng::with_seed(seed),
            suffixes: u64::MAX,
            unserved: BTreeSet::new(),
            now: Timestamp::UNIX_EPOCH,
            elapsed: Duration::ZERO,
        }
    }

    fn collection(&mut self, kind: &KindInfo) -> &mut Collection {
        self.collections.entry(kind.plural).or_default()
    }

    /// The revision of the latest change.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn serve(&mut self, kind: &'static KindInfo, version: &str, on: bool) {
        for v in kind.versions.iter().filter(|v| v.name == version) {
            if on {
                self.unserved.remove(&(kind.plural, v.name));
            } else {
                self.unserved.insert((kind.plural, v.name));
            }
        }
    }

    pub(crate) fn serves(&self, kind: &KindInfo, version: &'static str) -> bool {
        !self.unserved.contains(&(kind.plural, version))
    }

    pub(crate) fn get(&self, kind: &KindInfo, namespace: &str, name: &str) -> Option<&Stored> {
        self.collections.get(kind.plural)?.objects.get(&key(namespace, name))
    }

    pub(crate) fn stored_mut(&mut self, kind: &KindInfo, namespace: &str, name: &str) -> Option<&mut Stored> {
        self.collection(kind).objects.get_mut(&key(namespace, name))
    }

    /// All objects of a kind in the order of namespace and name.
    pub(crate) fn all(&self, kind: &KindInfo) -> impl Iterator<Item = &Arc<Value>> {
        self.collections.get(kind.plural).into_iter().flat_map(|c| c.objects.values().map(|s| &s.object))
    }

    /// A uid that nothing else has.
    pub(crate) fn uid(&mut self) -> String {
        let n = self.random.u128(..);
        let part = |shift: u32, bits: u32| (n >> shift) & ((1_u128 << bits) - 1);
        format!(
            "{:08x}-{:04x}-4{:03x}-9{:03x}-{:012x}",
            part(96, 32),
            part(80, 16),
            part(64, 12),
            part(48, 12),
            part(0, 48)
        )
    }

    /// Five characters for a generated name.
    pub(crate) fn suffix(&mut self) -> String {
        const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut n = self.random.u64(..self.suffixes);
        (0..5)
            .map(|_| {
                let letter = LETTERS.get(usize::try_from(n % 27).unwrap_or_default()).copied();
                n /= 27;
                char::from(letter.unwrap_or(b'b'))
            })
            .collect()
    }

    /// Writes an object under a new resourceVersion.
    pub(crate) fn put(&mut self, kind: &KindInfo, mut object: Value, managers: Managers) -> Arc<Value> {
        self.revision = self.revision.saturating_add(1);
        set(&mut object, &["metadata", "resourceVersion"], json!(self.revision.to_string()));
        let key = key(meta(&object, "namespace"), meta(&object, "name"));
        let object = Arc::new(object);
        let stored = Stored { object: Arc::clone(&object), managers };
        let before = self.collection(kind).objects.insert(key.clone(), stored).map(|s| s.object);
        self.remember(kind, key, before, Some(Arc::clone(&object)), Arc::clone(&object));
        object
    }

    /// Puts an object there as it is, as if it had always been: no watch shows it that has begun before. `version` is its
    /// resourceVersion; without, it gets the next one.
    pub(crate) fn keep(&mut self, kind: &KindInfo, mut object: Value, version: Option<u64>) -> Arc<Value> {
        let version = version.unwrap_or(self.revision.saturating_add(1));
        self.revision = self.revision.max(version);
        set(&mut object, &["metadata", "resourceVersion"], json!(version.to_string()));
        let key = key(meta(&object, "namespace"), meta(&object, "name"));
        let object = Arc::new(object);
        let stored = Stored { object: Arc::clone(&object), managers: Managers::default() };
        let revision = self.revision;
        let collection = self.collection(kind);
        collection.objects.insert(key, stored);
        collection.history.clear();
        collection.forgotten = revision;
        object
    }

    /// Removes an object for good; its last state, with the revision of the removal.
    pub(crate) fn remove(&mut self, kind: &KindInfo, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let key = key(namespace, name);
        let before = self.collection(kind).objects.remove(&key)?.object;
        self.revision = self.revision.saturating_add(1);
        let mut shown = Value::clone(&before);
        set(&mut shown, &["metadata", "resourceVersion"], json!(self.revision.to_string()));
        let shown = Arc::new(shown);
        self.remember(kind, key, Some(before), None, Arc::clone(&shown));
        Some(shown)
    }

    fn remember(
        &mut self,
        kind: &KindInfo,
        key: Key,
        before: Option<Arc<Value>>,
        after: Option<Arc<Value>>,
        shown: Arc<Value>,
    ) {
        let (revision, at) = (self.revision, self.elapsed);
        let collection = self.collection(kind);
        collection.history.push_back(Change { revision, at, key, before, after, shown });
        if collection.history.len() > REMEMBERED
            && let Some(change) = collection.history.pop_front()
        {
            collection.forgotten = change.revision;
        }
    }

    /// Forgets what happened so far: watches from earlier revisions are told to list again.
    pub(crate) fn compact(&mut self) {
        let revision = self.revision;
        for collection in self.collections.values_mut() {
            collection.history.clear();
            collection.forgotten = revision;
        }
    }

    /// The first change after a revision.
    ///
    /// # Errors
    /// Changes after it are forgotten.
    pub(crate) fn next_change(&self, kind: &KindInfo, after: u64) -> Result<Option<&Change>, Forgotten> {
        let Some(collection) = self.collections.get(kind.plural) else { return Ok(None) };
        if after < collection.forgotten {
            return Err(Forgotten { oldest: collection.forgotten });
        }
        let index = collection.history.partition_point(|c| c.revision <= after);
        Ok(collection.history.get(index))
    }

    /// The changes after a revision that are remembered.
    pub(crate) fn changes_after(&self, kind: &KindInfo, after: u64) -> impl Iterator<Item = &Change> {
        let collection = self.collections.get(kind.plural);
        collection
            .into_iter()
            .flat_map(move |c| c.history.iter().skip(c.history.partition_point(|c| c.revision <= after)))
    }

    /// The objects as they were at a revision.
    fn objects_at(&self, kind: &KindInfo, revision: u64) -> Result<BTreeMap<&str, Arc<Value>>, Refusal> {
        let Some(collection) = self.collections.get(kind.plural) else { return Ok(BTreeMap::new()) };
        if revision < collection.forgotten {
            return Err(Refusal::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter, or use the continue token in this response to retrieve the \
                 remainder of the results. Continuing with the provided token results in an inconsistent list - \
                 objects that were created, modified, or deleted between the time the first chunk was returned and \
                 now may show up in the list.",
            ));
        }
        let mut objects: BTreeMap<&str, Arc<Value>> =
            collection.objects.iter().map(|(k, s)| (k.as_str(), Arc::clone(&s.object))).collect();
        for change in collection.history.iter().rev().take_while(|c| c.revision > revision) {
            match &change.before {
                Some(before) => objects.insert(&change.key, Arc::clone(before)),
                None => objects.remove(change.key.as_str()),
            };
        }
        Ok(objects)
    }

    /// What a call selects.
    pub(crate) fn selector(call: &Call) -> Result<Selector, Refusal> {
        let namespace = Some(call.namespace.as_str()).filter(|ns| !ns.is_empty());
        Selector::parse(call.kind, namespace, call.query("labelSelector"), call.query("fieldSelector"))
    }

    /// A page of a list.
    pub(crate) fn list(&self, call: &Call) -> Result<Value, Refusal> {
        let selector = Self::selector(call)?;
        let (token, asked) = (call.query("continue"), call.query("resourceVersion"));
        let limit = match call.query("limit") {
            "" | "0" => usize::MAX,
            limit => limit.parse().map_err(|_| Refusal::bad_request("limit is not a number"))?,
        };
        let (revision, after) = if token.is_empty() {
            let asked = parse_version(asked)?;
            if asked > self.revision {
                return Err(Refusal::too_large_version(asked, self.revision));
            }
            let exact = call.query("resourceVersionMatch") == "Exact";
            (if exact { asked } else { self.revision }, "")
        } else {
            // The token is opaque to clients; here it is the revision and the last key.
            token
                .split_once(':')
                .and_then(|(revision, after)| Some((revision.parse().ok()?, after)))
                .ok_or_else(|| {
                    Refusal::bad_request("continue key is not valid: not a token of this server")
                })?
        };
        let at = self.objects_at(call.kind, revision)?;
        let mut selected = at.iter().filter(|(key, object)| **key > after && selector.selects(object));
        let mut items = Vec::new();
        let mut last = "";
        for (key, object) in selected.by_ref().take(limit) {
            last = key;
            let mut item = Value::clone(object);
            // Elements of a list have the list's kind.
            set(&mut item, &["apiVersion"], Value::Null);
            set(&mut item, &["kind"], Value::Null);
            items.push(item);
        }
        let left = selected.count();
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if left > 0 {
            set(&mut metadata, &["continue"], json!(format!("{revision}:{last}")));
            if selector.is_everything() {
                set(&mut metadata, &["remainingItemCount"], json!(left));
            }
        }
        Ok(json!({
            "kind": format!("{}List", call.kind.kind), "apiVersion": call.api_version(),
            "metadata": metadata, "items": items,
        }))
    }
}

/// A resourceVersion in a query; absent is 0.
pub(crate) fn parse_version(text: &str) -> Result<u64, Refusal> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        Refusal::bad_request(format!(
            "resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: invalid syntax"
        ))
    })
}
