//! Many seeds, on all cores.

use std::{
    num::NonZero,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use crate::run::{Outcome, run};

/// What came of many seeds.
#[derive(Debug, Default)]
pub struct Summary {
    /// Seeds that were run.
    pub seeds: u64,
    /// Requests of the managers.
    pub requests: u64,
    /// Requests that changed something.
    pub writes: u64,
    /// How often managers ended.
    pub crashes: u64,
    /// Pods that were evicted.
    pub evictions: u64,
    /// Answers about pools that were compared in all details.
    pub answers: u64,
    /// Seeds that went wrong, lowest first.
    pub failed: Vec<Outcome>,
}

/// Failures after which no more seeds need be begun.
pub const ENOUGH: usize = 10;

/// Runs the seeds from `from` on, `count` of them; begins no more after `enough` failures.
#[must_use]
pub fn run_many(from: u64, count: u64, enough: usize) -> Summary {
    let (next, summary) = (AtomicU64::new(0), Mutex::new(Summary::default()));
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let failures = summary.lock().unwrap_or_else(PoisonError::into_inner).failed.len();
                    if n >= count || failures >= enough {
                        return;
                    }
                    let outcome = run(from.saturating_add(n));
                    let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
                    summary.seeds += 1;
                    summary.requests += outcome.requests;
                    summary.writes += outcome.writes;
                    summary.crashes += outcome.crashes;
                    summary.evictions += outcome.evictions;
                    summary.answers += outcome.answers;
                    if !outcome.wrong.is_empty() {
                        summary.failed.push(outcome);
                    }
                }
            });
        }
    });
    let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary.failed.sort_by_key(|outcome| outcome.seed);
    summary
}

/// How to see one seed again.
#[must_use]
pub fn command(seed: u64) -> String {
    format!("cargo run --profile ci -p dra-simulation -- --seed {seed}")
}
