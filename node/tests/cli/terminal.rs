//! Starts the binary as a user would, and keeps its output.

use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Timeout far beyond what any command takes, so that no test fails on a loaded machine.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(120);

/// The result of a command.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code.
    pub code: Option<i32>,
    /// Its output on stdout.
    pub stdout: String,
    /// Its output on stderr.
    pub stderr: String,
}

/// Returns the binary with these arguments, without a terminal and without the variables that it reads.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reveille"));
    command
        .args(arguments)
        .env_remove("REVEILLE_URL")
        .env_remove("REVEILLE_CONTEXT")
        .env_remove("REVEILLE_TOKEN")
        // No contexts: the fake node speaks plaintext.
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs a command to its end.
pub async fn run(command: &mut Command) -> Ended {
    timeout(STEP_TIMEOUT, command.output()).await.expect("it ends").expect("it starts").into()
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

/// Runs a command until `is_enough` is true for its output, and ends it with Ctrl-C.
pub async fn until(command: &mut Command, is_enough: impl Fn(&str, &str) -> bool) -> Ended {
    let mut child = command.spawn().expect("it starts");
    let (mut stdout, mut stderr) = (child.stdout.take().expect("stdout"), child.stderr.take().expect("stderr"));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut asked_to_end = false;
    let mut look = tokio::time::interval(Duration::from_millis(20));
    let followed = async {
        let (mut out_open, mut err_open) = (true, true);
        while out_open || err_open {
            tokio::select! {
                read = stdout.read_buf(&mut out), if out_open => out_open = read.expect("stdout is read") > 0,
                read = stderr.read_buf(&mut err), if err_open => err_open = read.expect("stderr is read") > 0,
                _ = look.tick(), if !asked_to_end => {}
            }
            let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            if !asked_to_end && is_enough(&said(&out), &said(&err)) {
                asked_to_end = true;
                interrupt(&child);
            }
        }
    };
    let in_time = timeout(STEP_TIMEOUT, followed).await.is_ok();
    assert!(in_time, "it said {:?} and {:?}", String::from_utf8_lossy(&out), String::from_utf8_lossy(&err));
    let status = timeout(STEP_TIMEOUT, child.wait()).await.expect("it ends").expect("a status");
    Output { status, stdout: out, stderr: err }.into()
}

/// Sends the signal of Ctrl-C.
pub fn interrupt(child: &Child) {
    let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it runs");
    kill_process(id, Signal::INT).expect("a signal");
}

/// Runs the binary with the words of a line as arguments.
pub async fn reveille(line: &str) -> Ended {
    run(&mut command(&line.split_whitespace().collect::<Vec<_>>())).await
}

impl Ended {
    /// Parses all of stdout as one JSON value.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// Returns the error object from stderr, which must contain nothing else.
    pub fn error(&self) -> Value {
        let value: Value = serde_json::from_str(&self.stderr).unwrap_or_else(|error| panic!("{error} in {self:?}"));
        value["error"].clone()
    }
}

/// Returns the sorted keys of an object in one line.
pub fn keys(value: &Value) -> String {
    let mut keys: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys.join(" ")
}
