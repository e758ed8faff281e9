//! One question to the allocator, and its answer.

use crate::error::AllocateError;
use crate::evaluate::Evaluator;
use crate::inventory::Inventory;
use crate::objects::{AllocationResult, Node, ResourceClaim};
use crate::plan::Plan;
use crate::result;
use crate::search::{End, GaveUp, Limits, Patience, Search, Stop};
use crate::state::State;
use crate::view::Status;

/// What the scheduler would do with claims on a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// One result per claim, in order.
    Allocated(Vec<AllocationResult>),
    /// There is no solution on this node.
    DoesNotFit,
    /// A limit was hit first; there may or may not be a solution.
    GaveUp(GaveUp),
}

/// An answer, and what it took.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The answer, or the error that ends the allocation.
    pub answer: Result<Answer, AllocateError>,
    /// Steps of the search; at most as many as the scheduler's.
    pub steps: u64,
}

impl Inventory {
    /// Allocates claims on a node, all or none. Nothing is recorded, see [`Inventory::apply_allocation`].
    ///
    /// Claims that have been allocated must not be passed: they would be allocated again. `share_ids` names shares of
    /// shared devices; the scheduler takes random UUIDs.
    pub fn allocate(
        &self,
        node: &Node,
        claims: &[ResourceClaim],
        limits: Limits<'_>,
        share_ids: &mut dyn FnMut() -> String,
    ) -> Outcome {
        let mut state = match self.prepare(node, claims, limits) {
            Ok(state) => state,
            Err(Stop::Error(error)) => return Outcome { answer: Err(error), steps: 0 },
            Err(Stop::GaveUp(why)) => return Outcome { answer: Ok(Answer::GaveUp(why)), steps: 0 },
        };
        let mut search = Search::new(&mut state, limits);
        let end = search.run();
        let steps = search.steps;
        let answer = end.and_then(|end| match end {
            End::Found(chosen) => result::build(&state, &chosen, share_ids).map(Answer::Allocated),
            End::DoesNotFit if has_invalid_pool(&state) => Err(AllocateError::InvalidPools),
            End::DoesNotFit => Ok(Answer::DoesNotFit),
            End::GaveUp(why) => Ok(Answer::GaveUp(why)),
        });
        Outcome { answer, steps }
    }

    /// Everything up to the search.
    pub(crate) fn prepare<'a>(
        &'a self,
        node: &'a Node,
        claims: &'a [ResourceClaim],
        limits: Limits<'_>,
    ) -> Result<State<'a>, Stop> {
        let mut patience = Patience::new(limits);
        let mut eval = Evaluator::new(self, node)?;
        let plan = Plan::new(self, claims, |plan, request| match plan.requests.get(request) {
            Some(request) => eval.find_all(plan, request, &mut patience),
            None => Ok(Vec::new()),
        })?;
        Ok(State::new(eval, plan))
    }
}

/// If nothing fits and a pool is invalid, that may be the reason, and other nodes may do better.
pub(crate) fn has_invalid_pool(state: &State<'_>) -> bool {
    state.eval.view.pools.iter().any(|pool| matches!(pool.status, Status::Invalid(_)))
}
