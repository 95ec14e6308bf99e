//! A process that is killed while it writes leaves the last completed write, or the one it was at: never a mix.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::suite::{Model, Random, path_in};
use super::*;

const FOLDER: &str = "REVEILLE_KILLED_STORE";
const SAID: &str = "wrote ";

/// The changes of a step: the same in the process that writes and in the one that checks.
fn step(number: u64) -> Changes {
    Random(number).changes(120, 300)
}

/// The life of the process that is killed: it writes step after step and says so.
fn write_until_killed(folder: &Path) {
    let (mut store, contents) = open_or_quarantine(folder).unwrap();
    let done = number_of(&contents);
    // Bounded, so that no writer outlives a test that died.
    for number in done + 1..done + 2_000 {
        store.write(&step(number), &number.to_le_bytes()).unwrap();
        println!("\n{SAID}{number}");
    }
}

fn number_of(contents: &Contents) -> u64 {
    match contents {
        Contents::Empty => 0,
        Contents::State { meta, .. } => u64::from_le_bytes(meta.as_slice().try_into().unwrap()),
    }
}

#[test]
fn a_killed_process_leaves_a_state_that_was_written() {
    // Started by itself, as below, it is the process that dies.
    if let Some(folder) = std::env::var_os(FOLDER) {
        return write_until_killed(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let name = concat!(module_path!(), "::a_killed_process_leaves_a_state_that_was_written");
    let name = name.split_once("::").unwrap().1;
    let mut last = 0;
    for round in 0..6 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(FOLDER, path_in(&folder))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let numbers = lines.filter_map(|line| line.strip_prefix(SAID)?.parse::<u64>().ok());
        let said = numbers.take(3 + round * 7).last().expect("the writer wrote nothing");
        child.kill().unwrap();
        child.wait().unwrap();

        let (store, contents) = open_or_quarantine(&path_in(&folder)).unwrap();
        Box::new(store).close().unwrap();
        let number = number_of(&contents);
        assert!(number >= said && number > last, "round {round}: {said} was acknowledged, {number} is there");
        let mut model = Model::default();
        (1..=number).for_each(|number| model.apply(&step(number)));
        let Contents::State { rows, .. } = contents else { panic!("round {round}: it was set aside") };
        assert!(rows == model.rows(), "round {round}: the rows are not those of step {number}");
        last = number;
    }
}
