//! Runs programs of the machine: `ip`, `mount`, `nft`. Each ends quickly, so the calling thread waits for it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Folders of programs for administrators, which `PATH` may lack.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/bin"];

/// Returns the path of a program. The error says that this machine does not have it.
pub fn find(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain(SYSTEM_FOLDERS.map(PathBuf::from));
    let found = folders.find_map(|folder| Some(folder.join(program)).filter(|file| file.is_file()));
    found.with_context(|| format!("there is no `{program}` on this machine"))
}

/// Returns why this machine cannot have `what`, which needs root and these programs. `None`: it can.
pub fn missing(what: &str, programs: &[&str]) -> Option<String> {
    if !is_root() {
        return Some(format!("{what} need root"));
    }
    programs.iter().find_map(|program| find(program).err()).map(|error| error.to_string())
}

/// Returns true if this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a program to its end. The error contains its output on stderr.
pub fn run(program: &str, arguments: &[&str]) -> Result<()> {
    feed(program, arguments, "").map(|_| ())
}

/// Runs a program to its end with this input. Returns its output on stdout. The error contains its output on stderr.
pub fn feed(program: &str, arguments: &[&str], input: &str) -> Result<String> {
    let mut process = Command::new(find(program)?)
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

/// Returns a path as a command line argument. Fails if the path is not UTF-8.
pub fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not text", path.display()))
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
