//! The binary `reveille`: a node of a cluster, and the commands that speak to one.

mod admin;
mod assemble;
mod cli;
mod config;
mod demo;
mod dev;
mod fqdn;
mod health;
mod http;
mod human;
mod life;
mod logging;
mod measures;
mod service;
mod start;
mod unsubscribe;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
