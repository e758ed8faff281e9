//! What can go wrong between a client and the server, drawn from a seed.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{call::Call, kinds::KindInfo, refusal::Refusal};

/// How often what goes wrong. Rates are per 1,000 requests, or per 1,000 events of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// The connection is refused: the request was never sent.
    pub refused: u16,
    /// 429 with Retry-After.
    pub too_many: u16,
    /// 500 before anything was done.
    pub error: u16,
    /// 409 for a write that would have been accepted.
    pub conflict: u16,
    /// 422 for a write that would have been accepted.
    pub invalid: u16,
    /// Nothing was done, and no answer comes.
    pub lost_before: u16,
    /// The request was carried out, and no answer comes.
    pub lost_after: u16,
    /// The request was carried out, and the answer is 504.
    pub error_after: u16,
    /// The request takes its time, half of it before it is carried out.
    pub slow: u16,
    /// How much time at most.
    pub slowest: Duration,
    /// A watch ends after an event.
    pub watch_closes: u16,
    /// A watch ends instead of showing an event.
    pub watch_drops: u16,
    /// A watch shows an event twice.
    pub watch_repeats: u16,
    /// By how much a watch lags at most; each kind has a lag of its own, so that they overtake each other.
    pub watch_lag: Duration,
}

#[derive(Debug)]
struct Draw {
    rates: Rates,
    random: fastrand::Rng,
}

/// A source of faults. The same seed and the same requests give the same faults.
#[derive(Debug)]
pub struct Faults(Mutex<Draw>);

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It is not sent.
    NotSent,
    /// It is refused.
    Refused(Refusal),
    /// It is lost before it arrives.
    Lost(Loss),
    /// It is carried out after `before`, and `after` later this becomes of the answer.
    Carried { before: Duration, after: Duration, answer: AnswerFate },
}

/// How something is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The connection breaks.
    Reset,
    /// Nothing is heard any more.
    Silence,
}

/// What becomes of an answer.
#[derive(Debug)]
pub(crate) enum AnswerFate {
    Comes,
    Replaced(Refusal),
    Lost(Loss),
}

/// What becomes of an event of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventFate {
    Comes,
    /// Twice.
    Repeated,
    /// And the watch ends.
    Last,
    /// Not at all, and the watch ends.
    Dropped,
}

impl Draw {
    fn happens(&mut self, rate: u16) -> bool {
        rate > 0 && self.random.u16(..1000) < rate
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.random.f64())
    }

    fn loss(&mut self) -> Loss {
        if self.random.bool() { Loss::Reset } else { Loss::Silence }
    }
}

impl Faults {
    /// Faults at these rates.
    #[must_use]
    pub fn seeded(seed: u64, rates: Rates) -> Self {
        Self(Mutex::new(Draw { rates, random: fastrand::Rng::with_seed(seed) }))
    }

    /// Changes the rates from now on.
    pub fn set(&self, rates: Rates) {
        self.draw().rates = rates;
    }

    fn draw(&self) -> MutexGuard<'_, Draw> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What becomes of a request; `call` is absent for discovery.
    pub(crate) fn fate(&self, call: Option<&Call>) -> Fate {
        let mut draw = self.draw();
        let rates = draw.rates;
        if draw.happens(rates.refused) {
            return Fate::NotSent;
        }
        if draw.happens(rates.too_many) {
            let seconds = draw.random.u32(1..=3);
            return Fate::Refused(Refusal::too_many_requests(seconds));
        }
        if draw.happens(rates.error) {
            return Fate::Refused(Refusal::internal("an injected fault"));
        }
        if let Some(call) = call.filter(|c| c.method != http::Method::GET) {
            if draw.happens(rates.conflict) {
                return Fate::Refused(Refusal::modified(call.kind, &call.name));
            }
            if draw.happens(rates.invalid) {
                let cause = crate::refusal::Cause::forbidden("status", "an injected fault");
                return Fate::Refused(Refusal::invalid(call.kind, &call.name, vec![cause]));
            }
        }
        if draw.happens(rates.lost_before) {
            return Fate::Lost(draw.loss());
        }
        let (before, after) = if draw.happens(rates.slow) {
            (draw.up_to(rates.slowest / 2), draw.up_to(rates.slowest / 2))
        } else {
            (Duration::ZERO, Duration::ZERO)
        };
        let answer = if draw.happens(rates.lost_after) {
            AnswerFate::Lost(draw.loss())
        } else if draw.happens(rates.error_after) {
            AnswerFate::Replaced(Refusal::timeout())
        } else {
            AnswerFate::Comes
        };
        Fate::Carried { before, after, answer }
    }

    /// By how much the watch of a kind lags for its next event.
    pub(crate) fn lag(&self, kind: &KindInfo) -> Duration {
        let mut draw = self.draw();
        let most = draw.rates.watch_lag;
        if most.is_zero() {
            return most;
        }
        // Some kinds are slow, others are not.
        let share =
            kind.plural.bytes().fold(0_u32, |sum, b| sum.wrapping_mul(31).wrapping_add(u32::from(b))) % 4;
        draw.up_to(most * (share + 1) / 4)
    }

    /// What becomes of the next event of a watch.
    pub(crate) fn event(&self) -> EventFate {
        let mut draw = self.draw();
        let rates = draw.rates;
        if draw.happens(rates.watch_drops) {
            EventFate::Dropped
        } else if draw.happens(rates.watch_closes) {
            EventFate::Last
        } else if draw.happens(rates.watch_repeats) {
            EventFate::Repeated
        } else {
            EventFate::Comes
        }
    }
}
