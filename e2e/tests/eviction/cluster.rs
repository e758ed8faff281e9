//! Pods with devices, and rules that taint these.

use anyhow::{Context as _, Result, ensure};
use dra_e2e::fixtures::{self, DRIVER, from_claim, on_node};
use dra_e2e::scheduler::pod_consumer;
use dra_e2e::story::{SOON, Story};
use dra_e2e::{ControlPlane, Manager, ManagerOptions, Options, wait_until};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::DeviceTaintRule;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// The control plane and the manager of all stories here.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) plane: ControlPlane,
    pub(crate) manager: Manager,
}

impl Shared {
    /// Tells a story in a namespace of its own.
    pub(crate) async fn tell<F>(&self, story: F) -> Result<()>
    where
        F: AsyncFnOnce(&Story) -> Result<()>,
    {
        let told = Story::begin(&self.plane, Some(&self.manager)).await?;
        Box::pin(story(&told)).await?;
        told.manager_was_allowed_everything()
    }
}

static SHARED: OnceCell<Shared> = OnceCell::const_new();

/// The manager with nothing but the taint eviction controller.
pub(crate) async fn evictor(plane: &ControlPlane, more: &[&str]) -> Result<ManagerOptions> {
    let mut options = ManagerOptions::claim_controller(plane).await?;
    "device-taint-eviction".clone_into(&mut options.controllers);
    options.more = more.iter().map(ToString::to_string).collect();
    Ok(options)
}

pub(crate) async fn shared() -> Result<&'static Shared> {
    SHARED
        .get_or_try_init(async || {
            let plane = ControlPlane::start(Options::all_gates()).await?;
            let manager = Manager::start(&plane, evictor(&plane, &[]).await?).await?;
            Ok(Shared { plane, manager })
        })
        .await
}

/// Tells a story whose pool is called as its namespace.
pub(crate) async fn tell<F>(story: F) -> Result<()>
where
    F: AsyncFnOnce(&Story) -> Result<()>,
{
    shared().await?.tell(story).await
}

/// Returns when the rule evicts nobody any more; `kubectl wait` looks at conditions of the current generation only.
pub(crate) fn wait_for_the_end(story: &Story<'_>, rule: &str) -> Result<()> {
    story.plane.kubectl(&[
        "wait",
        "--for=condition=EvictionInProgress=false",
        &format!("devicetaintrule/{rule}"),
        "--timeout=60s",
    ])?;
    Ok(())
}

/// A Pod on a node with a claim that is allocated to the device of the Pod's name in this pool.
pub(crate) async fn pod_with_device(
    story: &Story<'_>,
    name: &str,
    pool: &str,
    tolerations: Value,
) -> Result<Pod> {
    let claim = story.create(fixtures::claim(name)?).await?;
    let pod = fixtures::pod(name, &[from_claim("gpu", &claim.name_any())])?;
    let pod = story.create(on_node(pod, "n")).await?;
    let result =
        json!({"request": "gpu", "driver": DRIVER, "pool": pool, "device": name, "tolerations": tolerations});
    let status = json!({"status": {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [pod_consumer(&pod)],
    }});
    story
        .claims()
        .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .with_context(|| format!("allocating claim {name}"))?;
    Ok(pod)
}

pub(crate) fn rules(story: &Story<'_>) -> Api<DeviceTaintRule> {
    Api::all(story.client.clone())
}

pub(crate) fn rule(name: &str, selector: Value, effect: &str) -> Result<DeviceTaintRule> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"deviceSelector": selector, "taint": {"key": "example.com/broken", "effect": effect}},
    }))?)
}

pub(crate) async fn create_rule(story: &Story<'_>, rule: &DeviceTaintRule) -> Result<DeviceTaintRule> {
    rules(story).create(&PostParams::default(), rule).await.context("creating a DeviceTaintRule")
}

/// Status, reason and message of the rule's condition.
pub(crate) async fn condition(story: &Story<'_>, rule: &str) -> Result<Option<[String; 3]>> {
    let rule = rules(story).get(rule).await?;
    let conditions = rule.status.and_then(|status| status.conditions).unwrap_or_default();
    let ours = conditions.into_iter().find(|c| c.type_ == "EvictionInProgress");
    Ok(ours.map(|c| [c.status, c.reason, c.message]))
}

pub(crate) async fn condition_is(
    story: &Story<'_>,
    rule: &str,
    status: &str,
    words: &[&str],
) -> Result<String> {
    says(rule, status, words, async || condition(story, rule).await).await
}

/// The same of a rule whose condition is read by `condition`.
pub(crate) async fn says(
    rule: &str,
    status: &str,
    words: &[&str],
    condition: impl AsyncFn() -> Result<Option<[String; 3]>>,
) -> Result<String> {
    let what = format!("the condition of {rule} is {status} and says {words:?}");
    wait_until(&what, SOON, async || {
        let [is, reason, message] = condition().await?.context("no condition")?;
        let text = format!("{reason}: {message}");
        ensure!(is == status && words.iter().all(|word| text.contains(word)), "{is} {text}");
        Ok(text)
    })
    .await
}

pub(crate) fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// The Pod terminates, with the condition that says why.
pub(crate) async fn evicted(story: &Story<'_>, name: &str) -> Result<()> {
    let pod = story.pod_until(name, "is evicted", is_leaving).await?;
    let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
    let target = conditions.iter().find(|c| c.type_ == "DisruptionTarget").context("no DisruptionTarget")?;
    ensure!(
        target.status == "True"
            && target.reason.as_deref() == Some("DeletionByDeviceTaintManager")
            && target.message.as_deref() == Some("Device Taint manager: deleting due to NoExecute taint"),
        "{target:?}"
    );
    Ok(())
}
