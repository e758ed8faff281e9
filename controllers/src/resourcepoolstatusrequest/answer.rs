//! The status of a request: conditions (spec pool-status §7), and how it is kept within what the API server takes.

use std::sync::Arc;

use dra_allocator::summary::status::PoolStatus;
use dra_api::ResourcePoolStatusRequest;
use serde::Serialize;

use crate::plan::{Action, Pass, PoolAnswer, Precondition};

/// `spec.limit` where the API server did not fill it in.
pub(super) const DEFAULT_LIMIT: usize = 100;
/// Most pools in a status.
pub(super) const MOST_POOLS: usize = 1000;
/// Most bytes of JSON: the API server takes 3 MiB with everything around it.
const MOST_JSON: usize = 3 * 1024 * 1024 - 64 * 1024;
/// Most bytes in the encoding that goes to etcd, which takes 1.5 MiB with the object's metadata.
const MOST_STORED: usize = 1400 * 1024;
/// What [`stored_size`] of a pool is larger by at most than its JSON.
const OVERHEAD: usize = 80;
/// Most bytes of the API server's words in a condition.
const MOST_WORDS: usize = 1024;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    pool_count: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pools: Vec<&'a PoolStatus>,
    conditions: [Condition<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Condition<'a> {
    r#type: &'a str,
    status: &'a str,
    last_transition_time: String,
    reason: &'a str,
    message: &'a str,
}

fn condition<'a>(of_type: &'a str, reason: &'a str, message: &'a str, pass: &Pass) -> Condition<'a> {
    Condition {
        r#type: of_type,
        status: "True",
        last_transition_time: pass.wall.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        reason,
        message,
    }
}

/// Nothing in it can fail to become JSON.
fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn action(request: &ResourcePoolStatusRequest, status: String, failed: bool) -> Action {
    Action::Answer(Box::new(PoolAnswer {
        request: Precondition::of(&request.meta),
        driver: Arc::clone(&request.driver),
        status,
        failed,
    }))
}

/// The answer with the pools that were found.
pub(super) fn complete(
    request: &ResourcePoolStatusRequest,
    found: usize,
    mut pools: Vec<Arc<PoolStatus>>,
    pass: &Pass,
) -> Action {
    let status = |pools: &[Arc<PoolStatus>]| {
        let message = message(pools);
        let conditions = [condition("Complete", "CalculationComplete", &message, pass)];
        json(&Status { pool_count: found, pools: pools.iter().map(|pool| &**pool).collect(), conditions })
    };
    let mut text = status(&pools);
    // In the other encoding a pool is larger by less than this, if at all: most answers need no closer look.
    if text.len().saturating_add(pools.len().saturating_mul(OVERHEAD)) > MOST_STORED {
        shorten(&mut pools, MOST_JSON, MOST_STORED);
        text = status(&pools);
    }
    action(request, text, false)
}

/// The answer after the API server has refused another one.
pub(super) fn failed(request: &ResourcePoolStatusRequest, refused: &str, pass: &Pass) -> Action {
    let words = refused.get(..refused.floor_char_boundary(MOST_WORDS)).unwrap_or_default();
    let message = format!("The API server refused the calculated status: {words}");
    let conditions = [condition("Failed", "CalculationFailed", &message, pass)];
    action(request, json(&Status { pool_count: 0, pools: Vec::new(), conditions }), true)
}

fn message(pools: &[Arc<PoolStatus>]) -> String {
    let incomplete = pools.iter().filter(|pool| pool.is_incomplete()).count();
    let wrong =
        pools.iter().filter(|pool| pool.validation_error.is_some()).count().saturating_sub(incomplete);
    let mut notes = Vec::new();
    if incomplete > 0 {
        notes.push(format!("{incomplete} incomplete"));
    }
    if wrong > 0 {
        notes.push(format!("{wrong} with errors"));
    }
    let text = format!("Calculated status for {} pools", pools.len());
    if notes.is_empty() { text } else { format!("{text} ({})", notes.join(", ")) }
}

/// Leaves out the summaries of the last pools if all of them together would be too large. The numbers of a thousand
/// pools always fit.
fn shorten(pools: &mut [Arc<PoolStatus>], most_json: usize, most_stored: usize) {
    let full: Vec<(usize, usize)> = pools.iter().map(|pool| (json_size(pool), stored_size(pool))).collect();
    let sum = |sizes: &[(usize, usize)]| {
        sizes.iter().fold((0_usize, 0_usize), |(json, stored), size| {
            (json.saturating_add(size.0), stored.saturating_add(size.1))
        })
    };
    let fits = |(json, stored): (usize, usize)| json <= most_json && stored <= most_stored;
    if fits(sum(&full)) {
        return;
    }
    let without: Vec<Arc<PoolStatus>> = pools.iter().map(without_summaries).collect();
    let mut total = sum(&without.iter().map(|pool| (json_size(pool), stored_size(pool))).collect::<Vec<_>>());
    for ((pool, short), size) in pools.iter_mut().zip(without).zip(full) {
        if *pool == short {
            continue;
        }
        let more = (
            total.0.saturating_sub(json_size(&short)).saturating_add(size.0),
            total.1.saturating_sub(stored_size(&short)).saturating_add(size.1),
        );
        if fits(more) {
            total = more;
        } else {
            *pool = short;
        }
    }
}

fn without_summaries(pool: &Arc<PoolStatus>) -> Arc<PoolStatus> {
    if pool.partition_summary.is_empty() && pool.shareable_summary.is_none() {
        return Arc::clone(pool);
    }
    let mut short =
        PoolStatus { partition_summary: Vec::new(), shareable_summary: None, ..PoolStatus::clone(pool) };
    short.add_error("StatusTooLarge: the summaries did not fit; ask for this pool by poolName");
    Arc::new(short)
}

fn json_size(pool: &PoolStatus) -> usize {
    serde_json::to_string(pool).map_or(0, |text| text.len().saturating_add(1))
}

/// At most so many bytes in protocol buffers: each field has up to two bytes of tag and three of length, numbers up to
/// ten bytes.
fn stored_size(pool: &PoolStatus) -> usize {
    let text = |text: &str| text.len().saturating_add(5);
    let option = |value: &Option<String>| value.as_deref().map_or(0, text);
    let mut size = 100 + text(&pool.driver) + text(&pool.pool_name);
    size += option(&pool.node_name) + option(&pool.validation_error);
    for one in &pool.partition_summary {
        size += 20 + text(&one.attribute) + text(&one.of_type);
    }
    if let Some(shareable) = &pool.shareable_summary {
        size += 20;
        for one in &shareable.capacity {
            size += 15 + text(&one.name);
            for amount in [&one.total, &one.consumed, &one.available] {
                size += text(&amount.to_string());
            }
        }
    }
    size
}

#[cfg(test)]
mod tests {
    use dra_allocator::summary::status::PartitionTypeStatus;

    use super::*;

    fn pool(name: usize, types: usize) -> Arc<PoolStatus> {
        Arc::new(PoolStatus {
            driver: "d".to_owned(),
            pool_name: format!("p{name}"),
            partition_summary: (0..types)
                .map(|number| PartitionTypeStatus {
                    attribute: "d/a".to_owned(),
                    of_type: format!("t{number}"),
                    total: 1,
                    allocatable: 1,
                })
                .collect(),
            ..PoolStatus::default()
        })
    }

    #[test]
    fn what_fits_is_left_as_it_is() {
        let mut pools: Vec<_> = (0..4).map(|name| pool(name, 2)).collect();
        let before = pools.clone();
        shorten(&mut pools, 10_000, 10_000);
        assert_eq!(pools, before);
    }

    #[test]
    fn the_last_pools_lose_their_summaries_and_say_so() {
        for (json, stored) in [(2200, 100_000), (100_000, 1600)] {
            let mut pools: Vec<_> = (0..4).map(|name| pool(name, 12)).collect();
            pools.push(pool(4, 0));
            shorten(&mut pools, json, stored);
            let lost = pools.iter().filter(|pool| pool.validation_error.is_some()).count();
            assert!((1..4).contains(&lost), "{lost} of those with summaries");
            let first = pools.iter().position(|pool| pool.validation_error.is_some()).unwrap();
            assert_eq!(first, 4 - lost, "they are the last ones");
            assert_eq!(pools[4], pool(4, 0), "who has no summary loses none");
            assert!(pools[first].validation_error.as_deref().unwrap().starts_with("StatusTooLarge:"));
        }
    }

    #[test]
    fn a_thousand_pools_with_the_longest_names_fit_without_summaries() {
        let long = "x".repeat(253);
        let plain = PoolStatus {
            driver: long.clone(),
            pool_name: long.clone(),
            node_name: Some(long),
            validation_error: Some("e".repeat(256)),
            ..PoolStatus::default()
        };
        assert!(stored_size(&plain) * MOST_POOLS < MOST_STORED);
    }

    #[test]
    fn a_pool_is_hardly_larger_when_stored_than_as_json() {
        use dra_allocator::summary::status::{ShareableCapacity, ShareableSummary};
        use dra_api::quantity::Quantity;

        let mut shareable = PoolStatus::default();
        let capacity = ShareableCapacity {
            name: "m".to_owned(),
            total: Quantity::ZERO,
            consumed: Quantity::ZERO,
            available: Quantity::ZERO,
        };
        shareable.shareable_summary =
            Some(ShareableSummary { capacity: vec![capacity; 32], ..ShareableSummary::default() });
        for pool in [&PoolStatus::default(), &*pool(0, 0), &*pool(0, 32), &shareable] {
            assert!(stored_size(pool) <= json_size(pool) + OVERHEAD, "{pool:?}");
        }
    }

    #[test]
    fn incomplete_pools_and_others_with_errors_are_told_apart() {
        let with = |error: Option<&str>| {
            let validation_error = error.map(str::to_owned);
            Arc::new(PoolStatus { validation_error, ..PoolStatus::default() })
        };
        let (good, incomplete, wrong) = (with(None), with(Some("PoolIncomplete: x")), with(Some("Other: x")));
        assert_eq!(message(std::slice::from_ref(&good)), "Calculated status for 1 pools");
        assert_eq!(message(&[]), "Calculated status for 0 pools");
        assert_eq!(
            message(&[good.clone(), incomplete.clone()]),
            "Calculated status for 2 pools (1 incomplete)"
        );
        assert_eq!(message(&[good, wrong.clone()]), "Calculated status for 2 pools (1 with errors)");
        assert_eq!(
            message(&[incomplete.clone(), incomplete, wrong]),
            "Calculated status for 3 pools (2 incomplete, 1 with errors)"
        );
    }
}
