//! Processes that never outlive the one that started them, and the folder they write to.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::wait::wait_until;

/// The keeper waits until the write end of its standard input is closed, which the kernel does however the process
/// that holds it ends (return, panic, SIGKILL). Then it kills its process group, which every process started here
/// belongs to, and removes the folder. The last two steps run outside the group, which also kills the keeper.
const KEEPER: &str = r#"
trap '' HUP INT TERM
cat >/dev/null
exec setsid --wait sh -c '
    kill -s KILL -- "-$1"
    [ -n "$3" ] || for _ in 1 2 3 4 5; do rm -rf -- "$2" && break; sleep 0.2; done
' sh $$ "$1" "$2"
"#;

/// A folder and a group of processes that are gone when this value is dropped or the current process ends.
#[derive(Debug)]
pub(crate) struct Group {
    folder: PathBuf,
    keeper: Child,
    keeper_input: Option<ChildStdin>,
    keep_folder: bool,
}

impl Group {
    /// Makes a temporary folder and the keeper that watches over it. With `DRACM_KEEP` set the folder stays.
    pub(crate) fn new() -> Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("dracm-e2e-").tempdir().context("making a run folder")?.keep();
        let keep_folder = std::env::var_os("DRACM_KEEP").is_some();
        if keep_folder {
            eprintln!("e2e: run folder {} is kept", folder.display());
        }
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(&folder)
            .arg(if keep_folder { "keep" } else { "" })
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting the keeper of the run folder")?;
        let keeper_input = keeper.stdin.take();
        Ok(Self { folder, keeper, keeper_input, keep_folder })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts `command` in the group. What it prints is appended to `NAME.log` in the folder.
    pub(crate) fn start(&self, name: &str, command: &mut Command) -> Result<Process> {
        let log = self.folder.join(format!("{name}.log"));
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("opening {}", log.display()))?;
        let errors = output.try_clone().with_context(|| format!("opening {}", log.display()))?;
        let group = i32::try_from(self.keeper.id()).context("process id of the keeper")?;
        let child = command
            .process_group(group)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .with_context(|| format!("starting {name} ({})", command.get_program().display()))?;
        Ok(Process { name: name.to_owned(), child, log })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        drop(self.keeper_input.take());
        // Nobody is left to report a failure to; the keeper does the same work from outside.
        let _ = self.keeper.wait();
        for _ in 0..50 {
            if self.keep_folder || fs::remove_dir_all(&self.folder).is_ok() || !self.folder.exists() {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// One process of a [`Group`]. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What the process, and earlier ones of this name, have printed so far.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// An error with the end of the log if the process has ended.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait().with_context(|| format!("looking after {}", self.name))? {
            None => Ok(()),
            Some(status) => {
                bail!("{} ended with {status}; its log ends with:\n{}", self.name, tail(&self.log(), 30))
            }
        }
    }

    /// Waits until `check` succeeds, but not longer than the process lives. An error holds the end of the log.
    pub(crate) async fn wait_ready<F>(&mut self, limit: Duration, mut check: F) -> Result<()>
    where
        F: AsyncFnMut() -> Result<()>,
    {
        let what = format!("{} is ready", self.name);
        let ended = wait_until(&what, limit, async || match self.check_running() {
            Ok(()) => check().await.map(|()| None),
            Err(ended) => Ok(Some(ended)),
        })
        .await
        .with_context(|| format!("the log of {} ends with:\n{}", self.name, tail(&self.log(), 30)))?;
        ended.map_or(Ok(()), Err)
    }

    /// Sends SIGKILL and waits for the end.
    pub(crate) fn kill(&mut self) -> Result<()> {
        // An error here says that the process has ended already.
        let _ = self.child.kill();
        self.child.wait().with_context(|| format!("waiting for the end of {}", self.name))?;
        Ok(())
    }

    /// Sends SIGTERM and waits up to `limit` for the end; kills the process and fails after that.
    pub(crate) async fn terminate(&mut self, limit: Duration) -> Result<(ExitStatus, Duration)> {
        let begun = Instant::now();
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::TERM,
        )
        .with_context(|| format!("sending SIGTERM to {}", self.name))?;
        while begun.elapsed() < limit {
            if let Some(status) =
                self.child.try_wait().with_context(|| format!("waiting for {}", self.name))?
            {
                return Ok((status, begun.elapsed()));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.kill()?;
        bail!(
            "{} did not end within {limit:?} of SIGTERM; its log ends with:\n{}",
            self.name,
            tail(&self.log(), 30)
        );
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last `lines` lines of `text`.
fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
}
