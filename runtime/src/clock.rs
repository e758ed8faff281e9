//! Time and chance, as values that tests can hold in their hands.

use std::{sync::Mutex, sync::PoisonError, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;

/// Where wall-clock time comes from.
#[derive(Clone, Copy, Debug)]
enum Wall {
    System,
    /// Runs along with tokio's time from this moment on.
    From(Timestamp),
}

/// The time since start-up, which never jumps, and the wall-clock time, which may.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    wall: Wall,
}

impl Clock {
    /// The system's clock.
    #[must_use]
    pub fn system() -> Self {
        Self { start: Instant::now(), wall: Wall::System }
    }

    /// A clock whose wall time is `at` now and follows tokio's (possibly paused) time.
    #[must_use]
    pub fn starting_at(at: Timestamp) -> Self {
        Self { start: Instant::now(), wall: Wall::From(at) }
    }

    /// Monotonic time since the clock was made.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Wall-clock time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match self.wall {
            Wall::System => Timestamp::now(),
            Wall::From(at) => at.saturating_add(self.start.elapsed()).unwrap_or(Timestamp::MAX),
        }
    }
}

/// The source of all random choices.
#[derive(Debug)]
pub struct Chance(Mutex<fastrand::Rng>);

impl Chance {
    /// The same choices for the same seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(Mutex::new(fastrand::Rng::with_seed(seed)))
    }

    /// Different choices in every process.
    #[must_use]
    pub fn from_entropy() -> Self {
        Self(Mutex::new(fastrand::Rng::new()))
    }

    /// A duration between half of `full` and `full`, so that clients that failed together do not come back
    /// together.
    pub fn jitter(&self, full: Duration) -> Duration {
        let share = self.0.lock().unwrap_or_else(PoisonError::into_inner).f64();
        full.mul_f64(0.5 + share / 2.0)
    }
}

/// `base` doubled `failures - 1` times, at most `max`.
#[must_use]
pub fn exponential(base: Duration, max: Duration, failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(30);
    base.saturating_mul(1 << doublings).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_limit() {
        let delay = |n| exponential(Duration::from_millis(5), Duration::from_mins(1), n);
        assert_eq!(delay(0), Duration::from_millis(5));
        assert_eq!(delay(1), Duration::from_millis(5));
        assert_eq!(delay(4), Duration::from_millis(40));
        assert_eq!(delay(u32::MAX), Duration::from_mins(1));
    }

    #[test]
    fn jitter_stays_between_half_and_whole_and_repeats_with_its_seed() {
        let full = Duration::from_secs(10);
        let draw = |seed| {
            let chance = Chance::seeded(seed);
            (0..100).map(|_| chance.jitter(full)).collect::<Vec<_>>()
        };
        assert!(draw(1).iter().all(|d| (full / 2..=full).contains(d)));
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[tokio::test(start_paused = true)]
    async fn a_virtual_clock_follows_paused_time() {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(clock.now().as_second(), 5);
        assert_eq!(clock.elapsed(), Duration::from_secs(5));
    }
}
