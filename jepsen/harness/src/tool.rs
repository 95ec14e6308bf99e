//! Runs programs of the machine: `ip`, `mount`, `nft`. Each ends quickly, so the calling thread waits for it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Folders of programs for administrators, which `PATH` may lack.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/bin"];

/// Returns the path of a program; `None` if this machine does not have it.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SYSTEM_FOLDERS.map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Returns true if this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a program to its end; an error contains its output on stderr.
pub fn run(program: &str, arguments: &[&str]) -> Result<()> {
    feed(program, arguments, "").map(|_| ())
}

/// Runs a program to its end with this input; returns its output. An error contains its output on stderr.
pub fn feed(program: &str, arguments: &[&str], input: &str) -> Result<String> {
    let path = find(program).with_context(|| format!("there is no `{program}` on this machine"))?;
    let mut process = Command::new(path)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("`{program}` cannot be started"))?;
    if let Some(mut stdin) = process.stdin.take() {
        // A program that does not read its input explains that on stderr.
        let _ = stdin.write_all(input.as_bytes());
    }
    let ended = process.wait_with_output().with_context(|| format!("the end of `{program}`"))?;
    if !ended.status.success() {
        let output = String::from_utf8_lossy(&ended.stderr);
        bail!("`{program} {}`: {}", arguments.join(" "), output.trim());
    }
    Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
}

/// Returns a path as a command line argument; fails if it is not UTF-8.
pub fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is no text", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_contains_program_output() {
        assert!(run("true", &[]).is_ok());
        let error = run("ls", &["/no/such/folder"]).unwrap_err().to_string();
        assert!(error.contains("ls /no/such/folder") && error.contains("No such file"), "{error}");
        let error = run("no-such-program", &[]).unwrap_err().to_string();
        assert!(error.contains("no `no-such-program`"), "{error}");
    }

    #[test]
    fn program_reads_its_input() {
        assert_eq!(feed("grep", &["fed"], "it is fed\n").unwrap(), "it is fed\n");
        assert!(feed("grep", &["fed"], "it is not\n").is_err());
    }
}
