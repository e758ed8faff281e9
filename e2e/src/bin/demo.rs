//! Shows what the manager does: a control plane of its own, the objects of `examples/`, what came of them, and their end.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use dra_e2e::fixtures::{is_allocated, phase, recorded_claim, recorded_group_claim};
use dra_e2e::{
    ControlPlane, FakeKubelet, Manager, ManagerOptions, Options, Program, binaries, kubelet, wait_until,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, ResourceExt as _};

const NAMESPACE: &str = "gpu-demo";
const LIMIT: Duration = Duration::from_mins(2);

/// The steps of the demo, with the time each took.
struct Steps {
    begun: Instant,
    live: bool,
}

impl Steps {
    fn new() -> Self {
        Self { begun: Instant::now(), live: std::io::stdout().is_terminal() }
    }

    /// Prints `what`, does it, and prints how long it took.
    async fn step<T>(&self, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        print!("[{:6.1} s] {what} ... ", self.begun.elapsed().as_secs_f64());
        flush()?;
        let begun = Instant::now();
        let mut work = std::pin::pin!(work);
        let mut dots = tokio::time::interval(Duration::from_secs(1));
        let result = loop {
            tokio::select! {
                result = &mut work => break result,
                _ = dots.tick(), if self.live => {
                    print!(".");
                    flush()?;
                }
            }
        };
        let took = begun.elapsed().as_secs_f64();
        match result {
            Ok(value) => {
                println!(" done in {took:.1} s");
                Ok(value)
            }
            Err(error) => {
                println!(" FAILED after {took:.1} s");
                Err(error).with_context(|| what.to_owned())
            }
        }
    }
}

fn flush() -> Result<()> {
    std::io::stdout().flush().context("writing to standard output")
}

/// What the demo's namespace holds.
struct Cluster {
    pods: Api<Pod>,
    claims: Api<ResourceClaim>,
    groups: Api<PodGroup>,
}

impl Cluster {
    fn new(client: &Client) -> Self {
        Self {
            pods: Api::namespaced(client.clone(), NAMESPACE),
            claims: Api::namespaced(client.clone(), NAMESPACE),
            groups: Api::namespaced(client.clone(), NAMESPACE),
        }
    }

    async fn every_pod_runs(&self, count: usize) -> Result<()> {
        wait_until("every Pod runs", LIMIT, async || {
            let pods = self.pods.list(&ListParams::default()).await?;
            let waiting: Vec<String> = pods
                .iter()
                .filter(|pod| phase(pod) != Some("Running"))
                .map(kube::ResourceExt::name_any)
                .collect();
            ensure!(pods.items.len() == count && waiting.is_empty(), "not running: {}", waiting.join(", "));
            Ok(())
        })
        .await
    }

    async fn is_gone(&self, claims: &[String]) -> Result<()> {
        wait_until("the claims are gone", LIMIT, async || {
            for name in claims {
                let claim = self.claims.get_opt(name).await?;
                ensure!(claim.is_none(), "claim {name}: {:?}", claim.and_then(|claim| claim.status));
            }
            Ok(())
        })
        .await
    }

    /// The table Pod → claim → device → node → reserved for.
    async fn print_pods(&self) -> Result<()> {
        let claims: BTreeMap<String, ResourceClaim> =
            self.claims.list(&ListParams::default()).await?.into_iter().map(|c| (c.name_any(), c)).collect();
        let mut rows = Vec::new();
        for pod in self.pods.list(&ListParams::default()).await? {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
            for entry in pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten()) {
                let name = recorded_claim(&pod, &entry.name).unwrap_or_else(|| "(none yet)".to_owned());
                let claim = claims.get(&name);
                rows.push([
                    pod.name_any(),
                    phase(&pod).unwrap_or("Unknown").to_owned(),
                    node.clone(),
                    name.clone(),
                    claim.map(devices).unwrap_or_default(),
                    claim.map_or_else(|| "(claim is gone)".to_owned(), reserved_for),
                ]);
            }
        }
        print_table(["POD", "PHASE", "NODE", "CLAIM", "DEVICES", "RESERVED FOR"], &rows);
        Ok(())
    }

    async fn print_claims(&self) -> Result<()> {
        let mut rows = Vec::new();
        for claim in self.claims.list(&ListParams::default()).await? {
            let state = if is_allocated(&claim) { "allocated" } else { "free" };
            rows.push([claim.name_any(), state.to_owned(), devices(&claim), reserved_for(&claim)]);
        }
        if rows.is_empty() {
            println!("\n    no claims in namespace {NAMESPACE}\n");
        } else {
            print_table(["CLAIM", "STATE", "DEVICES", "RESERVED FOR"], &rows);
        }
        Ok(())
    }
}

fn devices(claim: &ResourceClaim) -> String {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let results = allocation.and_then(|allocation| allocation.devices.as_ref()?.results.as_ref());
    let names = results.into_iter().flatten().map(|result| format!("{}/{}", result.pool, result.device));
    names.collect::<Vec<_>>().join(" ")
}

fn reserved_for(claim: &ResourceClaim) -> String {
    let consumers = claim.status.as_ref().and_then(|status| status.reserved_for.as_ref());
    let names =
        consumers.into_iter().flatten().map(|consumer| format!("{}/{}", consumer.resource, consumer.name));
    names.collect::<Vec<_>>().join(" ")
}

fn print_table<const N: usize>(head: [&str; N], rows: &[[String; N]]) {
    let head = head.map(str::to_owned);
    let all = || std::iter::once(&head).chain(rows);
    let mut widths = [0; N];
    for row in all() {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }
    println!();
    for row in all() {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        println!("    {}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    println!();
}

async fn build_control_plane() -> Result<()> {
    if binaries::built_control_plane().is_ok() {
        return Ok(());
    }
    println!("the control plane (etcd, Kubernetes {}) is not built yet:", binaries::KUBERNETES_VERSION);
    println!("building it takes about 8 minutes on two cores, once");
    let script = binaries::workspace().join(binaries::BUILD_COMMAND);
    let status = tokio::task::spawn_blocking(move || Command::new(script).status()).await??;
    ensure!(status.success(), "{} failed with {status}", binaries::BUILD_COMMAND);
    Ok(())
}

fn apply_examples(plane: &ControlPlane) -> Result<()> {
    plane.kubectl(&["apply", "-f", "examples/cluster", "-f", "examples"])?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    build_control_plane().await?;
    if Program::from_environment() == Program::Ours {
        binaries::manager()?;
    }
    let steps = Steps::new();
    let options = Options::all_gates().with_scheduler();
    let plane =
        steps.step("starting etcd, kube-apiserver and kube-scheduler", ControlPlane::start(options)).await?;
    let _manager = steps
        .step("starting dra-controller-manager with the rights of manifests/", async {
            Manager::start(&plane, ManagerOptions::claim_controller(&plane).await?).await
        })
        .await?;
    let client = plane.client().await?;
    let cluster = Cluster::new(&client);
    let _kubelet = FakeKubelet::start(&client, NAMESPACE);
    steps.step("applying examples/", async { apply_examples(&plane) }).await?;
    steps
        .step("claims are generated, allocated and reserved, and the 5 Pods run", cluster.every_pod_runs(5))
        .await?;
    cluster.print_pods().await?;

    let mut inference = Vec::new();
    for index in 0..3 {
        let pod = cluster.pods.get(&format!("inference-{index}")).await?;
        inference.extend(recorded_claim(&pod, "gpu"));
    }
    let training = recorded_group_claim(&cluster.groups.get("training").await?, "gpus")
        .context("the PodGroup has no claim")?;

    let released = Instant::now();
    steps
        .step("inference-0 completes, the other inference Pods are deleted: their claims go", async {
            kubelet::finish(&cluster.pods, "inference-0", "Succeeded").await?;
            for pod in ["inference-1", "inference-2"] {
                cluster.pods.delete(pod, &DeleteParams::default()).await?;
            }
            cluster.is_gone(&inference).await
        })
        .await?;
    cluster.print_pods().await?;
    steps
        .step("the training Pods are deleted: the claim stays with their PodGroup", async {
            for pod in ["training-0", "training-1"] {
                cluster.pods.delete(pod, &DeleteParams::default()).await?;
            }
            wait_until("the training Pods are gone", LIMIT, async || {
                let left =
                    cluster.pods.list(&ListParams::default().labels("app=training")).await?.items.len();
                ensure!(left == 0, "{left} left");
                Ok(())
            })
            .await?;
            let claim = cluster.claims.get(&training).await.context("the PodGroup's claim")?;
            ensure!(reserved_for(&claim) == "podgroups/training", "reserved for {:?}", reserved_for(&claim));
            Ok(())
        })
        .await?;
    cluster.print_claims().await?;
    steps
        .step("the PodGroup is deleted: its claim goes", async {
            cluster.groups.delete("training", &DeleteParams::default()).await?;
            cluster.is_gone(&[training]).await
        })
        .await?;
    cluster.print_claims().await?;
    println!(
        "Demo complete: 5 Pods ran on 4 claims made from templates; all were released and deleted {:.1} s later. \
         {:.1} s in all.",
        released.elapsed().as_secs_f64(),
        steps.begun.elapsed().as_secs_f64()
    );
    Ok(())
}
