//! Requests of the demo as a user would make them, with objects as JSON.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use dra_api::Kind;
use dra_inhabitants::cluster::{name, namespace, text, uid};
use http::{Method, Request, header};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// How often something that is waited for is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

const fn kind(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { group, version, kind, plural }
}

/// Kinds that the demo makes objects of, in the order in which they are made.
pub(super) const KINDS: [Kind; 10] = [
    kind("", "v1", "Namespace", "namespaces"),
    kind("", "v1", "Node", "nodes"),
    kind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses"),
    kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices"),
    kind("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates"),
    kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims"),
    kind("scheduling.k8s.io", "v1beta1", "PodGroup", "podgroups"),
    kind("", "v1", "Pod", "pods"),
    kind("resource.k8s.io", "v1", "DeviceTaintRule", "devicetaintrules"),
    kind("resource.k8s.io", "v1alpha3", "ResourcePoolStatusRequest", "resourcepoolstatusrequests"),
];

/// Events are read only.
const EVENT: Kind = kind("events.k8s.io", "v1", "Event", "events");

/// An object by kind, namespace (empty for one of the cluster) and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) kind: &'static str,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Id {
    pub(super) fn new(kind: &'static str, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Of an object of a kind.
    pub(super) fn of(kind: &'static str, object: &Value) -> Self {
        Self::new(kind, namespace(object), name(object))
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ", self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// An API server.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) client: Client,
    /// How long anything may take that others have to do.
    pub(super) patience: Duration,
}

impl Api {
    async fn send(
        &self,
        method: Method,
        path: &str,
        content: &str,
        body: &Value,
    ) -> Result<Value, kube::Error> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, content);
        self.client.request::<Value>(request.body(body).map_err(kube::Error::HttpError)?).await
    }

    /// The object, if it is there.
    pub(super) async fn get(&self, name: &Id) -> Result<Option<Value>> {
        let path = path(name)?;
        match self.send(Method::GET, &path, JSON, &Value::Null).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if code(&error) == 404 => Ok(None),
            Err(error) => Err(plain(error)).with_context(|| format!("reading {name}")),
        }
    }

    /// All objects of a kind in a namespace, or everywhere.
    pub(super) async fn list(&self, kind: &'static str, namespace: &str) -> Result<Vec<Value>> {
        let path = known(kind)?.path(namespace, "");
        let mut list = self
            .send(Method::GET, &path, JSON, &Value::Null)
            .await
            .map_err(plain)
            .with_context(|| format!("listing objects of kind {kind}"))?;
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    /// Creates an object; false when one of its name is there already. As with kubectl, a field that is written wrong is
    /// refused, not ignored.
    pub(super) async fn create(&self, kind: &'static str, object: &Value) -> Result<bool> {
        let path = format!("{}?fieldValidation=Strict", known(kind)?.path(namespace(object), ""));
        match self.send(Method::POST, &path, JSON, object).await {
            Ok(_) => Ok(true),
            Err(error) if code(&error) == 409 => Ok(false),
            Err(error) if code(&error) == 404 => Err(plain(error)).with_context(|| {
                format!("creating {}: does the API server serve this kind?", Id::of(kind, object))
            }),
            Err(error) => Err(plain(error)).with_context(|| format!("creating {}", Id::of(kind, object))),
        }
    }

    /// A merge patch; `part` is empty or `/status`.
    pub(super) async fn patch(&self, name: &Id, part: &str, patch: &Value) -> Result<Value> {
        let path = format!("{}{part}", path(name)?);
        self.send(Method::PATCH, &path, "application/merge-patch+json", patch)
            .await
            .map_err(plain)
            .with_context(|| format!("changing {name}"))
    }

    /// Deletes an object; one that is not there is gone, too.
    pub(super) async fn delete(&self, name: &Id) -> Result<()> {
        let path = path(name)?;
        match self.send(Method::DELETE, &path, JSON, &Value::Null).await {
            Err(error) if code(&error) != 404 => {
                Err(plain(error)).with_context(|| format!("deleting {name}"))
            }
            _ => Ok(()),
        }
    }

    /// What events say about an object, the latest last.
    pub(super) async fn events(&self, of: &Value) -> Vec<String> {
        let path = EVENT.path(namespace(of), "");
        let list = self.send(Method::GET, &path, JSON, &Value::Null).await.unwrap_or_default();
        let about = |event: &&Value| text(event, &["regarding", "uid"]) == uid(of);
        let events = list.get("items").and_then(Value::as_array).into_iter().flatten().filter(about);
        events.map(|e| format!("{}: {}", text(e, &["reason"]), text(e, &["note"]))).collect()
    }

    /// Looks until `look` gives something, but not for ever. Until then it says what is missing.
    pub(super) async fn until<T>(&self, look: impl AsyncFn() -> Result<Result<T, String>>) -> Result<T> {
        let begun = Instant::now();
        loop {
            match look().await? {
                Ok(found) => return Ok(found),
                Err(missing) if begun.elapsed() > self.patience => {
                    bail!("after {} s still: {missing}", self.patience.as_secs());
                }
                Err(_) => sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Waits until none of the objects is there any more.
    pub(super) async fn gone(&self, names: &[Id]) -> Result<()> {
        self.until(async || {
            for name in names {
                if let Some(object) = self.get(name).await? {
                    let status = object.get("status").cloned().unwrap_or_default();
                    return Ok(Err(format!("{name} is there, with status {status}")));
                }
            }
            Ok(Ok(()))
        })
        .await
    }
}

const JSON: &str = "application/json";

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

/// What the API server said, without everything around it.
fn plain(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow!("{}", status.message),
        other => other.into(),
    }
}

fn known(kind: &str) -> Result<Kind> {
    KINDS.into_iter().find(|k| k.kind == kind).ok_or_else(|| anyhow!("kind {kind} is not known"))
}

fn path(name: &Id) -> Result<String> {
    Ok(known(name.kind)?.path(&name.namespace, &name.name))
}

/// The object without what only a server sets, so that it can be created.
pub(super) fn fresh(mut object: Value, kind: &Kind) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in
            ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"]
        {
            metadata.remove(field);
        }
    }
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), json!(kind.api_version()));
        // Kubelets report what nodes have; where there are none, the input does.
        if kind.kind != "Node" {
            fields.remove("status");
        }
    }
    object
}
