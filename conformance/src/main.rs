//! Answers conformance requests, so that the tests of the Go allocator and CEL library can run against these crates.
//!
//! - `dra-conformance cel` answers expressions, one request a line (`e2e/conformance/cel/oracle.go`)
//! - `dra-conformance allocate` reads one request from standard input and writes the answer to standard output
//! - `dra-conformance bench [-time 1s] [-cold] FILE...` times the allocation of requests in files
//! - `dra-conformance cold bench …` is `bench -cold …`
//! - `dra-conformance scale` measures an inventory of a million devices
//! - `dra-conformance generate SEED` writes a random request
//! - `dra-conformance differential ORACLE FIRST COUNT [-record FILE] [-shrink]` compares answers to random requests with
//!   those of another program
//!
//! The formats are those of `e2e/conformance/allocator/external`: `wire.go` and `loopback/bench.go`.

use std::io::{BufRead, Read, Write};
use std::process::ExitCode;

use dra_conformance::{bench, differential, generate, scale, wire};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first().map(|(command, rest)| (command.as_str(), rest)) {
        Some(("allocate", [])) => allocate(),
        Some(("cel", [])) => cel(),
        Some(("bench", rest)) => bench::run(rest),
        // For `bench.py`, which calls a program with `bench` and its own arguments.
        Some(("cold", [bench, rest @ ..])) if bench == "bench" => {
            bench::run(&[&["-cold".to_owned()], rest].concat())
        }
        Some(("scale", [])) => scale::run(),
        Some(("generate", [seed])) => seed
            .parse()
            .map(|seed| println!("{}", generate::request(seed)))
            .map_err(|error| format!("seed {seed}: {error}")),
        Some(("differential", rest)) => differential::run(rest),
        _ => Err(
            "usage: dra-conformance allocate | cel | [cold] bench … | scale | generate SEED | differential …"
                .to_owned(),
        ),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dra-conformance: {error}");
            ExitCode::FAILURE
        }
    }
}

fn allocate() -> Result<(), String> {
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text).map_err(|error| format!("read standard input: {error}"))?;
    let request = wire::Request::parse(&text)?;
    let response = wire::respond(&request);
    let text = serde_json::to_string(&response).map_err(|error| format!("encode response: {error}"))?;
    println!("{text}");
    Ok(())
}

fn cel() -> Result<(), String> {
    let compiler = dra_cel::Compiler::new();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| format!("read standard input: {error}"))?;
        if !line.trim().is_empty() {
            writeln!(out, "{}", dra_cel::wire::answer_line(&compiler, &line))
                .map_err(|error| format!("write standard output: {error}"))?;
        }
    }
    Ok(())
}
