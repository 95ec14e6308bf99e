//! Wall clocks of nodes that can be set wrong, by libfaketime: a library between the process and the C library.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Folders in which systems install libraries.
const LIBRARIES: [&str; 3] = ["/usr/lib", "/usr/lib64", "/usr/local/lib"];
const FAKETIME: &str = "faketime/libfaketimeMT.so.1";
/// A correct clock, in libfaketime's notation. It states the rate: without a rate, a clock that drifted keeps drifting.
pub const CORRECT: &str = "+0 x1";

/// The wall clocks of the nodes. Only civil time is changed: nodes measure durations by CLOCK_BOOTTIME and
/// CLOCK_MONOTONIC, which stay correct.
pub struct Clocks {
    library: PathBuf,
    folder: PathBuf,
}

impl Clocks {
    /// Creates correct clocks for these nodes.
    ///
    /// # Errors
    /// Fails if there is no libfaketime, or if a file cannot be written.
    pub fn new(folder: &Path, names: &[String]) -> Result<Clocks> {
        let library = LIBRARIES.into_iter().map(Path::new).find_map(faketime_in);
        let library = library.context("there is no libfaketime on this machine")?;
        let folder = folder.join("clocks");
        fs::create_dir_all(&folder).context("a folder for clocks")?;
        let clocks = Clocks { library, folder };
        names.iter().try_for_each(|name| clocks.set(name, CORRECT))?;
        Ok(clocks)
    }

    /// Sets the clock of a node, in libfaketime's notation: `+61`, `-3600`, `+0 x1.1`.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn set(&self, name: &str, offset: &str) -> Result<()> {
        // A rename, because the process may read the file at any moment.
        let (unseen, file) = (self.folder.join(format!("{name}.new")), self.folder.join(name));
        fs::write(&unseen, format!("{offset}\n"))?;
        fs::rename(unseen, file).with_context(|| format!("the clock of {name}"))
    }

    /// Returns environment variables for the process of a node.
    pub fn environment(&self, name: &str) -> Vec<(&'static str, OsString)> {
        vec![
            ("LD_PRELOAD", self.library.clone().into_os_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.folder.join(name).into_os_string()),
            // Seconds after which libfaketime reads the file again. Reading at each call would cost more than the call.
            ("FAKETIME_CACHE_DURATION", "1".into()),
            // Older versions of libfaketime read the first name, later versions the second.
            ("DONT_FAKE_MONOTONIC", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }
}

/// Searches a folder and its subfolders, because some systems have a folder for each architecture.
fn faketime_in(folder: &Path) -> Option<PathBuf> {
    let own = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let found = std::iter::once(folder.to_owned()).chain(own).map(|folder| folder.join(FAKETIME));
    found.into_iter().find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn clock_that_drifted_becomes_correct_again() {
        let folder = tempfile::tempdir().unwrap();
        let name = "n1".to_owned();
        let Ok(clocks) = Clocks::new(folder.path(), std::slice::from_ref(&name)) else {
            reveille_strict::skip("there is no libfaketime on this machine");
            return;
        };
        // A shell that prints its time whenever it reads a line. (Bash caches the environment itself, so the library
        // does not see its setting and reads the file every ten seconds.)
        let mut shell = Command::new("bash")
            .args(["-c", "while read -r _; do echo $EPOCHREALTIME; done"])
            .envs(clocks.environment(&name))
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut input, mut output) = (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()));
        let mut offset = || {
            let mut line = String::new();
            input.write_all(b"?\n").unwrap();
            output.read_line(&mut line).unwrap();
            line.trim().parse::<f64>().unwrap() - SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
        };
        let mut wait_for = |wanted: &dyn Fn(f64) -> bool| {
            let until = Instant::now() + Duration::from_secs(120);
            while !wanted(offset()) {
                assert!(Instant::now() < until, "the clock is off by {} s", offset());
                std::thread::sleep(Duration::from_millis(100));
            }
        };
        wait_for(&|offset| offset.abs() < 2.0);
        clocks.set(&name, "+0 x9").unwrap();
        wait_for(&|offset| offset > 10.0);
        clocks.set(&name, CORRECT).unwrap();
        wait_for(&|offset| offset.abs() < 2.0);
        shell.kill().unwrap();
        shell.wait().unwrap();
        reveille_node_client::node_process::remove_clock_files(shell.id());
    }
}
