//! How well a node serves a Pod: the better the alternatives, the higher (`computeScore`).

use crate::objects::{AllocationResult, ResourceClaim};

/// The most alternatives that a request can have.
const MOST_ALTERNATIVES: u64 = 8;
/// The best score of a node.
const BEST: u64 = 100;

/// Adds up the ranks of the alternatives that were chosen: 8 for each first one, 7 for each second. Other requests do not
/// count. `results` are the allocations of `claims`, in the same order.
pub fn score(claims: &[ResourceClaim], results: &[AllocationResult]) -> u64 {
    let mut total = 0_u64;
    for (claim, result) in claims.iter().zip(results) {
        let is_chosen = |name: &str| result.devices.results.iter().any(|device| device.request == name);
        for request in claim.spec.devices.requests.iter().filter(|request| request.exactly.is_none()) {
            for (rank, alternative) in (0_u64..).zip(&request.first_available) {
                if is_chosen(&format!("{}/{}", request.name, alternative.name)) {
                    total = total.saturating_add(MOST_ALTERNATIVES.saturating_sub(rank));
                }
            }
        }
    }
    total
}

/// Scales the scores of all nodes so that the best has 100 (`DefaultNormalizeScore`). Where no node has a score, none gets
/// one. The scheduler weighs this with other scores: a better node is likelier, not certain.
pub fn normalise(scores: &mut [u64]) {
    let best = scores.iter().copied().max().unwrap_or(0);
    for score in scores.iter_mut().filter(|_| best > 0) {
        *score = score.saturating_mul(BEST) / best;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim() -> ResourceClaim {
        serde_json::from_value(json!({"spec": {"devices": {"requests": [
            {"name": "r0", "firstAvailable": [{"name": "best"}, {"name": "good"}, {"name": "poor"}]},
            {"name": "r1", "exactly": {"deviceClassName": "any"}},
        ]}}}))
        .unwrap()
    }

    fn result(requests: &[&str]) -> AllocationResult {
        let results: Vec<_> = requests.iter().map(|request| json!({"request": request})).collect();
        serde_json::from_value(json!({"devices": {"results": results}})).unwrap()
    }

    #[test]
    fn better_alternatives_score_higher_and_each_counts_once() {
        assert_eq!(score(&[claim()], &[result(&["r0/best", "r1"])]), 8);
        assert_eq!(score(&[claim()], &[result(&["r0/good", "r0/good", "r1"])]), 7);
        assert_eq!(score(&[claim(), claim()], &[result(&["r0/best"]), result(&["r0/poor"])]), 14);
        assert_eq!(score(&[claim()], &[result(&["r1"])]), 0);
        assert_eq!(score(&[claim()], &[]), 0);
    }

    #[test]
    fn the_best_node_gets_a_hundred() {
        let mut scores = [8, 7, 0];
        normalise(&mut scores);
        assert_eq!(scores, [100, 87, 0]);
        let mut none = [0, 0];
        normalise(&mut none);
        assert_eq!(none, [0, 0]);
        normalise(&mut []);
    }
}
