//! dra-controller-manager: the Kubernetes controllers for Dynamic Resource Allocation.
//!
//! The binary is [`main`]. [`run_on`] is for those who bring their own API server: simulation and tests.

mod cli;
mod commands;
mod discovery;
mod eviction;
mod kinds;
mod manager;
mod pools;
mod server;
mod telemetry;

use std::{process::ExitCode, sync::Arc};

use clap::Parser;
use dra_controllers::{devicetainteviction::DeviceTaintEviction, resourceclaim::Gates};
use dra_runtime::{Chance, Clock, watch::Pace};
use kube::Client;

/// Runs the command line.
pub fn main() -> ExitCode {
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

/// Runs all controllers with default settings on `client` until `stop` resolves, without an endpoint for
/// metrics. Dropping the future ends everything at once, as a crash would.
///
/// # Errors
/// None in practice: only what serves metrics can fail.
pub async fn run_on(
    client: Client,
    workers: usize,
    clock: Clock,
    chance: Arc<Chance>,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let settings = cli::Settings {
        resourceclaim: true,
        gates: Gates::default(),
        workers,
        limit: None,
        eviction: Some(cli::EvictionSettings {
            planner: DeviceTaintEviction::default(),
            workers,
            qps: None,
            rules: true,
        }),
        pools: Some(cli::PoolSettings { most_series: 0, rules: true }),
        debug: false,
    };
    let watches = manager::Watches { client: client.clone(), runtime: None, pace: Pace::default() };
    manager::run(client, &watches, &settings, None, clock, chance, stop).await
}
