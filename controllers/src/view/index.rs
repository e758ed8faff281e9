//! Sets of object keys by some other key.

use std::collections::BTreeSet;

use dra_api::ObjectKey;

/// What becomes of the entries of an object that comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// They are made.
    Add,
    /// They are taken away.
    Remove,
}

/// Which objects point at a `K`. One flat ordered set: a nested set per key would take ten times the memory,
/// because most keys have one entry.
#[derive(Debug)]
pub struct Index<K> {
    entries: BTreeSet<(K, ObjectKey)>,
    least: ObjectKey,
}

impl<K: Ord> Default for Index<K> {
    fn default() -> Self {
        Self { entries: BTreeSet::new(), least: ObjectKey::new("", "") }
    }
}

impl<K: Ord + Clone> Index<K> {
    pub(super) fn edit(&mut self, edit: Edit, key: K, object: &ObjectKey) {
        let entry = (key, object.clone());
        match edit {
            Edit::Add => self.entries.insert(entry),
            Edit::Remove => self.entries.remove(&entry),
        };
    }

    /// The objects that point at `key`, in order.
    pub fn get(&self, key: K) -> impl Iterator<Item = &ObjectKey> {
        self.entries
            .range((key.clone(), self.least.clone())..)
            .take_while(move |(k, _)| *k == key)
            .map(|(_, object)| object)
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
        let found: Vec<_> = index.get("b").map(ToString::to_string).collect();
        assert_eq!(found, ["ns/2"]);
        assert_eq!(index.get("bb").count(), 0);
    }
}
