//! How the story is told: a line for each step with the time it took, and tables.

use std::{
    io::{self, IsTerminal as _, Write as _},
    pin::pin,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use crate::table::table;

/// Who tells the story, on standard output.
#[derive(Debug)]
pub(super) struct Teller {
    out: io::Stdout,
    begun: Instant,
    /// A person watches: dots while it takes time, and colours.
    live: bool,
    colours: bool,
}

impl Teller {
    pub(super) fn new() -> Self {
        let live = io::stdout().is_terminal();
        let colours = live && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { out: io::stdout(), begun: Instant::now(), live, colours }
    }

    /// Time since the beginning.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    fn coloured(&self, colour: u8, text: &str) -> String {
        if self.colours { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Says what is done, does it, and says how long it took.
    pub(super) async fn step<T>(&self, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.print(&format!("[{:5.1} s] {what} ...", self.begun.elapsed().as_secs_f64()))?;
        let begun = Instant::now();
        let mut work = pin!(work);
        let mut dots = tokio::time::interval(Duration::from_secs(1));
        dots.tick().await;
        let result = loop {
            tokio::select! {
                biased;
                result = &mut work => break result,
                _ = dots.tick() => if self.live { self.print(".")? },
            }
        };
        let took = begun.elapsed().as_secs_f64();
        match result {
            Ok(value) => {
                self.print(&format!(" {} in {took:.1} s\n", self.coloured(32, "done")))?;
                Ok(value)
            }
            Err(error) => {
                self.print(&format!(" {} after {took:.1} s\n", self.coloured(31, "FAILED")))?;
                Err(error).with_context(|| what.to_owned())
            }
        }
    }

    /// A line of its own.
    pub(super) fn say(&self, text: &str) -> Result<()> {
        self.print(&format!("{text}\n"))
    }

    /// A table, or `nothing` when it has no rows.
    pub(super) fn table<const N: usize>(
        &self,
        head: [&str; N],
        rows: &[[String; N]],
        nothing: &str,
    ) -> Result<()> {
        let lines = if rows.is_empty() { vec![nothing.to_owned()] } else { table(head, rows) };
        self.print(&format!("\n    {}\n\n", lines.join("\n    ")))
    }

    fn print(&self, text: &str) -> Result<()> {
        let mut out = self.out.lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
    }
}
