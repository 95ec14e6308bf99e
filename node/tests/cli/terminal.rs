//! Starts the binary as a person would, and holds what it said.

use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

/// No command takes longer, however busy the machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it said beside it.
    pub stderr: String,
}

/// The binary with these arguments, no terminal, and nothing of the environment that it listens to.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reveille"));
    command
        .args(arguments)
        .env_remove("REVEILLE_ENDPOINT")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs a command to its end.
pub async fn run(command: &mut Command) -> Ended {
    timeout(PATIENCE, command.output()).await.expect("it ends").expect("it starts").into()
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("stdout is text"),
            stderr: String::from_utf8(output.stderr).expect("stderr is text"),
        }
    }
}

/// Runs the binary with the words of a line; words hold no blanks.
pub async fn reveille(line: &str) -> Ended {
    run(&mut command(&line.split_whitespace().collect::<Vec<_>>())).await
}

impl Ended {
    /// The whole of stdout as one JSON value.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The error object on stderr, which is there alone.
    pub fn error(&self) -> Value {
        let value: Value = serde_json::from_str(&self.stderr).unwrap_or_else(|error| panic!("{error} in {self:?}"));
        value["error"].clone()
    }
}

/// The keys of an object, sorted, in one line.
pub fn keys(value: &Value) -> String {
    let mut keys: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys.join(" ")
}
