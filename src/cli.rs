//! The command line: flags, their defaults, and what is checked before anything starts.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use dra_act::Journal;
use dra_controllers::{
    devicetainteviction::{DeviceTaintEviction, MOST_EXPANDED},
    plan::EvictionMode,
    resourceclaim::{Gate, Gates},
};

/// Kubernetes controllers for Dynamic Resource Allocation.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the controllers against a cluster until SIGTERM or SIGINT.
    Run(Box<RunOptions>),
    /// Show what the controllers do, on an API server in memory: needs nothing else.
    Demo(DemoOptions),
    /// Say what the controllers would do to the objects in files, when and why, and what a change would alter.
    Simulate(SimulateOptions),
}

/// Flags of `demo`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DemoOptions {
    /// Tell the story with the objects of a file or folder instead of the built-in examples. Without --kubeconfig they
    /// must hold Nodes, ResourceSlices and Pods with claims. May be repeated.
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) input: Vec<PathBuf>,

    /// Tell the story on a real cluster, with its scheduler, kubelets and controllers. Nodes and ResourceSlices are left
    /// to it; what the demo makes is removed at the end.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Show the DeviceTaintRule as this kubectl describes it, and wait with it for the end of the eviction.
    #[arg(long, value_name = "FILE", requires = "kubeconfig")]
    pub(crate) kubectl: Option<PathBuf>,
}

/// Flags of `simulate`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SimulateOptions {
    /// Objects as `kubectl get -o yaml` (or json) writes them: a file, the files of a folder, or - for standard input. May
    /// be repeated.
    #[arg(short, long, value_name = "FILE|DIR", required = true)]
    pub(crate) filename: Vec<PathBuf>,

    /// Show what this change would alter: new objects, or other versions of objects that are there. May be repeated.
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) diff: Vec<PathBuf>,

    /// For how long, as 90s, 10m or 2h30m; at most 2160h.
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    pub(crate) until: String,

    /// When it begins: a time such as 2026-11-30T12:00:00Z, or now. By default the latest time that an object tells of.
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,

    /// How the answer is written.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,

    /// End with an error when an object is malformed, before anything is simulated.
    #[arg(long)]
    pub(crate) strict: bool,

    /// A flag of `run` that the controllers are to have, as --run-flag=--eviction-qps=2. May be repeated.
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    pub(crate) run_flag: Vec<String>,
}

impl SimulateOptions {
    /// Flags of `run` for the controllers that are simulated, checked.
    pub(crate) fn run_options(&self) -> Result<RunOptions> {
        let line =
            ["dra-controller-manager", "run"].into_iter().chain(self.run_flag.iter().map(String::as_str));
        let Command::Run(options) = Cli::try_parse_from(line).context("--run-flag")?.command else {
            bail!("--run-flag: only flags of run have a meaning here");
        };
        options.settings().context("--run-flag")?;
        Ok(*options)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// One JSON object.
    Json,
    /// The same as YAML.
    Yaml,
}

/// Flags of `run`.
// Each switch is a flag of its own.
#[allow(clippy::struct_excessive_bools)]
#[derive(Args, Clone, Debug)]
pub(crate) struct RunOptions {
    /// Kubeconfig file; without it, the configuration of the Pod that this runs in.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Controllers to run: '*' for all, NAME to switch one on, -NAME to switch one off. Known: resourceclaim,
    /// device-taint-eviction, resource-pool-status-request; the in-tree names (with -controller) are aliases.
    #[arg(long, value_name = "LIST", default_value = "*", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) controllers: Vec<String>,

    /// Feature gates as A=true,B=false. Without a setting, those for `PodGroups` follow the API server.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) feature_gates: Vec<String>,

    /// Leader election for more than one replica. Not available yet: run one replica with strategy Recreate.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false",
        default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) leader_elect: bool,

    /// Where /metrics, /livez and /readyz are served (plain HTTP). The default means all addresses, IPv4 too.
    #[arg(long, value_name = "IP:PORT", default_value = "[::]:8080")]
    pub(crate) bind_address: SocketAddr,

    /// Claims, Pods and PodGroups that are worked on at once.
    #[arg(long, value_name = "N", default_value_t = 50, allow_negative_numbers = true)]
    pub(crate) concurrent_resourceclaim_syncs: i32,

    /// Pods that are evicted at once because of taints.
    #[arg(long, value_name = "N", default_value_t = 8, allow_negative_numbers = true)]
    pub(crate) concurrent_device_taint_eviction_syncs: i32,

    /// Pods that are evicted per second because of taints, over the whole cluster; 0 for no limit. Pods of the lowest
    /// priority go first.
    #[arg(long, value_name = "QPS", default_value_t = 0.0, allow_negative_numbers = true)]
    pub(crate) eviction_qps: f64,

    /// How Pods are evicted: delete as kube-controller-manager does, or evict, which respects `PodDisruptionBudgets`.
    #[arg(long, value_enum, default_value_t = Mode::Delete)]
    pub(crate) eviction_mode: Mode,

    /// Only tolerations with effect `NoExecute` protect from eviction, as in kube-controller-manager; otherwise an empty
    /// effect stands for every effect, as documented.
    #[arg(long)]
    pub(crate) strict_toleration_effects: bool,

    /// `NoExecute` rules with `deviceSelector: {}` evict all Pods with devices without further confirmation, as in
    /// kube-controller-manager.
    #[arg(long)]
    pub(crate) allow_unconfirmed_all_devices_rules: bool,

    /// Most `DeviceTaintRules` that one is expanded into which selects by annotation; one that selects more devices is not
    /// expanded.
    #[arg(long, value_name = "N", default_value_t = MOST_EXPANDED)]
    pub(crate) max_expanded_rules: usize,

    /// Most series of live metrics about pools; above it they are summed by driver and node, and then by driver.
    #[arg(long, value_name = "N", default_value_t = 5000)]
    pub(crate) max_pool_series: usize,

    /// Serve /debug/pools beside the metrics: everything about every pool, with names of claims, without
    /// authentication.
    #[arg(long)]
    pub(crate) debug_endpoints: bool,

    /// API requests per second in the long run; 0 for no limit of our own: the API server's priority and fairness
    /// rules.
    #[arg(long, value_name = "QPS", default_value_t = 0.0, allow_negative_numbers = true)]
    pub(crate) kube_api_qps: f64,

    /// API requests at once above that rate; counts only with --kube-api-qps.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) kube_api_burst: u32,

    /// Log level as in other Kubernetes components: 2 is normal, 4 shows every action and its reason, 6 everything.
    #[arg(short, long, value_name = "N", default_value_t = 2)]
    pub(crate) v: u8,

    /// Log format.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line of text for each entry.
    Text,
    /// One JSON object for each entry.
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// DELETE.
    Delete,
    /// The eviction subresource.
    Evict,
}

/// The controllers there are, with the in-tree names as aliases.
const CONTROLLERS: [(&str, &[&str]); 3] = [
    ("resourceclaim", &["resourceclaim-controller", "resource-claim-controller"]),
    ("device-taint-eviction", &["device-taint-eviction-controller"]),
    ("resource-pool-status-request", &["resourcepoolstatusrequest-controller"]),
];

/// What the flags ask for, checked.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) resourceclaim: bool,
    pub(crate) gates: Gates,
    pub(crate) workers: usize,
    pub(crate) limit: Option<(f64, u32)>,
    pub(crate) eviction: Option<EvictionSettings>,
    pub(crate) pools: Option<PoolSettings>,
    /// Serve the endpoints for debugging.
    pub(crate) debug: bool,
    /// Where everything that is done is written down.
    pub(crate) journal: Option<Journal>,
}

/// What the pool status controller is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolSettings {
    /// Most series of live metrics.
    pub(crate) most_series: usize,
    /// `DeviceTaintRules` count, not only the taints of slices.
    pub(crate) rules: bool,
}

/// What the taint eviction controller is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EvictionSettings {
    pub(crate) planner: DeviceTaintEviction,
    pub(crate) workers: usize,
    pub(crate) qps: Option<f64>,
    /// `DeviceTaintRules` count, not only the taints of slices.
    pub(crate) rules: bool,
}

impl RunOptions {
    /// Checks what clap cannot.
    pub(crate) fn settings(&self) -> Result<Settings> {
        if self.leader_elect {
            bail!(
                "--leader-elect=true: leader election is not available yet; run one replica with strategy Recreate \
                 and --leader-elect=false"
            );
        }
        let syncs = self.concurrent_resourceclaim_syncs;
        let Some(workers) = usize::try_from(syncs).ok().filter(|n| *n > 0) else {
            bail!("concurrent-resourceclaim-syncs must be larger than 0, got {syncs}");
        };
        let qps = self.kube_api_qps;
        if !qps.is_finite() || qps < 0.0 {
            bail!("--kube-api-qps must be 0 (no limit) or more, got {qps}");
        }
        let gates = gates(&self.feature_gates)?;
        Ok(Settings {
            resourceclaim: enabled(&self.controllers, "resourceclaim")?,
            gates: gates.claims,
            workers,
            limit: (qps > 0.0).then_some((qps, self.kube_api_burst)),
            eviction: self.eviction(&gates)?,
            pools: (enabled(&self.controllers, "resource-pool-status-request")? && gates.pool_status)
                .then_some(PoolSettings { most_series: self.max_pool_series, rules: gates.rules }),
            debug: self.debug_endpoints,
            journal: None,
        })
    }

    fn eviction(&self, gates: &AllGates) -> Result<Option<EvictionSettings>> {
        let syncs = self.concurrent_device_taint_eviction_syncs;
        let Some(workers) = usize::try_from(syncs).ok().filter(|n| *n > 0) else {
            bail!("concurrent-device-taint-eviction-syncs must be greater than zero, got {syncs}");
        };
        let qps = self.eviction_qps;
        if !qps.is_finite() || qps < 0.0 {
            bail!("--eviction-qps must be 0 (no limit) or more, got {qps}");
        }
        let on = enabled(&self.controllers, "device-taint-eviction")? && gates.taints;
        Ok(on.then(|| EvictionSettings {
            planner: DeviceTaintEviction {
                mode: match self.eviction_mode {
                    Mode::Delete => EvictionMode::Delete,
                    Mode::Evict => EvictionMode::Evict,
                },
                strict_effects: self.strict_toleration_effects,
                allow_everything: self.allow_unconfirmed_all_devices_rules,
                // Where PodGroups have no claims, none is reserved for them.
                workload_claims: gates.claims.generic_workload != Gate::Off
                    && gates.claims.workload_resource_claims != Gate::Off,
                most_expanded: self.max_expanded_rules,
            },
            workers,
            qps: (qps > 0.0).then_some(qps),
            rules: gates.rules,
        }))
    }
}

/// Whether the list switches the controller on; checks every name in it.
fn enabled(list: &[String], controller: &str) -> Result<bool> {
    if list.iter().all(String::is_empty) {
        bail!("--controllers: the list is empty, so nothing would run; '*' stands for all controllers");
    }
    let mut all = false;
    let mut named = None;
    for item in list.iter().filter(|i| !i.is_empty()) {
        if item == "*" {
            all = true;
            continue;
        }
        let (name, on) = item.strip_prefix('-').map_or((item.as_str(), true), |name| (name, false));
        let Some((known, _)) =
            CONTROLLERS.iter().find(|(known, aliases)| *known == name || aliases.contains(&name))
        else {
            let known: Vec<&str> = CONTROLLERS.iter().map(|(name, _)| *name).collect();
            bail!("--controllers: \"{name}\" is not a controller; known are {}", known.join(", "));
        };
        // The first that names it counts, as in kube-controller-manager.
        if *known == controller {
            named = named.or(Some(on));
        }
    }
    Ok(named.unwrap_or(all))
}

/// Gates that other DRA components know too and that change nothing here: whoever passes the same
/// `--feature-gates` to all components must not be refused.
const WITHOUT_EFFECT: [&str; 12] = [
    "DRAConsumableCapacity",
    "DRADerivedAttributes",
    "DRADeviceBindingConditions",
    "DRADeviceCompatibilityGroups",
    "DRAExtendedResource",
    "DRAListTypeAttributes",
    "DRANodeAllocatableResources",
    "DRAOptionalNodeOperations",
    "DRAPartitionableDevices",
    "DRAPartitionableDevicesType",
    "DRAResourceClaimDeviceStatus",
    "DRAResourceClaimGranularStatusAuthorization",
];

/// The feature gates of all controllers.
struct AllGates {
    claims: Gates,
    /// `DRADeviceTaints`.
    taints: bool,
    /// `DRADeviceTaintRules`.
    rules: bool,
    /// `DRAResourcePoolStatus`. Off by default in-tree; here the API server decides by serving it.
    pool_status: bool,
}

fn gates(list: &[String]) -> Result<AllGates> {
    let mut gates = Gates::default();
    let (mut taints, mut rules, mut pool_status) = (true, true, true);
    for item in list.iter().filter(|i| !i.is_empty()) {
        let Some((name, value)) = item.split_once('=') else {
            bail!("--feature-gates: \"{item}\" is not of the form NAME=true or NAME=false");
        };
        let on = match value.trim() {
            "true" | "True" | "TRUE" | "1" => true,
            "false" | "False" | "FALSE" | "0" => false,
            other => bail!("--feature-gates: {name} must be true or false, got \"{other}\""),
        };
        let gate = if on { Gate::On } else { Gate::Off };
        match name.trim() {
            "GenericWorkload" => gates.generic_workload = gate,
            "DRAWorkloadResourceClaims" => gates.workload_resource_claims = gate,
            "DRAAdminAccess" => gates.admin_access = on,
            "DRAPrioritizedList" => gates.prioritized_list = on,
            "DRADeviceTaints" => taints = on,
            "DRADeviceTaintRules" => rules = on,
            "DRAResourcePoolStatus" => pool_status = on,
            "DynamicResourceAllocation" if on => {}
            "DynamicResourceAllocation" => {
                bail!(
                    "--feature-gates: DynamicResourceAllocation cannot be switched off; run no controller instead"
                )
            }
            name if WITHOUT_EFFECT.contains(&name) => {}
            name => bail!(
                "--feature-gates: \"{name}\" is unknown; GenericWorkload, DRAWorkloadResourceClaims, DRAAdminAccess, \
                 DRAPrioritizedList, DRADeviceTaints, DRADeviceTaintRules and DRAResourcePoolStatus have an effect"
            ),
        }
    }
    if gates.workload_resource_claims == Gate::On && gates.generic_workload == Gate::Off {
        bail!("--feature-gates: DRAWorkloadResourceClaims=true needs GenericWorkload=true");
    }
    Ok(AllGates { claims: gates, taints, rules, pool_status })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn options(args: &[&str]) -> RunOptions {
        let all = ["dra-controller-manager", "run"].into_iter().chain(args.iter().copied());
        match Cli::parse_from(all).command {
            Command::Run(options) => *options,
            other => panic!("{other:?}"),
        }
    }

    fn error(args: &[&str]) -> String {
        options(args).settings().unwrap_err().to_string()
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults_run_every_controller_with_fifty_workers_and_no_limit() {
        let settings = options(&[]).settings().unwrap();
        assert!(settings.resourceclaim);
        assert_eq!(settings.workers, 50);
        assert_eq!(settings.limit, None);
        assert_eq!(settings.gates, Gates::default());
    }

    #[test]
    fn the_flags_of_the_upstream_suite_are_taken() {
        let settings = options(&[
            "--kubeconfig=/tmp/k",
            "--controllers=resourceclaim",
            "--feature-gates=GenericWorkload=true,DRAWorkloadResourceClaims=false,DRADeviceTaintRules=true",
            "--leader-elect=false",
            "--bind-address=127.0.0.1:18101",
        ])
        .settings()
        .unwrap();
        assert!(settings.resourceclaim);
        assert_eq!(settings.gates.generic_workload, Gate::On);
        assert_eq!(settings.gates.workload_resource_claims, Gate::Off);
    }

    #[test]
    fn controllers_are_switched_by_name_alias_and_star() {
        let on = |list: &str| options(&[&format!("--controllers={list}")]).settings().unwrap().resourceclaim;
        assert!(on("*"));
        assert!(on("resource-claim-controller"));
        assert!(!on("*,-resourceclaim"));
        assert!(!on("*,-resourceclaim-controller"));
        assert!(on("*,-device-taint-eviction"));
        assert!(!on("-resourceclaim"));
    }

    #[test]
    fn taint_eviction_is_on_by_default_as_in_tree_and_follows_its_gates() {
        let eviction = |args: &[&str]| options(args).settings().unwrap().eviction;
        let default = eviction(&[]).unwrap();
        assert_eq!((default.workers, default.qps, default.rules), (8, None, true));
        assert_eq!(default.planner.mode, EvictionMode::Delete);
        assert!(!default.planner.strict_effects && !default.planner.allow_everything);
        assert_eq!(default.planner.most_expanded, 1000);
        assert!(eviction(&["--controllers=resourceclaim"]).is_none());
        assert!(eviction(&["--controllers=*,-device-taint-eviction-controller"]).is_none());
        assert!(eviction(&["--feature-gates=DRADeviceTaints=false"]).is_none());
        assert!(!eviction(&["--feature-gates=DRADeviceTaintRules=false"]).unwrap().rules);
        let strict = eviction(&[
            "--controllers=device-taint-eviction",
            "--concurrent-device-taint-eviction-syncs=50",
            "--eviction-mode=evict",
            "--eviction-qps=2.5",
            "--max-expanded-rules=7",
            "--strict-toleration-effects",
            "--allow-unconfirmed-all-devices-rules",
        ])
        .unwrap();
        assert_eq!((strict.workers, strict.qps, strict.planner.mode), (50, Some(2.5), EvictionMode::Evict));
        assert!(strict.planner.strict_effects && strict.planner.allow_everything);
        assert_eq!(strict.planner.most_expanded, 7);
    }

    #[test]
    fn pool_status_follows_its_name_its_alias_and_its_gate() {
        let pools = |args: &[&str]| options(args).settings().unwrap().pools;
        assert_eq!(pools(&[]).map(|pools| (pools.most_series, pools.rules)), Some((5000, true)));
        assert!(pools(&["--controllers=resourcepoolstatusrequest-controller"]).is_some());
        assert!(pools(&["--controllers=*,-resource-pool-status-request"]).is_none());
        assert!(pools(&["--controllers=resourceclaim"]).is_none());
        assert!(pools(&["--feature-gates=DRAResourcePoolStatus=false"]).is_none());
        assert!(!pools(&["--feature-gates=DRADeviceTaintRules=false"]).unwrap().rules);
        assert!(!options(&[]).settings().unwrap().debug);
        assert!(options(&["--debug-endpoints"]).settings().unwrap().debug);
    }

    #[test]
    fn bad_flags_are_refused_with_a_way_out() {
        assert!(error(&["--controllers="]).contains("'*' stands for all"));
        assert!(error(&["--controllers=nope"]).contains("known are resourceclaim,"));
        assert_eq!(
            error(&["--concurrent-device-taint-eviction-syncs=0"]),
            "concurrent-device-taint-eviction-syncs must be greater than zero, got 0"
        );
        assert_eq!(
            error(&["--concurrent-device-taint-eviction-syncs=-5"]),
            "concurrent-device-taint-eviction-syncs must be greater than zero, got -5"
        );
        assert!(error(&["--eviction-qps=-1"]).contains("0 (no limit)"));
        assert!(error(&["--leader-elect"]).contains("--leader-elect=false"));
        assert!(error(&["--leader-elect=true"]).contains("one replica"));
        assert_eq!(
            error(&["--concurrent-resourceclaim-syncs=0"]),
            "concurrent-resourceclaim-syncs must be larger than 0, got 0"
        );
        assert_eq!(
            error(&["--concurrent-resourceclaim-syncs=-3"]),
            "concurrent-resourceclaim-syncs must be larger than 0, got -3"
        );
        assert!(error(&["--kube-api-qps=-1"]).contains("0 (no limit)"));
        assert!(error(&["--kube-api-qps=NaN"]).contains("0 (no limit)"));
        assert!(error(&["--feature-gates=Nope=true"]).contains("\"Nope\" is unknown"));
        assert!(error(&["--feature-gates=GenericWorkload"]).contains("NAME=true"));
        assert!(error(&["--feature-gates=GenericWorkload=maybe"]).contains("true or false"));
        assert!(
            error(&["--feature-gates=DRAWorkloadResourceClaims=true,GenericWorkload=false"])
                .contains("needs")
        );
    }
}
