//! What a user of a real cluster sees with kubectl.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

/// A kubectl and the cluster that it talks to.
#[derive(Debug)]
pub(super) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    pub(super) fn new(program: &Path, kubeconfig: &Path) -> Self {
        Self { program: program.to_owned(), kubeconfig: kubeconfig.to_owned() }
    }

    /// Runs it; the command as a user would type it, and what it printed.
    ///
    /// # Errors
    /// It cannot be run, or fails.
    pub(super) async fn run(&self, arguments: &[&str]) -> Result<String> {
        let typed = format!("kubectl {}", arguments.join(" "));
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments);
        let output = tokio::task::spawn_blocking(move || command.output())
            .await?
            .with_context(|| format!("running {}", self.program.display()))?;
        let printed = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{typed}: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        let lines: Vec<String> = printed.trim_end().lines().map(|line| format!("\n    {line}")).collect();
        Ok(format!("\n    $ {typed}{}\n", lines.concat()))
    }
}
