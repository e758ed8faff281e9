//! `demo`: what the controllers do, told live, with nothing but this binary; or the same story on a real cluster.

mod api;
mod kubectl;
mod story;
mod telling;

use std::{future::pending, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use dra_act::{Journal, journal};
use dra_embedded::Server;
use dra_inhabitants::{cluster::Cluster, kubelet::Kubelet, scheduler::Scheduler};
use dra_runtime::{Chance, Clock, client::connect};
use jiff::Timestamp;
use serde_json::Value;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time::interval,
};

use self::{api::Api, kubectl::Kubectl, story::Story, telling::Teller};
use crate::{Controllers, cli::DemoOptions, input::Input, run_on};

/// How long the story waits for any one thing: on the embedded server, and on a cluster that may be slow.
const PATIENCE: Duration = Duration::from_secs(30);
const REAL_PATIENCE: Duration = Duration::from_mins(2);
/// How often scheduler, kubelets and garbage collector act.
const TICK: Duration = Duration::from_millis(25);
/// How long the removal of what was made may take after a signal.
const CLEAN_UP_WITHIN: Duration = Duration::from_secs(10);
const SEED: u64 = 1;
const WORKERS: usize = 8;

/// The files of `examples/` that the story is told with.
const EXAMPLES: [(&str, &str); 7] = [
    ("examples/00-namespace.yaml", include_str!("../../../examples/00-namespace.yaml")),
    ("examples/cluster/nodes.yaml", include_str!("../../../examples/cluster/nodes.yaml")),
    ("examples/cluster/resourceslices.yaml", include_str!("../../../examples/cluster/resourceslices.yaml")),
    ("examples/deviceclass.yaml", include_str!("../../../examples/deviceclass.yaml")),
    ("examples/inference.yaml", include_str!("../../../examples/inference.yaml")),
    ("examples/tolerant.yaml", include_str!("../../../examples/tolerant.yaml")),
    ("examples/training.yaml", include_str!("../../../examples/training.yaml")),
];

/// Tells the story to its end, or until a signal.
pub(crate) fn run(options: &DemoOptions) -> Result<()> {
    let input = input(options)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let result = runtime.block_on(async {
        let teller = Teller::new();
        match &options.kubeconfig {
            None => on_embedded_server(&teller, input).await,
            Some(kubeconfig) => {
                let client = connect(Some(kubeconfig), None).await?;
                let api = Api { client, patience: REAL_PATIENCE };
                let kubectl = options.kubectl.as_deref().map(|program| Kubectl::new(program, kubeconfig));
                let story = Story {
                    api: &api,
                    teller: &teller,
                    real: true,
                    kubectl,
                    run: this_run(),
                    made: Vec::new(),
                };
                tell(story, input).await
            }
        }
    });
    runtime.shutdown_background();
    result
}

/// A label that no other telling has.
fn this_run() -> String {
    format!("{}-{}", Timestamp::now().as_second(), std::process::id())
}

fn input(options: &DemoOptions) -> Result<Vec<Value>> {
    let input = if options.input.is_empty() {
        let mut input = Input::default();
        for (file, text) in EXAMPLES {
            input.add(file, text);
        }
        input
    } else {
        Input::read(&options.input)?
    };
    if !input.problems.is_empty() {
        let problems: Vec<String> = input.problems.iter().map(ToString::to_string).collect();
        bail!("the input cannot be read:\n  {}", problems.join("\n  "));
    }
    Ok(input.objects.into_iter().map(|found| found.object).collect())
}

/// Everything in this process: API server, controllers, scheduler, kubelets and garbage collector.
async fn on_embedded_server(teller: &Teller, input: Vec<Value>) -> Result<()> {
    let server = Server::new(SEED, Timestamp::now());
    let journal = Journal::default();
    let mut background = JoinSet::new();
    teller.say("An API server in memory, a little scheduler, kubelets and a garbage collector; the controllers are the real ones.")?;
    let client = server.client();
    let controllers = Controllers { journal: Some(journal.clone()), ..Controllers::all(WORKERS) };
    background.spawn(async move {
        let chance = Arc::new(Chance::seeded(SEED));
        let ended = run_on(client, &controllers, Clock::system(), chance, pending()).await;
        format!("the controllers have ended: {ended:?}")
    });
    let cluster = Cluster::new(server.clone(), "");
    background.spawn(inhabit(cluster));
    let api = Api { client: server.client(), patience: PATIENCE };
    let story = Story { api: &api, teller, real: false, kubectl: None, run: this_run(), made: Vec::new() };
    let told = tokio::select! {
        biased;
        ended = background.join_next() => {
            bail!("a part of the demo has ended: {}", ended.map_or_else(String::new, |e| e.unwrap_or_else(|p| p.to_string())))
        }
        told = tell(story, input) => told,
    };
    match told {
        Err(error) if !error.is::<Ended>() => {
            bail!("the story has not come out as it should: {error:#}{}", last_words(&journal))
        }
        told => told,
    }
}

/// Somebody has ended the story with a signal.
#[derive(Debug)]
struct Ended(&'static str);

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ended by {}", self.0)
    }
}

impl std::error::Error for Ended {}

/// The scheduler, kubelets and the garbage collector, for ever.
async fn inhabit(cluster: Cluster) -> String {
    let mut scheduler = Scheduler::new(cluster.clone(), SEED);
    let mut kubelet = Kubelet::new(cluster.clone(), SEED);
    let mut ticks = interval(TICK);
    loop {
        ticks.tick().await;
        let nodes = cluster.nodes();
        loop {
            scheduler.act(&nodes, &mut |_| {});
            if !scheduler.is_busy() {
                break;
            }
        }
        kubelet.act(false, &mut |_| {});
        cluster.collect_garbage(&mut |_| {});
    }
}

/// What controllers wait for or could not do, for who wants to know why.
fn last_words(journal: &Journal) -> String {
    let mut waiting = std::collections::BTreeMap::new();
    for record in journal.take() {
        let what = match record.what {
            journal::Happening::Done(_) => continue,
            journal::Happening::Failed { action, error } => vec![format!("{action}: {error}")],
            journal::Happening::Waiting(why) => why.iter().map(ToString::to_string).collect(),
        };
        waiting.insert((record.by, record.key), what);
    }
    waiting.retain(|_, what| !what.is_empty());
    let lines: Vec<String> =
        waiting.iter().map(|((by, key), what)| format!("\n  {by}, {key}: {}", what.join("; "))).collect();
    if lines.is_empty() { String::new() } else { format!("\ncontrollers wait:{}", lines.concat()) }
}

/// Tells the story; a signal ends it. On a real cluster nothing of it stays.
async fn tell(mut story: Story<'_>, input: Vec<Value>) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let (real, teller) = (story.real, story.teller);
    let told = tokio::select! {
        told = story.tell(input) => told,
        _ = terminate.recv() => Err(Ended("SIGTERM").into()),
        _ = interrupt.recv() => Err(Ended("SIGINT").into()),
    };
    if told.as_ref().is_err_and(anyhow::Error::is::<Ended>) {
        // It was in the middle of a line.
        teller.say("")?;
    }
    if real {
        let removed = tokio::time::timeout(CLEAN_UP_WITHIN, story.clean_up()).await;
        match removed {
            Ok(Ok(())) => teller.say("What the demo had made was removed from the cluster.")?,
            Ok(Err(error)) => {
                teller.say(&format!("NOT everything that the demo had made was removed: {error:#}"))?;
            }
            Err(_) => {
                teller.say("NOT everything that the demo had made was removed: the API server is slow")?;
            }
        }
    }
    told
}
