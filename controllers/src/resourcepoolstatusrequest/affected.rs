//! Which keys a change of the view concerns. Called under the view's lock for each event.

use std::{collections::BTreeSet, sync::Arc};

use dra_allocator::PoolId;

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
                let keys: BTreeSet<Key> = slices.flat_map(|slice| waiting(view, &slice.pool)).collect();
                keys.into_iter().collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Unanswered requests that ask for the pool.
fn waiting<'a>(view: &'a View, pool: &'a PoolId) -> impl Iterator<Item = Key> + use<'a> {
    view.index
        .unanswered(&pool.driver)
        .filter(move |name| {
            let request = view.pool_requests.get(&dra_api::ResourcePoolStatusRequest::key(name));
            request.is_some_and(|request| request.pool.as_ref().is_none_or(|wanted| *wanted == pool.pool))
        })
        .map(|name| Key(Arc::clone(name)))
}
