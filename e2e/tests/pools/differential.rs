//! The same cluster and the same requests for the in-tree controller and for ours: the answers are equal field by field,
//! except where a deviation of docs/DEVIATIONS.md applies to the pool.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dra_e2e::{ControlPlane, Manager, ManagerOptions, Options, Program};
use serde_json::{Value, json};

use crate::generate::{
    DEFAULT_ATTRIBUTE, EMPTY_TYPE, GENERATION_ZERO, Generator, HELD_TWICE, INCOMPLETE, NOT_PUBLISHED,
    SEVERAL_GPUS, TAINTED_AND_ALLOCATED, TAINTED_PARTITION, Traits, USED_UP,
};
use crate::world::World;

/// Requests; 300 with `DRACM_LONG`.
const REQUESTS: usize = 40;
const LONG_REQUESTS: usize = 300;
const SEED: u64 = 6;

/// Fields in which the answers about a pool may differ because of a deviation.
fn fields(deviation: &str) -> &'static [&'static str] {
    match deviation {
        TAINTED_AND_ALLOCATED => &["availableDevices", "unavailableDevices"],
        NOT_PUBLISHED => &[
            "allocatedDevices",
            "availableDevices",
            "partitionSummary",
            "shareableSummary",
            "validationError",
        ],
        HELD_TWICE => &["validationError"],
        SEVERAL_GPUS | DEFAULT_ATTRIBUTE => &["validationError", "partitionSummary"],
        TAINTED_PARTITION => &["partitionSummary"],
        USED_UP => &["shareableSummary"],
        _ => &[],
    }
}

fn numbers(text: &str) -> Option<usize> {
    text.split(|character: char| !character.is_ascii_digit()).find(|part| !part.is_empty())?.parse().ok()
}

/// Compares the answers; counts what differed by the deviation that allows it.
fn compare(
    spec: &Value,
    theirs: &Value,
    ours: &Value,
    traits: &Traits,
    seen: &mut BTreeMap<&'static str, usize>,
) -> Result<()> {
    ensure!(theirs.get("poolCount") == ours.get("poolCount"), "poolCount: {theirs} and {ours}");
    let list = |status: &Value| status.get("pools").and_then(Value::as_array).cloned().unwrap_or_default();
    let (their_pools, our_pools) = (list(theirs), list(ours));
    ensure!(their_pools.len() == our_pools.len(), "{} and {} pools", their_pools.len(), our_pools.len());
    for (their_pool, our_pool) in their_pools.iter().zip(&our_pools) {
        let text = |field: &str| our_pool.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let allowed = traits.get(&(text("driver"), text("poolName"))).context("an unknown pool")?;
        let (their_fields, our_fields) =
            (their_pool.as_object().context("no object")?, our_pool.as_object().context("no object")?);
        for field in their_fields.keys().chain(our_fields.keys()) {
            if their_fields.get(field) == our_fields.get(field) {
                continue;
            }
            let by = allowed.iter().find(|deviation| fields(deviation).contains(&field.as_str()));
            let by = by.with_context(|| {
                format!(
                    "{field} differs without a deviation: in-tree {their_pool}, ours {our_pool}, asked {spec}"
                )
            })?;
            let count = seen.entry(by).or_default();
            *count = count.saturating_add(1);
        }
    }
    for field in ["type", "status", "reason"] {
        let pointer = format!("/conditions/0/{field}");
        ensure!(theirs.pointer(&pointer) == ours.pointer(&pointer), "{field}: {theirs} and {ours}");
    }
    let message = |status: &Value| {
        status.pointer("/conditions/0/message").and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (their_message, our_message) = (message(theirs), message(ours));
    if their_message != our_message {
        // P12: in-tree calls every pool with an error incomplete.
        ensure!(numbers(&their_message) == numbers(&our_message), "{their_message} and {our_message}");
        let count = seen.entry("P12").or_default();
        *count = count.saturating_add(1);
    }
    Ok(())
}

/// Whether the in-tree controller never answers: one of the pools that it would list is of such a kind.
fn is_silent(ours: &Value, traits: &Traits) -> Option<&'static str> {
    let pools = ours.get("pools").and_then(Value::as_array)?;
    pools.iter().find_map(|pool| {
        let text = |field: &str| pool.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let traits = traits.get(&(text("driver"), text("poolName")))?;
        traits.iter().copied().find(|one| [INCOMPLETE, GENERATION_ZERO, EMPTY_TYPE].contains(one))
    })
}

#[tokio::test]
async fn answers_equal_those_of_the_in_tree_controller_except_for_named_deviations() -> Result<()> {
    let requests = if std::env::var_os("DRACM_LONG").is_some() { LONG_REQUESTS } else { REQUESTS };
    let plane = ControlPlane::start(Options { controllers: String::new(), ..Options::all_gates() }).await?;
    let world = World::of(&plane).await?;
    let mut generator = Generator::seeded(SEED);
    let mut drivers = Vec::new();
    for number in 0..requests.div_ceil(4) {
        drivers.push(generator.driver(&world, number).await?);
    }
    let mut asked: Vec<Value> = Vec::new();
    for number in 0..requests {
        let driver = drivers.get(number % drivers.len()).context("no driver")?;
        asked.push(generator.request(driver));
    }
    asked.push(json!({"driver": "unknown.example.com"}));

    let mut answers = Vec::new();
    for (program, prefix, patience) in [(Program::InTree, "theirs", 10), (Program::Ours, "ours", 60)] {
        let options = ManagerOptions::pool_status_of(program, &plane).await?;
        let manager = Manager::start(&plane, options).await?;
        for (number, spec) in asked.iter().enumerate() {
            world.ask(&format!("{prefix}-{number}"), spec.clone()).await?;
        }
        let mut found = Vec::new();
        let mut patience = Duration::from_secs(patience);
        for number in 0..asked.len() {
            let answer = world.answer(&format!("{prefix}-{number}"), patience).await;
            if program == Program::Ours {
                found.push(Some(answer?));
            } else {
                if answer.is_err() {
                    // Those that come later have waited long enough.
                    patience = Duration::from_millis(500);
                }
                found.push(answer.ok());
            }
        }
        // What is pending would be answered by the other one.
        for (number, answer) in found.iter().enumerate() {
            if answer.is_none() {
                world.delete_request(&format!("{prefix}-{number}")).await?;
            }
        }
        drop(manager);
        answers.push(found);
    }
    let (theirs, ours) = (answers.first().context("no answers")?, answers.get(1).context("no answers")?);
    let mut seen: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut compared = 0_usize;
    for ((spec, theirs), ours) in asked.iter().zip(theirs).zip(ours) {
        let ours = ours.as_ref().context("ours is missing")?;
        let result = match (theirs, is_silent(ours, &generator.traits)) {
            (Some(theirs), None) => {
                compared = compared.saturating_add(1);
                compare(spec, theirs, ours, &generator.traits, &mut seen)
            }
            (None, Some(deviation)) => {
                let count = seen.entry(deviation).or_default();
                *count = count.saturating_add(1);
                Ok(())
            }
            (theirs, silent) => {
                Err(anyhow::anyhow!("{spec}: in-tree {theirs:?}, expected {silent:?}, ours {ours}"))
            }
        };
        if let Err(error) = result {
            wrong.push(format!("{error:#}"));
        }
    }
    println!("{compared} answers compared field by field; differences by deviation: {seen:?}");
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(compared * 2 > asked.len(), "most requests are answered by both");
    Ok(())
}
