//! What a write of the state store costs in CPU, in bytes on disk and in memory.
//!
//! `cargo run --release -p reveille-raft --example store_writes`
//!
//! A hundred thousand rows of 400 bytes; five times twenty writes, each changing 5,000 rows at random; then
//! the store is opened again. The head of `src/store/sled_store.rs` has its figures. CPU, bytes and
//! memory are read from `/proc`: on a system without it they are zero.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use reveille_raft::store::{Changes, Row, StateStore, StoreError, open_or_quarantine};

const ROWS: u64 = 100_000;
const CHANGED: u64 = 5_000;
const ROW_BYTES: usize = 400;

/// The `number`th row, with a value that no compression makes smaller and that `version` alone changes.
fn row(number: u64, version: u64) -> Row {
    let mut value = vec![0; ROW_BYTES];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&number.to_le_bytes()).update(&version.to_le_bytes());
    hasher.finalize_xof().fill(&mut value);
    (format!("schedule/{number:08}").into_bytes(), value)
}

/// Some rows, spread over all of them.
fn changes(version: u64) -> Changes {
    (0..CHANGED)
        .map(|step| {
            let drawn = blake3::hash(&[version.to_le_bytes(), step.to_le_bytes()].concat());
            let number = drawn.as_bytes().iter().fold(0, |sum, byte| (sum * 256 + u64::from(*byte)) % ROWS);
            let (key, value) = row(number, version);
            (key, Some(value))
        })
        .collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("state");
    let (mut store, _) = open_or_quarantine(&path)?;
    timed("replace by 100,000 rows", || store.replace(&mut (0..ROWS).map(|number| row(number, 0)), b"0"))?;
    for round in 0..5 {
        timed("20 writes of 5,000 rows each", || {
            (1..=20).try_for_each(|write| store.write(&changes(round * 20 + write), b"1"))
        })?;
    }
    Box::new(store).close()?;
    timed("open and load", || open_or_quarantine(&path).map(drop))?;
    Ok(())
}

fn timed(what: &str, mut call: impl FnMut() -> Result<(), StoreError>) -> Result<(), StoreError> {
    let (cpu, written, begun) = (cpu_seconds(), written_bytes(), Instant::now());
    call()?;
    println!(
        "{what}: {:.2} s of CPU, {:.2} s, {:.1} MB written, {} MB resident",
        cpu_seconds() - cpu,
        begun.elapsed().as_secs_f64(),
        (written_bytes() - written) as f64 / 1e6,
        resident_bytes() / 1_000_000
    );
    Ok(())
}

fn written_bytes() -> u64 {
    field("io", "write_bytes:")
}

fn resident_bytes() -> u64 {
    field("status", "VmRSS:") * 1_024
}

fn field(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// User and system time, in ticks of a hundredth of a second, are the 12th and 13th field after the name.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}
