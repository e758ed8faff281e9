//! One list of requests against the embedded server and against kube-apiserver: both must give the same status codes
//! and the same objects.
//!
//! What differs by nature is made equal first, see [`normal`]: uids and resourceVersions become the number of their
//! first appearance (so that a write that should change nothing shows), times become `time`.

#![allow(
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    reason = "requests are JSON that is written down here, and there are many"
)]

mod claims;
mod normal;
mod others;
mod pods;
mod reads;
mod step;
mod validation;

use anyhow::{Context as _, Result, ensure};
use dra_e2e::{ControlPlane, Options};
use dra_embedded::Server;

use crate::{
    normal::Normal,
    step::{Session, Step},
};

fn steps() -> Vec<Step> {
    [
        reads::discovery(),
        others::names(),
        claims::steps(),
        pods::steps(),
        others::steps(),
        validation::steps(),
        reads::steps(),
    ]
    .concat()
}

async fn play(steps: &[Step], mut session: Session) -> Result<Vec<String>> {
    let mut normal = Normal::default();
    let mut answers = Vec::new();
    for step in steps {
        let (code, body) = session.carry_out(step).await.with_context(|| format!("{}: {step}", step.says))?;
        answers.push(format!("{code} {:#}", normal.answer(code, &body)));
    }
    Ok(answers)
}

#[tokio::test]
async fn embedded_server_answers_as_kube_apiserver_does() -> Result<()> {
    let steps = steps();
    let embedded = Server::new(1, "2026-01-01T00:00:00Z".parse()?);
    let ours = play(&steps, Session::new(embedded.client())).await?;
    let options = Options { controllers: String::new(), audit: false, ..Options::all_gates() };
    let plane = ControlPlane::start(options).await?;
    let theirs = play(&steps, Session::new(plane.client().await?)).await?;

    let mut differences = Vec::new();
    for ((step, ours), theirs) in steps.iter().zip(&ours).zip(&theirs) {
        if ours != theirs {
            differences.push(format!("## {}\n{step}\n{}", step.says, compared(theirs, ours)));
        }
    }
    ensure!(
        differences.is_empty(),
        "{} of {} answers differ (- kube-apiserver, + embedded):\n{}",
        differences.len(),
        ours.len(),
        differences.join("\n")
    );
    println!("{} requests, the same answers", ours.len());
    Ok(())
}

/// The lines that only one of two texts has.
fn compared(theirs: &str, ours: &str) -> String {
    let (theirs, ours): (Vec<&str>, Vec<&str>) = (theirs.lines().collect(), ours.lines().collect());
    let only = |sign: &str, some: &[&str], others: &[&str]| {
        some.iter()
            .filter(|line| !others.contains(line))
            .map(|line| format!("{sign} {line}"))
            .collect::<Vec<_>>()
    };
    let mut lines = only("-", &theirs, &ours);
    lines.extend(only("+", &ours, &theirs));
    if lines.is_empty() {
        // The same lines in another order.
        lines =
            theirs.iter().map(|l| format!("- {l}")).chain(ours.iter().map(|l| format!("+ {l}"))).collect();
    }
    lines.join("\n")
}
