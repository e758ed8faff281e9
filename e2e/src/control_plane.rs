//! etcd, kube-apiserver and, where asked, kube-scheduler and kube-controller-manager.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::processes::{Group, Process};
use crate::{binaries, ports};

/// Every DRA gate of 1.37 that is off by default, and what they need.
pub const ALL_GATES: &str = "DRADerivedAttributes=true,DRADeviceCompatibilityGroups=true,DRAListTypeAttributes=true,\
DRANodeAllocatableResources=true,DRAOptionalNodeOperations=true,DRAPartitionableDevicesType=true,\
DRAResourcePoolStatus=true,DRAWorkloadResourceClaims=true,GenericWorkload=true";

/// How long a component may take until it is ready. Generous: two cores may be shared with a build.
const START_LIMIT: Duration = Duration::from_mins(2);

/// Where our manifests put the manager.
const MANAGER_NAMESPACE: &str = "dra-controller-manager";
const MANAGER_ACCOUNT: &str = "dra-controller-manager";

/// What to start and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// `--feature-gates` of every component; empty for the defaults.
    pub feature_gates: String,
    /// Whether `scheduling.k8s.io/v1beta1` (`PodGroup`) is served from the start.
    pub pod_groups: bool,
    /// Whether kube-scheduler runs.
    pub scheduler: bool,
    /// `--controllers` of kube-controller-manager; empty to not start it.
    pub controllers: String,
    /// Whether the API server writes down what the manager asks of it.
    pub audit: bool,
    /// What of `resource.k8s.io` is not served, as `version/resource`.
    pub unserved: Vec<&'static str>,
}

impl Options {
    /// Every DRA gate on, PodGroups served, no scheduler, and the two controllers that make owned claims and
    /// PodGroups really go away.
    pub fn all_gates() -> Self {
        Self {
            feature_gates: ALL_GATES.to_owned(),
            pod_groups: true,
            scheduler: false,
            controllers: "garbage-collector-controller,podgroup-protection-controller".to_owned(),
            audit: true,
            unserved: Vec::new(),
        }
    }

    /// A cluster with default gates, which does not serve PodGroups.
    pub fn defaults() -> Self {
        Self {
            feature_gates: String::new(),
            pod_groups: false,
            scheduler: false,
            controllers: "garbage-collector-controller".to_owned(),
            audit: true,
            unserved: Vec::new(),
        }
    }

    /// The same with kube-scheduler.
    #[must_use]
    pub fn with_scheduler(mut self) -> Self {
        self.scheduler = true;
        self
    }
}

/// A running control plane. Dropping it, or the end of this process in any way, stops it and removes its folder.
#[derive(Debug)]
pub struct ControlPlane {
    // Dropped in this order: the processes before the folder they write to.
    processes: Mutex<Processes>,
    group: Group,
    binaries: PathBuf,
    options: Options,
    serves_pod_groups: AtomicBool,
    /// Where in the audit log the time of the running API server begins.
    audited_from: AtomicUsize,
    etcd_port: u16,
    api_port: u16,
}

#[derive(Debug, Default)]
struct Processes {
    api_server: Option<Process>,
    others: Vec<Process>,
}

impl ControlPlane {
    /// Starts a control plane and waits until it is ready.
    ///
    /// # Errors
    /// The binaries are not built (the message says how to), or a component does not become ready; the message
    /// then holds the end of its log.
    pub async fn start(options: Options) -> Result<Self> {
        let binaries = binaries::built_control_plane()?;
        let group = Group::new()?;
        write_credentials(group.folder())?;
        let [api_port, etcd_port, peer_port, scheduler_port, controllers_port] = ports::free()?;
        let plane = Self {
            processes: Mutex::default(),
            group,
            binaries,
            serves_pod_groups: AtomicBool::new(options.pod_groups),
            audited_from: AtomicUsize::new(0),
            options,
            etcd_port,
            api_port,
        };
        write_kubeconfig(&plane.kubeconfig(), &plane.url(), &plane.certificate(), "admin-token")?;

        let client_url = format!("http://127.0.0.1:{etcd_port}");
        let peer_url = format!("http://127.0.0.1:{peer_port}");
        let etcd = plane.group.start(
            "etcd",
            Command::new(plane.binary("etcd"))
                .arg("--data-dir")
                .arg(plane.folder().join("etcd"))
                .args(["--unsafe-no-fsync", "--quota-backend-bytes", "8589934592"])
                .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
                .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
                .args(["--initial-cluster", &format!("default={peer_url}")]),
        )?;
        plane.processes().others.push(etcd);
        plane.start_api_server().await?;
        if plane.options.scheduler {
            plane.start_component("kube-scheduler", scheduler_port, &[]).await?;
        }
        if !plane.options.controllers.is_empty() {
            let controllers = format!("--controllers={}", plane.options.controllers);
            plane.start_component("kube-controller-manager", controllers_port, &[&controllers]).await?;
        }
        Ok(plane)
    }

    /// Folder of this run: logs, kubeconfigs, data.
    pub fn folder(&self) -> &Path {
        self.group.folder()
    }

    /// `--feature-gates` this control plane was started with.
    pub fn feature_gates(&self) -> &str {
        &self.options.feature_gates
    }

    /// Kubeconfig with all rights (`system:masters`).
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder().join("kubeconfig")
    }

    /// Path of one of the control plane's binaries, as `kubectl`.
    pub fn binary(&self, name: &str) -> PathBuf {
        self.binaries.join(name)
    }

    /// A new client with all rights. A client belongs to the async runtime it was made on, so that each test makes
    /// its own.
    ///
    /// # Errors
    /// The kubeconfig of this run cannot be read.
    pub async fn client(&self) -> Result<Client> {
        client_from(&self.kubeconfig()).await
    }

    /// Runs kubectl with all rights and returns its standard output.
    ///
    /// # Errors
    /// kubectl fails; the message holds what it printed.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(self.binary("kubectl"))
            .env("KUBECONFIG", self.kubeconfig())
            .env("HOME", self.folder())
            .current_dir(binaries::workspace())
            .args(arguments)
            .output()
            .with_context(|| format!("running kubectl {arguments:?}"))?;
        ensure!(
            output.status.success(),
            "kubectl {} failed: {}{}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Applies `manifests/kustomize/base` and writes a kubeconfig that has a token of its `ServiceAccount`, hence the
    /// rights of our manifests and no others.
    ///
    /// # Errors
    /// The API server refuses a manifest or the token.
    pub async fn manager_kubeconfig(&self) -> Result<PathBuf> {
        self.kubectl(&["apply", "--server-side", "--force-conflicts", "-k", "manifests/kustomize/base"])?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, MANAGER_NAMESPACE);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(24 * 3600),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(MANAGER_ACCOUNT, &PostParams::default(), &request)
            .await
            .context("requesting a token for the manager's ServiceAccount")?;
        let token =
            answer.status.and_then(|status| status.token).context("a TokenRequest without a token")?;
        let path = self.folder().join("manager-kubeconfig");
        write_kubeconfig(&path, &self.url(), &self.certificate(), &token)?;
        Ok(path)
    }

    /// What the API server, since it became ready, has answered to the manager's `ServiceAccount`, if
    /// [`Options::audit`] is set. Before, it refuses requests because it does not know the roles yet.
    ///
    /// # Errors
    /// The audit log cannot be read.
    pub fn requests_of_manager(&self) -> Result<Vec<AuditedRequest>> {
        let log = self.read_audit_log()?;
        let log = log.get(self.audited_from.load(Ordering::Relaxed)..).unwrap_or_default();
        Ok(String::from_utf8_lossy(log).lines().filter_map(AuditedRequest::parse).collect())
    }

    fn read_audit_log(&self) -> Result<Vec<u8>> {
        match fs::read(self.audit_log()) {
            // It begins with the first request.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            log => log.context("reading the audit log"),
        }
    }

    /// A kubeconfig for a server that this control plane does not run.
    ///
    /// # Errors
    /// It can't be written.
    pub fn kubeconfig_for(&self, server: &str) -> Result<PathBuf> {
        let path = self.folder().join(format!("kubeconfig-{}", server.replace(['/', ':'], "-")));
        write_kubeconfig(&path, server, &self.certificate(), "no-token")?;
        Ok(path)
    }

    /// Stops the API server at once, as a crash would.
    ///
    /// # Errors
    /// It does not run.
    pub fn stop_api_server(&self) -> Result<()> {
        let server = self.processes().api_server.take();
        server.context("the API server does not run")?.kill()
    }

    /// Restarts the API server so that it serves `PodGroups` from now on, as after an upgrade.
    ///
    /// # Errors
    /// It does not become ready.
    pub async fn serve_pod_groups(&self) -> Result<()> {
        self.stop_api_server()?;
        self.serves_pod_groups.store(true, Ordering::Relaxed);
        self.start_api_server().await
    }

    /// Starts the API server on the same port and data and waits until it is ready.
    ///
    /// # Errors
    /// It does not become ready.
    pub async fn start_api_server(&self) -> Result<()> {
        let mut command = Command::new(self.binary("kube-apiserver"));
        let folder = self.folder();
        let mut runtime_config = String::from(
            "resource.k8s.io/v1alpha3=true,resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true",
        );
        if self.serves_pod_groups.load(Ordering::Relaxed) {
            runtime_config.push_str(",scheduling.k8s.io/v1beta1=true");
        }
        for unserved in &self.options.unserved {
            runtime_config.extend([",resource.k8s.io/", *unserved, "=false"]);
        }
        command
            .arg(format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port))
            .arg(format!("--secure-port={}", self.api_port))
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--cert-dir={}", folder.join("pki").display()))
            .arg(format!("--token-auth-file={}", folder.join("tokens.csv").display()))
            .arg("--authorization-mode=RBAC")
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--service-account-key-file={}", folder.join("pki/sa.pub").display()))
            .arg(format!("--service-account-signing-key-file={}", folder.join("pki/sa.key").display()))
            .arg("--service-cluster-ip-range=10.0.0.0/24")
            .arg(format!("--runtime-config={runtime_config}"))
            // Without the controllers behind them, these two would keep Pods from being created and scheduled.
            .arg("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition");
        if self.options.audit {
            command
                .arg(format!("--audit-policy-file={}", folder.join("audit-policy.json").display()))
                .arg(format!("--audit-log-path={}", self.audit_log().display()));
        }
        if !self.options.feature_gates.is_empty() {
            command.arg(format!("--feature-gates={}", self.options.feature_gates));
        }
        let mut server = self.group.start("kube-apiserver", &mut command)?;
        server
            .wait_ready(START_LIMIT, async || {
                let ready = http::Request::get("/readyz").body(Vec::new())?;
                // The certificate that the client trusts is there once the server has started.
                self.client().await?.request_text(ready).await?;
                Ok(())
            })
            .await?;
        self.processes().api_server = Some(server);
        self.audited_from.store(self.read_audit_log()?.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Starts a process in this control plane's group; it ends with the control plane at the latest.
    pub(crate) fn start_process(&self, name: &str, command: &mut Command) -> Result<Process> {
        self.group.start(name, command)
    }

    async fn start_component(&self, name: &str, port: u16, more: &[&str]) -> Result<()> {
        let mut command = Command::new(self.binary(name));
        command
            .arg(format!("--kubeconfig={}", self.kubeconfig().display()))
            .arg("--leader-elect=false")
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--secure-port={port}"))
            .arg(format!("--cert-dir={}", self.folder().join(name).display()))
            .args(more);
        if !self.options.feature_gates.is_empty() {
            command.arg(format!("--feature-gates={}", self.options.feature_gates));
        }
        let mut process = self.group.start(name, &mut command)?;
        process
            .wait_ready(START_LIMIT, async || {
                let (status, body) = get(&format!("https://127.0.0.1:{port}"), "/healthz").await?;
                ensure!(status == 200, "/healthz answers {status}: {body}");
                Ok(())
            })
            .await?;
        self.processes().others.push(process);
        Ok(())
    }

    fn audit_log(&self) -> PathBuf {
        self.folder().join("audit.log")
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.api_port)
    }

    fn certificate(&self) -> PathBuf {
        self.folder().join("pki/apiserver.crt")
    }

    fn processes(&self) -> MutexGuard<'_, Processes> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request of the manager, from the API server's audit log.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct AuditedRequest {
    /// API group; empty for core.
    pub group: String,
    /// Resource, with the subresource after a slash. Empty for discovery.
    pub resource: String,
    /// RBAC verb.
    pub verb: String,
    /// HTTP status.
    pub code: u64,
    /// Whether RBAC let it through.
    pub allowed: bool,
}

impl AuditedRequest {
    fn parse(line: &str) -> Option<Self> {
        let entry: Value = serde_json::from_str(line).ok()?;
        let text =
            |pointer: &str| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut resource = text("/objectRef/resource");
        let subresource = text("/objectRef/subresource");
        if !subresource.is_empty() {
            resource = format!("{resource}/{subresource}");
        }
        Some(Self {
            group: text("/objectRef/apiGroup"),
            resource,
            verb: text("/verb"),
            code: entry.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default(),
            allowed: text("/annotations/authorization.k8s.io~1decision") != "forbid",
        })
    }
}

/// A new client for a kubeconfig file.
///
/// # Errors
/// The file or what it refers to cannot be read.
pub async fn client_from(kubeconfig: &Path) -> Result<Client> {
    let read =
        Kubeconfig::read_from(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("using {}", kubeconfig.display()))?;
    Ok(Client::try_from(config)?)
}

/// GETs `path` from a component's own HTTP or HTTPS port without checking its certificate.
///
/// # Errors
/// There is no answer.
pub async fn get(server: &str, path: &str) -> Result<(u16, String)> {
    let mut config = Config::new(server.parse().with_context(|| format!("{server} as a URL"))?);
    config.accept_invalid_certs = true;
    config.default_retry = false;
    let answer = Client::try_from(config)?.send(http::Request::get(path).body(Vec::new().into())?).await?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect_bytes().await?;
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

/// The key pair for `ServiceAccount` tokens and the administrator's token.
fn write_credentials(folder: &Path) -> Result<()> {
    let pki = folder.join("pki");
    fs::create_dir_all(&pki).with_context(|| format!("making {}", pki.display()))?;
    let (private, public) = (pki.join("sa.key"), pki.join("sa.pub"));
    openssl(
        Command::new("openssl")
            .args(["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out"])
            .arg(&private),
    )?;
    openssl(Command::new("openssl").args(["ec", "-pubout", "-in"]).arg(&private).arg("-out").arg(&public))?;
    let user = format!("system:serviceaccount:{MANAGER_NAMESPACE}:{MANAGER_ACCOUNT}");
    let audit_policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": [user]}, {"level": "None"}],
    });
    fs::write(folder.join("audit-policy.json"), audit_policy.to_string())
        .context("writing the audit policy")?;
    fs::write(folder.join("tokens.csv"), "admin-token,admin,admin,system:masters\n")
        .context("writing the administrator's token")
}

fn openssl(command: &mut Command) -> Result<()> {
    let output = command.output().context("running openssl, which the control plane needs")?;
    ensure!(output.status.success(), "openssl failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Writes a kubeconfig with one cluster and one user.
pub(crate) fn write_kubeconfig(path: &Path, server: &str, certificate: &Path, token: &str) -> Result<()> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": {"server": server, "certificate-authority": certificate}}],
        "users": [{"name": "e2e", "user": {"token": token}}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
        "current-context": "e2e",
    });
    fs::write(path, config.to_string()).with_context(|| format!("writing {}", path.display()))
}
