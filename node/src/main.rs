//! The binary `reveille`: a node of a cluster, and the commands that speak to one.

mod cli;
// Compiled for its tests alone until `start` reads it.
#[cfg(test)]
mod config;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
