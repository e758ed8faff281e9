//! How many more copies of the same claims would fit.
//!
//! Copies are allocated one after the other on a snapshot, as the scheduler would allocate them.

use std::sync::Arc;

use serde::Serialize;

use crate::allocate::Answer;
use crate::error::AllocateError;
use crate::inventory::Inventory;
use crate::inventory::usage::holdings;
use crate::objects::{Node, ResourceClaim};
use crate::search::Limits;

/// How many copies fit on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeFit {
    /// The node.
    pub node: String,
    /// Copies that fit if all of them go to this node.
    pub copies: u64,
    /// Why counting stopped.
    pub end: FitEnd,
}

/// Why counting stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FitEnd {
    /// No more fit.
    Full,
    /// As many fit as the caller wanted to know about, or there is no end to it: a copy takes nothing away.
    Limit,
    /// A limit was hit; more may fit.
    GaveUp,
    /// An allocation ended with an error.
    Error(String),
}

/// How many copies fit on nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fit {
    /// By node, in the order given.
    pub nodes: Vec<NodeFit>,
    /// Copies that fit on all nodes together. Where devices can be used from several nodes this is less than the sum.
    pub total: u64,
}

impl Inventory {
    /// Counts how many copies of `claims` fit on a node, up to `most`. The copies are recorded in `self`, which is
    /// meant to be a snapshot. Takes the steps off `left`.
    fn fill(
        &mut self,
        node: &Node,
        claims: &[ResourceClaim],
        left: &mut Limits<'_>,
        most: u64,
    ) -> (u64, FitEnd) {
        let claim: Arc<str> = node.metadata.name.as_str().into();
        let mut copies = 0;
        let mut share = 0_u64;
        while copies < most {
            if (left.cancelled)() {
                return (copies, FitEnd::GaveUp);
            }
            let mut share_ids = || {
                share += 1;
                format!("{claim}/{share}")
            };
            let outcome = self.allocate(node, claims, *left, &mut share_ids);
            left.steps = left.steps.saturating_sub(outcome.steps);
            let results = match outcome.answer {
                Ok(Answer::Allocated(results)) => results,
                // An invalid pool may be the reason why no more fit; for counting it is all the same.
                Ok(Answer::DoesNotFit) | Err(AllocateError::InvalidPools) => return (copies, FitEnd::Full),
                Ok(Answer::GaveUp(_)) => return (copies, FitEnd::GaveUp),
                // A request for all devices, or a selector, may fail only once something has been allocated.
                Err(error) => return (copies, FitEnd::Error(error.to_string())),
            };
            let takes_nothing = results
                .iter()
                .flat_map(|result| &result.devices.results)
                .all(|device| device.admin_access == Some(true));
            if takes_nothing {
                return (most, FitEnd::Limit);
            }
            for result in &results {
                self.add_holdings(&claim, &holdings(result, self.features().consumable_capacity));
            }
            copies += 1;
        }
        (copies, FitEnd::Limit)
    }

    /// How many copies of `claims` (those of one Pod, say) fit: on each node by itself, and on all of them together,
    /// up to `most` each. Nothing is recorded. `limits` are for the whole call; once they are hit, what is left of the
    /// nodes ends with [`FitEnd::GaveUp`].
    pub fn fit(&self, nodes: &[Node], claims: &[ResourceClaim], limits: Limits<'_>, most: u64) -> Fit {
        let mut together = self.snapshot();
        let mut left = limits;
        let mut total = 0_u64;
        let mut found = Vec::with_capacity(nodes.len());
        for node in nodes {
            let (copies, end) = if self.shares_pools(&node.metadata.name) {
                let (joint, _) = together.fill(node, claims, &mut left, most.saturating_sub(total));
                total = total.saturating_add(joint);
                self.snapshot().fill(node, claims, &mut left, most)
            } else {
                // What is taken here means nothing to other nodes, and the sum is the total.
                let (copies, end) = self.snapshot().fill(node, claims, &mut left, most);
                total = total.saturating_add(copies).min(most);
                (copies, end)
            };
            found.push(NodeFit { node: node.metadata.name.clone(), copies, end });
        }
        Fit { nodes: found, total }
    }
}
