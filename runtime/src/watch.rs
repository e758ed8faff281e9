//! Watches that survive whatever the API server does.
//!
//! Built on `kube::runtime::watcher`, which lists, watches, resumes and relists on 410 in the stream. Added here,
//! because that watcher hangs or loops in these cases: a server that refuses or ignores streaming lists (then
//! LIST + WATCH), a watch that cannot be resumed because its bookmark has expired (then a new list), and an
//! object that does not decode (then only that object is reported, by name).

use std::{fmt::Debug, pin::pin, time::Duration};

use dra_api::{Object, ObjectKey, Uid};
use futures::{FutureExt, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client, Resource,
    core::DynamicResourceScope,
    runtime::watcher::{self, Config, watcher},
};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use crate::clock::{Chance, exponential};

/// Delay after the first failure of a watch.
const FIRST_RETRY: Duration = Duration::from_millis(200);
/// Longest delay between two attempts.
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// A server that knows streaming lists sends objects or the end of the list; one that ignores the parameter goes
/// quiet without an end.
const STREAMING_SILENCE: Duration = Duration::from_secs(15);
/// A failed watch that is quiet for so long has been restarted: longer than any answer is waited for.
const RESTORED_AFTER: Duration = Duration::from_secs(40);
/// How long events gather before they are read once more. The first event after a quiet time is read at once; in a
/// burst, waking up for each event would cost more than all the rest of what is done about it.
const GATHER: Duration = Duration::from_millis(10);
/// A watch that cannot be started so many times in a row is replaced by a new list.
const FAILED_STARTS: u32 = 5;

/// What a watch shows.
#[derive(Debug)]
pub enum Event<T> {
    /// A list of all objects begins (again). It was asked for no earlier than so long ago: what it lacks may have
    /// come since.
    ListBegins {
        /// Time since before the list was asked for.
        asked: Duration,
    },
    /// An object is there in this state, listed or changed.
    Applied(T),
    /// An object was deleted.
    Deleted(ObjectKey, Uid),
    /// All objects have been listed: what was not is gone.
    ListEnds,
    /// An object is there but cannot be decoded; the text names the field.
    Unreadable(ObjectKey, String),
    /// The watch failed and is being restored.
    Failed(String),
    /// The watch runs again without having had to list.
    Resumed,
}

/// An object that is decoded into `T`, or at least identified.
#[derive(Clone, Debug)]
struct Guarded<T> {
    /// Only the resourceVersion is filled in: kube reads it to resume the watch.
    meta: ObjectMeta,
    object: Result<T, Unreadable>,
}

#[derive(Clone, Debug)]
struct Unreadable {
    key: ObjectKey,
    uid: Uid,
    error: String,
}

#[derive(Deserialize)]
struct JustMeta {
    metadata: Identity,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
}

impl<T: Object> Guarded<T> {
    fn decode(json: &str) -> Result<Self, serde_json::Error> {
        let (object, version) = match T::decode(json) {
            Ok(object) => {
                let version = object.meta().resource_version.to_string();
                (Ok(object), version)
            }
            Err(error) => {
                let meta: JustMeta = serde_json::from_str(json)?;
                let Identity { name, namespace, uid, resource_version } = meta.metadata;
                let key = ObjectKey::new(&namespace, &name);
                (Err(Unreadable { key, uid: uid.into(), error: error.to_string() }), resource_version)
            }
        };
        Ok(Self { meta: ObjectMeta { resource_version: Some(version), ..ObjectMeta::default() }, object })
    }
}

impl<'de, T: Object> Deserialize<'de> for Guarded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        Self::decode(raw.get()).map_err(serde::de::Error::custom)
    }
}

impl<T: Object> Resource for Guarded<T> {
    type DynamicType = ();
    type Scope = DynamicResourceScope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        T::KIND.kind.into()
    }

    fn group((): &()) -> std::borrow::Cow<'_, str> {
        T::KIND.group.into()
    }

    fn version((): &()) -> std::borrow::Cow<'_, str> {
        T::KIND.version.into()
    }

    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        T::KIND.plural.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// Watches all objects of a kind for ever and hands what it sees to `sink`.
pub async fn watch<T: Object + Clone + Debug>(
    client: Client,
    chance: &Chance,
    mut sink: impl FnMut(Event<T>),
) {
    let mut streaming = true;
    let mut failures: u32 = 0;
    loop {
        let config = if streaming { Config::default().streaming_lists() } else { Config::default() };
        let mut stream = pin!(watcher(Api::<Guarded<T>>::all(client.clone()), config));
        let mut listed = false;
        let mut asked = Instant::now();
        let mut burst = false;
        loop {
            let at_once = stream.next().now_or_never();
            if at_once.is_none() && std::mem::take(&mut burst) {
                tokio::time::sleep(GATHER).await;
                continue;
            }
            let next = match (at_once, streaming && !listed, failures) {
                (Some(next), ..) => Ok(next),
                (None, true, _) => timeout(STREAMING_SILENCE, stream.next()).await,
                (None, false, 1..) => timeout(RESTORED_AFTER, stream.next()).await,
                // A watch that runs may be quiet for as long as it likes; kube notices a dead connection.
                (None, false, 0) => Ok(stream.next().await),
            };
            let error = match next {
                Err(_) if streaming && !listed => {
                    streaming = false;
                    sink(Event::Failed("the streaming list did not end; listing instead".to_owned()));
                    break;
                }
                Err(_) => {
                    if listed {
                        failures = 0;
                        sink(Event::Resumed);
                    }
                    continue;
                }
                // The stream of a watcher never ends; a new one is as good as this one.
                Ok(None) => break,
                Ok(Some(Ok(event))) => {
                    failures = 0;
                    listed |= matches!(event, watcher::Event::InitDone);
                    forward(event, asked, &mut sink);
                    burst = listed;
                    continue;
                }
                Ok(Some(Err(error))) => error,
            };
            failures = failures.saturating_add(1);
            sink(Event::Failed(text(&error)));
            if !listed && streaming && from_server(&error) {
                streaming = false;
                break;
            }
            tokio::time::sleep(chance.jitter(exponential(FIRST_RETRY, LONGEST_RETRY, failures))).await;
            if !listed || cannot_resume(&error, failures) {
                break;
            }
            // kube may list again by itself from here on.
            asked = Instant::now();
        }
    }
}

fn forward<T>(event: watcher::Event<Guarded<T>>, asked: Instant, sink: &mut impl FnMut(Event<T>))
where
    T: Object,
{
    sink(match event {
        watcher::Event::Init => Event::ListBegins { asked: asked.elapsed() },
        watcher::Event::InitDone => Event::ListEnds,
        watcher::Event::Apply(guarded) | watcher::Event::InitApply(guarded) => match guarded.object {
            Ok(object) => Event::Applied(object),
            Err(unreadable) => Event::Unreadable(unreadable.key, unreadable.error),
        },
        watcher::Event::Delete(guarded) => match guarded.object {
            Ok(object) => Event::Deleted(object.meta().key.clone(), object.meta().uid.clone()),
            Err(unreadable) => Event::Deleted(unreadable.key, unreadable.uid),
        },
    });
}

/// The error with its causes: kube's own text often stops at "failed to perform initial object list".
fn text(error: &watcher::Error) -> String {
    match error {
        watcher::Error::WatchError(status) => format!("{} ({})", status.message, status.code),
        other => other.to_string(),
    }
}

/// The status code of an error that the API server answered with.
fn code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::WatchError(status)
        | watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

fn from_server(error: &watcher::Error) -> bool {
    code(error).is_some()
}

/// True when kube would try to resume from a resourceVersion that the server will never accept again.
fn cannot_resume(error: &watcher::Error, failures: u32) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(_))
        && (matches!(code(error), Some(400 | 404 | 410)) || failures >= FAILED_STARTS)
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
