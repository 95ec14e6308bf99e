//! An old copy of a node's data folder is put back (P21): a backup, or a machine that was set back, as its operator
//! would do it. Such a node must not take part, and say why; with what it had last it goes on.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reveille_check::history::{Fault, FaultKind, FaultStatus};

use super::blows::{Undo, skipped};
use super::nemesis::{Begun, Nemesis, Skipped};
use super::plan::{Strike, Whom};

/// A node with an old folder is gone within this: it greets all others before it takes part.
const REFUSED_WITHIN: Duration = Duration::from_secs(15);
/// All nodes must be ready so soon, or nothing is put back.
const READY_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How a node says that its folder is too old.
pub(super) const OUTDATED: &str = "the data folder is older than what this node had";

impl Nemesis {
    /// Kills a node, copies its folder while it is down, and lets it go on: what it promises from here on is not in the
    /// copy.
    pub(super) async fn copy_folder(&mut self, strike: &Strike, whom: Whom) -> Result<Begun, Skipped> {
        self.all_is_well().await.map_err(Skipped::NotNow)?;
        let victim = self.whom(whom)?;
        let mut fault = self.fault(strike, "kill -9, and a copy of its folder", std::slice::from_ref(&victim));
        fault.kind = FaultKind::Kill;
        self.kill_noting(&victim, &mut fault).map_err(skipped)?;
        let folder = self.stage.cluster.node(&victim).map_err(skipped)?.folder().to_owned();
        let kept = self.stage.cluster.folder().join(format!("{victim}.old"));
        let copied = replace(&kept, &folder);
        self.stage.start(&victim).map_err(skipped)?;
        fault.observed = Some(true);
        let undo = match copied {
            Ok(()) => Undo::PutBack { name: victim, kept },
            // It was killed all the same.
            Err(error) => {
                fault.word = format!("{error:#}");
                Undo::Nothing
            }
        };
        Ok(Begun { fault, undo })
    }

    /// Puts the copy in the place of the folder, sees the node refuse, and gives it back what it had last. Only while
    /// all others are well: whoever remembers more must be there to say so.
    pub(super) async fn put_back(&mut self, name: &str, kept: &Path) -> Result<()> {
        let from_ns = self.stage.recorder.now_ns();
        let struck = vec![name.to_owned()];
        let mut fault = Fault::installed(FaultKind::Damage, "an old folder put back".to_owned(), struck, from_ns);
        if let Err(why) = self.all_is_well().await {
            (fault.status, fault.word) = (FaultStatus::Skipped, why);
            self.write_down(fault);
            return Ok(());
        }
        self.kill_noting(name, &mut fault)?;
        // It was killed, whatever comes of the folders.
        let tried = self.try_old_folder(name, kept, &mut fault).await;
        fault.until_ns = Some(self.stage.recorder.now_ns());
        self.write_down(fault);
        tried
    }

    async fn try_old_folder(&mut self, name: &str, kept: &Path, fault: &mut Fault) -> Result<()> {
        let folder = self.stage.cluster.node(name)?.folder().to_owned();
        let newest = self.stage.cluster.folder().join(format!("{name}.newest"));
        replace(&newest, &folder)?;
        let refused = match replace(&folder, kept) {
            Ok(()) => self.is_refused(name).await,
            Err(error) => Err(error),
        };
        // Whatever came of it: with what it had last it takes part again.
        replace(&folder, &newest)?;
        self.stage.start(name)?;
        let said = refused?;
        fault.observed = Some(said.is_some());
        match said {
            Some(said) => fault.word = said,
            None => self.stage.surprises.push(format!("{name} was not refused with a folder older than what it had")),
        }
        Ok(())
    }

    /// Starts it with the old folder, and gives its own words for why it ended; none where it went on.
    async fn is_refused(&mut self, name: &str) -> Result<Option<String>> {
        self.stage.start(name)?;
        self.stage.excuse(name, REFUSED_WITHIN + REFUSED_WITHIN);
        let until = Instant::now() + REFUSED_WITHIN;
        let status = loop {
            let ended = self.stage.cluster.named(name)?.ended();
            if ended.is_some() || Instant::now() > until {
                break ended;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        let words = self.stage.cluster.node(name)?.last_words();
        if status.is_none() {
            self.stage.kill(name)?;
        } else {
            self.note_ends()?;
        }
        let said = words.lines().find(|line| line.contains(OUTDATED)).map(str::to_owned);
        Ok(said.filter(|_| status.is_some_and(|status| !status.success())))
    }

    fn kill_noting(&mut self, name: &str, fault: &mut Fault) -> Result<()> {
        self.note_ends()?;
        let past_gate = self.stage.past_gate(name);
        (fault.inside_data, fault.past_gate) = (Some(past_gate > 0), Some(past_gate));
        let victim = self.victim(name, past_gate > 0);
        self.stage.kill(name)?;
        self.count_kill(victim, past_gate > 0, past_gate);
        Ok(())
    }

    /// Or else why not.
    pub(super) async fn all_is_well(&self) -> Result<(), String> {
        let why = || "it comes only while all else is well".to_owned();
        if !self.is_quiet() {
            return Err(why());
        }
        let until = Instant::now() + READY_WITHIN;
        for name in self.stage.names() {
            while !self.stage.is_ready(&name).await {
                if Instant::now() > until {
                    return Err(why());
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        Ok(())
    }
}

/// Makes a folder hold what another one does, and nothing else, durably: power may be cut next. The folder itself
/// stays, since it may be where a disk is mounted.
pub(super) fn replace(folder: &Path, by: &Path) -> Result<()> {
    let swap = || -> io::Result<()> {
        fs::create_dir_all(folder)?;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        copy(by, folder)
    };
    swap().with_context(|| format!("{} in the place of {}", by.display(), folder.display()))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target: PathBuf = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
            File::open(&target)?.sync_all()?;
        }
    }
    File::open(to)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_replaced_holds_what_the_other_does_and_nothing_else() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(one.path().join("wal")).unwrap();
        fs::write(one.path().join("wal/1.wal"), "old").unwrap();
        fs::create_dir(other.path().join("wal")).unwrap();
        fs::write(other.path().join("wal/2.wal"), "new").unwrap();
        fs::write(other.path().join("outdated"), "why").unwrap();
        replace(other.path(), one.path()).unwrap();
        assert_eq!(fs::read_to_string(other.path().join("wal/1.wal")).unwrap(), "old");
        assert!(!other.path().join("outdated").exists() && !other.path().join("wal/2.wal").exists());
    }
}
