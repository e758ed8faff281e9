//! Measures this manager against kube-controller-manager: the same load on a fresh API server each, in turns.
//!
//! kube-controller-manager runs one controller only, the same as ours, and may send as many requests as it likes, as
//! ours.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, ValueEnum};
use dra_e2e::{ControlPlane, Manager, ManagerOptions, Options, Program, binaries};
use serde_json::Value;

/// Compares dra-controller-manager with kube-controller-manager and prints a Markdown table.
#[derive(Debug, Parser)]
struct Arguments {
    /// How often each of the two is measured.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Pods of the load `claims`: each gets a claim, which is released and deleted again.
    #[arg(long, default_value_t = 2000)]
    claims: usize,
    /// Pods and claims of the load `state`, which only have to be held in memory. 0 leaves it out.
    #[arg(long, default_value_t = 20_000)]
    state: usize,
    /// Pods of the load `evict`, which one rule evicts.
    #[arg(long, default_value_t = 1000)]
    evict: usize,
    /// Pools of the load `pools`, of 128 devices each; all of them are asked for at once.
    #[arg(long, default_value_t = 500)]
    pools: usize,
    /// Pools of the load `one of many`, of 8 devices each; a single one is asked for.
    #[arg(long, default_value_t = 5000)]
    many_pools: usize,
    /// Which controller to measure; both if left out.
    #[arg(long, value_enum)]
    only: Option<Controller>,
    /// Where to write the table as well.
    #[arg(long)]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Controller {
    /// The claim controller.
    Claims,
    /// Device-taint eviction.
    Eviction,
    /// The pool status controller.
    Pools,
}

impl Controller {
    /// Where its report stands in the page.
    fn section(self) -> &'static str {
        match self {
            Self::Claims => "## Claim controller",
            Self::Eviction => "## Device-taint eviction",
            Self::Pools => "## Pool status",
        }
    }

    fn measures(self) -> &'static [Measure] {
        match self {
            Self::Claims => &MEASURES,
            Self::Eviction => &EVICTION_MEASURES,
            Self::Pools => &POOL_MEASURES,
        }
    }
}

/// One thing that is measured, less of which is better.
struct Measure {
    title: &'static str,
    load: &'static str,
    field: &'static str,
}

const MEASURES: [Measure; 8] = [
    Measure { title: "claims made, s", load: "claims", field: "generate_s" },
    Measure { title: "p99 Pod to claim, s", load: "claims", field: "p99_s" },
    Measure { title: "claims released and deleted, s", load: "claims", field: "release_s" },
    Measure { title: "CPU for the claims, s", load: "claims", field: "cpu_s" },
    Measure { title: "peak memory after the claims, MiB", load: "claims", field: "peak_rss_mib" },
    Measure { title: "CPU for the state, s", load: "state", field: "cpu_s" },
    Measure { title: "peak memory with the state, MiB", load: "state", field: "peak_rss_mib" },
    Measure { title: "CPU for both loads, s", load: "both", field: "cpu_s" },
];

const EVICTION_MEASURES: [Measure; 6] = [
    Measure { title: "rule to last Pod evicted, s", load: "evict", field: "evict_s" },
    Measure { title: "p50 rule to Pod evicted, s", load: "evict", field: "p50_s" },
    Measure { title: "p99 rule to Pod evicted, s", load: "evict", field: "p99_s" },
    Measure { title: "rule to condition False, s", load: "evict", field: "condition_false_s" },
    Measure { title: "CPU, s", load: "evict", field: "cpu_s" },
    Measure { title: "peak memory, MiB", load: "evict", field: "peak_rss_mib" },
];

const POOL_MEASURES: [Measure; 11] = [
    Measure { title: "all pools: first request to answer, s", load: "pools", field: "first_s" },
    Measure { title: "all pools: request to answer, s", load: "pools", field: "pools_s" },
    Measure {
        title: "all pools: of that, the API server for the write of the answer, s",
        load: "pools",
        field: "write_s",
    },
    Measure { title: "all pools: CPU for the answers, s", load: "pools", field: "answers_cpu_s" },
    Measure { title: "all pools: CPU with their slices, s", load: "pools", field: "cpu_s" },
    Measure { title: "all pools: peak memory, MiB", load: "pools", field: "peak_rss_mib" },
    Measure { title: "one of 50 pools: request to answer, s", load: "few", field: "pools_s" },
    Measure { title: "one of many pools: request to answer, s", load: "many", field: "pools_s" },
    Measure { title: "one of 50 pools: CPU for the answers, s", load: "few", field: "answers_cpu_s" },
    Measure { title: "one of many pools: CPU for the answers, s", load: "many", field: "answers_cpu_s" },
    Measure { title: "one of many pools: peak memory, MiB", load: "many", field: "peak_rss_mib" },
];

/// What one round with one program gave: the load generator's report by load.
type Round = BTreeMap<&'static str, Value>;

fn run_load(
    generator: &Path,
    plane: &ControlPlane,
    manager: &Manager,
    load: &str,
    count: usize,
    more: &[&str],
) -> Result<Value> {
    let output = Command::new(generator)
        .arg("-kubeconfig")
        .arg(plane.kubeconfig())
        .args(["-scenario", load, "-n", &count.to_string(), "-pid", &manager.id().to_string()])
        .args(more)
        .stderr(Stdio::inherit())
        .output()
        .context("running the load generator")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "load {load} ended with {}: {text}", output.status);
    let report: Value = serde_json::from_str(text.trim()).with_context(|| format!("reading {text:?}"))?;
    ensure!(report.get("error").is_none(), "load {load}: {report}");
    Ok(report)
}

async fn measure(arguments: &Arguments, generator: &Path, program: Program) -> Result<Round> {
    let options = Options { controllers: String::new(), audit: false, ..Options::all_gates() };
    let plane = ControlPlane::start(options).await?;
    let options = ManagerOptions::claim_controller_of(program, &plane).await?;
    let manager = Manager::start(&plane, options).await?;
    let mut round = Round::new();
    for (load, count) in [("claims", arguments.claims), ("state", arguments.state)] {
        if count > 0 {
            let report = run_load(generator, &plane, &manager, load, count, &[])?;
            eprintln!("{program:?}: {report}");
            round.insert(load, report);
        }
    }
    let cpu: Vec<f64> = round.values().filter_map(|report| report.get("cpu_s")?.as_f64()).collect();
    if cpu.len() == 2 {
        round.insert("both", serde_json::json!({"cpu_s": cpu.iter().sum::<f64>()}));
    }
    Ok(round)
}

async fn measure_eviction(arguments: &Arguments, generator: &Path, program: Program) -> Result<Round> {
    let options = Options { controllers: String::new(), audit: false, ..Options::all_gates() };
    let plane = ControlPlane::start(options).await?;
    let manager = Manager::start(&plane, ManagerOptions::eviction_of(program, &plane).await?).await?;
    let report = run_load(generator, &plane, &manager, "evict", arguments.evict, &[])?;
    eprintln!("{program:?}: {report}");
    Ok(Round::from([("evict", report)]))
}

async fn measure_pools(arguments: &Arguments, generator: &Path, program: Program) -> Result<Round> {
    let mut round = Round::new();
    let few = 50;
    for (load, count, more) in [
        ("few", few, ["-devices=8", "-requests=20", "-single"]),
        ("pools", arguments.pools, ["-devices=128", "-requests=20", "-single=false"]),
        ("many", arguments.many_pools, ["-devices=8", "-requests=20", "-single"]),
    ] {
        let options = Options { controllers: String::new(), audit: false, ..Options::all_gates() };
        let plane = ControlPlane::start(options).await?;
        let manager = Manager::start(&plane, ManagerOptions::pool_status_of(program, &plane).await?).await?;
        let report = run_load(generator, &plane, &manager, "pools", count, &more)?;
        eprintln!("{program:?} {load}: {report}");
        round.insert(load, report);
    }
    Ok(round)
}

fn values(rounds: &[Round], measure: &Measure) -> Vec<f64> {
    let value = |round: &Round| round.get(measure.load)?.get(measure.field)?.as_f64();
    rounds.iter().filter_map(value).collect()
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

fn table(measures: &[Measure], in_tree: &[Round], ours: &[Round]) -> Result<String> {
    let mut text = String::from(
        "| median of the rounds | kube-controller-manager | dra-controller-manager | ratio | all rounds |\n\
         |---|---:|---:|---:|---|\n",
    );
    for measure in measures {
        let (theirs, mine) = (values(in_tree, measure), values(ours, measure));
        let (Some(theirs_median), Some(mine_median)) = (median(&theirs), median(&mine)) else { continue };
        let list =
            |values: &[f64]| values.iter().map(|value| format!("{value:.3}")).collect::<Vec<_>>().join(" ");
        writeln!(
            text,
            "| {} | {theirs_median:.3} | {mine_median:.3} | {:.2} | {} / {} |",
            measure.title,
            mine_median / theirs_median,
            list(&theirs),
            list(&mine)
        )?;
    }
    Ok(text)
}

/// The page with this section replaced, or appended when the page has none.
fn with_section(page: &str, heading: &str, text: &str) -> String {
    let section = format!("{heading}\n\n{}\n", text.trim_end());
    let Some((before, old)) = page.split_once(&format!("{heading}\n")) else {
        return format!("{}\n\n{section}", page.trim_end());
    };
    let after = old.find("\n## ").and_then(|at| old.get(at..)).unwrap_or_default();
    format!("{before}{section}{after}")
}

/// One line about the day and the machine of the measurement.
fn machine() -> String {
    let field = |file: &str, name: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!(
        "{}; {cores} cores, {}, {} of memory, shared with the API server, etcd and the load generator.\n",
        jiff::Timestamp::now().strftime("%Y-%m-%d"),
        field("/proc/cpuinfo", "model name"),
        field("/proc/meminfo", "MemTotal")
    )
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let generator = binaries::built_control_plane()?.join("drabench");
    let built = Command::new(binaries::workspace().join("e2e/bench/build.sh")).arg(&generator).status()?;
    ensure!(built.success(), "building the load generator failed with {built}");
    // With DRACM_BIN=in-tree it is measured against itself, which shows the noise.
    let second = Program::from_environment();
    if second == Program::Ours {
        eprintln!("ours: {}", binaries::manager()?.display());
    }

    for controller in [Controller::Claims, Controller::Eviction, Controller::Pools] {
        if arguments.only.is_none_or(|only| only == controller) {
            compare(&arguments, &generator, controller, second).await?;
        }
    }
    Ok(())
}

/// Measures one controller and writes its section.
async fn compare(
    arguments: &Arguments,
    generator: &Path,
    controller: Controller,
    second: Program,
) -> Result<()> {
    let (mut in_tree, mut ours) = (Vec::new(), Vec::new());
    for round in 1..=arguments.rounds {
        eprintln!("{controller:?}: round {round} of {}", arguments.rounds);
        for (program, rounds) in [(Program::InTree, &mut in_tree), (second, &mut ours)] {
            rounds.push(match controller {
                Controller::Claims => measure(arguments, generator, program).await?,
                Controller::Eviction => measure_eviction(arguments, generator, program).await?,
                Controller::Pools => measure_pools(arguments, generator, program).await?,
            });
        }
    }
    let intro = match controller {
        Controller::Claims => format!(
            "`make bench` (`e2e/bench/compare.sh`) measures dra-controller-manager against kube-controller-manager {} (claim \
             controller only, without a limit on its requests) and writes this section. Loads, one after the other on the \
             same manager: `claims -n {}` (Pods that get a claim each, which is allocated, released and deleted again), \
             then `state -n {}` (Pods and claims that are none of the controller's business are made and held); {} rounds \
             in turns, each on a fresh API server. Less is better.",
            binaries::KUBERNETES_VERSION,
            arguments.claims,
            arguments.state,
            arguments.rounds,
        ),
        Controller::Eviction => format!(
            "`e2e/bench/compare.sh --only eviction` measures dra-controller-manager against kube-controller-manager {} \
             (device-taint eviction only, without a limit on its requests) and writes this section. Load: `evict -n {}` \
             (as many Pods hold a device each, then one NoExecute rule for all devices of their driver is made); {} rounds \
             in turns, each on a fresh API server. Less is better.",
            binaries::KUBERNETES_VERSION,
            arguments.evict,
            arguments.rounds,
        ),
        Controller::Pools => format!(
            "`e2e/bench/compare.sh --only pools` measures dra-controller-manager against kube-controller-manager {} (pool \
             status controller only, without a limit on its requests) and writes this section. Loads, each on a fresh API \
             server: {} pools of 128 devices, all of them asked for; then one pool asked for among 50 and among {} pools \
             of 8 devices; 20 requests one after the other, of which the median counts; {} rounds in turns. Less is better.\n\n\
             From the request to its answer, most of the time is the API server's: it stores the request, shows it to the \
             controller, and writes the answer (its own metric for that has a row). It reads our JSON more slowly than the \
             protobuf of in-tree clients. What the controllers themselves do for it shows in the CPU.",
            binaries::KUBERNETES_VERSION,
            arguments.pools,
            arguments.many_pools,
            arguments.rounds,
        ),
    };
    let text = format!("{intro}\n\n{}\n{}", machine(), table(controller.measures(), &in_tree, &ours)?);
    print!("{text}");
    if let Some(path) = &arguments.output {
        let page = std::fs::read_to_string(path).unwrap_or_else(|_| "# Benchmarks\n".to_owned());
        std::fs::write(path, with_section(&page, controller.section(), &text))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_shows_medians_and_their_ratio() {
        let rounds = |seconds: [f64; 3]| {
            seconds.map(|seconds| Round::from([("claims", serde_json::json!({"generate_s": seconds}))]))
        };
        let text = table(&MEASURES, &rounds([4.0, 9.0, 5.0]), &rounds([1.0, 2.0, 3.0])).unwrap();
        assert!(
            text.contains(
                "| claims made, s | 5.000 | 2.000 | 0.40 | 4.000 9.000 5.000 / 1.000 2.000 3.000 |"
            ),
            "{text}"
        );
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn a_report_replaces_its_own_section_only() {
        let page = "# Benchmarks\n\n## Claim controller\n\nold\n\n## Allocator\n\nkept\n";
        let once = with_section(page, "## Claim controller", "new\n");
        assert_eq!(once, "# Benchmarks\n\n## Claim controller\n\nnew\n\n## Allocator\n\nkept\n");
        assert_eq!(with_section(&once, "## Claim controller", "new\n"), once);
        assert_eq!(
            with_section("# Benchmarks\n", "## Claim controller", "x"),
            "# Benchmarks\n\n## Claim controller\n\nx\n"
        );
    }
}
