//! The server as a handle, and connections to it as tower services.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use jiff::{SignedDuration, Timestamp};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::{sync::Notify, time::Instant};
use tower::{BoxError, Service};

use crate::{
    call::{self, Call, Target},
    discovery::{Page, nowhere},
    faults::{AnswerFate, Fate, Faults, Loss},
    kinds::{KINDS, position},
    load,
    object::{bytes, meta, set},
    refusal::Refusal,
    state::State,
};

/// The body of an answer.
pub type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

struct Inner {
    state: Mutex<State>,
    /// Wakes watches, in the order in which they wait: tokio's watch channel wakes its receivers in a random one.
    changed: Notify,
    /// The revision that they were last woken for.
    announced: AtomicU64,
    started: Instant,
    wall: Timestamp,
    /// By how many milliseconds the wall clock has been set forward.
    shifted: AtomicI64,
}

/// An API server in memory. Handles are cheap to clone and lead to the same server.
///
/// Time is tokio's, so that it stands still and jumps where tokio's does; names and uids are drawn from the seed.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("revision", &self.state().revision()).finish_non_exhaustive()
    }
}

/// A request that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Time since the server was started.
    pub at: Duration,
    /// Method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// HTTP status of the answer, whether or not it arrived.
    pub code: u16,
    /// The server's revision before it was carried out.
    pub before: u64,
    /// The revision after that; the same when nothing has changed.
    pub after: u64,
}

/// An object before and after a change; absent before it was created and after it was deleted.
pub type BeforeAndAfter = (Option<Arc<Value>>, Option<Arc<Value>>);

/// Told of each request of a connection after it was carried out.
pub type Observer = Arc<dyn Fn(&Exchange) + Send + Sync>;

impl Server {
    /// A server with the namespaces that every cluster has, whose clock shows `wall` now.
    #[must_use]
    pub fn new(seed: u64, wall: Timestamp) -> Self {
        let server = Self(Arc::new(Inner {
            state: Mutex::new(State::new(seed)),
            changed: Notify::new(),
            announced: AtomicU64::new(0),
            started: Instant::now(),
            wall,
            shifted: AtomicI64::new(0),
        }));
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let namespace = serde_json::json!({"metadata": {"name": name}});
            server.call(Method::POST, "/api/v1/namespaces", "application/json", &namespace);
        }
        server
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.elapsed = self.0.started.elapsed();
        state.now = self.now();
        state
    }

    /// Wakes whoever waits for a change.
    pub(crate) fn changes(&self) -> &Notify {
        &self.0.changed
    }

    pub(crate) fn instant(&self, elapsed: Duration) -> Instant {
        self.0.started.checked_add(elapsed).unwrap_or(self.0.started)
    }

    /// Tells watches what has changed.
    fn announce(&self, revision: u64) {
        if self.0.announced.swap(revision, Ordering::Relaxed) != revision {
            self.0.changed.notify_waiters();
        }
    }

    /// The server's wall-clock time.
    pub fn now(&self) -> Timestamp {
        let shift = SignedDuration::from_millis(self.0.shifted.load(Ordering::Relaxed));
        let passed = SignedDuration::try_from(self.0.started.elapsed()).unwrap_or(SignedDuration::MAX);
        self.0.wall.saturating_add(passed.saturating_add(shift)).unwrap_or(Timestamp::MAX)
    }

    /// Sets the wall clock forward, or back when `by` is negative.
    pub fn shift_clock(&self, by: SignedDuration) {
        let millis = i64::try_from(by.as_millis()).unwrap_or_default();
        self.0.shifted.fetch_add(millis, Ordering::Relaxed);
    }

    /// Serves a version of a kind from now on, or does so no more. Unknown kinds and versions are ignored.
    pub fn serve(&self, kind: &str, version: &str, on: bool) {
        let revision = {
            let mut state = self.state();
            if let Some(info) = position(kind).and_then(|i| KINDS.get(i)) {
                state.serve(info, version, on);
            }
            state.revision()
        };
        // Watches of the kind end.
        self.0.announced.store(revision, Ordering::Relaxed);
        self.0.changed.notify_waiters();
    }

    /// Generated names have only so many different suffixes, so that they collide.
    pub fn narrow_names(&self, suffixes: u64) {
        self.state().suffixes = suffixes.max(1);
    }

    /// Forgets the past: whoever continues from an earlier revision is told that it has expired.
    pub fn compact(&self) {
        self.state().compact();
    }

    /// The revision of the latest change.
    pub fn revision(&self) -> u64 {
        self.state().revision()
    }

    /// All objects of a kind, by namespace and name. Empty for a kind that there is not.
    pub fn objects(&self, kind: &str) -> Vec<Arc<Value>> {
        position(kind)
            .and_then(|i| KINDS.get(i))
            .map(|k| self.state().all(k).cloned().collect())
            .unwrap_or_default()
    }

    /// One object; the namespace is empty for a kind that has none.
    pub fn object(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let kind = position(kind).and_then(|i| KINDS.get(i))?;
        self.state().get(kind, namespace, name).map(|stored| Arc::clone(&stored.object))
    }

    /// Changes of objects of a kind after a revision, oldest first, as the states before and after. What is forgotten
    /// is left out.
    pub fn changes_since(&self, kind: &str, revision: u64) -> Vec<BeforeAndAfter> {
        let Some(kind) = position(kind).and_then(|i| KINDS.get(i)) else { return Vec::new() };
        self.state().changes_after(kind, revision).map(|c| (c.before.clone(), c.after.clone())).collect()
    }

    /// One pass of the garbage collector and of the namespace controller; how many objects it deleted. Owners of
    /// owners take as many passes as there are levels.
    pub fn collect_garbage(&self) -> usize {
        let (deleted, revision) = {
            let mut state = self.state();
            let deleted = state.collect();
            (deleted, state.revision())
        };
        self.announce(revision);
        deleted
    }

    /// Puts an object there as it is: uid, resourceVersion, times and status are kept, nothing is validated, and field
    /// managers are forgotten. What is missing is filled in, also the object's namespace. An object of the same name is
    /// replaced. For the time before anybody watches; the object as it is kept.
    ///
    /// # Errors
    /// The kind is not kept here, or the object's metadata cannot be used; the text names the field.
    pub fn load(&self, object: Value) -> Result<Arc<Value>, String> {
        let kind = load::kind_of(&object)?;
        let (kept, revision) = {
            let mut state = self.state();
            let kept = state.load(kind, object)?;
            let namespace = meta(&kept, "namespace").to_owned();
            let namespaces = position("Namespace").and_then(|i| KINDS.get(i)).filter(|_| kind.namespaced);
            if let Some(namespaces) = namespaces.filter(|k| state.get(k, "", &namespace).is_none()) {
                state.load(
                    namespaces,
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
                )?;
            }
            (kept, state.revision())
        };
        self.announce(revision);
        Ok(kept)
    }

    /// Waits until the revision is beyond this one.
    pub async fn changed(&self, revision: u64) {
        loop {
            let changed = self.changes().notified();
            tokio::pin!(changed);
            // Seen before the revision is looked at, so that no change is missed between the two.
            changed.as_mut().enable();
            if self.revision() > revision {
                return;
            }
            changed.await;
        }
    }

    /// Carries out one request at once; the status code and the answer. Watches are not possible this way.
    pub fn call(&self, method: Method, path: &str, content: &str, body: &Value) -> (u16, Value) {
        let Ok(uri) = path.parse::<Uri>() else { return (400, Value::Null) };
        let mut headers = HeaderMap::new();
        if let Ok(content) = HeaderValue::from_str(content) {
            headers.insert(header::CONTENT_TYPE, content);
        }
        let body = if body.is_null() { Vec::new() } else { bytes(body) };
        match call::read(method, &uri, &headers, body) {
            Target::Objects(call) => {
                let (code, body) = self.carry_out(&call);
                (code, Arc::unwrap_or_clone(body))
            }
            Target::Other(path) => match self.state().page(&path) {
                Page::Json(page) => (200, page),
                Page::Text(code, text) => (code, Value::String(text.to_owned())),
                Page::Refused(refusal) => (refusal.code(), refusal.body()),
            },
        }
    }

    fn carry_out(&self, call: &Call) -> (u16, Arc<Value>) {
        let (answer, revision) = {
            let mut state = self.state();
            if !state.serves(call.kind, call.version.name) {
                return match not_served(&state, call) {
                    Page::Refused(refusal) => (refusal.code(), Arc::new(refusal.body())),
                    _ => (404, Arc::new(Value::String("404 page not found\n".to_owned()))),
                };
            }
            (state.answer(call), state.revision())
        };
        self.announce(revision);
        match answer {
            Ok(mut answer) => {
                let is_object = answer.body.get("kind").and_then(Value::as_str) == Some(call.kind.kind);
                if is_object && call.kind.versions.first().is_some_and(|v| v.name != call.version.name) {
                    set(Arc::make_mut(&mut answer.body), &["apiVersion"], call.api_version().into());
                }
                (answer.code, answer.body)
            }
            Err(refusal) => (refusal.code(), Arc::new(refusal.body())),
        }
    }

    /// A connection on which nothing goes wrong.
    pub fn connection(&self) -> Connection {
        Connection { server: self.clone(), faults: None, observer: None }
    }

    /// A client on which nothing goes wrong.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.connection(), "default")
    }
}

/// A connection to a server: a service for [`kube::Client::new`].
#[derive(Clone)]
pub struct Connection {
    server: Server,
    faults: Option<Arc<Faults>>,
    observer: Option<Observer>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Connection {
    /// The same connection with faults.
    #[must_use]
    pub fn with_faults(mut self, faults: Arc<Faults>) -> Self {
        self.faults = Some(faults);
        self
    }

    /// The same connection with an observer.
    #[must_use]
    pub fn observed(mut self, observer: Observer) -> Self {
        self.observer = Some(observer);
        self
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<AnswerBody>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?.to_vec();
        let target = call::read(parts.method.clone(), &parts.uri, &parts.headers, body);
        let call = match &target {
            Target::Objects(call) => Some(&**call),
            Target::Other(_) => None,
        };
        let fate = self.faults.as_ref().map(|faults| faults.fate(call));
        let (before, after, answer) = match fate {
            None => (Duration::ZERO, Duration::ZERO, AnswerFate::Comes),
            Some(Fate::NotSent) => {
                return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into());
            }
            Some(Fate::Refused(refusal)) => return Ok(refused(&refusal)),
            Some(Fate::Lost(loss)) => return lost(loss).await,
            Some(Fate::Carried { before, after, answer }) => (before, after, answer),
        };
        pause(before).await;
        let revision = self.server.revision();
        let response = self.respond(target);
        if let Some(observer) = &self.observer {
            observer(&Exchange {
                at: self.server.0.started.elapsed(),
                method: parts.method,
                path: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
                code: response.status().as_u16(),
                before: revision,
                after: self.server.revision(),
            });
        }
        pause(after).await;
        match answer {
            AnswerFate::Comes => Ok(response),
            AnswerFate::Replaced(refusal) => Ok(refused(&refusal)),
            AnswerFate::Lost(loss) => lost(loss).await,
        }
    }

    fn respond(&self, target: Target) -> Response<AnswerBody> {
        let call = match target {
            Target::Objects(call) => call,
            Target::Other(path) => {
                return match self.server.state().page(&path) {
                    Page::Json(page) => whole(200, &page, None),
                    Page::Text(code, text) => plain(code, text),
                    Page::Refused(refusal) => refused(&refusal),
                };
            }
        };
        if call.method != Method::GET || !call.name.is_empty() || !call.flag("watch") {
            let (code, body) = self.server.carry_out(&call);
            return match &*body {
                Value::String(text) => plain(code, text),
                body => whole(code, body, None),
            };
        }
        let watch = {
            let state = self.server.state();
            if !state.serves(call.kind, call.version.name) {
                return match not_served(&state, &call) {
                    Page::Refused(refusal) => refused(&refusal),
                    _ => plain(404, "404 page not found\n"),
                };
            }
            state.watch(&call)
        };
        match watch {
            Err(refusal) => refused(&refusal),
            Ok(watch) => {
                let lines = watch.lines(self.server.clone(), self.faults.clone());
                let frames = lines.map(|line| Ok::<_, BoxError>(Frame::data(line)));
                response(200, "application/json", StreamBody::new(frames).boxed_unsync())
            }
        }
    }
}

/// What is said of a kind that is switched off.
fn not_served(state: &State, call: &Call) -> Page {
    match call.kind.group {
        "" => nowhere(state, &["api"]),
        group => nowhere(state, &["apis", group]),
    }
}

/// Waits, but does not even yield when there is nothing to wait for.
async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

async fn lost<T>(loss: Loss) -> Result<T, BoxError> {
    match loss {
        Loss::Reset => Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()),
        Loss::Silence => std::future::pending().await,
    }
}

fn response(code: u16, content: &'static str, body: AnswerBody) -> Response<AnswerBody> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content));
    response
}

fn full(bytes: Bytes) -> AnswerBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

fn plain(code: u16, text: &str) -> Response<AnswerBody> {
    response(code, "text/plain; charset=utf-8", full(Bytes::copy_from_slice(text.as_bytes())))
}

fn whole(code: u16, body: &Value, retry_after: Option<u32>) -> Response<AnswerBody> {
    let mut response = response(code, "application/json", full(Bytes::from(bytes(body))));
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn refused(refusal: &Refusal) -> Response<AnswerBody> {
    whole(refusal.code(), &refusal.body(), refusal.retry_after())
}

impl Service<Request<Body>> for Connection {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().answer(request))
    }
}
