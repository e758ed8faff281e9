//! `simulate`: what the controllers would do to the objects in files, told without touching a cluster.

mod diff;
mod objects;
mod render;
mod report;
mod world;

use std::{collections::BTreeMap, io::Write as _, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use dra_inhabitants::cluster::{at, items, text, uid};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use self::{
    objects::Objects,
    report::{Difference, Reading, Report},
    world::Scenario,
};
use crate::{
    cli::{Output, SimulateOptions},
    input::Input,
};

/// Longest time that can be simulated: 90 days.
const LONGEST: Duration = Duration::from_hours(2160);

/// Reads, simulates, and prints the answer.
pub(crate) fn run(options: &SimulateOptions) -> Result<()> {
    let (lasts, base) = (duration(&options.until)?, Objects::of(Input::read(&options.filename)?));
    let change =
        (!options.diff.is_empty()).then(|| Input::read(&options.diff).map(Objects::of)).transpose()?;
    let problems: Vec<String> = [Some(&base), change.as_ref()]
        .into_iter()
        .flatten()
        .flat_map(|o| &o.problems)
        .map(ToString::to_string)
        .collect();
    if options.strict && !problems.is_empty() {
        bail!("--strict: {} malformed:\n  {}", problems.len(), problems.join("\n  "));
    }
    ensure!(!base.taken.is_empty(), "there is nothing to simulate: {}", base.why_nothing());
    if let Some(change) = &change {
        // An answer would look as if the change had no effect.
        ensure!(!change.taken.is_empty(), "--diff: there is no change: {}", change.why_nothing());
    }
    let answer = answer(options, lasts, base, change)?;
    let mut out = std::io::stdout().lock();
    match out.write_all(answer.as_bytes()).and_then(|()| out.flush()) {
        // Whoever reads it has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write the answer"),
    }
}

fn answer(
    options: &SimulateOptions,
    lasts: Duration,
    base: Objects,
    change: Option<Objects>,
) -> Result<String> {
    let (reading, base) = take(base);
    let from = beginning(options.at.as_deref(), &base)?;
    let until = from.saturating_add(lasts).context("--until: the end lies beyond all time")?;
    let run = options.run_options()?;
    let scenario = Scenario { from, lasts, base: &base, change: &[], options: &run };
    let Some(change) = change else {
        let without = world::run(scenario)?;
        let report = Report {
            from,
            until,
            input: reading,
            summary: without.summary(),
            pools: without.pool_changes(),
            actions: without.happenings,
            later: without.later,
            waiting: without.waiting,
        };
        return match options.output {
            Output::Table => Ok(render::report(&report)),
            Output::Json => json(&report),
            Output::Yaml => yaml(&report),
        };
    };
    let (change_reading, change) = take(change);
    // Two worlds that know nothing of each other.
    let (without, with) = std::thread::scope(|scope| {
        let without = scope.spawn(|| world::run(scenario));
        let with = world::run(Scenario { change: &change, ..scenario });
        (without.join(), with)
    });
    let (without, with) = (without.map_err(|_| anyhow!("the run without the change has panicked"))??, with?);
    let difference = Difference {
        from,
        until,
        input: reading,
        change: Reading { warnings: Vec::new(), ..change_reading },
        without: without.summary(),
        with: with.summary(),
        actions: diff::actions(&without.happenings, &with.happenings),
        later: with.later.iter().filter(|later| !without.later.contains(later)).cloned().collect(),
        end: diff::end(&without.end, &with.end),
        pools: report::pool_changes(&without.pools_after, &with.pools_after),
        refused: with.refused,
    };
    match options.output {
        Output::Table => Ok(render::difference(&difference)),
        Output::Json => json(&difference),
        Output::Yaml => yaml(&difference),
    }
}

fn json<T: serde::Serialize>(answer: &T) -> Result<String> {
    Ok(serde_json::to_string_pretty(answer).context("cannot write the answer as JSON")? + "\n")
}

fn yaml<T: serde::Serialize>(answer: &T) -> Result<String> {
    serde_saphyr::to_string(answer).context("cannot write the answer as YAML")
}

/// What was read, and the objects.
fn take(objects: Objects) -> (Reading, Vec<Value>) {
    let taken: Vec<Value> = objects.taken.into_iter().map(|(_, object)| object).collect();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for object in &taken {
        *counts.entry(text(object, &["kind"]).to_owned()).or_default() += 1;
    }
    let reading = Reading {
        warnings: warnings(&taken, &counts),
        objects: counts,
        replaced: objects.replaced,
        skipped: objects.skipped,
        malformed: objects.problems.iter().map(ToString::to_string).collect(),
    };
    (reading, taken)
}

/// What is missing in the input and would be taken for gone.
fn warnings(objects: &[Value], counts: &BTreeMap<String, usize>) -> Vec<String> {
    let of = |kind: &'static str| objects.iter().filter(move |o| text(o, &["kind"]) == kind);
    let mut warnings = Vec::new();
    let (mut allocated, mut missing) = (false, BTreeMap::new());
    let there: std::collections::BTreeSet<&str> =
        of("Pod").chain(of("PodGroup")).map(uid).filter(|uid| !uid.is_empty()).collect();
    for claim in of("ResourceClaim") {
        allocated |= !at(claim, &["status", "allocation"]).is_null();
        for consumer in items(claim, &["status", "reservedFor"]) {
            let kind = match text(consumer, &["resource"]) {
                "pods" => "Pod",
                "podgroups" => "PodGroup",
                _ => continue,
            };
            if !there.contains(text(consumer, &["uid"])) {
                *missing.entry(kind).or_insert(0_usize) += 1;
            }
        }
    }
    for (kind, count) in missing {
        warnings.push(format!(
            "claims are reserved for {} that the input does not have: they count as gone, and the claims are released; \
             get {}s together with the claims",
            crate::table::count(count, kind),
            kind.to_lowercase()
        ));
    }
    if allocated && !counts.contains_key("ResourceSlice") {
        warnings.push(
            "there are no ResourceSlices: taints that drivers publish, counters and pools are unknown; get resourceslices \
             together with the claims"
                .to_owned(),
        );
    }
    warnings
}

/// `90s`, `10m`, `1h30m`.
fn duration(text: &str) -> Result<Duration> {
    let parsed: SignedDuration = text
        .parse()
        .with_context(|| format!("--until: {text:?} is no duration; write it as 90s, 10m or 2h30m"))?;
    let parsed = Duration::try_from(parsed).ok().filter(|d| !d.is_zero() && *d <= LONGEST);
    parsed.with_context(|| format!("--until: {text} must be more than nothing and at most 2160h"))
}

/// When the simulation begins.
fn beginning(asked: Option<&str>, objects: &[Value]) -> Result<Timestamp> {
    let at = match asked {
        Some("now") => Timestamp::now(),
        Some(text) => text.parse().with_context(|| {
            format!("--at: {text:?} is no time; write it as 2026-11-30T12:00:00Z, or now")
        })?,
        None => world::newest(objects).unwrap_or_else(Timestamp::now),
    };
    // Times of the API are whole seconds.
    Timestamp::from_second(at.as_second()).context("--at: out of range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_kubectl_writes_them() {
        assert_eq!(duration("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(duration("2h30m").unwrap(), Duration::from_mins(150));
        for bad in ["", "5", "-3s", "0s", "3000h", "soon"] {
            assert!(duration(bad).unwrap_err().to_string().starts_with("--until: "), "{bad}");
        }
    }

    #[test]
    fn it_begins_with_the_latest_time_in_the_input_unless_told_otherwise() {
        let object = |time: &str| serde_json::json!({"metadata": {"creationTimestamp": time}});
        let objects = [object("2026-01-01T00:00:00Z"), object("2026-03-01T00:00:00Z")];
        assert_eq!(beginning(None, &objects).unwrap().to_string(), "2026-03-01T00:00:00Z");
        let asked = beginning(Some("2025-01-01T00:00:00.5Z"), &objects).unwrap();
        assert_eq!(asked.to_string(), "2025-01-01T00:00:00Z");
        assert!(beginning(Some("yesterday"), &objects).is_err());
        let leaving = serde_json::json!({"metadata": {"deletionTimestamp": "2026-03-01T00:10:00Z",
            "deletionGracePeriodSeconds": 60}});
        assert_eq!(beginning(None, &[leaving]).unwrap().to_string(), "2026-03-01T00:09:00Z");
    }
}
