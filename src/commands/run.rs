//! `run`: the controllers, until a signal.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use anyhow::{Context, Result};
use dra_runtime::{
    Chance, Clock,
    client::{ConnectError, connect},
    limit::RateLimit,
    watch::Pace,
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use crate::{
    cli::RunOptions,
    manager::{self, Watches},
    telemetry,
};

/// `EAFNOSUPPORT` of Linux, which has no `ErrorKind`: the kernel was built or booted without IPv6.
const NO_SUCH_FAMILY: i32 = 97;

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(options: &RunOptions) -> Result<()> {
    let settings = options.settings()?;
    telemetry::init(options.v, options.log_format);
    // One thread for the work: planning takes microseconds, and handing each event to another thread would cost more than the
    // work itself.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    // And one for the watches, which reads events in bunches.
    let pace = Pace::default();
    let watching = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("watches")
        .on_thread_park({
            let pace = pace.clone();
            move || pace.pause()
        })
        .enable_all()
        .build()
        .context("cannot start the thread of the watches")?;
    let watches = watching.handle().clone();
    let result = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        tokio::pin!(stop);
        let limit = settings.limit.map(|(qps, burst)| RateLimit::new(qps, burst));
        let kubeconfig = options.kubeconfig.clone();
        // On a thread of its own: a credential plugin is waited for without yielding.
        let here = tokio::runtime::Handle::current();
        let there = watches.clone();
        let connecting = tokio::task::spawn_blocking(move || {
            let kubeconfig = kubeconfig.as_deref();
            let client = here.block_on(connect(kubeconfig, limit.clone()))?;
            let watch_client = there.block_on(connect(kubeconfig, limit))?;
            Ok::<_, ConnectError>((client, watch_client))
        });
        let (client, watch_client) = tokio::select! {
            clients = connecting => clients.context("connecting has failed")??,
            () = &mut stop => return Ok(()),
        };
        let watches = Watches { client: watch_client, runtime: Some(watches), pace };
        let listener = listen(options.bind_address).await?;
        let address = listener.local_addr().unwrap_or(options.bind_address);
        tracing::info!(version = env!("CARGO_PKG_VERSION"), %address, ?settings, "starting");
        let chance = Arc::new(Chance::from_entropy());
        manager::run(client, &watches, &settings, Some(listener), Clock::system(), chance, stop).await
    });
    // Whatever still waits for an API server that does not answer is not waited for.
    watching.shutdown_background();
    runtime.shutdown_background();
    result
}

/// Listens on the address; on all IPv4 addresses if it means all addresses and the node has no IPv6.
async fn listen(address: SocketAddr) -> Result<TcpListener> {
    let unavailable = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::AddrNotAvailable)
            || error.raw_os_error() == Some(NO_SUCH_FAMILY)
    };
    let bound = match TcpListener::bind(address).await {
        Err(error)
            if address == SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port()))
                && unavailable(&error) =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    };
    bound.with_context(|| {
        format!("--bind-address: cannot listen on {address}; is another process using the port?")
    })
}
