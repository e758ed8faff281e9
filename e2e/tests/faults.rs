//! What happens when something stops: the manager, the API server, or an API that is not there at all.
//!
//! These stories stop and start the manager, so that they take turns on one control plane.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dra_e2e::control_plane::AuditedRequest;
use dra_e2e::fixtures::{
    self, consumers, from_claim, from_template, in_group, is_allocated, on_node, recorded_claim,
    recorded_group_claim,
};
use dra_e2e::scheduler::{allocate, group_consumer, pod_consumer};
use dra_e2e::story::{SOON, Story};
use dra_e2e::{ControlPlane, FakeKubelet, Manager, ManagerOptions, Options, Program, kubelet, wait_until};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// After SIGTERM, whatever the state.
const STOP_LIMIT: Duration = Duration::from_secs(10);

const ROLE: &str = "dra-controller-manager:resourceclaim";

static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
static TURN: Mutex<()> = Mutex::const_new(());

/// Waits for this test's turn on the shared control plane.
async fn turn() -> Result<(&'static ControlPlane, MutexGuard<'static, ()>)> {
    let turn = TURN.lock().await;
    let plane = PLANE.get_or_try_init(async || ControlPlane::start(Options::all_gates()).await).await?;
    Ok((plane, turn))
}

async fn manager(plane: &ControlPlane) -> Result<Manager> {
    Manager::start(plane, ManagerOptions::claim_controller(plane).await?).await
}

/// A generated claim as a manager that dies right after the POST leaves it.
fn orphan(pod: &Pod, entry: &str) -> Result<ResourceClaim> {
    let mut claim = fixtures::claim("unused")?;
    claim.metadata = serde_json::from_value(json!({
        "generateName": format!("{}-{entry}-", pod.name_any()),
        "annotations": {"resource.kubernetes.io/pod-claim-name": entry},
        "ownerReferences": [{
            "apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "uid": pod.uid(), "controller": true,
        }],
    }))?;
    Ok(claim)
}

#[tokio::test]
async fn claim_of_a_manager_that_died_before_it_wrote_the_status_is_adopted() -> Result<()> {
    let (plane, _turn) = turn().await?;
    let story = Story::begin(plane, None).await?;
    story.create(fixtures::template("tmpl")?).await?;
    let entries = [from_template("a", "tmpl"), from_template("b", "tmpl")];
    let pod = story.create(fixtures::pod("web", &entries)?).await?;
    let left = story.create(orphan(&pod, "a")?).await?.name_any();

    let _manager = manager(plane).await?;
    let adopted = story.generated_claim("web", "a").await?.name_any();
    ensure!(adopted == left, "{adopted} was made beside {left}");
    story.generated_claim("web", "b").await?;
    ensure!(story.all_claims().await?.len() == 2);
    Ok(())
}

#[tokio::test]
async fn terminating_orphan_is_not_adopted() -> Result<()> {
    let (plane, _turn) = turn().await?;
    let story = Story::begin(plane, None).await?;
    story.create(fixtures::template("tmpl")?).await?;
    let pod = story.create(fixtures::pod("web", &[from_template("gpu", "tmpl")])?).await?;
    let mut left = orphan(&pod, "gpu")?;
    left.finalizers_mut().push("example.com/wait".to_owned());
    let left = story.create(left).await?.name_any();
    story.claims().delete(&left, &DeleteParams::default()).await?;

    let _manager = manager(plane).await?;
    let made = story.generated_claim("web", "gpu").await?.name_any();
    ensure!(made != left, "a claim that is about to go was adopted");
    Ok(())
}

#[tokio::test]
async fn claims_of_groups_are_left_alone_while_their_gate_is_off() -> Result<()> {
    let (plane, _turn) = turn().await?;
    let story = Story::begin(plane, None).await?;
    let with_gates = ManagerOptions::claim_controller(plane).await?;
    let without = |gates: &str| ManagerOptions { feature_gates: gates.to_owned(), ..with_gates.clone() };
    let mut on = Manager::start(plane, with_gates.clone()).await?;
    story.create(fixtures::template("tmpl")?).await?;
    let shared = [from_template("net", "tmpl")];
    let group = story.create(fixtures::pod_group("team", &shared)?).await?;
    story.create(in_group(fixtures::pod("first", &shared)?, "team")).await?;
    let claim = story.generated_claim("first", "net").await?.name_any();
    let reserved = allocate(&story.claims(), &claim, "n", "gpu-0", &[group_consumer(&group)]).await?;
    on.kill()?;

    let mut off =
        Manager::start(plane, without("GenericWorkload=true,DRAWorkloadResourceClaims=false")).await?;
    story.create(in_group(fixtures::pod("second", &shared)?, "team")).await?;
    story.event_about("second", &["Warning", "DRAWorkloadResourceClaims"]).await?;
    story.create(in_group(fixtures::pod("own", &[from_template("gpu", "tmpl")])?, "team")).await?;
    let own = story.generated_claim("own", "gpu").await?.name_any();
    off.kill()?;

    let mut off =
        Manager::start(plane, without("GenericWorkload=false,DRAWorkloadResourceClaims=false")).await?;
    story.create(in_group(fixtures::pod("third", &[from_template("gpu", "tmpl")])?, "team")).await?;
    story.event_about("third", &["Warning", "GenericWorkload"]).await?;
    let claims: Vec<String> = story.all_claims().await?.iter().map(kube::ResourceExt::name_any).collect();
    ensure!(claims.len() == 2 && claims.contains(&own), "claims: {claims:?}");
    ensure!(story.claims().get(&claim).await? == reserved, "the PodGroup's claim was changed");
    off.kill()?;

    let _on = Manager::start(plane, with_gates).await?;
    ensure!(story.generated_claim("second", "net").await?.name_any() == claim);
    story.generated_claim("third", "gpu").await?;
    ensure!(story.claims().get(&claim).await? == reserved, "the PodGroup's claim was changed");
    Ok(())
}

#[tokio::test]
async fn claim_that_is_deleting_with_a_vanished_consumer_at_start_up_is_released() -> Result<()> {
    let (plane, _turn) = turn().await?;
    let story = Story::begin(plane, None).await?;
    story.create(fixtures::claim("deleting")?).await?;
    let vanished = json!({"resource": "pods", "name": "gone", "uid": "gone-1"});
    let group =
        json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gone", "uid": "gone-2"});
    allocate(&story.claims(), "deleting", "n", "gpu-0", &[vanished, group]).await?;
    story.claims().delete("deleting", &DeleteParams::default()).await?;
    ensure!(story.claims().get("deleting").await?.metadata.deletion_timestamp.is_some());

    let _manager = manager(plane).await?;
    story.claim_gone("deleting").await
}

#[tokio::test]
async fn what_happened_while_no_manager_ran_is_made_up_for() -> Result<()> {
    let (plane, _turn) = turn().await?;
    let story = Story::begin(plane, None).await?;
    let _kubelet = FakeKubelet::start(&story.client, &story.namespace);
    let mut first = manager(plane).await?;
    story.create(fixtures::template("tmpl")?).await?;
    story.create(fixtures::claim("shared")?).await?;
    let entries = [from_template("own", "tmpl"), from_claim("shared", "shared")];
    let mut pods = Vec::new();
    for name in ["finished", "deleted", "stays"] {
        let pod = story.create(on_node(fixtures::pod(name, &entries)?, "n")).await?;
        let own = story.generated_claim(name, "own").await?.name_any();
        allocate(&story.claims(), &own, "n", name, &[pod_consumer(&pod)]).await?;
        pods.push((pod, own));
    }
    let all: Vec<_> = pods.iter().map(|(pod, _)| pod_consumer(pod)).collect();
    allocate(&story.claims(), "shared", "n", "gpu-0", &all).await?;
    first.kill()?;

    kubelet::finish(&story.pods(), "finished", "Succeeded").await?;
    kubelet::force_delete(&story.pods(), "deleted").await?;
    story.create(fixtures::pod("new", &entries)?).await?;
    let _second = manager(plane).await?;
    let [(_, finished), (_, deleted), (stays, kept)] = pods.as_slice() else { anyhow::bail!("three Pods") };
    story.claim_gone(finished).await?;
    story.claim_gone(deleted).await?;
    let uid = [stays.uid().context("no UID")?];
    story
        .claim_until("shared", "is reserved for the Pod that stays", |claim| consumers(claim) == uid)
        .await?;
    story.generated_claim("new", "own").await?;
    let kept = story.claims().get(kept).await?;
    ensure!(is_allocated(&kept) && consumers(&kept) == uid, "{:?}", kept.status);
    Ok(())
}

#[tokio::test]
async fn manager_recovers_from_a_restarted_api_server_without_a_restart_of_its_own() -> Result<()> {
    let (plane, _turn) = turn().await?;
    let mut manager = manager(plane).await?;
    let story = Story::begin(plane, None).await?;
    story.create(fixtures::template("tmpl")?).await?;
    story.create(fixtures::pod("before", &[from_template("gpu", "tmpl")])?).await?;
    story.generated_claim("before", "gpu").await?;

    plane.stop_api_server()?;
    plane.start_api_server().await?;
    story.create(fixtures::pod("after", &[from_template("gpu", "tmpl")])?).await?;
    let claim = story.generated_claim("after", "gpu").await?.name_any();
    story.pods().delete("after", &DeleteParams::default()).await?;
    story.claim_gone(&claim).await?;
    manager.check_running()?;
    ensure!(story.all_claims().await?.len() == 1);
    Ok(())
}

#[tokio::test]
async fn sigterm_ends_a_working_manager_cleanly() -> Result<()> {
    let (plane, _turn) = turn().await?;
    let mut manager = manager(plane).await?;
    let (status, took) = manager.terminate(STOP_LIMIT).await?;
    ensure!(status.success(), "it ended with {status} after {took:?}");
    Ok(())
}

#[tokio::test]
async fn sigterm_ends_a_manager_whose_api_server_never_answered() -> Result<()> {
    let (plane, _turn) = turn().await?;
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let options = ManagerOptions {
        program: Program::Ours,
        controllers: "*".to_owned(),
        feature_gates: String::new(),
        kubeconfig: plane.kubeconfig_for(&format!("http://{}", silent.local_addr()?))?,
        more: Vec::new(),
    };
    let mut manager = Manager::launch(plane, options)?;
    // It is connected and waits for an answer that never comes.
    let _connection = tokio::task::spawn_blocking(move || silent.accept()).await??;
    wait_until("the manager says that it lives but is not ready", SOON, async || {
        manager.check_running()?;
        let (live, body) = manager.get("/livez").await?;
        ensure!(live == 200, "/livez answers {live}: {body}");
        let (ready, body) = manager.get("/readyz").await?;
        ensure!(ready != 200, "/readyz answers {ready}: {body}");
        Ok(())
    })
    .await?;
    let (status, took) = manager.terminate(STOP_LIMIT).await?;
    ensure!(status.success(), "it ended with {status} after {took:?}");
    Ok(())
}

#[tokio::test]
async fn cluster_without_the_pod_group_api_is_served_and_its_pod_groups_are_once_it_has_them() -> Result<()> {
    let options = Options {
        pod_groups: false,
        controllers: "garbage-collector-controller".to_owned(),
        ..Options::all_gates()
    };
    let plane = ControlPlane::start(options).await?;
    let manager = manager(&plane).await?;
    let (_, verbose) = manager.get("/readyz?verbose").await?;
    let said = |text: &str| text.lines().any(|line| line.to_lowercase().contains("podgroup"));
    ensure!(said(&verbose), "/readyz?verbose does not speak of PodGroups: {verbose}");
    ensure!(said(&manager.log()), "the log does not speak of PodGroups: {}", manager.log());

    let story = Story::begin(&plane, None).await?;
    let _kubelet = FakeKubelet::start(&story.client, &story.namespace);
    story.create(fixtures::template("tmpl")?).await?;
    let pod = story.create(on_node(fixtures::pod("web", &[from_template("gpu", "tmpl")])?, "n")).await?;
    let claim = story.generated_claim("web", "gpu").await?.name_any();
    allocate(&story.claims(), &claim, "n", "gpu-0", &[pod_consumer(&pod)]).await?;
    story.pod_runs("web").await?;
    story.pods().delete("web", &DeleteParams::default()).await?;
    story.claim_gone(&claim).await?;

    plane.serve_pod_groups().await?;
    story.create(fixtures::pod_group("team", &[from_template("net", "tmpl")])?).await?;
    wait_until("the PodGroup has its claim", Duration::from_mins(1), async || {
        let group = story.groups().get("team").await?;
        recorded_group_claim(&group, "net").with_context(|| format!("status: {:?}", group.status))
    })
    .await?;
    story.manager_was_allowed_everything()
}

#[tokio::test]
async fn claim_is_released_once_the_right_to_do_so_is_granted() -> Result<()> {
    let (plane, _turn) = turn().await?;
    let story = Story::begin(plane, None).await?;
    let roles: Api<ClusterRole> = Api::all(story.client.clone());
    let _manager = manager(plane).await?;
    let complete = roles.get(ROLE).await?;
    let mut lacking = complete.clone();
    for rule in lacking.rules.iter_mut().flatten() {
        for resource in rule.resources.iter_mut().flatten() {
            // The API server answers a write without this right with 422, as if the object were invalid.
            *resource = resource.replace("resourceclaims/binding", "nothing");
        }
    }
    roles.replace(ROLE, &PostParams::default(), &lacking).await?;
    story.create(fixtures::claim("shared")?).await?;
    let pod = story.create(on_node(fixtures::pod("web", &[from_claim("gpu", "shared")])?, "n")).await?;
    allocate(&story.claims(), "shared", "n", "gpu-0", &[pod_consumer(&pod)]).await?;
    kubelet::finish(&story.pods(), "web", "Succeeded").await?;
    let refused = wait_until("the API server refuses the release", SOON, async || {
        let requests = plane.requests_of_manager()?;
        let refused =
            requests.iter().filter(|r| r.resource == "resourceclaims/status" && r.code == 422).count();
        ensure!(refused > 2, "refused {refused} times");
        Ok(())
    })
    .await;
    let granted = Patch::Merge(json!({"rules": complete.rules}));
    roles.patch(ROLE, &PatchParams::default(), &granted).await?;
    refused?;
    story.claim_until("shared", "is released", |claim| consumers(claim).is_empty()).await?;
    Ok(())
}

/// What our roles grant, as (group, resource, verb).
async fn granted(plane: &ControlPlane) -> Result<BTreeSet<(String, String, String)>> {
    let roles: Api<ClusterRole> = Api::all(plane.client().await?);
    let role = roles.get(ROLE).await?;
    let mut granted = BTreeSet::new();
    for rule in role.rules.into_iter().flatten() {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    granted.insert((group.clone(), resource.clone(), verb.clone()));
                }
            }
        }
    }
    Ok(granted)
}

#[tokio::test]
async fn our_role_is_enough_and_has_nothing_to_spare() -> Result<()> {
    let (plane, _turn) = turn().await?;
    let story = Story::begin(plane, None).await?;
    // Consumers that no watch has shown: the manager asks for them.
    story.create(fixtures::claim("stale")?).await?;
    let pod = json!({"resource": "pods", "name": "gone", "uid": "gone-1"});
    let group =
        json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gone", "uid": "gone-2"});
    allocate(&story.claims(), "stale", "n", "gpu-0", &[pod, group]).await?;
    let mut manager = manager(plane).await?;
    story.claim_until("stale", "is released", |claim| consumers(claim).is_empty()).await?;

    // A template that is missing for long enough to be said twice.
    story.create(fixtures::template("tmpl")?).await?;
    story.create(fixtures::pod("waits", &[from_template("gpu", "missing")])?).await?;
    story.event_about("waits", &["missing"]).await?;
    story.create(fixtures::pod_group("team", &[from_template("net", "tmpl")])?).await?;
    let entries = [from_template("net", "tmpl"), from_template("gpu", "tmpl")];
    let member = story.create(on_node(in_group(fixtures::pod("member", &entries)?, "team"), "n")).await?;
    story.generated_claim("member", "net").await?;
    let own = story.generated_claim("member", "gpu").await?.name_any();
    allocate(&story.claims(), &own, "n", "gpu-1", &[pod_consumer(&member)]).await?;
    kubelet::finish(&story.pods(), "member", "Succeeded").await?;
    story.claim_gone(&own).await?;
    // A claim that is deleted by accident: the manager asks whether it is really gone.
    story.create(fixtures::pod("web", &[from_template("gpu", "tmpl")])?).await?;
    let lost = story.generated_claim("web", "gpu").await?.name_any();
    story.claims().delete(&lost, &DeleteParams::default()).await?;
    story
        .pod_until("web", "names another claim", |pod| {
            recorded_claim(pod, "gpu").is_some_and(|name| name != lost)
        })
        .await?;
    manager.terminate(STOP_LIMIT).await?;

    story.manager_was_allowed_everything()?;
    let made: BTreeSet<_> = plane
        .requests_of_manager()?
        .into_iter()
        .map(|AuditedRequest { group, resource, verb, .. }| (group, resource, verb))
        .collect();
    let mut unused: Vec<_> =
        granted(plane).await?.into_iter().filter(|right| !made.contains(right)).collect();
    unused.retain(|(_, resource, verb)| {
        // LIST is for servers that can't stream lists. The binding right is checked with a status write and never
        // requested. An event is patched when it has been repeated, which no story can force.
        verb != "list" && resource != "resourceclaims/binding" && resource != "events"
    });
    ensure!(unused.is_empty(), "granted but never used: {unused:?}");
    Ok(())
}

#[tokio::test]
async fn either_manager_takes_over_from_the_other() -> Result<()> {
    let (plane, _turn) = turn().await?;
    for order in [[Program::InTree, Program::Ours], [Program::Ours, Program::InTree]] {
        let story = Story::begin(plane, None).await?;
        let _kubelet = FakeKubelet::start(&story.client, &story.namespace);
        let [before, after] = order;
        let mut first =
            Manager::start(plane, ManagerOptions::claim_controller_of(before, plane).await?).await?;
        story.create(fixtures::template("tmpl")?).await?;
        let group = story.create(fixtures::pod_group("team", &[from_template("net", "tmpl")])?).await?;
        let entries = [from_template("net", "tmpl"), from_template("gpu", "tmpl")];
        let pod = story.create(on_node(in_group(fixtures::pod("web", &entries)?, "team"), "n")).await?;
        let net = story.generated_claim("web", "net").await?.name_any();
        let gpu = story.generated_claim("web", "gpu").await?.name_any();
        allocate(&story.claims(), &net, "n", "gpu-0", &[group_consumer(&group)]).await?;
        allocate(&story.claims(), &gpu, "n", "gpu-1", &[pod_consumer(&pod)]).await?;
        story.pod_runs("web").await?;
        let claims = story.all_claims().await?;
        let (pod, team) = (story.pods().get("web").await?, story.groups().get("team").await?);
        ensure!(recorded_group_claim(&team, "net").as_ref() == Some(&net));
        first.kill()?;

        let _second = Manager::start(plane, ManagerOptions::claim_controller_of(after, plane).await?).await?;
        // When a later Pod has its claim, the second manager has looked at everything before it.
        story.create(fixtures::pod("later", &[from_template("gpu", "tmpl")])?).await?;
        let later = story.generated_claim("later", "gpu").await?.name_any();
        let mut now = story.all_claims().await?;
        now.retain(|claim| claim.name_any() != later);
        ensure!(now == claims, "{after:?} changed the claims of {before:?}: {now:?}");
        ensure!(story.pods().get("web").await? == pod, "{after:?} changed the Pod");
        ensure!(story.groups().get("team").await? == team, "{after:?} changed the PodGroup");

        story.pods().delete("web", &DeleteParams::default()).await?;
        story.claim_gone(&gpu).await?;
        story.groups().delete("team", &DeleteParams::default()).await?;
        story.claim_gone(&net).await?;
    }
    Ok(())
}
