//! The story of `dra-controller-manager demo` on a real control plane of its own: etcd, kube-apiserver, kube-scheduler and
//! the controllers as a process with the rights of `manifests/`.

use std::{process::Command, time::Instant};

use anyhow::{Context as _, Result, ensure};
use dra_e2e::{ControlPlane, FakeKubelet, Manager, ManagerOptions, Options, Program, binaries};

/// The namespace of the examples.
const NAMESPACE: &str = "gpu-demo";

async fn run(mut command: Command) -> Result<()> {
    let what = format!("{command:?}");
    let status = tokio::task::spawn_blocking(move || command.status()).await?.context(what.clone())?;
    ensure!(status.success(), "{what} failed with {status}");
    Ok(())
}

async fn build_control_plane() -> Result<()> {
    if binaries::built_control_plane().is_ok() {
        return Ok(());
    }
    println!("the control plane (etcd, Kubernetes {}) is not built yet:", binaries::KUBERNETES_VERSION);
    println!("building it takes about 8 minutes on two cores, once");
    run(Command::new(binaries::workspace().join(binaries::BUILD_COMMAND))).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    build_control_plane().await?;
    let begun = Instant::now();
    let plane = ControlPlane::start(Options::all_gates().with_scheduler()).await?;
    let options = ManagerOptions {
        controllers: "*".to_owned(),
        ..ManagerOptions::claim_controller_of(Program::Ours, &plane).await?
    };
    let _manager = Manager::start(&plane, options).await?;
    let _kubelet = FakeKubelet::start(&plane.client().await?, NAMESPACE);
    // What kubelets and drivers publish; the story leaves that to the cluster.
    plane.kubectl(&["apply", "-f", "examples/cluster"])?;
    println!(
        "A real control plane with our manager, a fake kubelet and two nodes, after {:.1} s.",
        begun.elapsed().as_secs_f64()
    );
    let mut demo = Command::new(binaries::manager()?);
    demo.arg("demo").arg("--kubeconfig").arg(plane.kubeconfig());
    demo.arg("--kubectl").arg(plane.binary("kubectl"));
    run(demo).await
}
