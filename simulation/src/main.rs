//! Runs seeds of the simulation: one with its story, or many, going on where the last run ended.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::Parser;
use dra_simulation::{
    many::{ENOUGH, Summary, command, run_many},
    run::run,
};

/// Seeds run before progress is shown and recorded.
const BATCH: u64 = 1_000;
/// What stands before the number of seeds in the file that it is recorded in.
const MARK: &str = "Seeds simulated so far without a failure: ";

/// Simulates the controllers on the embedded API server.
#[derive(Debug, Parser)]
struct Options {
    /// Run this seed and tell its story.
    #[arg(long)]
    seed: Option<u64>,
    /// First seed of many; with --record, the one after the last recorded.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many seeds; with --record, how many in all runs together.
    #[arg(long, default_value_t = 2_000)]
    count: u64,
    /// Stop at the first failure.
    #[arg(long)]
    first: bool,
    /// File that holds the number of seeds so far.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    if let Some(seed) = options.seed {
        return Ok(one(seed));
    }
    let recorded = options.record.as_deref().map(recorded).transpose()?;
    let mut next = recorded.unwrap_or(options.from);
    let end = if recorded.is_some() { options.count } else { options.from.saturating_add(options.count) };
    while next < end {
        let summary = run_many(next, BATCH.min(end - next), if options.first { 1 } else { ENOUGH });
        next += summary.seeds;
        println!(
            "{next} seeds: {} requests, {} writes, {} crashes, {} evictions, {} answers compared",
            summary.requests, summary.writes, summary.crashes, summary.evictions, summary.answers
        );
        if !summary.failed.is_empty() {
            tell(&summary);
            return Ok(ExitCode::FAILURE);
        }
        if let Some(file) = &options.record {
            record(file, next)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn one(seed: u64) -> ExitCode {
    let outcome = run(seed);
    outcome.story.iter().for_each(|line| println!("{line}"));
    println!(
        "seed {seed}: {} requests, {} writes, {} changes of others, {} crashes, {} evictions, {} answers compared, \
         trace {:016x}",
        outcome.requests,
        outcome.writes,
        outcome.changes,
        outcome.crashes,
        outcome.evictions,
        outcome.answers,
        outcome.trace
    );
    outcome.wrong.iter().for_each(|wrong| println!("WRONG: {wrong}"));
    if outcome.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(summary: &Summary) {
    for outcome in &summary.failed {
        println!("seed {}: {}", outcome.seed, outcome.wrong.join("; "));
        println!("  {}", command(outcome.seed));
    }
}

/// The number of seeds in the file.
fn recorded(file: &std::path::Path) -> Result<u64> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let line = text.lines().find_map(|line| line.strip_prefix(MARK));
    let line = line.with_context(|| format!("{} has no line that begins with {MARK:?}", file.display()))?;
    let digits: String = line.chars().filter(char::is_ascii_digit).collect();
    digits.parse().with_context(|| format!("the number of seeds in {}", file.display()))
}

fn record(file: &std::path::Path, seeds: u64) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let lines: Vec<String> = text
        .lines()
        .map(|line| if line.starts_with(MARK) { format!("{MARK}{seeds}.") } else { line.to_owned() })
        .collect();
    fs::write(file, lines.join("\n") + "\n").with_context(|| format!("writing {}", file.display()))
}
