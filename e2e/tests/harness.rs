//! The test bed itself: nothing outlives a test, and what is missing is said.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dra_e2e::story::SOON;
use dra_e2e::{ControlPlane, Options, wait_until};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams};

/// Set in the process that `a_killed_test_leaves_no_process_and_no_folder` starts: where to say what it runs.
const VICTIM: &str = "DRACM_E2E_VICTIM";

fn bare() -> Options {
    Options { controllers: String::new(), ..Options::defaults() }
}

/// Command lines of the processes that mention `folder`.
fn processes_of(folder: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path().join("cmdline");
        // Not a process, or one that has just ended.
        let Ok(line) = std::fs::read(&path) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(&folder.display().to_string()) {
            found.push(line);
        }
    }
    Ok(found)
}

async fn nothing_is_left_of(folder: &Path) -> Result<()> {
    wait_until("no process and no folder is left", SOON, async || {
        ensure!(!folder.exists(), "{} exists", folder.display());
        let processes = processes_of(folder)?;
        ensure!(processes.is_empty(), "running: {processes:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn api_server_comes_back_on_the_same_port_with_its_objects_and_is_gone_afterwards() -> Result<()> {
    let plane = ControlPlane::start(bare()).await?;
    let folder = plane.folder().to_path_buf();
    let client = plane.client().await?;
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces.create(&kube::api::PostParams::default(), &dra_e2e::fixtures::namespace("kept")).await?;

    plane.stop_api_server()?;
    ensure!(namespaces.list(&ListParams::default()).await.is_err(), "the API server still answers");
    plane.start_api_server().await?;
    wait_until("the same client sees the namespace again", SOON, async || Ok(namespaces.get("kept").await?))
        .await?;

    ensure!(!processes_of(&folder)?.is_empty(), "the search for processes finds none");
    drop(plane);
    nothing_is_left_of(&folder).await
}

#[tokio::test]
async fn a_killed_test_leaves_no_process_and_no_folder() -> Result<()> {
    if let Some(path) = std::env::var_os(VICTIM) {
        let plane = ControlPlane::start(bare()).await?;
        let path = PathBuf::from(path);
        std::fs::write(path.with_extension("part"), plane.folder().as_os_str().as_encoded_bytes())?;
        std::fs::rename(path.with_extension("part"), &path)?;
        std::future::pending::<()>().await;
    }
    let scratch = tempfile::tempdir()?;
    let said = scratch.path().join("folder");
    let mut victim = Command::new(std::env::current_exe()?)
        .args(["--exact", "a_killed_test_leaves_no_process_and_no_folder"])
        .env(VICTIM, &said)
        .stdout(Stdio::null())
        .spawn()?;
    let folder = wait_until("the victim has started its control plane", Duration::from_mins(2), async || {
        Ok(PathBuf::from(std::fs::read_to_string(&said)?))
    })
    .await?;
    ensure!(!processes_of(&folder)?.is_empty(), "the search for processes finds none");
    victim.kill()?;
    victim.wait()?;
    nothing_is_left_of(&folder).await
}

#[test]
fn missing_control_plane_names_the_command_that_builds_it() -> Result<()> {
    let empty = tempfile::tempdir()?;
    let output = Command::new(std::env::current_exe()?)
        .args(["--exact", "api_server_comes_back_on_the_same_port_with_its_objects_and_is_gone_afterwards"])
        .env("DRACM_CACHE", empty.path())
        .output()
        .context("running this test binary")?;
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success(), "a test without its control plane passed: {said}");
    ensure!(said.contains("run `e2e/control-plane/build.sh`"), "no command in: {said}");
    Ok(())
}
