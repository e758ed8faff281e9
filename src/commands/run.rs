//! `run`: the controllers, until a signal.

use std::sync::Arc;

use anyhow::{Context, Result};
use dra_runtime::{Chance, Clock, client::connect, limit::RateLimit};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use crate::{cli::RunOptions, manager, telemetry};

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(options: &RunOptions) -> Result<()> {
    let settings = options.settings()?;
    telemetry::init(options.v, options.log_format);
    // One thread: planning takes microseconds, and handing each event to another thread would cost more than the
    // work itself.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let result = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
        let limit = settings.limit.map(|(qps, burst)| RateLimit::new(qps, burst));
        let client = connect(options.kubeconfig.as_deref(), limit).await?;
        let address = options.bind_address;
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("--bind-address: cannot listen on {address}; is another process using the port?")
        })?;
        tracing::info!(version = env!("CARGO_PKG_VERSION"), %address, ?settings, "starting");
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let chance = Arc::new(Chance::from_entropy());
        manager::run(client, &settings, Some(listener), Clock::system(), chance, stop).await
    });
    // Whatever still waits for an API server that does not answer is not waited for.
    runtime.shutdown_background();
    result
}
