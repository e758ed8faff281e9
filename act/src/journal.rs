//! What was done and what is waited for, for those who want to read it afterwards: simulation and dry runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dra_controllers::plan::{Action, Why};
use jiff::Timestamp;

/// One entry of a [`Journal`].
#[derive(Clone, Debug)]
pub struct Record {
    /// When, by the wall clock.
    pub at: Timestamp,
    /// Who did it: the controller's name as in `--controllers`.
    pub by: &'static str,
    /// The key that was worked on.
    pub key: String,
    /// What happened.
    pub what: Happening,
}

/// What an executor came to.
#[derive(Clone, Debug)]
pub enum Happening {
    /// The API server has accepted an action.
    Done(Action),
    /// It has not, and the action is tried again later.
    Failed {
        /// The action.
        action: Action,
        /// What it said.
        error: String,
    },
    /// What the key waits for when it is looked at; empty when it is where it should be.
    Waiting(Vec<Why>),
}

/// A journal. Clones write to and read from the same one. It keeps all that is not taken.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    records: Arc<Mutex<Vec<Record>>>,
    by: &'static str,
}

impl Journal {
    /// The same journal, for this controller to write to.
    pub(crate) fn of(&self, by: &'static str) -> Self {
        Self { by, ..self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, at: Timestamp, key: String, what: Happening) {
        self.lock().push(Record { at, by: self.by, key, what });
    }

    /// Everything since the last time, in the order in which it happened.
    pub fn take(&self) -> Vec<Record> {
        std::mem::take(&mut *self.lock())
    }
}
