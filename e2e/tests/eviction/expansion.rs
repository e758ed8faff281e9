//! Rules that select by DeviceClass and CEL expression, with kube-scheduler. Each story has a node of its own, and devices
//! that say which story they are of.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dra_e2e::fixtures::{self, DEVICE_CLASS, DRIVER, from_claim, phase, scheduled_on};
use dra_e2e::story::{SOON, Story};
use dra_e2e::wait::holds_for;
use dra_e2e::{ControlPlane, FakeKubelet, Manager, Options, wait_until};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, DeviceTaintRule, ResourceSlice};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::cluster::{
    Shared, condition, condition_is, create_rule, evicted, evictor, is_leaving, pod_with_device, rules,
    wait_for_the_end,
};

/// `--max-expanded-rules` of the manager here.
const MOST: usize = 3;

static SHARED: OnceCell<Shared> = OnceCell::const_new();

async fn shared() -> Result<&'static Shared> {
    SHARED
        .get_or_try_init(async || {
            let plane = ControlPlane::start(Options::all_gates().with_scheduler()).await?;
            let classes: Api<DeviceClass> = Api::all(plane.client().await?);
            classes.create(&PostParams::default(), &fixtures::device_class(DEVICE_CLASS)?).await?;
            let options = evictor(&plane, &[&format!("--max-expanded-rules={MOST}")]).await?;
            let manager = Manager::start(&plane, options).await?;
            Ok(Shared { plane, manager })
        })
        .await
}

async fn tell<F>(story: F) -> Result<()>
where
    F: AsyncFnOnce(&Story) -> Result<()>,
{
    shared().await?.tell(story).await
}

/// The story's GPUs `gpu-0` and so on, of these models, in the pool and on the node of the story's name.
fn slice(story: &Story<'_>, models: &[&str]) -> Result<ResourceSlice> {
    let mut slice = fixtures::resource_slice(&story.namespace, models.len())?;
    for (device, model) in slice.spec.devices.iter_mut().flatten().zip(models) {
        device.attributes = Some(serde_json::from_value(
            json!({"model": {"string": model}, "story": {"string": story.namespace}}),
        )?);
    }
    Ok(slice)
}

/// Publishes the slice, or replaces it.
pub(crate) async fn publish(story: &Story<'_>, models: &[&str]) -> Result<()> {
    let slices: Api<ResourceSlice> = Api::all(story.client.clone());
    let mut slice = slice(story, models)?;
    let name = slice.metadata.name.clone().context("a name")?;
    match slices.get_opt(&name).await? {
        None => slices.create(&PostParams::default(), &slice).await?,
        Some(old) => {
            slice.metadata.resource_version = old.metadata.resource_version;
            slice.spec.pool.generation = old.spec.pool.generation + 1;
            slices.replace(&name, &PostParams::default(), &slice).await?
        }
    };
    Ok(())
}

async fn node(story: &Story<'_>) -> Result<()> {
    let nodes: Api<Node> = Api::all(story.client.clone());
    nodes.create(&PostParams::default(), &fixtures::node(&story.namespace)?).await?;
    Ok(())
}

/// True of the story's GPUs of this model.
pub(crate) fn expression(story: &Story<'_>, model: &str) -> String {
    format!(
        "device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].?story.orValue('') == '{}' && \
         device.attributes['{DRIVER}'].model == '{model}'",
        story.namespace
    )
}

/// A rule of the story's name.
pub(crate) fn selecting(
    story: &Story<'_>,
    annotations: &[(&str, &str)],
    effect: &str,
) -> Result<DeviceTaintRule> {
    let annotations: serde_json::Map<String, Value> = annotations
        .iter()
        .map(|(name, value)| (format!("dra-controller-manager.dev/{name}"), json!(value)))
        .collect();
    Ok(serde_json::from_value(json!({
        "metadata": {"name": story.namespace, "annotations": annotations},
        "spec": {"taint": {"key": "example.com/old", "value": "v", "effect": effect}},
    }))?)
}

/// The rules that the story's rule is expanded into.
async fn children(story: &Story<'_>) -> Result<Vec<DeviceTaintRule>> {
    let parent = rules(story).get_opt(&story.namespace).await?;
    let all = rules(story).list(&ListParams::default()).await?.items;
    let is_child = |rule: &DeviceTaintRule| {
        let owners = rule.metadata.owner_references.iter().flatten();
        owners.into_iter().any(|owner| {
            owner.name == story.namespace
                && parent.as_ref().is_none_or(|parent| parent.metadata.uid.as_ref() == Some(&owner.uid))
        })
    };
    Ok(all.into_iter().filter(is_child).collect())
}

/// The devices of these.
async fn devices(story: &Story<'_>) -> Result<Vec<String>> {
    let mut devices = Vec::new();
    for child in children(story).await? {
        let selector = child.spec.device_selector.context("no selector")?;
        ensure!(selector.driver.as_deref() == Some(DRIVER), "{selector:?}");
        ensure!(selector.pool.as_deref() == Some(story.namespace.as_str()), "{selector:?}");
        devices.push(selector.device.context("no device")?);
    }
    devices.sort();
    Ok(devices)
}

async fn expanded_for(story: &Story<'_>, wanted: &[&str]) -> Result<()> {
    are_for(wanted, async || devices(story).await).await
}

/// There is a rule for each of these devices, and no other; `devices` reads for which there are.
pub(crate) async fn are_for(wanted: &[&str], devices: impl AsyncFn() -> Result<Vec<String>>) -> Result<()> {
    wait_until(&format!("there is one rule for each of {wanted:?}"), SOON, async || {
        let devices = devices().await?;
        ensure!(devices == wanted, "there are {devices:?}");
        Ok(())
    })
    .await
}

async fn described(story: &Story<'_>, words: &[&str]) -> Result<()> {
    wait_until(&format!("kubectl describe shows {words:?}"), SOON, async || {
        let described = story.plane.kubectl(&["describe", "devicetaintrule", &story.namespace])?;
        ensure!(words.iter().all(|word| described.contains(word)), "{described}");
        Ok(())
    })
    .await
}

fn is_unschedulable(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "PodScheduled" && c.status == "False")
}

#[tokio::test]
async fn the_scheduler_honours_an_expanded_rule_until_it_is_deleted() -> Result<()> {
    tell(async |story| {
        let _kubelet = FakeKubelet::start(&story.client, &story.namespace);
        node(story).await?;
        publish(story, &["old", "new"]).await?;
        let cel = expression(story, "old");
        create_rule(story, &selecting(story, &[("select-cel", &cel)], "NoSchedule")?).await?;
        expanded_for(story, &["gpu-0"]).await?;
        let [child] = &children(story).await?[..] else { anyhow::bail!("not one child") };
        let parent = rules(story).get(&story.namespace).await?;
        ensure!(child.spec.taint == parent.spec.taint, "{:?}", child.spec.taint);
        ensure!(parent.spec.taint.time_added.is_some(), "no time");
        condition_is(story, &story.namespace, "False", &["OtherEffect"]).await?;
        described(story, &["Expanded", "Selects 1 device; there is one DeviceTaintRule for each."]).await?;

        for pod in ["first", "second"] {
            story.create(fixtures::claim(pod)?).await?;
            let with_claim = fixtures::pod(pod, &[from_claim("gpu", pod)])?;
            story.create(scheduled_on(with_claim, &story.namespace)).await?;
        }
        wait_until("one Pod runs, and the other finds no device", Duration::from_mins(1), async || {
            let pods = story.pods().list(&ListParams::default()).await?.items;
            let running = pods.iter().filter(|pod| phase(pod) == Some("Running")).count();
            let waiting = pods.iter().filter(|pod| is_unschedulable(pod)).count();
            ensure!((running, waiting) == (1, 1), "{running} run, {waiting} wait");
            Ok(())
        })
        .await?;
        rules(story).delete(&story.namespace, &DeleteParams::default()).await?;
        wait_until("the children are gone", SOON, async || {
            let left = children(story).await?;
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
        .await?;
        for pod in ["first", "second"] {
            story.pod_until(pod, "runs", |pod| phase(pod) == Some("Running")).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_rule_by_class_evicts_and_sums_and_follows_slices() -> Result<()> {
    tell(async |story| {
        let name = story.namespace.as_str();
        let classes: Api<DeviceClass> = Api::all(story.client.clone());
        let class: DeviceClass = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": expression(story, "old")}}]},
        }))?;
        publish(story, &["old", "new", "old"]).await?;
        for device in ["gpu-0", "gpu-1", "gpu-2"] {
            pod_with_device(story, device, name, json!([])).await?;
        }
        // The class comes last.
        create_rule(story, &selecting(story, &[("select-device-class", name)], "None")?).await?;
        condition_is(story, name, "Unknown", &["DeviceClassNotFound", "does not exist"]).await?;
        classes.create(&PostParams::default(), &class).await?;
        let dry_run = "2 published devices selected. 2 allocated devices selected. 2 pods would be evicted in 1 namespace";
        condition_is(story, name, "False", &["NoEffect", dry_run]).await?;
        ensure!(children(story).await?.is_empty(), "a dry run has created rules");

        let effect = json!({"spec": {"taint": {"effect": "NoExecute"}}});
        rules(story).patch(name, &PatchParams::default(), &Patch::Merge(&effect)).await?;
        expanded_for(story, &["gpu-0", "gpu-2"]).await?;
        for device in ["gpu-0", "gpu-2"] {
            evicted(story, device).await?;
        }
        wait_for_the_end(story, name)?;
        condition_is(story, name, "False", &["Completed", "2 pods evicted since starting the controller."]).await?;
        ensure!(!is_leaving(&story.pods().get("gpu-1").await?), "a Pod on another device is evicted");

        publish(story, &["new", "old", "old"]).await?;
        expanded_for(story, &["gpu-1", "gpu-2"]).await?;
        evicted(story, "gpu-1").await?;
        condition_is(story, name, "False", &["Completed", "3 pods evicted since starting the controller."]).await?;
        rules(story).delete(name, &DeleteParams::default()).await?;
        expanded_for(story, &[]).await
    })
    .await
}

#[tokio::test]
async fn an_invalid_expression_is_reported_and_changes_nothing() -> Result<()> {
    tell(async |story| {
        publish(story, &["old", "new"]).await?;
        let cel = expression(story, "old");
        create_rule(story, &selecting(story, &[("select-cel", &cel)], "NoSchedule")?).await?;
        expanded_for(story, &["gpu-0"]).await?;
        let before = children(story).await?;
        let broken = json!({"metadata": {"annotations": {"dra-controller-manager.dev/select-cel": "device.nonsense"}},
            "spec": {"taint": {"effect": "NoExecute"}}});
        rules(story).patch(&story.namespace, &PatchParams::default(), &Patch::Merge(&broken)).await?;
        let said = condition_is(story, &story.namespace, "Unknown", &["InvalidSelector"]).await?;
        ensure!(said.contains("CEL compile error") && said.contains("Nothing is changed."), "{said}");
        described(story, &["ExpansionFailed", "CEL compile error"]).await?;
        publish(story, &["new", "old", "old"]).await?;
        holds_for("nothing changes", Duration::from_secs(3), async || {
            let now = children(story).await?;
            ensure!(now.len() == 1 && now[0].spec == before[0].spec, "{now:?}");
            Ok(())
        })
        .await?;
        let valid = json!({"metadata": {"annotations": {"dra-controller-manager.dev/select-cel": cel}}});
        rules(story).patch(&story.namespace, &PatchParams::default(), &Patch::Merge(&valid)).await?;
        expanded_for(story, &["gpu-1", "gpu-2"]).await
    })
    .await
}

#[tokio::test]
async fn above_the_limit_nothing_is_created_and_a_smaller_selection_is() -> Result<()> {
    tell(async |story| {
        publish(story, &["old"; MOST + 1]).await?;
        let cel = expression(story, "old");
        create_rule(story, &selecting(story, &[("select-cel", &cel)], "NoSchedule")?).await?;
        let text = "4 devices are selected, above the limit of 3 (--max-expanded-rules)";
        condition_is(story, &story.namespace, "Unknown", &["TooManyDevices", text]).await?;
        described(story, &["ExpansionFailed", text]).await?;
        ensure!(children(story).await?.is_empty(), "rules are created");
        let metrics = story.manager()?.metrics().await?;
        ensure!(metrics.sum("dra_controller_manager_taint_rules_not_expanded", &[]) >= 1.0, "no metric");
        publish(story, &["old", "old", "old", "new"]).await?;
        expanded_for(story, &["gpu-0", "gpu-1", "gpu-2"]).await?;
        let [status, ..] = condition(story, &story.namespace).await?.context("no condition")?;
        ensure!(status != "True", "{status}");
        condition_is(story, &story.namespace, "False", &["OtherEffect"]).await?;
        Ok(())
    })
    .await
}
