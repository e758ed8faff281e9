//! What users apply is what the API server takes and the binary understands.

use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use dra_e2e::{ControlPlane, Options, binaries};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;

const MANIFESTS: &str = "manifests/kustomize/base";
const NAMESPACE: &str = "dra-controller-manager";

#[tokio::test]
async fn manifests_and_examples_are_accepted_by_the_api_server() -> Result<()> {
    let plane = ControlPlane::start(Options { controllers: String::new(), ..Options::all_gates() }).await?;
    let built = plane.kubectl(&["kustomize", MANIFESTS])?;
    for kind in ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Deployment", "Service"]
    {
        ensure!(
            built.lines().any(|line| line == format!("kind: {kind}")),
            "kustomize builds no {kind}:\n{built}"
        );
    }
    // A dry run makes no namespace for the objects that follow it.
    plane.kubectl(&["apply", "-f", &format!("{MANIFESTS}/namespace.yaml")])?;
    plane.kubectl(&["apply", "--dry-run=server", "--validate=strict", "-k", MANIFESTS])?;
    plane.kubectl(&["apply", "--server-side", "--validate=strict", "-k", MANIFESTS])?;
    plane.kubectl(&["apply", "-f", "examples/00-namespace.yaml"])?;
    plane.kubectl(&[
        "apply",
        "--dry-run=server",
        "--validate=strict",
        "-f",
        "examples/cluster",
        "-f",
        "examples",
    ])?;

    // The namespace enforces the restricted Pod security standard, which a Deployment is not held against.
    let deployments: Api<Deployment> = Api::namespaced(plane.client().await?, NAMESPACE);
    let template = deployments.get(NAMESPACE).await?.spec.template;
    let mut pod =
        Pod { metadata: template.metadata.unwrap_or_default(), spec: template.spec, ..Pod::default() };
    pod.metadata.name = Some("from-the-deployment".to_owned());
    let pods: Api<Pod> = Api::namespaced(plane.client().await?, NAMESPACE);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    pods.create(&dry_run, &pod).await.context("creating a Pod of the Deployment")?;
    Ok(())
}

/// Samples of the documentation as printed, and words of what the API server says to each.
const PRINTED: [(&str, &str); 5] = [
    ("x10-list-attribute", "C identifier"),
    ("x11-includes", "undeclared reference to 'models'"),
    ("x16-pool-status", "spec.driver"),
    ("x24-cpu-mapping", "capacity"),
    ("x25-memory-overhead", "nodeAllocatableResources"),
];

#[tokio::test]
async fn samples_are_refused_as_printed_and_accepted_as_corrected() -> Result<()> {
    let plane = ControlPlane::start(Options { controllers: String::new(), ..Options::all_gates() }).await?;
    // Slices that map devices to node resources must name a node whose kubelet can do that.
    let nodes: Api<Node> = Api::all(plane.client().await?);
    let metadata = ObjectMeta { name: Some("my-node".to_owned()), ..ObjectMeta::default() };
    nodes.create(&PostParams::default(), &Node { metadata, ..Node::default() }).await?;
    let status = json!({"status": {"declaredFeatures": ["DRANodeAllocatableResources"]}});
    nodes.patch_status("my-node", &PatchParams::default(), &Patch::Merge(status)).await?;
    for (sample, words) in PRINTED {
        let create = |folder: &str| {
            let file = format!("{folder}/{sample}.yaml");
            plane.kubectl(&["create", "--dry-run=server", "--validate=strict", "-f", &file])
        };
        match create("allocator/tests/samples") {
            Ok(accepted) => bail!("{sample} was accepted as printed:\n{accepted}"),
            Err(refused) => {
                let said = format!("{refused:#}");
                ensure!(said.contains(words), "{sample}: not {words:?} but {said}");
            }
        }
        create("examples/corrected").with_context(|| format!("{sample} as corrected"))?;
    }
    Ok(())
}

#[test]
fn deployment_uses_flags_that_the_binary_knows() -> Result<()> {
    let path = binaries::workspace().join(MANIFESTS).join("deployment.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let flags =
        text.lines().filter_map(|line| line.trim().strip_prefix("- ")).filter(|line| line.starts_with("--"));
    // A kubeconfig that is not there ends the command right after it has read its flags.
    let output = Command::new(binaries::manager()?)
        .arg("run")
        .args(flags.clone())
        .arg("--kubeconfig=/nonexistent/kubeconfig")
        .output()
        .context("running the manager")?;
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure!(flags.count() > 0, "no flags in {}", path.display());
    ensure!(
        !output.status.success() && said.contains("/nonexistent/kubeconfig"),
        "{}: {said}",
        output.status
    );
    Ok(())
}
