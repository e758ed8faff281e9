//! What is remembered about `ResourcePoolStatusRequests` that are not answered yet.

use std::{collections::BTreeMap, sync::Arc};

use dra_api::{ResourcePoolStatusRequest, Uid};

use crate::Elapsed;

/// A request that is not answered yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestNote {
    /// When it was first seen: by our own clock, which may differ from that of its creation timestamp.
    pub seen: Elapsed,
    /// Why the API server did not take the answer.
    pub refused: Option<Arc<str>>,
}

/// Notes by uid.
#[derive(Debug, Default)]
pub struct PoolRequests {
    notes: BTreeMap<Uid, RequestNote>,
    /// When a watch last showed a change of what answers are computed from.
    stirred: Option<Elapsed>,
}

impl PoolRequests {
    /// What is remembered about the request.
    pub fn note(&self, uid: &Uid) -> RequestNote {
        self.notes.get(uid).cloned().unwrap_or_default()
    }

    /// A watch has shown a slice, a claim or a taint rule since this moment.
    pub fn is_stirred(&self, since: Elapsed) -> bool {
        self.stirred.is_some_and(|at| at >= since)
    }

    /// A watch shows a slice, a claim or a taint rule.
    pub(super) fn stir(&mut self, now: Elapsed) {
        self.stirred = Some(now);
    }

    /// A request came, changed or went.
    pub(super) fn changed(
        &mut self,
        old: Option<&Uid>,
        new: Option<&ResourcePoolStatusRequest>,
        now: Elapsed,
    ) {
        let pending = new.filter(|request| request.is_pending());
        if let Some(old) = old
            && pending.is_none_or(|pending| pending.meta.uid != *old)
        {
            self.notes.remove(old);
        }
        if let Some(pending) = pending {
            self.notes
                .entry(Arc::clone(&pending.meta.uid))
                .or_insert(RequestNote { seen: now, refused: None });
        }
    }

    /// The API server refused the answer for what it says.
    pub(super) fn refused(&mut self, uid: &Uid, text: &str) {
        if let Some(note) = self.notes.get_mut(uid) {
            note.refused = Some(text.into());
        }
    }
}
