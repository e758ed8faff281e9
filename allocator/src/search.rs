//! The search: depth first, first fit, in the scheduler's order, without recursion.
//!
//! Rules: `allocateOne`; spec §8. A frame is kept for each decision that can be revised. Branches that provably cannot
//! succeed are left out, see [`crate::prune`].

use crate::error::AllocateError;
use crate::plan::{CLAIM_LIMIT, Choice, Wanted};
use crate::prune;
use crate::state::State;
use crate::view::Location;

/// How long a search may take.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// The most steps; a step is the choice of one device, or of what comes next. Looking through 512 devices for a
    /// request that wants all that match takes one step as well, although it is not reported as one.
    pub steps: u64,
    /// Asked every now and then whether the caller has lost interest: after some hundred devices looked at, and before
    /// each copy and node where several are tried.
    pub cancelled: &'a dyn Fn() -> bool,
}

impl std::fmt::Debug for Limits<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limits").field("steps", &self.steps).finish_non_exhaustive()
    }
}

impl Limits<'_> {
    /// No limits.
    pub const NONE: Limits<'static> = Limits { steps: u64::MAX, cancelled: &|| false };
}

/// Why a search ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveUp {
    /// All steps were used up.
    Steps,
    /// The caller cancelled it.
    Cancelled,
}

/// Why there is nothing to search for or to search with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stop {
    Error(AllocateError),
    GaveUp(GaveUp),
}

impl From<AllocateError> for Stop {
    fn from(error: AllocateError) -> Self {
        Self::Error(error)
    }
}

impl From<GaveUp> for Stop {
    fn from(why: GaveUp) -> Self {
        Self::GaveUp(why)
    }
}

/// Keeps looks at devices outside of a search within the limits.
#[derive(Debug)]
pub(crate) struct Patience<'l> {
    limits: Limits<'l>,
    looked_at: u32,
    steps: u64,
}

impl<'l> Patience<'l> {
    pub(crate) fn new(limits: Limits<'l>) -> Self {
        Self { limits, looked_at: 0, steps: 0 }
    }

    /// To be called for each device that is looked at.
    ///
    /// # Errors
    ///
    /// It is enough.
    pub(crate) fn look(&mut self) -> Result<(), GaveUp> {
        self.looked_at += 1;
        if self.looked_at < PATIENCE {
            return Ok(());
        }
        self.looked_at = 0;
        self.steps += 1;
        if self.steps > self.limits.steps {
            return Err(GaveUp::Steps);
        }
        if (self.limits.cancelled)() { Err(GaveUp::Cancelled) } else { Ok(()) }
    }
}

/// How a search ended.
#[derive(Debug)]
pub(crate) enum End {
    /// With a solution; the chosen alternative of each request that has alternatives, as (claim, request, alternative).
    Found(Vec<(usize, usize, usize)>),
    DoesNotFit,
    GaveUp(GaveUp),
}

/// How a branch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Success,
    Failure,
    /// No choice of devices fits into the claim's allocation.
    LimitExceeded,
}

#[derive(Debug)]
enum Frame {
    /// Between two claims.
    Claim,
    /// Alternatives of a request; this one is being tried.
    Alternatives {
        claim: usize,
        request: usize,
        first: usize,
        count: usize,
        current: usize,
        all_exceeded: bool,
    },
    /// A request for all devices has taken one.
    All { request: usize },
    /// A request for some devices has taken the one before `next`.
    Some { request: usize, taken: usize, next: Location, failures: u32 },
}

/// Where the search goes next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// To a request of a claim, before the choice between alternatives.
    Request { claim: usize, request: usize },
    /// To the next device of a request that has taken some.
    Device { request: usize, taken: usize, from: Location },
    /// Back to the last decision.
    Back(Outcome),
}

const START: Location = Location { pool: 0, target: 0, device: 0 };
/// Devices looked at between two questions whether to go on.
const PATIENCE: u32 = 512;

/// A running search.
#[derive(Debug)]
pub(crate) struct Search<'s, 'a> {
    pub(crate) state: &'s mut State<'a>,
    limits: Limits<'s>,
    /// Steps taken.
    pub(crate) steps: u64,
    looked_at: u32,
    cancelled: bool,
    frames: Vec<Frame>,
    /// The request that the search reached at its deepest, and what was taken by then.
    pub(crate) deepest: Option<Deepest>,
    record_deepest: bool,
    prune: bool,
}

/// The request that a search reached at its deepest.
#[derive(Clone, Debug)]
pub(crate) struct Deepest {
    pub(crate) request: usize,
    /// What had been taken, by requests in order.
    pub(crate) placed: Vec<(usize, Location, usize)>,
}

impl<'s, 'a> Search<'s, 'a> {
    pub(crate) fn new(state: &'s mut State<'a>, limits: Limits<'s>) -> Self {
        Self {
            state,
            limits,
            steps: 0,
            looked_at: 0,
            cancelled: false,
            frames: Vec::new(),
            deepest: None,
            record_deepest: false,
            prune: true,
        }
    }

    /// Also finds out how far the search got.
    #[must_use]
    pub(crate) fn recording(mut self) -> Self {
        self.record_deepest = true;
        self
    }

    /// Goes through every branch, as the scheduler does.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn without_pruning(mut self) -> Self {
        self.prune = false;
        self
    }

    /// Searches for a solution. On success the state holds it.
    ///
    /// # Errors
    ///
    /// Something that the search came across ends the allocation.
    pub(crate) fn run(&mut self) -> Result<End, AllocateError> {
        let mut step = Step::Request { claim: 0, request: 0 };
        loop {
            if let Step::Request { .. } | Step::Device { .. } = step {
                self.steps += 1;
                if let Some(why) = self.out_of_patience() {
                    return Ok(End::GaveUp(why));
                }
            }
            step = match step {
                Step::Request { claim, request } => self.enter_request(claim, request),
                Step::Device { request, taken, from } => self.next_device(request, taken, from)?,
                Step::Back(Outcome::Success) => return Ok(End::Found(self.chosen())),
                Step::Back(outcome) => match self.frames.pop() {
                    None => return Ok(End::DoesNotFit),
                    Some(frame) => self.resume(frame, outcome)?,
                },
            };
            if self.is_cancelled() {
                return Ok(End::GaveUp(GaveUp::Cancelled));
            }
        }
    }

    fn out_of_patience(&mut self) -> Option<GaveUp> {
        if self.steps > self.limits.steps {
            return Some(GaveUp::Steps);
        }
        self.looked_at += 8;
        None
    }

    fn is_cancelled(&mut self) -> bool {
        if self.looked_at >= PATIENCE {
            self.looked_at = 0;
            self.cancelled = self.cancelled || (self.limits.cancelled)();
        }
        self.cancelled
    }

    fn chosen(&self) -> Vec<(usize, usize, usize)> {
        self.frames
            .iter()
            .filter_map(|frame| match frame {
                Frame::Alternatives { claim, request, current, .. } => Some((*claim, *request, *current)),
                _ => None,
            })
            .collect()
    }

    fn enter_request(&mut self, claim: usize, request: usize) -> Step {
        let Some(plan) = self.state.plan.claims.get(claim) else { return Step::Back(Outcome::Success) };
        match plan.choices.get(request) {
            None => {
                self.frames.push(Frame::Claim);
                Step::Request { claim: claim + 1, request: 0 }
            }
            Some(Choice::One(position)) => {
                // The step into the request and the step to its first device are one.
                self.steps -= 1;
                Step::Device { request: *position, taken: 0, from: START }
            }
            Some(Choice::FirstOf { first, count }) => {
                let (first, count) = (*first, *count);
                self.frames.push(Frame::Alternatives {
                    claim,
                    request,
                    first,
                    count,
                    current: 0,
                    all_exceeded: true,
                });
                Step::Device { request: first, taken: 0, from: START }
            }
        }
    }

    /// Takes the next device for a request, or goes on to the next request if it has enough.
    fn next_device(&mut self, request: usize, taken: usize, from: Location) -> Result<Step, AllocateError> {
        let Some(wanted) = self.state.request(request) else { return Ok(Step::Back(Outcome::Failure)) };
        let (claim, count) = (wanted.claim, wanted.count());
        let one_of_all = match &wanted.wanted {
            Wanted::All(devices) => Some(devices.get(taken).copied()),
            Wanted::Exactly(_) => None,
        };
        if one_of_all.is_some() && count == 0 {
            self.note(request);
            return Ok(Step::Back(Outcome::Failure));
        }
        if taken >= count {
            return Ok(Step::Request { claim, request: wanted.request + 1 });
        }
        let results = self.state.placed.get(claim).map_or(0, Vec::len);
        if count - taken > CLAIM_LIMIT.saturating_sub(results) {
            return Ok(Step::Back(Outcome::LimitExceeded));
        }
        self.note(request);
        if let Some(device) = one_of_all {
            let Some((location, number)) = device else { return Ok(Step::Back(Outcome::Failure)) };
            return Ok(match self.state.place(request, location, number)? {
                Ok(()) => {
                    self.frames.push(Frame::All { request });
                    Step::Device { request, taken: taken + 1, from: START }
                }
                Err(_) => Step::Back(Outcome::Failure),
            });
        }
        self.take_from(request, taken, from, 0)
    }

    /// Takes the first device from `from` on that the request may have.
    fn take_from(
        &mut self,
        request: usize,
        taken: usize,
        mut from: Location,
        failures: u32,
    ) -> Result<Step, AllocateError> {
        while let Some((location, number)) = self.state.eval.view.next_device(from) {
            from = Location { device: location.device + 1, ..location };
            self.looked_at += 1;
            if self.is_cancelled() {
                // Ends the search, whatever the step.
                return Ok(Step::Back(Outcome::Failure));
            }
            if self.state.try_device(request, location, number)?.is_ok() {
                self.frames.push(Frame::Some { request, taken, next: from, failures });
                return Ok(Step::Device { request, taken: taken + 1, from });
            }
        }
        Ok(Step::Back(Outcome::Failure))
    }

    /// Goes on after a branch failed.
    #[allow(clippy::needless_pass_by_value, reason = "a frame that is resumed is spent")]
    fn resume(&mut self, frame: Frame, outcome: Outcome) -> Result<Step, AllocateError> {
        match frame {
            // Too many devices in a later claim does not concern this one.
            Frame::Claim => Ok(Step::Back(Outcome::Failure)),
            Frame::Alternatives { claim, request, first, count, current, all_exceeded } => {
                let all_exceeded = all_exceeded && outcome == Outcome::LimitExceeded;
                let next = current + 1;
                if next < count {
                    self.frames.push(Frame::Alternatives {
                        claim,
                        request,
                        first,
                        count,
                        current: next,
                        all_exceeded,
                    });
                    return Ok(Step::Device { request: first + next, taken: 0, from: START });
                }
                Ok(Step::Back(if all_exceeded { Outcome::LimitExceeded } else { Outcome::Failure }))
            }
            Frame::All { request } => {
                self.undo(request);
                Ok(Step::Back(outcome))
            }
            Frame::Some { request, taken, next, failures } => {
                self.undo(request);
                if outcome == Outcome::LimitExceeded {
                    return Ok(Step::Back(outcome));
                }
                // Looking ahead costs as much as trying a device, so it is done less and less often.
                let failures = failures.saturating_add(1);
                if self.prune
                    && failures.is_power_of_two()
                    && prune::is_hopeless(self.state, request, taken, next)
                {
                    return Ok(Step::Back(Outcome::Failure));
                }
                self.take_from(request, taken, next, failures)
            }
        }
    }

    fn undo(&mut self, request: usize) {
        if let Some(claim) = self.state.request(request).map(|request| request.claim) {
            self.state.undo(claim);
        }
    }

    fn note(&mut self, request: usize) {
        if !self.record_deepest {
            return;
        }
        let placed: usize = self.state.placed.iter().map(Vec::len).sum();
        let reached = |state: &State<'_>, request: usize| {
            state.request(request).map(|request| (request.claim, request.request))
        };
        let here = reached(self.state, request);
        let deeper = self.deepest.as_ref().is_none_or(|deepest| {
            (here, placed) > (reached(self.state, deepest.request), deepest.placed.len())
        });
        if deeper {
            let placed = self
                .state
                .placed
                .iter()
                .flatten()
                .map(|placed| (placed.request, placed.location, placed.number))
                .collect();
            self.deepest = Some(Deepest { request, placed });
        }
    }
}
