//! Which keys a change of the view concerns. Called under the view's lock for each event.

use std::{collections::BTreeSet, sync::Arc};

use super::{Key, PoolStatusRequests};
use crate::view::{Change, View};

impl PoolStatusRequests {
    /// The keys to plan again after `change`, in order and each once. Only slices are waited for: claims and taints
    /// change numbers, and an answer tells those of one moment.
    pub fn affected(&self, view: &View, change: &Change) -> Vec<Key> {
        match change {
            Change::PoolRequest(delta) => view
                .pool_requests
                .get(&delta.key)
                .map(|request| Key(Arc::clone(&request.meta.key.name)))
                .into_iter()
                .collect(),
            Change::Slice(delta) => {
                let old = delta.old.as_deref();
                let slices = old.into_iter().chain(view.slices.get(&delta.key));
                let names: BTreeSet<&Arc<str>> =
                    slices.flat_map(|slice| view.index.unanswered(&slice.pool)).collect();
                names.into_iter().map(|name| Key(Arc::clone(name))).collect()
            }
            _ => Vec::new(),
        }
    }
}
