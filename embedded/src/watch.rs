//! Watches: what is there, what changes, bookmarks, and the end.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{Stream, stream};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    call::Call,
    faults::{EventFate, Faults},
    kinds::{KindInfo, Version},
    object::{bytes, meta, set},
    refusal::{Cause, Refusal},
    select::Selector,
    server::Server,
    state::{Change, Forgotten, State, parse_version},
};

/// How long a watch lasts that does not say.
const LASTS: Duration = Duration::from_mins(30);
/// How often a quiet watch is told the current revision.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);

/// A watch that has begun.
#[derive(Debug)]
pub(crate) struct Watch {
    kind: &'static KindInfo,
    version: &'static Version,
    selector: Selector,
    bookmarks: bool,
    lasts: Duration,
    /// Lines to send before anything else.
    waiting: VecDeque<Bytes>,
    /// Everything up to this revision has been sent.
    seen: u64,
}

impl State {
    /// Begins a watch.
    ///
    /// # Errors
    /// The options contradict each other or a selector is malformed.
    pub(crate) fn watch(&self, call: &Call) -> Result<Watch, Refusal> {
        let asked = parse_version(call.query("resourceVersion"))?;
        let bookmarks = call.flag("allowWatchBookmarks");
        let initial = match call.query("sendInitialEvents") {
            "" => None,
            _ => Some(call.flag("sendInitialEvents")),
        };
        if initial.is_some() && call.query("resourceVersionMatch") != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            let cause = Cause::forbidden("resourceVersionMatch", why);
            return Err(Refusal::invalid_kind("meta.k8s.io", "ListOptions", "", vec![cause]));
        }
        if initial.is_none() && !call.query("resourceVersionMatch").is_empty() {
            let cause = Cause::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            );
            return Err(Refusal::invalid_kind("meta.k8s.io", "ListOptions", "", vec![cause]));
        }
        if asked > self.revision() {
            return Err(Refusal::too_large_version(asked, self.revision()));
        }
        let lasts = match call.query("timeoutSeconds") {
            "" | "0" => LASTS,
            text => Duration::from_secs(
                text.parse().map_err(|_| Refusal::bad_request("timeoutSeconds is not a number"))?,
            ),
        };
        let mut watch = Watch {
            kind: call.kind,
            version: call.version,
            selector: Self::selector(call)?,
            bookmarks,
            lasts,
            waiting: VecDeque::new(),
            seen: asked,
        };
        if initial.unwrap_or(asked == 0) {
            watch.seen = self.revision();
            for object in self.all(call.kind).filter(|o| watch.selector.selects(o)) {
                let line = watch.line("ADDED", object);
                watch.waiting.push_back(line);
            }
            if initial == Some(true) && bookmarks {
                let end = watch.bookmark(Some(("k8s.io/initial-events-end", "true")));
                watch.waiting.push_back(end);
            }
        }
        Ok(watch)
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    let mut line = format!("{{\"type\":\"{kind}\",\"object\":").into_bytes();
    line.extend(bytes(object));
    line.extend(b"}\n");
    Bytes::from(line)
}

impl Watch {
    fn line(&self, event: &str, object: &Arc<Value>) -> Bytes {
        if self.kind.versions.first().is_some_and(|v| v.name == self.version.name) {
            return line(event, object);
        }
        let mut object = Value::clone(object);
        set(&mut object, &["apiVersion"], json!(self.kind.api_version(self.version.name)));
        line(event, &object)
    }

    fn bookmark(&self, annotation: Option<(&str, &str)>) -> Bytes {
        let mut object = json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(self.version.name),
            "metadata": {"resourceVersion": self.seen.to_string(), "creationTimestamp": null}});
        if let Some((key, value)) = annotation {
            set(&mut object, &["metadata", "annotations", key], json!(value));
        }
        line("BOOKMARK", &object)
    }

    /// The line for a change; none when it is not selected.
    fn change(&self, change: &Change) -> Option<Bytes> {
        let selected = |state: &Option<Arc<Value>>| state.as_ref().is_some_and(|o| self.selector.selects(o));
        let event = match (selected(&change.before), selected(&change.after)) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        if let ("DELETED", Some(after), Some(before)) = (event, &change.after, &change.before) {
            // It is still there, but not selected any more: the last state that was, as of now.
            let mut last = Value::clone(before);
            set(&mut last, &["metadata", "resourceVersion"], json!(meta(after, "resourceVersion")));
            return Some(self.line(event, &Arc::new(last)));
        }
        Some(self.line(event, &change.shown))
    }

    fn expired(&self, forgotten: Forgotten) -> Bytes {
        let text = format!("too old resource version: {} ({})", self.seen, forgotten.oldest);
        line("ERROR", &Refusal::expired(text).body())
    }

    /// The lines of this watch.
    pub(crate) fn lines(
        self,
        server: Server,
        faults: Option<Arc<Faults>>,
    ) -> impl Stream<Item = Bytes> + Send {
        let now = Instant::now();
        let running = Running {
            ends: now + self.lasts,
            bookmark_at: now + BOOKMARK_EVERY,
            watch: self,
            server,
            faults,
            due: None,
            over: false,
        };
        stream::unfold(running, |mut running| async move {
            let line = running.next().await?;
            Some((line, running))
        })
    }
}

/// A watch and where it stands.
struct Running {
    watch: Watch,
    server: Server,
    faults: Option<Arc<Faults>>,
    ends: Instant,
    bookmark_at: Instant,
    /// The next change and when it is shown.
    due: Option<(u64, Instant)>,
    over: bool,
}

/// What is to be done next.
enum Step {
    /// Send this.
    Send(Bytes),
    /// Nothing before this time, or before something changes when the flag is set.
    Wait(Instant, bool),
    End,
}

impl Running {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.watch.waiting.pop_front() {
                return Some(line);
            }
            if self.over {
                return None;
            }
            let server = self.server.clone();
            let changed = server.changes().notified();
            tokio::pin!(changed);
            // Seen before the state is looked at, so that no change is missed between the two.
            changed.as_mut().enable();
            match self.step() {
                Step::Send(line) => return Some(line),
                Step::End => self.over = true,
                Step::Wait(until, or_change) => {
                    tokio::select! {
                        biased;
                        () = changed, if or_change => {}
                        () = tokio::time::sleep_until(until) => {}
                    }
                }
            }
        }
    }

    fn step(&mut self) -> Step {
        let now = Instant::now();
        if now >= self.ends {
            self.over = true;
            return if self.watch.bookmarks { Step::Send(self.watch.bookmark(None)) } else { Step::End };
        }
        let server = self.server.clone();
        let state = server.state();
        if !state.serves(self.watch.kind, self.watch.version.name) {
            return Step::End;
        }
        let change = match state.next_change(self.watch.kind, self.watch.seen) {
            Err(forgotten) => {
                self.over = true;
                return Step::Send(self.watch.expired(forgotten));
            }
            Ok(Some(change)) => change,
            Ok(None) => {
                let revision = state.revision();
                drop(state);
                return self.quiet(now, revision);
            }
        };
        let due = self.due_at(change, now);
        if due > now {
            return Step::Wait(due.min(self.ends), false);
        }
        let line = self.watch.change(change);
        let revision = change.revision;
        drop(state);
        self.due = None;
        let fate = match (&self.faults, &line) {
            (Some(faults), Some(_)) => faults.event(),
            _ => EventFate::Comes,
        };
        if fate == EventFate::Dropped {
            return Step::End;
        }
        self.watch.seen = revision;
        self.over |= fate == EventFate::Last;
        let Some(line) = line else { return Step::Wait(now, false) };
        if fate == EventFate::Repeated {
            self.watch.waiting.push_back(line.clone());
        }
        Step::Send(line)
    }

    /// Nothing has changed.
    fn quiet(&mut self, now: Instant, revision: u64) -> Step {
        self.watch.seen = self.watch.seen.max(revision);
        if now >= self.bookmark_at {
            self.bookmark_at = now + BOOKMARK_EVERY;
            if self.watch.bookmarks {
                return Step::Send(self.watch.bookmark(None));
            }
        }
        Step::Wait(self.bookmark_at.min(self.ends), true)
    }

    /// When a change is shown. It never overtakes the one before it.
    fn due_at(&mut self, change: &Change, now: Instant) -> Instant {
        match self.due {
            Some((revision, due)) if revision == change.revision => due,
            _ => {
                let lag = self.faults.as_ref().map_or(Duration::ZERO, |f| f.lag(self.watch.kind));
                let happened = self.server.instant(change.at);
                let due = happened.checked_add(lag).unwrap_or(now).max(now);
                self.due = Some((change.revision, due));
                due
            }
        }
    }
}
