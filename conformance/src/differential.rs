//! Compares answers with those of the Go allocator on generated requests.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use dra_api::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::generate;
use crate::wire::{self, Request};

/// This allocator's answer in the harness's JSON form.
///
/// # Errors
///
/// The request cannot be decoded or the response not encoded.
pub fn ours(request: &Value) -> Result<Value, String> {
    let request = Request::parse(request.to_string().as_bytes())?;
    serde_json::to_value(wire::respond(&request)).map_err(|error| error.to_string())
}

/// How long an answer of the other program is waited for. Go's search takes exponential time on some requests.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Another program that answers requests: started with `lines`, it reads one on each line of its standard input and writes
/// each answer as a line. It is started again when it has ended or takes too long.
#[derive(Debug)]
pub struct Oracle {
    program: String,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
}

impl Oracle {
    /// The program is started with the first request.
    pub fn new(program: &str) -> Self {
        Self { program: program.to_owned(), running: None }
    }

    /// # Errors
    ///
    /// The program cannot be started, has ended, takes too long, or its answer is not JSON.
    pub fn answer(&mut self, request: &Value) -> Result<Value, String> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => Running::start(&self.program)?,
        };
        writeln!(running.requests, "{request}").map_err(|error| format!("write to the oracle: {error}"))?;
        let line = running.answers.recv_timeout(ANSWER_WITHIN).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("the oracle gave no answer within {ANSWER_WITHIN:?}"),
            RecvTimeoutError::Disconnected => "the oracle has ended".to_owned(),
        })?;
        self.running = Some(running);
        serde_json::from_str(&line).map_err(|error| format!("decode the oracle's answer {line:?}: {error}"))
    }
}

impl Running {
    fn start(program: &str) -> Result<Self, String> {
        let mut child = Command::new(program)
            .arg("lines")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("start {program}: {error}"))?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("start {program}: no pipes"));
        };
        let (sender, receiver) = mpsc::channel();
        // Ends with the program, or when nobody waits for its answers any more.
        std::thread::spawn(move || {
            for line in BufReader::new(answers).lines() {
                if line.is_err() || line.is_ok_and(|line| sender.send(line).is_err()) {
                    break;
                }
            }
        });
        Ok(Self { child, requests, answers: receiver })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What of an answer is compared: results without share identifiers and with quantities by value, the error as far as
/// its text is this project's to decide, and the number of steps.
#[derive(Debug, PartialEq)]
pub struct Essence {
    results: Value,
    error: String,
    node_only: bool,
    steps: u64,
}

impl Essence {
    /// Of an answer in the harness's JSON form.
    pub fn new(answer: &Value) -> Self {
        Self {
            results: essential(&answer["results"]),
            error: essential_error(answer["error"].as_str().unwrap_or_default()),
            node_only: answer["nodeOnly"].as_bool().unwrap_or_default(),
            steps: answer["numAllocateOneInvocations"].as_u64().unwrap_or_default(),
        }
    }

    /// What differs from the Go allocator's answer; empty if nothing does. Fewer steps are no difference.
    pub fn differences(&self, theirs: &Self) -> String {
        let mut text = String::new();
        if self.results != theirs.results {
            let _ = writeln!(text, "results: ours {}\n        theirs {}", self.results, theirs.results);
        }
        if self.error != theirs.error || self.node_only != theirs.node_only {
            let _ = writeln!(
                text,
                "error: ours {:?} {}\n      theirs {:?} {}",
                self.error, self.node_only, theirs.error, theirs.node_only
            );
        }
        if self.steps > theirs.steps {
            let _ = writeln!(text, "steps: ours {}, theirs {}", self.steps, theirs.steps);
        }
        text
    }

    /// In a form that can be kept in a file.
    pub fn record(&self) -> Value {
        json!([self.results, self.error, self.node_only, self.steps])
    }

    /// From the form that is kept in a file.
    pub fn from_record(record: &Value) -> Self {
        Self {
            results: record[0].clone(),
            error: record[1].as_str().unwrap_or_default().to_owned(),
            node_only: record[2].as_bool().unwrap_or_default(),
            steps: record[3].as_u64().unwrap_or_default(),
        }
    }
}

/// Absent, `null` and empty lists and maps are the same here, as they are to the API server.
fn essential(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(essential).collect(),
        Value::Object(fields) => {
            let mut kept = Map::new();
            for (name, field) in fields {
                let field = match name.as_str() {
                    "shareID" => json!("some"),
                    "consumedCapacity" => quantities(field),
                    _ => essential(field),
                };
                let is_empty = match &field {
                    Value::Null => true,
                    Value::Array(items) => items.is_empty(),
                    Value::Object(fields) => fields.is_empty(),
                    _ => false,
                };
                if !is_empty {
                    kept.insert(name.clone(), field);
                }
            }
            kept.into()
        }
        other => other.clone(),
    }
}

/// Go prints whole multiples of 10^21 wrongly, so that quantities are compared as nano-units.
fn quantities(value: &Value) -> Value {
    let fields: BTreeMap<String, Value> = value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, quantity)| {
            let parsed = quantity.as_str().and_then(|text| Quantity::parse(text).ok());
            let value = parsed.and_then(|quantity| quantity.scaled_value(-9).map(|nanos| (quantity, nanos)));
            let text = match value {
                Some((_, nanos)) => json!(nanos),
                None => quantity.clone(),
            };
            (name.clone(), text)
        })
        .collect();
    json!(fields)
}

/// Messages of the CEL library, of the node selector parser and of the class lister are theirs; which of several
/// capacities is named first is random in Go.
fn essential_error(text: &str) -> String {
    for end in [
        "CEL compile error: ",
        "CEL runtime error: ",
        "compile derived attribute ",
        "evaluate derived attribute ",
        "failed to perform node selection for device ",
        "failed to parse node selector",
        "could not retrieve device class ",
        "capacity \"",
    ] {
        if let Some(position) = text.find(end) {
            return text.get(..position + end.len()).unwrap_or(text).to_owned();
        }
    }
    text.to_owned()
}

/// The request of this seed, both answers, and what differs.
#[derive(Debug)]
pub struct Comparison {
    /// The request.
    pub request: Value,
    /// This allocator's answer.
    pub ours: Value,
    /// The other program's answer.
    pub theirs: Value,
    /// Empty if nothing differs.
    pub differences: String,
}

/// Compares the answers to one request.
///
/// # Errors
///
/// One of the programs gave no answer.
pub fn compare(oracle: &mut Oracle, request: Value) -> Result<Comparison, String> {
    let ours = ours(&request)?;
    let theirs = oracle.answer(&request)?;
    let differences = Essence::new(&ours).differences(&Essence::new(&theirs));
    Ok(Comparison { request, ours, theirs, differences })
}

/// Removes whatever can be removed from a request while the answers still differ.
///
/// # Errors
///
/// One of the programs gave no answer to the request as it was.
pub fn shrink(program: &str, request: Value) -> Result<Comparison, String> {
    let mut oracle = Oracle::new(program);
    let mut best = compare(&mut oracle, request)?;
    loop {
        let mut smaller = None;
        for candidate in reductions(&best.request) {
            match compare(&mut oracle, candidate) {
                Ok(comparison) if !comparison.differences.is_empty() => {
                    smaller = Some(comparison);
                    break;
                }
                // The Go allocator panics on some requests that no API server accepts.
                Ok(_) | Err(_) => {}
            }
        }
        match smaller {
            Some(comparison) => best = comparison,
            None => return Ok(best),
        }
    }
}

/// The value with one item or field less, somewhere; large parts first.
fn reductions(value: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    match value {
        Value::Array(items) => {
            for position in 0..items.len() {
                let mut fewer = items.clone();
                fewer.remove(position);
                found.push(Value::Array(fewer));
            }
            for (position, item) in items.iter().enumerate() {
                for reduced in reductions(item) {
                    let mut changed = items.clone();
                    if let Some(item) = changed.get_mut(position) {
                        *item = reduced;
                    }
                    found.push(Value::Array(changed));
                }
            }
        }
        Value::Object(fields) => {
            for name in fields.keys().filter(|name| !NEEDED.contains(&name.as_str())) {
                let mut fewer = fields.clone();
                fewer.remove(name);
                found.push(Value::Object(fewer));
            }
            for (name, field) in fields {
                for reduced in reductions(field) {
                    let mut changed = fields.clone();
                    changed.insert(name.clone(), reduced);
                    found.push(Value::Object(changed));
                }
            }
        }
        _ => {}
    }
    found
}

/// Without these an object is not one that either program is made for.
const NEEDED: [&str; 16] = [
    "name",
    "metadata",
    "spec",
    "pool",
    "driver",
    "device",
    "generation",
    "resourceSliceCount",
    "allocationMode",
    "node",
    "exactly",
    "value",
    "min",
    "cel",
    "expression",
    "deviceClassName",
];

/// Runs `differential` with its arguments: `ORACLE FIRST COUNT [-record FILE] [-shrink]`.
///
/// # Errors
///
/// An argument is not understood, a program failed, or answers differ.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let usage =
        || "usage: dra-conformance differential ORACLE FIRST COUNT [-record FILE] [-shrink]".to_owned();
    let [program, first, count, rest @ ..] = arguments else { return Err(usage()) };
    let first: u64 = first.parse().map_err(|_| usage())?;
    let count: u64 = count.parse().map_err(|_| usage())?;
    let record = rest.iter().position(|one| one == "-record").and_then(|at| rest.get(at + 1));
    let shrinks = rest.iter().any(|one| one == "-shrink");
    let mut recorded = String::new();
    let (mut differing, mut found, mut none, mut failed, mut fewer) = (0_u64, 0_u64, 0_u64, 0_u64, 0_u64);
    let mut undecided = 0_u64;
    let mut oracle = Oracle::new(program);
    for seed in first..first.saturating_add(count) {
        let comparison = match compare(&mut oracle, generate::request(seed)) {
            Ok(comparison) => comparison,
            Err(error) => {
                println!("seed {seed} is not compared: {error}");
                undecided += 1;
                // Some searches of Go take for ever; more than one in a hundred would mean that something else is wrong.
                if undecided > 1 + count / 100 {
                    return Err("too many requests could not be compared".to_owned());
                }
                continue;
            }
        };
        let essence = Essence::new(&comparison.theirs);
        match (&essence.results, essence.error.is_empty()) {
            (Value::Null, true) => none += 1,
            (_, true) => found += 1,
            (_, false) => failed += 1,
        }
        fewer += u64::from(Essence::new(&comparison.ours).steps < essence.steps);
        let _ = writeln!(recorded, "{}", essence.record());
        if comparison.differences.is_empty() {
            continue;
        }
        differing += 1;
        println!("seed {seed} differs:\n{}", comparison.differences);
        if shrinks {
            let small = shrink(program, comparison.request)?;
            println!("shrunk:\n{}\n{}\n", small.request, small.differences);
        }
    }
    if let Some(path) = record {
        std::fs::write(path, recorded).map_err(|error| format!("write {path}: {error}"))?;
    }
    println!(
        "{count} requests from seed {first}: {found} allocated, {none} do not fit, {failed} errors; fewer steps in \
         {fewer}; {differing} differ"
    );
    if differing == 0 { Ok(()) } else { Err(format!("{differing} answers differ")) }
}
