//! `/metrics`, `/livez` and `/readyz`; `/debug/pools` if asked for.

use std::{
    collections::HashMap,
    fmt::Write,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Result;
use axum::{
    Router,
    extract::{Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use dra_act::Shared;
use dra_allocator::Inventory;
use dra_api::ClaimSource;
use dra_controllers::resourceclaim;
use dra_runtime::queue::Queue;
use prometheus::{IntGaugeVec, Opts, Registry, TextEncoder, process_collector::ProcessCollector};

use crate::{
    eviction::EvictionController,
    kinds::{self, KindStatus},
    pools::{PoolController, debug_pools},
};

/// What the endpoints report on.
#[derive(Debug)]
pub(crate) struct Reporter {
    registry: Registry,
    shared: Arc<Shared>,
    queue: Arc<Queue<resourceclaim::Key>>,
    eviction: Option<Arc<EvictionController>>,
    pools: Option<Arc<PoolController>>,
    kinds: Vec<Arc<KindStatus>>,
    debug: bool,
    claims: IntGaugeVec,
    scrape: Mutex<()>,
}

impl Reporter {
    pub(crate) fn new(
        registry: Registry,
        shared: Arc<Shared>,
        queue: Arc<Queue<resourceclaim::Key>>,
        (eviction, pools): (Option<Arc<EvictionController>>, Option<Arc<PoolController>>),
        kinds: Vec<Arc<KindStatus>>,
        debug: bool,
    ) -> Result<Self, prometheus::Error> {
        registry.register(Box::new(ProcessCollector::for_self()))?;
        let claims = IntGaugeVec::new(
            Opts::new(
                "dynamic_resource_allocation_resource_claims",
                "Number of ResourceClaims, categorized by allocation status, admin access, and the source of the \
                 ResourceClaim",
            ),
            &["allocated", "admin_access", "source"],
        )?;
        registry.register(Box::new(claims.clone()))?;
        Ok(Self { registry, shared, queue, eviction, pools, kinds, debug, claims, scrape: Mutex::new(()) })
    }

    fn metrics(&self) -> Result<String, prometheus::Error> {
        // Two scrapes at once must not see each other's reset.
        let _one = self.scrape.lock().unwrap_or_else(PoisonError::into_inner);
        self.queue.refresh_metrics();
        self.claims.reset();
        let now = self.shared.clock().elapsed();
        let devices = self.shared.read(|view| {
            if let Some(eviction) = &self.eviction {
                eviction.refresh_metrics(view, now);
            }
            if let Some(pools) = &self.pools {
                pools.refresh_metrics(view);
            }
            for ((allocated, admin, source), count) in view.claim_counts() {
                let flag = |on: bool| if on { "true" } else { "false" };
                let source = match source {
                    ClaimSource::User => "",
                    ClaimSource::Template => "resource_claim_template",
                    ClaimSource::ExtendedResource => "extended_resource",
                };
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                self.claims.with_label_values(&[flag(allocated), flag(admin), source]).set(count);
            }
            view.inventory().map(Inventory::snapshot)
        });
        if let (Some(pools), Some(devices)) = (&self.pools, devices) {
            pools.refresh_pools(&devices);
        }
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }

    /// Readiness and one line for each kind, in the style of the API server's own endpoint.
    fn readiness(&self) -> (bool, String) {
        let mut ready = true;
        let mut text = String::new();
        for kind in &self.kinds {
            let ok = kind.is_ready();
            ready &= ok;
            let mark = if ok { '+' } else { '-' };
            let said = match kind.state() {
                kinds::State::Asking { error: None } => "waiting for the API server".to_owned(),
                kinds::State::Asking { error: Some(error) } => format!("waiting for the API server: {error}"),
                kinds::State::NotServed => "not served by the API server".to_owned(),
                kinds::State::Listing { error: None } => "listing".to_owned(),
                kinds::State::Listing { error: Some(error) } => format!("listing failed: {error}"),
                kinds::State::Synced => "ok".to_owned(),
                kinds::State::Interrupted { error } => format!("ok, watch interrupted: {error}"),
            };
            let _ = writeln!(text, "[{mark}]{} {said}", kind.name);
        }
        text.push_str(if ready { "readyz check passed\n" } else { "readyz check failed\n" });
        (ready, text)
    }
}

/// The endpoints.
pub(crate) fn router(reporter: Arc<Reporter>) -> Router {
    let mut router = Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(async || "ok"))
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(readyz));
    if reporter.debug {
        router = router.route("/debug/pools", get(pools));
    }
    router.with_state(reporter)
}

/// Everything about all pools, or those of `?driver=` and `?pool=`.
async fn pools(
    State(reporter): State<Arc<Reporter>>,
    Query(query): Query<HashMap<String, String>>,
) -> impl IntoResponse {
    let found = aside(move || {
        let wanted = |name: &str| query.get(name).map(String::as_str);
        let devices = reporter.shared.read(|view| view.inventory().map(Inventory::snapshot));
        let found = devices.map(|devices| debug_pools(&devices, wanted("driver"), wanted("pool")));
        Ok(found.unwrap_or_else(|| "[]".to_owned()))
    });
    answer("application/json", found.await)
}

async fn metrics(State(reporter): State<Arc<Reporter>>) -> impl IntoResponse {
    answer(prometheus::TEXT_FORMAT, aside(move || Ok(reporter.metrics()?)).await)
}

/// Computes on a thread of its own: the runtime's only one has controllers to run.
async fn aside(compute: impl FnOnce() -> Result<String> + Send + 'static) -> Result<String> {
    tokio::task::spawn_blocking(compute).await?
}

fn answer(content: &'static str, text: Result<String>) -> Response {
    match text {
        Ok(text) => (StatusCode::OK, [(header::CONTENT_TYPE, content)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")).into_response(),
    }
}

async fn readyz(
    State(reporter): State<Arc<Reporter>>,
    Query(query): Query<HashMap<String, String>>,
) -> impl IntoResponse {
    let (ready, text) = reporter.readiness();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    if ready && !query.contains_key("verbose") {
        return (status, "ok".to_owned());
    }
    (status, text)
}
