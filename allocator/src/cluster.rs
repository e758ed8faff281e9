//! Why claims do not fit anywhere in a cluster: the explanations for all nodes, added up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use dra_api::quantity::Quantity;
use serde::Serialize;

use crate::explain::{Explanation, FailedRequest, ReasonCount, Verdict, bound};
use crate::inventory::Inventory;
use crate::objects::{Node, ResourceClaim};
use crate::search::Limits;

/// What becomes of claims on the nodes of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterExplanation {
    /// How many nodes there are.
    pub nodes: usize,
    /// On so many the claims fit.
    pub fits: usize,
    /// On so many they do not.
    pub does_not_fit: usize,
    /// On so many the allocation ends with an error.
    pub errs: usize,
    /// On so many a limit was hit first, or before they were looked at.
    pub gave_up: usize,
    /// The first nodes on which the claims fit.
    pub fitting: Vec<String>,
    /// Requests that cannot be satisfied, those that fail on most nodes first.
    pub failed: Vec<ClusterRequest>,
    /// Errors, most frequent first.
    pub errors: Vec<ClusterError>,
}

/// A request, or an alternative of one, and why nodes cannot satisfy it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRequest {
    /// `namespace/name`.
    pub claim: String,
    /// `request` or `request/subrequest`.
    pub request: String,
    /// On so many nodes it fails.
    pub nodes: usize,
    /// How many devices are wanted; where that depends on the node, on the closest one.
    pub wanted: usize,
    /// How many could be had at the same time on the closest node.
    pub found: usize,
    /// The node on which the fewest devices are missing, the first of them.
    pub closest: String,
    /// Why devices cannot be had, most frequent first. A device that several nodes can use counts once for each reason.
    pub summary: Vec<ReasonCount>,
}

/// An error, and where it occurs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterError {
    /// The error.
    pub message: String,
    /// On how many nodes.
    pub nodes: usize,
    /// The first of them.
    pub example: String,
}

impl Inventory {
    /// Explains why claims do not fit on any of these nodes, or on which they do. Each list in the explanation has up to
    /// `most` entries. `limits` are for the whole call; nodes that are not looked at because of them are counted.
    pub fn explain_cluster(
        &self,
        nodes: &[Node],
        claims: &[ResourceClaim],
        limits: Limits<'_>,
        most: usize,
    ) -> ClusterExplanation {
        let shared = self.shared_pools().map(ToString::to_string).collect();
        let mut sum = Sum { shared, most, ..Sum::default() };
        sum.of.nodes = nodes.len();
        let mut steps = limits.steps;
        for node in nodes {
            if steps == 0 || (limits.cancelled)() {
                break;
            }
            let (found, used) = self.explain_counting(node, claims, Limits { steps, ..limits }, usize::MAX);
            steps = steps.saturating_sub(used.max(1));
            sum.add(found);
        }
        sum.finish()
    }
}

/// A request while nodes are being added.
#[derive(Debug)]
struct Adding {
    request: ClusterRequest,
    counts: BTreeMap<String, ReasonCount>,
    /// Devices that several nodes can use, with the reasons for which they were counted.
    counted: BTreeSet<(String, String)>,
}

/// The explanation while nodes are being added.
#[derive(Debug, Default)]
struct Sum {
    of: ClusterExplanation,
    /// Pools with devices that several nodes can use.
    shared: BTreeSet<String>,
    most: usize,
    /// By claim and request.
    requests: BTreeMap<(String, String), Adding>,
    errors: BTreeMap<String, ClusterError>,
}

impl Sum {
    fn add(&mut self, found: Explanation) {
        match found.verdict {
            Verdict::Fits => {
                self.of.fits += 1;
                if self.of.fitting.len() < self.most {
                    self.of.fitting.push(found.node);
                }
                return;
            }
            Verdict::DoesNotFit => self.of.does_not_fit += 1,
            Verdict::GaveUp => self.of.gave_up += 1,
            Verdict::Error(message) => {
                self.of.errs += 1;
                let error = self.errors.entry(message).or_insert_with_key(|message| ClusterError {
                    message: message.clone(),
                    nodes: 0,
                    example: found.node.clone(),
                });
                error.nodes += 1;
            }
        }
        for request in found.failed {
            let key = (request.claim.clone(), request.request.clone());
            let adding = self.requests.entry(key).or_insert_with(|| Adding::new(&request, &found.node));
            adding.add(request, &found.node, &self.shared);
        }
    }

    fn finish(mut self) -> ClusterExplanation {
        let looked_at = self.of.fits + self.of.does_not_fit + self.of.errs + self.of.gave_up;
        self.of.gave_up += self.of.nodes.saturating_sub(looked_at);
        let most = self.most;
        self.of.failed = self.requests.into_values().map(|adding| adding.finish(most)).collect();
        // Sorting is stable: requests and messages stay in the order of their names.
        self.of.failed.sort_by_key(|request| std::cmp::Reverse(request.nodes));
        self.of.failed.truncate(most);
        self.of.errors = self.errors.into_values().collect();
        self.of.errors.sort_by_key(|error| std::cmp::Reverse(error.nodes));
        self.of.errors.truncate(most);
        self.of
    }
}

impl Adding {
    fn new(first: &FailedRequest, node: &str) -> Self {
        Self {
            request: ClusterRequest {
                claim: first.claim.clone(),
                request: first.request.clone(),
                nodes: 0,
                wanted: first.wanted,
                found: first.found,
                closest: node.to_owned(),
                summary: Vec::new(),
            },
            counts: BTreeMap::new(),
            counted: BTreeSet::new(),
        }
    }

    fn add(&mut self, failed: FailedRequest, node: &str, shared: &BTreeSet<String>) {
        let so_far = &mut self.request;
        so_far.nodes += 1;
        if failed.wanted.saturating_sub(failed.found) < so_far.wanted.saturating_sub(so_far.found) {
            (so_far.wanted, so_far.found) = (failed.wanted, failed.found);
            node.clone_into(&mut so_far.closest);
        }
        if shared.is_empty() {
            for count in failed.summary {
                self.count(count);
            }
            return;
        }
        for device in failed.devices {
            let what = device.reason.group();
            let is_shared = device.device.rsplit_once('/').is_some_and(|(pool, _)| shared.contains(pool));
            if !is_shared || self.counted.insert((what.clone(), device.device.clone())) {
                let short_by = device.reason.short_by().map(str::to_owned);
                self.count(ReasonCount { what, devices: 1, example: device.device, short_by });
            }
        }
    }

    fn count(&mut self, more: ReasonCount) {
        let Some(known) = self.counts.get_mut(&more.what) else {
            self.counts.insert(more.what.clone(), more);
            return;
        };
        known.devices += more.devices;
        let parse = |text: &str| Quantity::parse(text).ok();
        if let (Some(new), Some(best)) = (&more.short_by, &known.short_by)
            && parse(new) < parse(best)
        {
            (known.short_by, known.example) = (more.short_by, more.example);
        }
    }

    fn finish(mut self, most: usize) -> ClusterRequest {
        self.request.summary = self.counts.into_values().collect();
        self.request.summary.sort_by_key(|count| std::cmp::Reverse(count.devices));
        self.request.summary.truncate(most);
        self.request
    }
}

impl ClusterExplanation {
    /// For people, in at most `limit` bytes.
    pub fn text(&self, limit: usize) -> String {
        let mut text = format!("fits on {} of {} nodes", self.fits, self.nodes);
        // Writing to a String does not fail.
        if !self.fitting.is_empty() {
            let more = if self.fitting.len() < self.fits { ", …" } else { "" };
            let _ = write!(text, " ({}{more})", self.fitting.join(", "));
        }
        text.push('\n');
        if self.gave_up > 0 {
            let _ = writeln!(text, "  {} nodes: gave up before there was an answer", self.gave_up);
        }
        for error in &self.errors {
            let _ =
                writeln!(text, "  {} nodes: {} (for example {})", error.nodes, error.message, error.example);
        }
        for failed in &self.failed {
            let _ = writeln!(
                text,
                "  {} nodes: claim {}, request {}: {} of {} devices on {}",
                failed.nodes, failed.claim, failed.request, failed.found, failed.wanted, failed.closest
            );
            for count in &failed.summary {
                let _ = writeln!(text, "    {:>5} {} ({})", count.devices, count.what, count.closest());
            }
        }
        bound(text, limit)
    }

    /// For programs, in at most `limit` bytes: nodes that fit are left out until it does, then reasons, errors and
    /// requests.
    ///
    /// `None` if not even the numbers of nodes fit.
    pub fn json(&self, limit: usize) -> Option<String> {
        let mut reduced = self.clone();
        loop {
            let text = serde_json::to_string(&reduced).ok()?;
            if text.len() <= limit {
                return Some(text);
            }
            let summaries = reduced.failed.iter().map(|failed| failed.summary.len()).max().unwrap_or(0);
            if !reduced.fitting.is_empty() {
                reduced.fitting.truncate(reduced.fitting.len() / 2);
            } else if summaries > 0 {
                for failed in &mut reduced.failed {
                    failed.summary.truncate(summaries / 2);
                }
            } else if !reduced.errors.is_empty() {
                reduced.errors.truncate(reduced.errors.len() / 2);
            } else {
                reduced.failed.pop()?;
            }
        }
    }
}
