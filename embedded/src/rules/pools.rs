//! Requests for the status of pools. Source beside `validation_resourcepoolstatusrequest.go`: the validation that is generated
//! from the tags in `k8s.io/api/resource/v1alpha3/types.go`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{conditions::conditions, devices::POOL_MAX, immutable, limited};
use crate::{
    formats::{is_dns_subdomain, is_dns_subdomain_of_any_case, is_fully_qualified, is_pool_name},
    kinds::Part,
    object::{at, default, has, items, text},
    refusal::Cause,
};

/// Pools in a status, and the highest `limit`.
const POOLS_MAX: usize = 1000;
const LIMIT: std::ops::RangeInclusive<i64> = 1..=1000;
const CONDITIONS_MAX: usize = 10;
/// Types of partitions, and capacities, of one pool.
const SUMMARY_MAX: usize = 32;
/// Longest `validationError` in bytes.
const ERROR_MAX: usize = 256;

const SUBDOMAIN: &str =
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'";

pub(crate) fn pool_request_defaults(new: &mut Value, _: &Value, _: Timestamp) {
    default(new, &["spec", "limit"], json!(100));
}

pub(crate) fn pool_request(new: &Value, old: &Value, part: Part) -> Vec<Cause> {
    let mut causes = Vec::new();
    if part == Part::Main {
        if old.is_null() {
            spec(at(new, &["spec"]), &mut causes);
        }
        immutable(new, old, &["spec"], &mut causes);
        return causes;
    }
    let (was, is) = (at(old, &["status"]), at(new, &["status"]));
    if was == is {
        return causes;
    }
    if !was.is_null() {
        immutable(new, old, &["status"], &mut causes);
    }
    if !is.is_null() {
        status(is, &mut causes);
        if was.is_null() {
            conditions(is, "status", CONDITIONS_MAX, &mut causes);
        } else {
            limited(items(is, &["conditions"]), CONDITIONS_MAX, "status.conditions", &mut causes);
        }
    }
    causes
}

fn spec(spec: &Value, causes: &mut Vec<Cause>) {
    driver(spec, "spec.driver", causes);
    if has(spec, &["poolName"]) {
        name(spec, "spec.poolName", causes);
    }
    let limit = at(spec, &["limit"]);
    if limit.as_i64().is_some_and(|l| !LIMIT.contains(&l)) {
        causes.push(Cause::invalid("spec.limit", limit, "must be between 1 and 1000"));
    }
    let attribute = at(spec, &["defaultPartitionTypeAttribute"]);
    if attribute.as_str().is_some_and(|a| !is_fully_qualified(a)) {
        let why = "a fully qualified name must be a domain and a name separated by a slash";
        causes.push(Cause::invalid("spec.defaultPartitionTypeAttribute", attribute, why));
    }
}

fn driver(holder: &Value, field: &str, causes: &mut Vec<Cause>) {
    match text(holder, &["driver"]) {
        "" => causes.push(Cause::required(field, "")),
        driver if !is_dns_subdomain_of_any_case(driver) => {
            causes.push(Cause::invalid(field, at(holder, &["driver"]), SUBDOMAIN));
        }
        _ => {}
    }
}

/// `poolName`: its length, and each part of it.
fn name(holder: &Value, field: &str, causes: &mut Vec<Cause>) {
    let name = text(holder, &["poolName"]);
    if name.len() > POOL_MAX {
        causes.push(Cause::too_long(field, POOL_MAX));
    }
    if !is_pool_name(name) {
        causes.push(Cause::invalid(field, at(holder, &["poolName"]), SUBDOMAIN));
    }
}

/// A count that is there at all is at least `least`.
fn count(holder: &Value, (path, name): (&str, &str), least: i64, causes: &mut Vec<Cause>) {
    let count = at(holder, &[name]);
    if count.as_i64().is_some_and(|c| c < least) {
        let why = format!("must be greater than or equal to {least}");
        causes.push(Cause::invalid(format!("{path}.{name}"), count, &why));
    }
}

/// A count that has to be there.
fn needed_count(holder: &Value, (path, name): (&str, &str), causes: &mut Vec<Cause>) {
    if has(holder, &[name]) {
        count(holder, (path, name), 0, causes);
    } else {
        causes.push(Cause::required(format!("{path}.{name}"), ""));
    }
}

fn status(status: &Value, causes: &mut Vec<Cause>) {
    needed_count(status, ("status", "poolCount"), causes);
    let pools = limited(items(status, &["pools"]), POOLS_MAX, "status.pools", causes);
    for (index, one) in pools.iter().enumerate() {
        pool(one, &format!("status.pools[{index}]"), causes);
    }
}

fn pool(pool: &Value, path: &str, causes: &mut Vec<Cause>) {
    driver(pool, &format!("{path}.driver"), causes);
    if text(pool, &["poolName"]).is_empty() {
        causes.push(Cause::required(format!("{path}.poolName"), ""));
    } else {
        name(pool, &format!("{path}.poolName"), causes);
    }
    // It is no pointer: nought is not there.
    if at(pool, &["generation"]).as_i64().unwrap_or_default() == 0 {
        causes.push(Cause::required(format!("{path}.generation"), ""));
    }
    count(pool, (path, "generation"), 0, causes);
    count(pool, (path, "resourceSliceCount"), 1, causes);
    for name in ["totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices"] {
        count(pool, (path, name), 0, causes);
    }
    let node = at(pool, &["nodeName"]);
    if node.as_str().is_some_and(|n| !is_dns_subdomain(n)) {
        causes.push(Cause::invalid(format!("{path}.nodeName"), node, SUBDOMAIN));
    }
    if text(pool, &["validationError"]).len() > ERROR_MAX {
        causes.push(Cause::too_long(format!("{path}.validationError"), ERROR_MAX));
    }
    partitions(pool, &format!("{path}.partitionSummary"), causes);
    if has(pool, &["shareableSummary"]) {
        shareable(at(pool, &["shareableSummary"]), &format!("{path}.shareableSummary"), causes);
    }
}

fn partitions(pool: &Value, path: &str, causes: &mut Vec<Cause>) {
    let types = limited(items(pool, &["partitionSummary"]), SUMMARY_MAX, path, causes);
    let mut seen = BTreeSet::new();
    for (index, one) in types.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if !seen.insert((text(one, &["attribute"]), text(one, &["type"]))) {
            causes.push(Cause::duplicate(path.clone(), one));
        }
        for name in ["attribute", "type"] {
            if text(one, &[name]).is_empty() {
                causes.push(Cause::required(format!("{path}.{name}"), ""));
            }
        }
        needed_count(one, (&path, "total"), causes);
        needed_count(one, (&path, "allocatable"), causes);
    }
}

fn shareable(summary: &Value, path: &str, causes: &mut Vec<Cause>) {
    needed_count(summary, (path, "fullyAvailableDevices"), causes);
    needed_count(summary, (path, "partiallyAvailableDevices"), causes);
    let field = format!("{path}.capacity");
    let capacities = limited(items(summary, &["capacity"]), SUMMARY_MAX, &field, causes);
    for (index, capacity) in capacities.iter().enumerate() {
        let path = format!("{field}[{index}]");
        if text(capacity, &["name"]).is_empty() {
            causes.push(Cause::required(format!("{path}.name"), ""));
        }
        for name in ["total", "consumed", "available"] {
            if !has(capacity, &[name]) {
                causes.push(Cause::required(format!("{path}.{name}"), ""));
            }
        }
    }
}
