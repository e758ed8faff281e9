//! A story: one test's namespace on a control plane, with the words it needs.

use std::fmt::Debug;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;

use crate::control_plane::{ControlPlane, Options};
use crate::fixtures::{self, phase, recorded_claim};
use crate::manager::{Manager, ManagerOptions};
use crate::wait::wait_until;

/// How long the controllers may take for one step of a story. Far more than they need, far less than a retry at the
/// cap of a back-off.
pub const SOON: Duration = Duration::from_secs(45);

/// The control plane with kube-scheduler, and the manager on it, that the stories of one test binary share.
#[derive(Debug)]
pub struct SharedManager {
    /// The control plane.
    pub plane: ControlPlane,
    /// The manager with the claim controller.
    pub manager: Manager,
}

static SHARED: OnceCell<SharedManager> = OnceCell::const_new();

impl SharedManager {
    /// Starts both on first use. They end with the process.
    ///
    /// # Errors
    /// Something is not built or does not become ready.
    pub async fn get() -> Result<&'static Self> {
        SHARED
            .get_or_try_init(async || {
                let plane = ControlPlane::start(Options::all_gates().with_scheduler()).await?;
                plane
                    .client()
                    .await
                    .map(Api::all)?
                    .create(&PostParams::default(), &fixtures::device_class(fixtures::DEVICE_CLASS)?)
                    .await
                    .context("creating the DeviceClass")?;
                let options = ManagerOptions::claim_controller(&plane).await?;
                let manager = Manager::start(&plane, options).await?;
                Ok(Self { plane, manager })
            })
            .await
    }
}

/// Tells a story on the shared control plane. If it fails, the manager's log lines about its namespace are printed.
///
/// # Errors
/// The story's.
pub async fn tell<F>(story: F) -> Result<()>
where
    F: AsyncFnOnce(&Story) -> Result<()>,
{
    let shared = SharedManager::get().await?;
    let mut told = Story::begin(&shared.plane, Some(&shared.manager)).await?;
    let result = match Box::pin(story(&told)).await {
        Ok(()) => told.manager_was_allowed_everything(),
        failure => failure,
    };
    told.finished = result.is_ok();
    result
}

/// One namespace of its own, named after the test.
pub struct Story<'a> {
    /// A client with all rights.
    pub client: Client,
    /// The namespace.
    pub namespace: String,
    /// The control plane.
    pub plane: &'a ControlPlane,
    manager: Option<&'a Manager>,
    finished: bool,
}

impl<'a> Story<'a> {
    /// Makes the namespace.
    ///
    /// # Errors
    /// The API server refuses it.
    pub async fn begin(plane: &'a ControlPlane, manager: Option<&'a Manager>) -> Result<Self> {
        let client = plane.client().await?;
        let mut namespace = Namespace::default();
        namespace.metadata.generate_name = Some(format!("{}-", name_of_test()));
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let created =
            namespaces.create(&PostParams::default(), &namespace).await.context("making a namespace")?;
        Ok(Self { client, namespace: created.name_any(), plane, manager, finished: manager.is_none() })
    }

    /// The manager.
    ///
    /// # Errors
    /// The story was begun without one.
    pub fn manager(&self) -> Result<&'a Manager> {
        self.manager.context("this story has no manager")
    }

    /// The objects of one kind in the story's namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The namespace's Pods.
    pub fn pods(&self) -> Api<Pod> {
        self.api()
    }

    /// The namespace's claims.
    pub fn claims(&self) -> Api<ResourceClaim> {
        self.api()
    }

    /// The namespace's templates.
    pub fn templates(&self) -> Api<ResourceClaimTemplate> {
        self.api()
    }

    /// The namespace's `PodGroups`.
    pub fn groups(&self) -> Api<PodGroup> {
        self.api()
    }

    /// Creates an object in the namespace.
    ///
    /// # Errors
    /// The API server refuses it.
    pub async fn create<K>(&self, object: K) -> Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned
            + Serialize,
    {
        let name = object.meta().name.clone().unwrap_or_default();
        self.api::<K>()
            .create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("creating {} {name}", K::kind(&())))
    }

    /// Waits until the Pod's status names a claim for `entry` and returns that claim.
    ///
    /// # Errors
    /// It does not happen soon.
    pub async fn generated_claim(&self, pod: &str, entry: &str) -> Result<ResourceClaim> {
        wait_until(&format!("Pod {pod} has its claim {entry}"), SOON, async || {
            let pod = self.pods().get(pod).await?;
            let name = recorded_claim(&pod, entry)
                .with_context(|| format!("status of the Pod: {:?}", pod.status))?;
            Ok(self.claims().get(&name).await?)
        })
        .await
    }

    /// Waits until the claim meets `condition`, which says what is missing.
    ///
    /// # Errors
    /// It does not happen soon.
    pub async fn claim_until<F>(&self, name: &str, what: &str, condition: F) -> Result<ResourceClaim>
    where
        F: Fn(&ResourceClaim) -> bool,
    {
        wait_until(&format!("claim {name} {what}"), SOON, async || {
            let claim = self.claims().get(name).await?;
            ensure!(condition(&claim), "claim: {}", serde_json::to_string(&claim)?);
            Ok(claim)
        })
        .await
    }

    /// Waits until the claim is gone.
    ///
    /// # Errors
    /// It does not happen soon.
    pub async fn claim_gone(&self, name: &str) -> Result<()> {
        wait_until(&format!("claim {name} is gone"), SOON, async || {
            let claim = self.claims().get_opt(name).await?;
            ensure!(claim.is_none(), "claim: {}", serde_json::to_string(&claim)?);
            Ok(())
        })
        .await
    }

    /// Waits until the Pod meets `condition`.
    ///
    /// # Errors
    /// It does not happen soon.
    pub async fn pod_until<F>(&self, name: &str, what: &str, condition: F) -> Result<Pod>
    where
        F: Fn(&Pod) -> bool,
    {
        wait_until(&format!("Pod {name} {what}"), SOON, async || {
            let pod = self.pods().get(name).await?;
            ensure!(condition(&pod), "Pod: {}", serde_json::to_string(&pod)?);
            Ok(pod)
        })
        .await
    }

    /// Texts of the events about the object with this name, as `Type Reason: note`.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn events_about(&self, name: &str) -> Result<Vec<String>> {
        let events = self.api::<Event>().list(&ListParams::default()).await.context("listing events")?;
        let about = |event: &&Event| {
            event.regarding.as_ref().is_some_and(|regarding| regarding.name.as_deref() == Some(name))
        };
        let text = |event: &Event| {
            let [kind, reason, note] =
                [&event.type_, &event.reason, &event.note].map(|text| text.as_deref().unwrap_or(""));
            format!("{kind} {reason}: {note}")
        };
        Ok(events.items.iter().filter(about).map(text).collect())
    }

    /// Waits until there is an event about the object with all of `words` in its text.
    ///
    /// # Errors
    /// It does not happen soon.
    pub async fn event_about(&self, name: &str, words: &[&str]) -> Result<String> {
        wait_until(&format!("an event about {name} says {words:?}"), SOON, async || {
            let events = self.events_about(name).await?;
            let found = events.iter().find(|text| words.iter().all(|word| text.contains(word)));
            found.cloned().with_context(|| format!("events: {events:?}"))
        })
        .await
    }

    /// Checks that RBAC has refused the manager nothing so far.
    ///
    /// # Errors
    /// It has; the message names the requests.
    pub fn manager_was_allowed_everything(&self) -> Result<()> {
        let mut refused = self.plane.requests_of_manager()?;
        refused.retain(|request| !request.allowed);
        ensure!(refused.is_empty(), "RBAC refused the manager: {refused:?}");
        Ok(())
    }

    /// Waits until the Pod runs.
    ///
    /// # Errors
    /// It does not happen soon.
    pub async fn pod_runs(&self, name: &str) -> Result<()> {
        self.pod_until(name, "runs", |pod| phase(pod) == Some("Running")).await.map(|_| ())
    }

    /// All claims of the namespace, by name.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn all_claims(&self) -> Result<Vec<ResourceClaim>> {
        let mut all = self.claims().list(&ListParams::default()).await.context("listing claims")?.items;
        all.sort_by_key(kube::ResourceExt::name_any);
        Ok(all)
    }
}

impl Drop for Story<'_> {
    fn drop(&mut self) {
        let Some(manager) = self.manager.filter(|_| !self.finished) else { return };
        let log = manager.log();
        let concerning: Vec<&str> = log.lines().filter(|line| line.contains(&self.namespace)).collect();
        eprintln!("The manager's log about {}:\n{}", self.namespace, concerning.join("\n"));
    }
}

/// The test harness names the thread after the test.
fn name_of_test() -> String {
    let thread = thread::current();
    let name = thread.name().and_then(|name| name.rsplit("::").next()).unwrap_or("story").replace('_', "-");
    let short: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(50).collect();
    short.trim_end_matches('-').to_ascii_lowercase()
}
