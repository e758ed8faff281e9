//! The view, shared between watches, workers and the metrics endpoint.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{PoisonError, RwLock},
};

use dra_controllers::{
    Elapsed,
    view::{Change, View},
};
use dra_runtime::Clock;

/// Called under the view's lock for each change; must be quick and must not touch the lock.
pub type OnChange = Box<dyn Fn(&View, &Change) + Send + Sync>;

/// The one view. Its lock is never held across an await.
pub struct Shared {
    view: RwLock<View>,
    clock: Clock,
    on_change: OnChange,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// An empty view that tells `on_change` of everything that changes in it.
    pub fn new(clock: Clock, on_change: OnChange) -> Self {
        Self { view: RwLock::new(View::default()), clock, on_change }
    }

    /// The clock that observations are dated by.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Reads the view.
    pub fn read<R>(&self, f: impl FnOnce(&View) -> R) -> R {
        f(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the view, and tells which changes that made.
    pub fn update<I: IntoIterator<Item = Change>>(&self, f: impl FnOnce(&mut View, Elapsed) -> I) {
        let now = self.clock.elapsed();
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        for change in f(&mut view, now) {
            view.follow(&change);
            // Before anybody is told, so that no number is ever wrong in between.
            let consequence = view.follow_evictions(&change, now);
            for change in [Some(change), consequence].into_iter().flatten() {
                // A planner's mistake about one object must not end the watch that brought it.
                let told = catch_unwind(AssertUnwindSafe(|| (self.on_change)(&view, &change)));
                if told.is_err() {
                    tracing::error!(?change, "a change could not be followed up; its keys are not planned");
                }
            }
        }
    }
}
