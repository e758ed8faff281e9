//! dra-controller-manager: the Kubernetes controllers for Dynamic Resource Allocation.
//!
//! The binary is [`main`]. [`run_on`] is for those who bring their own API server: simulation and tests.

mod cli;
mod commands;
mod discovery;
mod eviction;
mod input;
mod kinds;
mod manager;
mod pools;
mod server;
mod table;
mod telemetry;

use std::{process::ExitCode, sync::Arc};

use clap::Parser;
use dra_act::Journal;
use dra_controllers::{devicetainteviction::DeviceTaintEviction, resourceclaim::Gates};
use dra_runtime::{Chance, Clock, watch::Pace};
use kube::Client;

/// Runs the command line.
pub fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let result = match cli.command {
        cli::Command::Run(options) => commands::run::run(&options),
        cli::Command::Demo(options) => commands::demo::run(&options),
        cli::Command::Simulate(options) => commands::simulate::run(&options),
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

/// Which controllers [`run_on`] runs, and how.
#[derive(Clone, Debug)]
pub struct Controllers {
    /// Keys that each controller works on at once; 0 counts as 1.
    pub workers: usize,
    /// The claim controller, with feature gates.
    pub resourceclaim: Option<Gates>,
    /// The taint eviction controller, with its options.
    pub eviction: Option<DeviceTaintEviction>,
    /// Pods evicted per second at most.
    pub eviction_qps: Option<f64>,
    /// The controller that answers `ResourcePoolStatusRequests`.
    pub pools: bool,
    /// Where everything that they do is written down.
    pub journal: Option<Journal>,
}

impl Controllers {
    /// All of them with default options.
    #[must_use]
    pub fn all(workers: usize) -> Self {
        Self { eviction: Some(DeviceTaintEviction::default()), pools: true, ..Self::claims(workers) }
    }

    /// The claim controller alone, with default gates.
    #[must_use]
    pub fn claims(workers: usize) -> Self {
        Self {
            workers,
            resourceclaim: Some(Gates::default()),
            eviction: None,
            eviction_qps: None,
            pools: false,
            journal: None,
        }
    }

    fn settings(&self) -> cli::Settings {
        let workers = self.workers.max(1);
        cli::Settings {
            resourceclaim: self.resourceclaim.is_some(),
            gates: self.resourceclaim.unwrap_or_default(),
            workers,
            limit: None,
            eviction: self.eviction.map(|planner| cli::EvictionSettings {
                planner,
                workers,
                qps: self.eviction_qps,
                rules: true,
            }),
            pools: self.pools.then_some(cli::PoolSettings { most_series: 0, rules: true }),
            debug: false,
            journal: self.journal.clone(),
        }
    }
}

/// Runs controllers on `client` until `stop` resolves, without an endpoint for metrics. Dropping the future ends
/// everything at once, as a crash would.
///
/// # Errors
/// None in practice: only what serves metrics can fail.
pub async fn run_on(
    client: Client,
    controllers: &Controllers,
    clock: Clock,
    chance: Arc<Chance>,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    run_with(client, &controllers.settings(), clock, chance, stop).await
}

/// The same as the flags of `run` ask for.
async fn run_with(
    client: Client,
    settings: &cli::Settings,
    clock: Clock,
    chance: Arc<Chance>,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let watches = manager::Watches { client: client.clone(), runtime: None, pace: Pace::default() };
    manager::run(client, &watches, settings, None, clock, chance, stop).await
}
