//! Sets of object keys by some other key.

use std::{
    collections::{BTreeSet, HashMap, hash_map},
    hash::Hash,
};

use dra_api::ObjectKey;

/// What becomes of the entries of an object that comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// They are made.
    Add,
    /// They are taken away.
    Remove,
}

/// The objects that point at one key. Nearly always it is one, for which a set would take ten times the memory.
#[derive(Debug)]
enum Members {
    One(ObjectKey),
    Many(BTreeSet<ObjectKey>),
}

/// Which objects point at a `K`. Hashed, because each event edits it: an ordered map would compare the texts of
/// some twenty keys all over the memory. Nothing iterates over it, so the order of its keys shows nowhere.
#[derive(Debug)]
pub struct Index<K> {
    entries: HashMap<K, Members>,
}

impl<K> Default for Index<K> {
    fn default() -> Self {
        Self { entries: HashMap::new() }
    }
}

impl<K: Eq + Hash> Index<K> {
    pub(super) fn edit(&mut self, edit: Edit, key: K, object: &ObjectKey) {
        match edit {
            Edit::Add => self.add(key, object),
            Edit::Remove => self.remove(&key, object),
        }
    }

    fn add(&mut self, key: K, object: &ObjectKey) {
        let members = match self.entries.entry(key) {
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(Members::One(object.clone()));
                return;
            }
            hash_map::Entry::Occupied(occupied) => occupied.into_mut(),
        };
        match members {
            Members::One(one) if one == object => {}
            Members::One(one) => {
                *members = Members::Many(BTreeSet::from([one.clone(), object.clone()]));
            }
            Members::Many(many) => {
                many.insert(object.clone());
            }
        }
    }

    fn remove(&mut self, key: &K, object: &ObjectKey) {
        let empty = match self.entries.get_mut(key) {
            None => false,
            Some(Members::One(one)) => one == object,
            Some(Members::Many(many)) => {
                many.remove(object);
                many.is_empty()
            }
        };
        if empty {
            self.entries.remove(key);
        }
    }

    /// The objects that point at `key`, in order.
    pub fn get<'a>(&'a self, key: &K) -> impl Iterator<Item = &'a ObjectKey> + use<'a, K> {
        let (one, many) = match self.entries.get(key) {
            None => (None, None),
            Some(Members::One(one)) => (Some(one), None),
            Some(Members::Many(many)) => (None, Some(many)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_gives_the_objects_of_one_key_only() {
        let mut index = Index::default();
        for (key, name) in [("a", "1"), ("b", "2"), ("b", "3"), ("c", "4")] {
            index.edit(Edit::Add, key, &ObjectKey::new("ns", name));
        }
        index.edit(Edit::Remove, "b", &ObjectKey::new("ns", "3"));
        let found: Vec<_> = index.get(&"b").map(ToString::to_string).collect();
        assert_eq!(found, ["ns/2"]);
        assert_eq!(index.get(&"bb").count(), 0);
    }

    #[test]
    fn an_index_is_empty_again_when_all_objects_have_gone() {
        let mut index = Index::default();
        let keys = ["3", "1", "2"].map(|name| ObjectKey::new("ns", name));
        for key in &keys {
            index.edit(Edit::Add, "a", key);
            index.edit(Edit::Add, "a", key);
        }
        let found: Vec<_> = index.get(&"a").map(|k| &*k.name).collect();
        assert_eq!(found, ["1", "2", "3"]);
        for key in &keys {
            index.edit(Edit::Remove, "a", key);
            index.edit(Edit::Remove, "a", key);
        }
        assert_eq!(index.get(&"a").count(), 0);
        assert!(index.entries.is_empty());
    }
}
