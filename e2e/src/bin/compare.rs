//! Measures this manager against kube-controller-manager: the same load on a fresh API server each, in turns.
//!
//! kube-controller-manager runs its claim controller only and may send as many requests as it likes, as ours.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
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
    /// Where to write the table as well.
    #[arg(long)]
    output: Option<PathBuf>,
}

/// One thing that is measured, less of which is better.
struct Measure {
    title: &'static str,
    load: &'static str,
    field: &'static str,
}

/// Where the report stands in its page.
const SECTION: &str = "## Claim controller";

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

/// What one round with one program gave: the load generator's report by load.
type Round = BTreeMap<&'static str, Value>;

fn run_load(
    generator: &Path,
    plane: &ControlPlane,
    manager: &Manager,
    load: &str,
    count: usize,
) -> Result<Value> {
    let output = Command::new(generator)
        .arg("-kubeconfig")
        .arg(plane.kubeconfig())
        .args(["-scenario", load, "-n", &count.to_string(), "-pid", &manager.id().to_string()])
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
            let report = run_load(generator, &plane, &manager, load, count)?;
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

fn values(rounds: &[Round], measure: &Measure) -> Vec<f64> {
    let value = |round: &Round| round.get(measure.load)?.get(measure.field)?.as_f64();
    rounds.iter().filter_map(value).collect()
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

fn table(in_tree: &[Round], ours: &[Round]) -> Result<String> {
    let mut text = String::from(
        "| median of the rounds | kube-controller-manager | dra-controller-manager | ratio | all rounds |\n\
         |---|---:|---:|---:|---|\n",
    );
    for measure in &MEASURES {
        let (theirs, mine) = (values(in_tree, measure), values(ours, measure));
        let (Some(theirs_median), Some(mine_median)) = (median(&theirs), median(&mine)) else { continue };
        let list =
            |values: &[f64]| values.iter().map(|value| format!("{value:.2}")).collect::<Vec<_>>().join(" ");
        writeln!(
            text,
            "| {} | {theirs_median:.2} | {mine_median:.2} | {:.2} | {} / {} |",
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

/// One line about the machine that was measured on.
fn machine() -> String {
    let field = |file: &str, name: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!(
        "Machine: {cores} cores, {}, {} of memory, shared with the API server, etcd and the load generator.\n",
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

    let (mut in_tree, mut ours) = (Vec::new(), Vec::new());
    for round in 1..=arguments.rounds {
        eprintln!("round {round} of {}", arguments.rounds);
        in_tree.push(measure(&arguments, &generator, Program::InTree).await?);
        ours.push(measure(&arguments, &generator, second).await?);
    }
    let text = format!(
        "`make bench` (`e2e/bench/compare.sh`) measures dra-controller-manager against kube-controller-manager {} (claim \
         controller only, without a limit on its requests) and writes this section. Loads, one after the other on the \
         same manager: `claims -n {}` (Pods that get a claim each, which is allocated, released and deleted again), then \
         `state -n {}` (Pods and claims that are none of the controller's business are made and held); {} rounds in \
         turns, each on a fresh API server. Less is better.\n\n{}\n{}",
        binaries::KUBERNETES_VERSION,
        arguments.claims,
        arguments.state,
        arguments.rounds,
        machine(),
        table(&in_tree, &ours)?
    );
    print!("{text}");
    if let Some(path) = &arguments.output {
        let page = std::fs::read_to_string(path).unwrap_or_else(|_| "# Benchmarks\n".to_owned());
        std::fs::write(path, with_section(&page, SECTION, &text))
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
        let text = table(&rounds([4.0, 9.0, 5.0]), &rounds([1.0, 2.0, 3.0])).unwrap();
        assert!(
            text.contains("| claims made, s | 5.00 | 2.00 | 0.40 | 4.00 9.00 5.00 / 1.00 2.00 3.00 |"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn a_report_replaces_its_own_section_only() {
        let page = "# Benchmarks\n\n## Claim controller\n\nold\n\n## Allocator\n\nkept\n";
        let once = with_section(page, SECTION, "new\n");
        assert_eq!(once, "# Benchmarks\n\n## Claim controller\n\nnew\n\n## Allocator\n\nkept\n");
        assert_eq!(with_section(&once, SECTION, "new\n"), once);
        assert_eq!(
            with_section("# Benchmarks\n", SECTION, "x"),
            "# Benchmarks\n\n## Claim controller\n\nx\n"
        );
    }
}
