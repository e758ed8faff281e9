//! The objects of one kind, as the watch and our own requests have shown them.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use dra_api::{Object, ObjectKey, ResourceVersion, Uid};

use crate::Elapsed;

/// How long an answer of the API server that the watch has not confirmed is trusted: after that, what we wrote
/// is read again, and an object that was not found is looked up again.
pub const UNCONFIRMED_FOR: Duration = Duration::from_secs(30);

/// How many uids of deleted objects are remembered. Enough for the deletions that a busy cluster makes while
/// claims catch up with them; a forgotten uid costs one GET.
const REMEMBERED_UIDS: usize = 8192;

/// Where an object was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the watch or its initial list.
    Watch,
    /// In the answer to one of our own requests; the watch may not have shown it yet.
    Answer,
}

#[derive(Debug)]
struct Entry<T> {
    object: Box<T>,
    /// When our own request last showed this state; zero if only the watch did.
    answered: Elapsed,
    /// True until the watch has shown this state or a later one.
    awaited: bool,
    /// The (re)list in which the watch last showed the key.
    list: u32,
}

/// The objects of one kind.
#[derive(Debug)]
pub struct Store<T> {
    entries: BTreeMap<ObjectKey, Entry<T>>,
    /// Uids that the API server said are gone before the watch did.
    tombstones: BTreeMap<Uid, Elapsed>,
    /// Keys that a GET did not find, and when.
    absent: BTreeMap<ObjectKey, Elapsed>,
    /// Uids of objects that were deleted lately, oldest first, and the same as a set.
    deleted: (VecDeque<Uid>, BTreeSet<Uid>),
    list: u32,
    list_began: Elapsed,
    synced: bool,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            absent: BTreeMap::new(),
            deleted: (VecDeque::new(), BTreeSet::new()),
            list: 0,
            list_began: Elapsed::ZERO,
            synced: false,
        }
    }
}

/// What an observation did to the store.
pub(super) enum Outcome<T> {
    /// Nothing new.
    Same,
    /// The object is now in the store; what stood there before.
    Stored(Option<Box<T>>),
}

impl<T: Object> Store<T> {
    /// The object with that key.
    pub fn get(&self, key: &ObjectKey) -> Option<&T> {
        self.entries.get(key).map(|e| &*e.object)
    }

    /// All objects, by key.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.values().map(|e| &*e.object)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// True once the first list was complete.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// True when a GET lately did not find the key and nothing has shown it since.
    pub fn is_absent(&self, key: &ObjectKey, now: Elapsed) -> bool {
        !self.entries.contains_key(key)
            && self.absent.get(key).is_some_and(|at| now.saturating_sub(*at) < UNCONFIRMED_FOR)
    }

    /// True when the object with this uid was seen to be deleted.
    pub fn was_deleted(&self, uid: &Uid) -> bool {
        self.deleted.1.contains(uid)
    }

    /// Keys of objects that our own requests showed more than [`UNCONFIRMED_FOR`] ago and the watch did not.
    pub fn overdue(&self, now: Elapsed) -> Vec<ObjectKey> {
        self.entries
            .iter()
            .filter(|(_, e)| e.awaited && now.saturating_sub(e.answered) >= UNCONFIRMED_FOR)
            .map(|(key, _)| key.clone())
            .collect()
    }

    pub(super) fn observe(&mut self, object: T, source: Source, now: Elapsed) -> Outcome<T> {
        let meta = object.meta();
        if self.tombstones.contains_key(&meta.uid) {
            return Outcome::Same;
        }
        self.absent.remove(&meta.key);
        let (awaited, answered) = match source {
            Source::Watch => (false, Elapsed::ZERO),
            Source::Answer => (true, now),
        };
        let list = self.list;
        let Some(entry) = self.entries.get_mut(&meta.key) else {
            self.entries
                .insert(meta.key.clone(), Entry { object: Box::new(object), answered, awaited, list });
            return Outcome::Stored(None);
        };
        if source == Source::Watch {
            entry.list = list;
        }
        let (known, seen) = (entry.object.meta().resource_version, meta.resource_version);
        if seen < known {
            return Outcome::Same;
        }
        if seen == known {
            match source {
                Source::Watch => entry.awaited = false,
                Source::Answer => entry.answered = now,
            }
            return Outcome::Same;
        }
        entry.awaited = awaited;
        entry.answered = answered;
        let old = std::mem::replace(&mut entry.object, Box::new(object));
        if old.meta().uid != entry.object.meta().uid {
            self.remember_deleted(old.meta().uid.clone());
        }
        Outcome::Stored(Some(old))
    }

    /// A GET confirmed what we wrote: it counts as shown by the watch.
    pub(super) fn confirm(&mut self, key: &ObjectKey, resource_version: ResourceVersion, now: Elapsed) {
        if let Some(entry) = self.entries.get_mut(key)
            && entry.object.meta().resource_version <= resource_version
        {
            entry.awaited = false;
            entry.answered = now;
        }
    }

    /// The watch showed that the object with this uid is deleted.
    pub(super) fn deleted(&mut self, key: &ObjectKey, uid: &Uid) -> Option<Box<T>> {
        self.tombstones.remove(uid);
        self.take(key, uid)
    }

    /// The API server answered that the object with this uid is gone; the watch has yet to say so.
    pub(super) fn gone(&mut self, key: &ObjectKey, uid: &Uid, now: Elapsed) -> Option<Box<T>> {
        let old = self.take(key, uid)?;
        self.tombstones.insert(uid.clone(), now);
        Some(old)
    }

    /// A GET did not find the key.
    pub(super) fn not_found(&mut self, key: &ObjectKey, now: Elapsed) -> Option<Box<T>> {
        self.absent.insert(key.clone(), now);
        let uid = self.entries.get(key)?.object.meta().uid.clone();
        self.gone(key, &uid, now)
    }

    /// An object in the list that could not be decoded: whatever is known of it is kept.
    pub(super) fn unreadable(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.list = self.list;
        }
    }

    pub(super) fn list_begins(&mut self, now: Elapsed) {
        self.list = self.list.wrapping_add(1);
        self.list_began = now;
    }

    /// Ends a list; returns what it lacked, except what we wrote after it began.
    pub(super) fn list_ends(&mut self) -> Vec<(ObjectKey, Box<T>)> {
        self.synced = true;
        let (list, began) = (self.list, self.list_began);
        self.tombstones.retain(|_, at| *at >= began);
        let lacking: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, e)| e.list != list && (e.answered.is_zero() || e.answered < began))
            .map(|(key, e)| (key.clone(), e.object.meta().uid.clone()))
            .collect();
        lacking.into_iter().filter_map(|(key, uid)| self.take(&key, &uid).map(|o| (key, o))).collect()
    }

    /// Forgets lookups that are too old to be trusted.
    pub(super) fn forget_old(&mut self, now: Elapsed) {
        self.absent.retain(|_, at| now.saturating_sub(*at) < UNCONFIRMED_FOR);
    }

    fn take(&mut self, key: &ObjectKey, uid: &Uid) -> Option<Box<T>> {
        self.remember_deleted(uid.clone());
        if self.entries.get(key)?.object.meta().uid != *uid {
            return None;
        }
        self.entries.remove(key).map(|e| e.object)
    }

    fn remember_deleted(&mut self, uid: Uid) {
        let (order, set) = &mut self.deleted;
        if set.insert(uid.clone()) {
            order.push_back(uid);
        }
        while order.len() > REMEMBERED_UIDS {
            if let Some(oldest) = order.pop_front() {
                set.remove(&oldest);
            }
        }
    }
}
