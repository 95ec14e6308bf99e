//! The binary `reveille`: a node of a cluster, and the commands that call one.

mod api_json;
mod cli;
mod csv_rows;
mod demo;
mod dev;
mod escape;
mod firing_remarks;
mod format;
mod mailbox;
mod recipients;
mod server;
mod token_text;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::run()
}
