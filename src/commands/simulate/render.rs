//! The answers of `simulate` for people.

use std::{collections::BTreeMap, fmt::Write as _};

use dra_allocator::summary::report::PoolReport;

use super::report::{
    ActionChange, Difference, EndChange, Freed, Happening, Later, PoolChange, Reading, Report, Summary,
    written,
};
use crate::table::{count, table};

/// A report as text.
pub(super) fn report(report: &Report) -> String {
    let mut out = String::new();
    line(
        &mut out,
        &format!("From {} until {}, in virtual time.", written(report.from), written(report.until)),
    );
    reading(&mut out, "Input", &report.input);
    section(&mut out, "Actions");
    if report.actions.is_empty() {
        line(&mut out, "none");
    } else {
        actions(&mut out, &report.actions);
    }
    later(&mut out, &report.later);
    if !report.waiting.is_empty() {
        section(&mut out, "Still waiting at the end");
        let rows: Vec<[String; 3]> =
            report.waiting.iter().map(|w| [w.key.clone(), w.by.to_owned(), w.reasons.join("; ")]).collect();
        rows_of(&mut out, ["WHAT", "CONTROLLER", "WHY"], &rows);
    }
    pools(&mut out, "Pools that are different at the end", &report.pools, ["BEFORE", "AFTER"]);
    section(&mut out, "Summary");
    line(&mut out, &summary(&report.summary));
    out
}

/// A difference as text.
pub(super) fn difference(difference: &Difference) -> String {
    let mut out = String::new();
    let (from, until) = (written(difference.from), written(difference.until));
    line(&mut out, &format!("From {from} until {until}, in virtual time, without and with the change."));
    reading(&mut out, "Input", &difference.input);
    reading(&mut out, "Change", &difference.change);
    for refused in &difference.refused {
        line(&mut out, &format!("REFUSED: {refused}"));
    }
    section(&mut out, "Actions that the change adds (+), removes (-) or alters (~)");
    if difference.actions.is_empty() {
        line(&mut out, "none");
    } else {
        let rows: Vec<[String; 5]> = difference.actions.iter().flat_map(changed_action).collect();
        rows_of(&mut out, ["", "AFTER", "ACTION", "OBJECT", "WHY"], &rows);
    }
    later(&mut out, &difference.later);
    if !difference.end.is_empty() {
        section(&mut out, "Objects that end differently");
        let rows: Vec<[String; 3]> = difference.end.iter().map(changed_end).collect();
        rows_of(&mut out, ["OBJECT", "WITHOUT", "WITH"], &rows);
    }
    pools(&mut out, "Pools that end differently", &difference.pools, ["WITHOUT", "WITH"]);
    section(&mut out, "Summary");
    line(&mut out, &format!("without: {}", summary(&difference.without)));
    line(&mut out, &format!("with:    {}", summary(&difference.with)));
    out
}

fn line(out: &mut String, text: &str) {
    let _ = writeln!(out, "{text}");
}

fn section(out: &mut String, title: &str) {
    let _ = writeln!(out, "\n{title}");
}

fn rows_of<const N: usize>(out: &mut String, head: [&str; N], rows: &[[String; N]]) {
    for row in table(head, rows) {
        line(out, format!("  {row}").trim_end());
    }
}

fn counted(counts: &BTreeMap<String, usize>) -> String {
    let all: Vec<String> = counts.iter().map(|(kind, number)| format!("{number} {kind}")).collect();
    all.join(", ")
}

fn reading(out: &mut String, what: &str, reading: &Reading) {
    line(out, &format!("{what}: {}.", counted(&reading.objects)));
    if reading.replaced > 0 {
        let replaced = count(reading.replaced, "object");
        line(out, &format!("{what}: {replaced} besides, of which a later version is in it."));
    }
    if !reading.skipped.is_empty() {
        let number: usize = reading.skipped.values().sum();
        let skipped = count(number, "object");
        line(
            out,
            &format!(
                "{what}: skipped {skipped} that no controller here reads: {}.",
                counted(&reading.skipped)
            ),
        );
    }
    for malformed in &reading.malformed {
        line(out, &format!("MALFORMED and left out: {malformed}"));
    }
    for warning in &reading.warnings {
        line(out, &format!("WARNING: {warning}"));
    }
}

/// `1h2m3s`
fn after(seconds: i64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds % 3600 / 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

fn why(happening: &Happening) -> String {
    let frees: Vec<String> = happening.frees.iter().map(freed).collect();
    if frees.is_empty() {
        happening.reason.clone()
    } else {
        format!("{}; frees {}", happening.reason, frees.join(", "))
    }
}

fn freed(freed: &Freed) -> String {
    let amounts = |map: &BTreeMap<String, String>| {
        let all: Vec<String> = map.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        all.join(" ")
    };
    let mut parts = Vec::new();
    if let Some(share) = &freed.share {
        parts.push(format!("share {share}"));
    }
    if !freed.capacity.is_empty() {
        parts.push(format!("capacity {}", amounts(&freed.capacity)));
    }
    if !freed.counters.is_empty() {
        parts.push(format!("counters {}", amounts(&freed.counters)));
    }
    if parts.is_empty() { freed.device.clone() } else { format!("{} ({})", freed.device, parts.join(", ")) }
}

fn action_row(happening: &Happening) -> [String; 4] {
    [
        after(happening.after_seconds),
        format!("{:?}", happening.action),
        happening.object.to_string(),
        why(happening),
    ]
}

fn actions(out: &mut String, actions: &[Happening]) {
    let rows: Vec<[String; 4]> = actions.iter().map(action_row).collect();
    rows_of(out, ["AFTER", "ACTION", "OBJECT", "WHY"], &rows);
}

fn changed_action(change: &ActionChange) -> Vec<[String; 5]> {
    let marked = |mark: &str, happening: &Happening| {
        let [after, action, object, why] = action_row(happening);
        [mark.to_owned(), after, action, object, why]
    };
    match (&change.without, &change.with) {
        (None, Some(with)) => vec![marked("+", with)],
        (Some(without), None) => vec![marked("-", without)],
        (Some(without), Some(with)) => {
            let mut row = marked("~", with);
            let [_, then, .., reason] = &mut row;
            if without.after_seconds != with.after_seconds {
                *then = format!("{} instead of {}", after(with.after_seconds), after(without.after_seconds));
            }
            if why(without) != why(with) {
                *reason = format!("{} (instead of: {})", why(with), why(without));
            }
            vec![row]
        }
        (None, None) => Vec::new(),
    }
}

fn changed_end(change: &EndChange) -> [String; 3] {
    let state = |state: &Option<String>| match state.as_deref() {
        None => "(not there)".to_owned(),
        Some("") => "(nothing to tell)".to_owned(),
        Some(state) => state.to_owned(),
    };
    [change.object.to_string(), state(&change.without), state(&change.with)]
}

fn later(out: &mut String, later: &[Later]) {
    if later.is_empty() {
        return;
    }
    section(out, "Evictions that come later");
    let rows: Vec<[String; 3]> = later
        .iter()
        .map(|l| [l.at.map_or_else(|| "paused".to_owned(), written), l.pod.to_string(), l.reason.clone()])
        .collect();
    rows_of(out, ["AT", "POD", "WHY"], &rows);
}

fn pools(out: &mut String, title: &str, pools: &[PoolChange], names: [&str; 2]) {
    if pools.is_empty() {
        return;
    }
    section(out, title);
    let mut rows = Vec::new();
    for pool in pools {
        let facts = [&pool.before, &pool.after].map(|report| report.as_ref().map(facts).unwrap_or_default());
        let [before, after] = &facts;
        let mut kinds: Vec<&String> = before.keys().chain(after.keys()).collect();
        kinds.sort();
        kinds.dedup();
        for kind in kinds.into_iter().filter(|kind| before.get(*kind) != after.get(*kind)) {
            let of =
                |facts: &BTreeMap<String, String>| facts.get(kind).map_or("-", String::as_str).to_owned();
            rows.push([pool.pool.clone(), kind.clone(), of(before), of(after)]);
        }
    }
    let [before, after] = names;
    rows_of(out, ["POOL", "WHAT", before, after], &rows);
}

/// A pool as names and values.
fn facts(report: &PoolReport) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut fact = |name: String, value: String| facts.insert(name, value);
    fact("generation".to_owned(), report.generation.to_string());
    for (name, number) in [
        ("devices", report.devices),
        ("devices allocated", report.allocated),
        ("devices tainted", report.tainted),
        ("devices allocatable", report.allocatable),
        ("devices not published any more", report.unpublished.len()),
        ("devices that several claims have", report.conflicts.len()),
    ] {
        fact(name.to_owned(), number.to_string());
    }
    if let Some(problem) = &report.problem {
        fact("problem".to_owned(), problem.clone());
    }
    for partition in &report.partitions {
        let name = format!("partitions {} allocatable", partition.partition_type);
        fact(name, partition.allocatable.to_string());
    }
    for counter in &report.counters {
        fact(format!("counter {}/{} free", counter.counter_set, counter.counter), counter.free.to_string());
    }
    for shareable in &report.shareable {
        fact(format!("capacity {} free", shareable.capacity), shareable.free.to_string());
    }
    facts
}

fn summary(summary: &Summary) -> String {
    let mut text = format!(
        "{} created, {} evicted, {} deallocated ({}), {} deleted",
        count(summary.claims_created, "claim"),
        count(summary.pods_evicted, "Pod"),
        count(summary.claims_deallocated, "claim"),
        format_args!("{} freed", count(summary.devices_freed, "device")),
        count(summary.claims_deleted, "claim"),
    );
    for (number, what) in [
        (summary.evictions_to_come, "eviction to come"),
        (summary.pool_requests_answered, "pool request answered"),
        (summary.requests_failed, "request failed"),
    ] {
        if number > 0 {
            let _ = write!(text, ", {number} {what}");
        }
    }
    text.push('.');
    text
}
