//! Sets of object keys by some other key.

use std::collections::BTreeSet;

use dra_api::ObjectKey;

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
    pub(super) fn insert(&mut self, key: K, object: &ObjectKey) {
        self.entries.insert((key, object.clone()));
    }

    pub(super) fn remove(&mut self, key: K, object: &ObjectKey) {
        self.entries.remove(&(key, object.clone()));
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
            index.insert(key, &ObjectKey::new("ns", name));
        }
        index.remove("b", &ObjectKey::new("ns", "3"));
        let found: Vec<_> = index.get("b").map(ToString::to_string).collect();
        assert_eq!(found, ["ns/2"]);
        assert_eq!(index.get("bb").count(), 0);
    }
}
