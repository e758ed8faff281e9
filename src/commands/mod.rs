//! One module for each subcommand.

pub(crate) mod demo;
pub(crate) mod run;
pub(crate) mod simulate;
