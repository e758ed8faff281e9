//! Watching one kind: wait until it is served, then keep the view up to date, and say how it goes.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dra_act::Shared;
use dra_api::{Kind, Object};
use dra_controllers::view::{Source, Tracked};
use dra_runtime::{
    Chance,
    watch::{Event, Pace, watch},
};
use kube::Client;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use crate::discovery::is_served;

/// How often an API that is not served is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// How often an API server that does not answer is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// How the watch of one kind stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The API server has not said yet whether it serves the kind.
    Asking {
        /// What it said instead.
        error: Option<String>,
    },
    /// The API server does not serve the kind.
    NotServed,
    /// The first list is under way.
    Listing {
        /// Why it had to be begun again.
        error: Option<String>,
    },
    /// The view has all objects and follows their changes.
    Synced,
    /// The view has all objects, but the watch is interrupted.
    Interrupted {
        /// Why.
        error: String,
    },
}

/// State of one kind, for readiness.
#[derive(Debug)]
pub(crate) struct KindStatus {
    /// Plural name.
    pub(crate) name: &'static str,
    /// True when the manager is not ready without it.
    pub(crate) required: bool,
    state: Mutex<State>,
    changed: tokio::sync::Notify,
}

impl KindStatus {
    pub(crate) fn new<T: Object>(required: bool) -> Arc<Self> {
        Arc::new(Self {
            name: T::KIND.plural,
            required,
            state: Mutex::new(State::Asking { error: None }),
            changed: tokio::sync::Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> State {
        self.lock().clone()
    }

    fn set(&self, state: State) {
        *self.lock() = state;
        self.changed.notify_waiters();
    }

    /// An interrupted watch runs again.
    fn resumed(&self, synced: &IntGauge) {
        if matches!(*self.lock(), State::Interrupted { .. }) {
            synced.set(1);
            self.set(State::Synced);
        }
    }

    /// True when work need not wait for this kind.
    pub(crate) fn is_ready(&self) -> bool {
        match self.state() {
            State::Synced | State::Interrupted { .. } => true,
            State::NotServed | State::Listing { error: Some(_) } => !self.required,
            State::Asking { .. } | State::Listing { error: None } => false,
        }
    }

    /// Waits until work need not wait for this kind.
    pub(crate) async fn ready(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_ready() {
                return;
            }
            changed.await;
        }
    }
}

/// Metrics of all watches.
#[derive(Clone, Debug)]
pub(crate) struct WatchMetrics {
    events: IntCounterVec,
    failures: IntCounterVec,
    unreadable: IntCounterVec,
    synced: IntGaugeVec,
}

impl WatchMetrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str| {
            let counter = IntCounterVec::new(Opts::new(name, help), &["resource"])?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let synced = IntGaugeVec::new(
            Opts::new(
                "dra_controller_manager_watch_synced",
                "1 while all objects of the resource are known and their changes are followed",
            ),
            &["resource"],
        )?;
        registry.register(Box::new(synced.clone()))?;
        Ok(Self {
            events: counter(
                "dra_controller_manager_watch_events_total",
                "Objects that watches and lists have shown",
            )?,
            failures: counter(
                "dra_controller_manager_watch_failures_total",
                "Watches that failed and were restored",
            )?,
            unreadable: counter(
                "dra_controller_manager_unreadable_objects_total",
                "Objects in watches and lists that could not be decoded; the log names object and field",
            )?,
            synced,
        })
    }
}

/// Follows one kind for ever, which the API server is known to serve: reads it as `W` and keeps it as `T`.
/// `on_synced` is called after each complete list.
pub(crate) async fn follow<W: Object + Into<T>, T: Tracked>(
    client: Client,
    shared: Arc<Shared>,
    status: Arc<KindStatus>,
    metrics: WatchMetrics,
    chance: Arc<Chance>,
    pace: Pace,
    on_synced: impl Fn(),
) {
    status.set(State::Listing { error: None });
    let resource = [T::KIND.plural];
    let events = metrics.events.with_label_values(&resource);
    let failures = metrics.failures.with_label_values(&resource);
    let unreadable = metrics.unreadable.with_label_values(&resource);
    let synced = metrics.synced.with_label_values(&resource);
    let mut listing = true;
    watch::<W>(client, &chance, &pace, |event| match event {
        Event::ListBegins { asked } => {
            listing = true;
            shared.update(|view, now| {
                view.list_begins::<T>(now.saturating_sub(asked));
                None
            });
        }
        Event::Applied(object) => {
            events.inc();
            shared.update(|view, now| view.observe::<T>(object.into(), Source::Watch, now));
            if !listing {
                status.resumed(&synced);
            }
        }
        Event::Deleted(key, uid) => {
            events.inc();
            shared.update(|view, _| view.deleted::<T>(&key, &uid));
            status.resumed(&synced);
        }
        Event::Resumed => status.resumed(&synced),
        Event::ListEnds => {
            listing = false;
            shared.update(|view, _| view.list_ends::<T>());
            // Before work may begin: it depends on what this tells.
            on_synced();
            synced.set(1);
            status.set(State::Synced);
        }
        Event::Unreadable(key, error) => {
            unreadable.inc();
            tracing::warn!(kind = T::KIND.kind, %key, %error,
                "the object cannot be read; the last state that could be read is kept: correct or delete it");
            shared.update(|view, _| {
                view.unreadable::<T>(&key);
                None
            });
        }
        Event::Failed(error) => {
            failures.inc();
            tracing::warn!(kind = T::KIND.kind, %error, "the watch failed and is being restored");
            match status.state() {
                State::Synced | State::Interrupted { .. } => {
                    synced.set(0);
                    status.set(State::Interrupted { error });
                }
                _ => status.set(State::Listing { error: Some(error) }),
            }
        }
    })
    .await;
}

/// Waits until the API server serves one of the versions of a kind, the best one first; returns which.
pub(crate) async fn wait_until_served(client: &Client, status: &KindStatus, versions: &[Kind]) -> usize {
    let kind = versions.first().map_or("", |kind| kind.kind);
    loop {
        let mut served = Ok(None);
        for (version, kind) in versions.iter().enumerate() {
            served = is_served(client, kind).await.map(|is| is.then_some(version));
            if !matches!(served, Ok(None)) {
                break;
            }
        }
        let pause = match served {
            Ok(Some(version)) => return version,
            Ok(None) => {
                if status.state() != State::NotServed {
                    let tried: Vec<String> = versions.iter().map(Kind::api_version).collect();
                    tracing::warn!(
                        kind,
                        api_versions = tried.join(", "),
                        "the API server does not serve this API; going on without it until it does"
                    );
                    status.set(State::NotServed);
                }
                ASK_AGAIN
            }
            Err(error) => {
                let error = error.to_string();
                if status.state() != (State::Asking { error: Some(error.clone()) }) {
                    tracing::warn!(kind, %error, "the API server does not answer yet");
                    status.set(State::Asking { error: Some(error) });
                }
                RETRY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Waits until a version of a kind is served no more, as after an upgrade of the API server. It is asked only while the
/// watch is interrupted.
pub(crate) async fn until_unserved(client: &Client, status: &KindStatus, version: &Kind) {
    loop {
        tokio::time::sleep(ASK_AGAIN).await;
        let fails = matches!(status.state(), State::Interrupted { .. } | State::Listing { error: Some(_) });
        if fails && matches!(is_served(client, version).await, Ok(false)) {
            return;
        }
    }
}
