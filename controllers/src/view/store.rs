//! The objects of one kind, as the watch and our own requests have shown them.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    time::Duration,
};

use dra_api::{Object, ObjectKey, Uid};

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
    /// The (re)list in which the watch last showed the key.
    list: u32,
}

/// The state in the store came from the answer to one of our requests; the watch has not shown it yet.
#[derive(Debug)]
struct Answer {
    at: Elapsed,
    /// True for the answer to a write, false once a GET has shown the same.
    awaited: bool,
}

/// The objects of one kind.
#[derive(Debug)]
pub struct Store<T> {
    /// Hashed, because each event looks its object up here and key comparisons in an ordered map miss the cache.
    /// What iterates over it sorts.
    entries: HashMap<ObjectKey, Entry<T>>,
    /// Few at any time: most keys are known from the watch.
    answers: BTreeMap<ObjectKey, Answer>,
    /// Uids that the API server said are gone before the watch did.
    tombstones: BTreeMap<Uid, Elapsed>,
    /// What a GET showed lately under a key, the object with this uid or none, and when it was sent.
    reads: BTreeMap<ObjectKey, (Option<Uid>, Elapsed)>,
    /// Uids of objects that were deleted lately, oldest first, and the same as a set.
    deleted: (VecDeque<Uid>, HashSet<Uid>),
    list: u32,
    list_began: Elapsed,
    listing: bool,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            answers: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            reads: BTreeMap::new(),
            deleted: (VecDeque::new(), HashSet::new()),
            list: 0,
            list_began: Elapsed::ZERO,
            listing: false,
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

    pub(super) fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut T> {
        self.entries.get_mut(key).map(|e| &mut *e.object)
    }

    /// All objects, by key.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let mut objects: Vec<&T> = self.entries.values().map(|e| &*e.object).collect();
        objects.sort_unstable_by_key(|object| &object.meta().key);
        objects.into_iter()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// True when a GET lately showed what stands under the key now, be it nothing.
    pub fn was_read(&self, key: &ObjectKey, now: Elapsed) -> bool {
        self.reads.get(key).is_some_and(|(uid, at)| {
            now.saturating_sub(*at) < UNCONFIRMED_FOR
                && uid.as_ref() == self.entries.get(key).map(|e| &e.object.meta().uid)
        })
    }

    /// True when the object with this uid was seen to be deleted, or looked for in vain.
    pub fn was_deleted(&self, uid: &Uid) -> bool {
        self.deleted.1.contains(uid)
    }

    /// Keys of objects that our own requests showed more than [`UNCONFIRMED_FOR`] ago and the watch did not.
    pub fn overdue(&self, now: Elapsed) -> Vec<ObjectKey> {
        self.answers
            .iter()
            .filter(|(_, a)| a.awaited && now.saturating_sub(a.at) >= UNCONFIRMED_FOR)
            .map(|(key, _)| key.clone())
            .collect()
    }

    pub(super) fn observe(&mut self, object: T, source: Source, now: Elapsed) -> Outcome<T> {
        let meta = object.meta();
        // An answer may arrive after the watch has shown the end of the object.
        if self.tombstones.contains_key(&meta.uid)
            || (source == Source::Answer && self.was_deleted(&meta.uid))
        {
            return Outcome::Same;
        }
        let key = meta.key.clone();
        let seen = meta.resource_version;
        self.reads.remove(&key);
        if source == Source::Watch && !self.deleted.1.is_empty() {
            // A list that was behind may have lacked it.
            self.deleted.1.remove(&meta.uid);
        }
        let Some(entry) = self.entries.get_mut(&key) else {
            if source == Source::Answer {
                self.answers.insert(key.clone(), Answer { at: now, awaited: true });
            }
            self.entries.insert(key, Entry { object: Box::new(object), list: self.list });
            return Outcome::Stored(None);
        };
        if source == Source::Watch {
            entry.list = self.list;
        }
        let known = entry.object.meta().resource_version;
        // A list is the truth even if its versions go backwards (etcd restored from a backup), except about what
        // we wrote and the watch has not shown.
        let restored = source == Source::Watch && self.listing && !self.answers.contains_key(&key);
        if seen < known && !restored {
            return Outcome::Same;
        }
        match source {
            Source::Watch => {
                self.answers.remove(&key);
            }
            Source::Answer if seen > known => {
                self.answers.insert(key, Answer { at: now, awaited: true });
            }
            Source::Answer => {}
        }
        if seen == known {
            return Outcome::Same;
        }
        let old = std::mem::replace(&mut entry.object, Box::new(object));
        if old.meta().uid != entry.object.meta().uid {
            self.remember_deleted(old.meta().uid.clone());
        }
        Outcome::Stored(Some(old))
    }

    /// A GET showed the key: what is known of it needs no confirmation by the watch.
    pub(super) fn confirm(&mut self, key: &ObjectKey, now: Elapsed) {
        if let Some(answer) = self.answers.get_mut(key) {
            *answer = Answer { at: now, awaited: false };
        }
    }

    /// A GET sent at `asked` showed the object with this uid, or none; true when that stands here now.
    pub(super) fn note_read(&mut self, key: &ObjectKey, uid: Option<&Uid>, asked: Elapsed) -> bool {
        self.reads.insert(key.clone(), (uid.cloned(), asked));
        self.entries.get(key).map(|e| &e.object.meta().uid) == uid
    }

    /// Something names the key that may be newer than what a GET showed.
    pub(super) fn doubt(&mut self, key: &ObjectKey) {
        self.reads.remove(key);
    }

    /// False when no GET is remembered.
    pub(super) fn has_reads(&self) -> bool {
        !self.reads.is_empty()
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

    /// A GET did not find the key; `known` is what stood there when it was sent.
    pub(super) fn not_found(&mut self, key: &ObjectKey, known: Option<&Uid>, now: Elapsed) -> Option<Box<T>> {
        let present = self.entries.get(key).map(|e| &e.object.meta().uid);
        if present.is_some() && present != known {
            // Another object has come while the answer was on its way.
            return None;
        }
        self.gone(key, known?, now)
    }

    /// A GET begun after this uid was heard of did not show it: it is gone for good.
    pub(super) fn note_gone(&mut self, uid: Uid) {
        self.remember_deleted(uid);
    }

    /// An object in the list that could not be decoded: whatever is known of it is kept.
    pub(super) fn unreadable(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.list = self.list;
        }
    }

    /// `now` is a time before the list was asked for: an answer that came later may be newer than the list.
    pub(super) fn list_begins(&mut self, now: Elapsed) {
        self.list = self.list.wrapping_add(1);
        self.list_began = now;
        self.listing = true;
    }

    /// Ends a list; returns what it lacked, except what we wrote after it began.
    pub(super) fn list_ends(&mut self) -> Vec<(ObjectKey, Box<T>)> {
        self.listing = false;
        let (list, began) = (self.list, self.list_began);
        self.tombstones.retain(|_, at| *at >= began);
        let mut lacking: Vec<_> = self
            .entries
            .iter()
            .filter(|(key, e)| e.list != list && self.answers.get(key).is_none_or(|a| a.at < began))
            .map(|(key, e)| (key.clone(), e.object.meta().uid.clone()))
            .collect();
        lacking.sort_unstable();
        lacking.into_iter().filter_map(|(key, uid)| self.take(&key, &uid).map(|o| (key, o))).collect()
    }

    /// Forgets lookups that are too old to be trusted.
    pub(super) fn forget_old(&mut self, now: Elapsed) {
        self.reads.retain(|_, (_, at)| now.saturating_sub(*at) < UNCONFIRMED_FOR);
    }

    fn take(&mut self, key: &ObjectKey, uid: &Uid) -> Option<Box<T>> {
        self.remember_deleted(uid.clone());
        if self.entries.get(key)?.object.meta().uid != *uid {
            return None;
        }
        self.answers.remove(key);
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

#[cfg(test)]
mod tests {
    use super::*;
    use dra_api::Pod;

    fn pod(uid: &str, version: u64) -> Pod {
        Pod::decode(&format!(
            r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"{uid}","resourceVersion":"{version}"}},"spec":{{}}}}"#
        ))
        .unwrap()
    }

    fn key() -> ObjectKey {
        ObjectKey::new("ns", "p")
    }

    fn at(seconds: u64) -> Elapsed {
        Elapsed::from_secs(seconds)
    }

    fn version(store: &Store<Pod>) -> Option<u64> {
        store.get(&key()).map(|p| p.meta.resource_version.0)
    }

    #[test]
    fn a_lagging_watch_never_turns_back_what_we_wrote() {
        let mut store = Store::default();
        store.observe(pod("u", 1), Source::Watch, at(0));
        store.observe(pod("u", 5), Source::Answer, at(1));
        store.observe(pod("u", 3), Source::Watch, at(2));
        assert_eq!(version(&store), Some(5));
        assert_eq!(store.overdue(at(31)).len(), 1, "the watch has not shown version 5 yet");
        store.observe(pod("u", 5), Source::Watch, at(31));
        assert!(store.overdue(at(100)).is_empty());
    }

    #[test]
    fn an_answer_after_the_end_does_not_bring_the_object_back() {
        let mut store = Store::default();
        store.observe(pod("u", 1), Source::Watch, at(0));
        store.deleted(&key(), &"u".into());
        store.observe(pod("u", 2), Source::Answer, at(1));
        assert_eq!(version(&store), None);
    }

    #[test]
    fn a_watch_that_lags_behind_our_delete_does_not_bring_the_object_back() {
        let mut store = Store::default();
        store.observe(pod("u", 1), Source::Watch, at(0));
        store.gone(&key(), &"u".into(), at(1));
        store.observe(pod("u", 2), Source::Watch, at(2));
        assert_eq!(version(&store), None);
        store.observe(pod("u2", 9), Source::Watch, at(3));
        assert_eq!(version(&store), Some(9), "a new object of that name is another matter");
    }

    #[test]
    fn a_relist_removes_what_it_lacks_except_what_was_written_after_it_began() {
        let mut store = Store::default();
        store.observe(pod("u", 1), Source::Watch, at(0));
        store.list_begins(at(10));
        store.observe(pod("u", 4), Source::Answer, at(11));
        assert!(store.list_ends().is_empty());
        store.list_begins(at(20));
        assert_eq!(store.list_ends().len(), 1);
        assert!(store.was_deleted(&"u".into()));
    }

    #[test]
    fn an_answer_between_asking_for_a_list_and_its_beginning_is_kept() {
        let mut store = Store::default();
        store.observe(pod("u", 4), Source::Answer, at(9));
        store.list_begins(at(8));
        assert!(store.list_ends().is_empty());
        assert!(!store.was_deleted(&"u".into()));
    }

    #[test]
    fn a_list_after_a_restore_from_backup_is_believed() {
        let mut store = Store::default();
        store.observe(pod("u", 90), Source::Watch, at(0));
        store.list_begins(at(10));
        store.observe(pod("u", 7), Source::Watch, at(11));
        assert!(store.list_ends().is_empty());
        assert_eq!(version(&store), Some(7));
    }

    #[test]
    fn a_relist_keeps_what_it_shows_and_what_it_shows_unreadably() {
        let mut store = Store::default();
        store.observe(pod("u", 1), Source::Watch, at(0));
        store.list_begins(at(10));
        store.observe(pod("u", 1), Source::Watch, at(11));
        assert!(store.list_ends().is_empty());
        store.list_begins(at(20));
        store.unreadable(&key());
        assert!(store.list_ends().is_empty());
    }

    #[test]
    fn a_new_uid_under_the_old_name_ends_the_old_object() {
        let mut store = Store::default();
        store.observe(pod("u1", 1), Source::Watch, at(0));
        assert!(matches!(store.observe(pod("u2", 2), Source::Watch, at(1)), Outcome::Stored(Some(_))));
        assert!(store.was_deleted(&"u1".into()));
    }

    #[test]
    fn what_a_get_showed_is_trusted_for_a_while_only() {
        let mut store = Store::<Pod>::default();
        assert!(store.note_read(&key(), None, at(0)));
        assert!(store.was_read(&key(), at(29)));
        assert!(!store.was_read(&key(), at(30)));
        store.observe(pod("u", 1), Source::Watch, at(5));
        assert!(!store.was_read(&key(), at(6)));
        assert!(store.note_read(&key(), Some(&"u".into()), at(7)));
        assert!(store.was_read(&key(), at(36)) && !store.was_read(&key(), at(37)));
        assert!(!store.note_read(&key(), Some(&"v".into()), at(7)) && !store.was_read(&key(), at(8)));
        assert!(!store.note_read(&key(), None, at(7)) && !store.was_read(&key(), at(8)));
        store.note_read(&key(), Some(&"u".into()), at(7));
        store.doubt(&key());
        assert!(!store.was_read(&key(), at(8)));
    }

    #[test]
    fn a_lookup_that_found_nothing_says_nothing_about_an_object_that_came_since() {
        let mut store = Store::<Pod>::default();
        store.observe(pod("new", 9), Source::Watch, at(1));
        assert!(store.not_found(&key(), None, at(2)).is_none());
        assert!(store.not_found(&key(), Some(&"old".into()), at(2)).is_none());
        assert_eq!(version(&store), Some(9));
        assert!(store.not_found(&key(), Some(&"new".into()), at(3)).is_some());
    }

    #[test]
    fn remembered_uids_are_bounded() {
        let mut store = Store::<Pod>::default();
        for n in 0..REMEMBERED_UIDS + 5 {
            store.deleted(&key(), &format!("u{n}").into());
        }
        assert!(!store.was_deleted(&"u0".into()));
        assert!(store.was_deleted(&format!("u{}", REMEMBERED_UIDS + 4).into()));
        assert_eq!(store.deleted.1.len(), REMEMBERED_UIDS);
    }
}
