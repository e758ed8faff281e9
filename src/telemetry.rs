//! Logging.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{EnvFilter, Layer as _, layer::SubscriberExt, util::SubscriberInitExt};

use crate::cli::LogFormat;

/// Sets up the log on standard error. `verbosity` counts as in other Kubernetes components; `RUST_LOG` overrides
/// it.
pub(crate) fn init(verbosity: u8, format: LogFormat) {
    let level = match verbosity {
        0 => LevelFilter::WARN,
        1..=3 => LevelFilter::INFO,
        4..=5 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // Libraries speak up one level later: their debug output is about sockets, not about claims.
    let libraries = if verbosity >= 6 { "debug" } else { "warn" };
    let ours = ["dra_controller_manager", "dra_act", "dra_runtime", "dra_controllers"]
        .map(|target| format!("{target}={level}"))
        .join(",");
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(format!("{libraries},{ours}")));
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let layer = match format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(filter)).init();
}
