//! The `dra-controller-manager` binary as a process.

use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::control_plane::{ControlPlane, get};
use crate::metrics::Metrics;
use crate::processes::Process;
use crate::{binaries, ports};

const READY_LIMIT: Duration = Duration::from_mins(1);

/// `DRACM_BIN=in-tree` puts kube-controller-manager in the manager's place, so that a story can be held against the
/// original. Stories about what only we do then fail.
const IN_TREE: &str = "in-tree";

/// What runs the claim controller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Program {
    /// `dra-controller-manager`.
    Ours,
    /// kube-controller-manager with its claim controller only, without a limit on its requests.
    InTree,
}

impl Program {
    /// [`Program::Ours`], unless `DRACM_BIN` is `in-tree`.
    pub fn from_environment() -> Self {
        let in_tree = std::env::var_os("DRACM_BIN").is_some_and(|value| value == IN_TREE);
        if in_tree { Self::InTree } else { Self::Ours }
    }
}

/// Flags of `dra-controller-manager run`.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// What to run; the in-tree program has its own way to say what follows.
    pub program: Program,
    /// `--controllers`.
    pub controllers: String,
    /// `--feature-gates`; empty for the defaults.
    pub feature_gates: String,
    /// `--kubeconfig`.
    pub kubeconfig: PathBuf,
    /// More arguments, as they are.
    pub more: Vec<String>,
}

impl ManagerOptions {
    /// The claim controller with the gates of `plane` and the rights of our manifests.
    ///
    /// # Errors
    /// The manifests can't be applied.
    pub async fn claim_controller(plane: &ControlPlane) -> Result<Self> {
        Self::claim_controller_of(Program::from_environment(), plane).await
    }

    /// The same of the program given.
    ///
    /// # Errors
    /// The manifests can't be applied.
    pub async fn claim_controller_of(program: Program, plane: &ControlPlane) -> Result<Self> {
        let kubeconfig = match program {
            Program::Ours => plane.manager_kubeconfig().await?,
            // It reads with the rights of all of kube-controller-manager.
            Program::InTree => plane.kubeconfig(),
        };
        Ok(Self {
            program,
            controllers: "resourceclaim".to_owned(),
            feature_gates: pod_group_gates(plane.feature_gates()),
            kubeconfig,
            more: Vec::new(),
        })
    }
}

impl ManagerOptions {
    /// Device-taint eviction of the program given, with all gates of `plane`.
    ///
    /// # Errors
    /// The manifests can't be applied.
    pub async fn eviction_of(program: Program, plane: &ControlPlane) -> Result<Self> {
        Ok(Self {
            controllers: "device-taint-eviction".to_owned(),
            feature_gates: plane.feature_gates().to_owned(),
            ..Self::claim_controller_of(program, plane).await?
        })
    }

    /// The pool status controller of the program given, with all gates of `plane`.
    ///
    /// # Errors
    /// The manifests can't be applied.
    pub async fn pool_status_of(program: Program, plane: &ControlPlane) -> Result<Self> {
        Ok(Self {
            controllers: "resource-pool-status-request".to_owned(),
            feature_gates: plane.feature_gates().to_owned(),
            ..Self::claim_controller_of(program, plane).await?
        })
    }
}

/// The gates that the claim controller reads, out of a component's `--feature-gates`.
fn pod_group_gates(all: &str) -> String {
    let wanted = all.split(',').filter(|gate| {
        gate.starts_with("GenericWorkload=") || gate.starts_with("DRAWorkloadResourceClaims=")
    });
    wanted.collect::<Vec<_>>().join(",")
}

/// A running manager. Dropping it kills it.
#[derive(Debug)]
pub struct Manager {
    process: Process,
    options: ManagerOptions,
    port: u16,
}

impl Manager {
    /// Starts the binary against `plane` and waits until `/readyz` says yes.
    ///
    /// # Errors
    /// There is no binary (the message says how to build it), or it does not become ready; the message then holds the
    /// end of its log.
    pub async fn start(plane: &ControlPlane, options: ManagerOptions) -> Result<Self> {
        let mut manager = Self::launch(plane, options)?;
        manager.wait_ready().await?;
        Ok(manager)
    }

    /// Starts the binary without waiting for it.
    ///
    /// # Errors
    /// There is no binary, or it can't be run.
    pub fn launch(plane: &ControlPlane, options: ManagerOptions) -> Result<Self> {
        let [port] = ports::free()?;
        let process = start_process(plane, &options, port)?;
        Ok(Self { process, options, port })
    }

    /// Waits until the manager is ready.
    ///
    /// # Errors
    /// It ends or does not become ready within a minute.
    pub async fn wait_ready(&mut self) -> Result<()> {
        let url = self.url();
        let ready = match self.options.program {
            Program::Ours => "/readyz",
            Program::InTree => "/healthz",
        };
        self.process
            .wait_ready(READY_LIMIT, async || {
                let (status, body) = get(&url, ready).await?;
                ensure!(status == 200, "{ready} answers {status}: {body}");
                Ok(())
            })
            .await
    }

    /// GETs a path of the manager's HTTP server: status and body.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        get(&self.url(), path).await
    }

    /// Scrapes `/metrics`.
    ///
    /// # Errors
    /// It does not answer, or not with metrics.
    pub async fn metrics(&self) -> Result<Metrics> {
        let (status, body) = self.get("/metrics").await?;
        ensure!(status == 200, "/metrics answers {status}: {body}");
        Ok(Metrics::parse(&body))
    }

    /// Process id, for accounting.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What this manager, and earlier ones in the same run folder, have logged.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// SIGKILL.
    ///
    /// # Errors
    /// The end of the process can't be waited for.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// SIGTERM; returns how it ended and how long that took.
    ///
    /// # Errors
    /// It does not end within `limit`.
    pub async fn terminate(&mut self, limit: Duration) -> Result<(ExitStatus, Duration)> {
        self.process.terminate(limit).await
    }

    /// An error with the end of the log if the process has ended.
    ///
    /// # Errors
    /// The process has ended.
    pub fn check_running(&mut self) -> Result<()> {
        self.process.check_running()
    }

    /// Starts the binary again with the same flags and port, without waiting for it.
    ///
    /// # Errors
    /// It can't be run.
    pub fn relaunch(&mut self, plane: &ControlPlane) -> Result<()> {
        self.process = start_process(plane, &self.options, self.port)?;
        Ok(())
    }

    fn url(&self) -> String {
        let scheme = match self.options.program {
            Program::Ours => "http",
            Program::InTree => "https",
        };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }
}

fn start_process(plane: &ControlPlane, options: &ManagerOptions, port: u16) -> Result<Process> {
    let mut command;
    if options.program == Program::InTree {
        command = Command::new(plane.binary("kube-controller-manager"));
        command
            .arg(match options.controllers.as_str() {
                "resource-pool-status-request" => "--controllers=resourcepoolstatusrequest-controller",
                "device-taint-eviction" => "--controllers=device-taint-eviction-controller",
                _ => "--controllers=resourceclaim-controller",
            })
            .args(["--kube-api-qps=10000", "--kube-api-burst=10000", "--bind-address=127.0.0.1"])
            .args([
                format!("--secure-port={port}"),
                "--authorization-always-allow-paths=/healthz,/metrics".to_owned(),
            ])
            .arg(format!("--cert-dir={}", plane.folder().join("in-tree").display()));
    } else {
        command = Command::new(binaries::manager()?);
        command
            .arg("run")
            .arg(format!("--controllers={}", options.controllers))
            .arg(format!("--bind-address=127.0.0.1:{port}"));
    }
    command
        .arg(format!("--kubeconfig={}", options.kubeconfig.display()))
        .arg("--leader-elect=false")
        .args(&options.more);
    if !options.feature_gates.is_empty() {
        command.arg(format!("--feature-gates={}", options.feature_gates));
    }
    plane.start_process("manager", &mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manager_gets_only_the_gates_it_reads() {
        assert_eq!(
            pod_group_gates(crate::control_plane::ALL_GATES),
            "DRAWorkloadResourceClaims=true,GenericWorkload=true"
        );
        assert_eq!(pod_group_gates(""), "");
    }
}
