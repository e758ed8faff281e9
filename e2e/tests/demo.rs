//! `make demo-real`: the demo's story on a real control plane, as a user sees it.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

#[test]
fn the_demo_on_a_real_control_plane_shows_a_dry_run_then_the_eviction_then_its_end() -> Result<()> {
    let output = Command::new(env!("CARGO_BIN_EXE_demo")).output().context("running the demo")?;
    let told = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    let mut rest = &*told;
    for expected in [
        "$ kubectl describe devicetaintrule dra-demo",
        "8 published devices selected. 6 allocated devices selected. 5 pods would be evicted in 1 namespace",
        "NoEffect",
        "the effect becomes NoExecute: 4 Pods without a toleration must go ... done",
        "$ kubectl describe devicetaintrule dra-demo",
        // The first text may come before all Pods are looked at.
        "to be evicted in 1 namespace.",
        "PodsPendingEviction",
        "tolerated for some seconds, then gone as well: 1 Pod ... done",
        "waiting for the condition: kubectl wait --for=condition=EvictionInProgress=false ... done",
        "$ kubectl wait --for=condition=EvictionInProgress=false devicetaintrule/dra-demo",
        "condition met",
        "$ kubectl describe devicetaintrule dra-demo",
        "5 pods evicted since starting the controller.",
        "Completed",
        "EvictionStarted",
        "Demo complete: 7 Pods ran on 6 claims; 5 Pods evicted",
    ] {
        let (_, after) =
            rest.split_once(expected).with_context(|| format!("{expected:?} is missing in:\n{told}"))?;
        rest = after;
    }
    Ok(())
}
