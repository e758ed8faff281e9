//! dra-controller-manager: the Kubernetes controllers for Dynamic Resource Allocation.

mod cli;
mod commands;
mod discovery;
mod eviction;
mod kinds;
mod manager;
mod server;
mod telemetry;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let result = match cli.command {
        cli::Command::Run(options) => commands::run::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line with the whole chain; the logger may not be set up yet.
            eprintln!("dra-controller-manager: {error:#}");
            ExitCode::FAILURE
        }
    }
}
