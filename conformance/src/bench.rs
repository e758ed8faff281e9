//! Times allocations, with the same output as the Go oracle's bench mode (`loopback/bench.go`).
//!
//! By default the inventory lives on, as it does in a controller, and each operation takes a snapshot and allocates on
//! it. With `-cold` each operation first takes up all that the node may use from decoded slices. As on the Go side, what
//! is allocated already and compiled expressions outlive an operation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dra_allocator::{Answer, Limits, Outcome};
use serde::Serialize;

use crate::wire::{self, Request};

const MIN_BATCHES: usize = 5;
const WANTED_BATCHES: u32 = 10;

/// One line of output; field names and meanings as in `bench.go`.
#[derive(Debug, Serialize)]
struct Measurement {
    file: String,
    iterations: u64,
    ns_per_op: u64,
    allocate_one_invocations: u64,
    outcome: &'static str,
    results: usize,
    timed_out: bool,
    batches: usize,
    min_ns_per_op: u64,
    max_ns_per_op: u64,
    cpu_ns_per_op: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
}

/// Runs `bench` with its arguments.
///
/// # Errors
///
/// An argument or a file is not understood.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let mut budget = Duration::from_secs(1);
    let mut cold = false;
    let mut files = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-time" | "--time" => {
                let value = arguments.next().ok_or("-time needs a value")?;
                budget = duration(value).ok_or_else(|| format!("not a duration: {value}"))?;
            }
            "-cold" | "--cold" => cold = true,
            file => files.push(file),
        }
    }
    for file in files {
        let measurement = measure(file, budget, cold)?;
        let line = serde_json::to_string(&measurement).map_err(|error| error.to_string())?;
        println!("{line}");
    }
    Ok(())
}

/// `1s`, `400ms`, `0.5s`.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s')?, 1.0),
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()
}

fn measure(file: &str, budget: Duration, cold: bool) -> Result<Measurement, String> {
    let text = std::fs::read(file).map_err(|error| format!("read {file}: {error}"))?;
    let request = Request::parse(&text).map_err(|error| format!("{file}: {error}"))?;
    let live = if cold { request.without_slices() } else { request.inventory() };
    let slices: Vec<_> = request.slices.iter().cloned().map(Arc::new).collect();
    let mut share_ids = wire::share_ids();
    let mut once = || {
        let mut snapshot = live.snapshot();
        if cold {
            snapshot.apply_slices_for(&request.node, &slices);
        }
        snapshot.allocate(&request.node, &request.claims, Limits::NONE, &mut share_ids)
    };
    let outcome = once();
    let mut batch = |size: u32| {
        let start = Instant::now();
        for _ in 0..size {
            std::hint::black_box(once());
        }
        start.elapsed() / size
    };
    let target = budget / WANTED_BATCHES;
    let mut size = 1;
    let mut per_op = batch(1);
    while per_op.saturating_mul(size) < target / 2 && size < 1 << 24 {
        size *= 2;
        per_op = batch(size);
    }
    let fitting = target.as_nanos() / per_op.as_nanos().max(1);
    let size = u32::try_from(fitting).unwrap_or(u32::MAX).max(1);
    let mut samples = Vec::new();
    let cpu = cpu_time();
    let start = Instant::now();
    while samples.len() < MIN_BATCHES || start.elapsed() < budget {
        samples.push(batch(size));
    }
    let iterations = u64::from(size) * samples.len() as u64;
    let cpu = cpu_time().saturating_sub(cpu);
    samples.sort();
    let at = |position: usize| samples.get(position).copied().unwrap_or_default();
    let median = (at((samples.len() - 1) / 2) + at(samples.len() / 2)) / 2;
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let (name, results, error) = describe(&outcome);
    Ok(Measurement {
        file: file.to_owned(),
        iterations,
        ns_per_op: nanos(median),
        allocate_one_invocations: outcome.steps,
        outcome: name,
        results,
        timed_out: false,
        batches: samples.len(),
        min_ns_per_op: nanos(at(0)),
        max_ns_per_op: nanos(at(samples.len() - 1)),
        cpu_ns_per_op: nanos(cpu) / iterations.max(1),
        error,
    })
}

fn describe(outcome: &Outcome) -> (&'static str, usize, String) {
    match &outcome.answer {
        Ok(Answer::Allocated(results)) => {
            ("allocated", results.iter().map(|result| result.devices.results.len()).sum(), String::new())
        }
        Ok(Answer::DoesNotFit) => ("none", 0, String::new()),
        Ok(Answer::GaveUp(why)) => ("error", 0, format!("{why:?}")),
        Err(error) => ("error", 0, error.to_string()),
    }
}

/// CPU time of this process so far, in clock ticks of a hundredth of a second (`/proc/self/stat`).
fn cpu_time() -> Duration {
    let ticks = std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| {
        // The command in parentheses may contain spaces.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |position: usize| fields.get(position)?.parse::<u64>().ok();
        Some(number(11)? + number(12)?)
    });
    Duration::from_millis(ticks.unwrap_or(0).saturating_mul(10))
}
