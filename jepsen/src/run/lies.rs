//! A disk that lies: for a while every sync of a node is answered with success and none is done; then its power fails,
//! and whatever it promised meanwhile is gone. The promise excludes such disks ([reliability](../../../docs/reliability.md)),
//! but the loss must be caught: the node ends by itself since a peer remembers more of it than its folder holds (P21),
//! or says that its log was cut and does not vote before it has caught up. One that goes on as if nothing had been is a
//! surprise, and makes the run invalid.
//!
//! It befalls one node, which does not lead (what a leader acknowledged to itself no peer remembers), and only while all
//! else is well: two lost promises are more than a majority makes good. Afterwards the node gets what an honest disk
//! would have had.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reveille_check::history::{Fault, FaultKind, FaultStatus};

use super::blows::{Undo, skipped};
use super::folders::{OUTDATED, replace};
use super::nemesis::{Begun, Nemesis, Skipped};
use super::plan::Strike;
use super::trace::{self, Trace};
use crate::tool;

/// A node whose disk lied is gone, or has said that its log was cut, within this.
const CAUGHT_WITHIN: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Where in its folder a node notes that it was refused.
const NOTED: &str = "outdated";
/// How a node says that the end of its log was half written.
const CUT: &str = "cut a batch that was half written";

/// A lie that goes on.
pub(super) struct Lie {
    /// Whose disk lies.
    pub name: String,
    trace: Trace,
    /// Which life of it: a later one is not traced.
    process: Option<u32>,
    /// Who led: nobody else remembers what the node acknowledged.
    leader: Option<(String, u64)>,
}

/// Does a folder hold the log as another one has it, byte by byte? What no sync asks for is written back all the same,
/// when the kernel has too much of it.
fn holds_the_log(folder: &Path, newest: &Path) -> Result<bool> {
    let log = |of: &Path| -> std::io::Result<BTreeMap<OsString, Vec<u8>>> {
        let files = fs::read_dir(of.join("wal"))?;
        files.map(|file| file.and_then(|file| Ok((file.file_name(), fs::read(file.path())?)))).collect()
    };
    let read = |of: &Path| log(of).with_context(|| format!("the log in {}", of.display()));
    Ok(read(folder)? == read(newest)?)
}

/// What a node did about what it had lost.
enum Caught {
    /// It ended, with these words.
    Refused(String),
    /// It goes on without a vote until it has caught up, and said so.
    Cut(String),
    /// It was caught by nobody.
    No,
}

impl Nemesis {
    /// From now on the disk of a node lies.
    pub(super) async fn lie(&mut self, strike: &Strike, number: usize) -> Result<Begun, Skipped> {
        self.all_is_well().await.map_err(Skipped::NotNow)?;
        if let Err(why) = &self.stage.cluster.footing().volumes {
            return Err(Skipped::Cannot(why.clone()));
        }
        trace::is_possible().map_err(Skipped::Cannot)?;
        let leader = self.stage.leader().ok_or_else(|| Skipped::NotNow("nobody leads".to_owned()))?;
        let others: Vec<String> = self.stage.names().into_iter().filter(|name| *name != leader.0).collect();
        let victim = others.into_iter().cycle().nth(number).ok_or_else(|| Skipped::NotNow("nobody else".to_owned()))?;
        let process = self.stage.cluster.node(&victim).map_err(skipped)?.process_id();
        let traced = process.with_context(|| format!("{victim} does not run")).map_err(skipped)?;
        let fault = self.fault(strike, "a disk that lies about every sync", std::slice::from_ref(&victim));
        let folder = self.stage.cluster.folder().to_owned();
        let trace = Trace::of_syncs(traced, "retval=0", &folder).await.map_err(skipped)?;
        self.lying = Some(victim.clone());
        Ok(Begun { fault, undo: Undo::CutOff(Lie { name: victim, trace, process, leader: Some(leader) }) })
    }

    /// The power fails while the disk still lies; the node must be caught, and goes on with what it had written.
    pub(super) async fn cut_off(&mut self, lie: Lie, fault: &mut Fault) -> Result<()> {
        let Lie { name, trace, process, leader } = lie;
        self.lying = None;
        let others_are_well = self.all_is_well().await;
        let folder = self.stage.cluster.node(&name)?.folder().to_owned();
        // Who leads now may be the liar itself, or somebody who does not remember what it acknowledged.
        let is_as_it_was = self.stage.leader() == leader && self.stage.cluster.node(&name)?.process_id() == process;
        if others_are_well.is_err() || !is_as_it_was {
            // An honest disk again, before anybody else cuts its power.
            let struck = trace.end().await;
            tool::run("sync", &["-f", tool::text(&folder)?])?;
            (fault.observed, fault.word) = (Some(struck > 0), format!("{struck} syncs were not done, until all was"));
            return Ok(());
        }
        let past_gate = self.stage.past_gate(&name);
        let from_ns = self.stage.recorder.now_ns();
        let mut cut = Fault::installed(
            FaultKind::PowerCut,
            "power cut of a disk that lied".to_owned(),
            vec![name.clone()],
            from_ns,
        );
        (cut.inside_data, cut.past_gate, cut.journals_lost) = (Some(past_gate > 0), Some(past_gate), true);
        self.stage.kill(&name)?;
        self.ends.power_cuts += 1;
        self.ends.past_gate += past_gate;
        let struck = trace.end().await;
        (fault.observed, fault.word) = (Some(struck > 0), format!("{struck} syncs were not done"));
        // The power was cut, whatever comes of it.
        let seen = self.see_it_caught(&name, &folder, leader, struck, &mut cut).await;
        cut.until_ns = Some(self.stage.recorder.now_ns());
        self.write_down(cut);
        seen
    }

    async fn see_it_caught(
        &mut self,
        name: &str,
        folder: &Path,
        leader: Option<(String, u64)>,
        struck: u64,
        cut: &mut Fault,
    ) -> Result<()> {
        let newest = self.stage.cluster.folder().join(format!("{name}.newest"));
        replace(&newest, folder)?;
        self.cut_power(name)?;
        let had_the_log = holds_the_log(folder, &newest)?;
        match self.is_caught(name).await? {
            Caught::Refused(said) => {
                (cut.observed, cut.word) = (Some(true), said);
                self.give_back(name, folder, &newest).await?;
            }
            Caught::Cut(said) => (cut.observed, cut.word) = (Some(true), said),
            Caught::No if had_the_log => {
                cut.status = FaultStatus::Indeterminate;
                cut.word = "it went on with its whole log: the kernel had written it back by itself".to_owned();
            }
            Caught::No if self.stage.leader() == leader => {
                cut.observed = Some(false);
                cut.word = "it went on".to_owned();
                self.stage.surprises.push(format!("{name} lost {struck} syncs, and nobody noticed"));
            }
            Caught::No => {
                cut.status = FaultStatus::Indeterminate;
                cut.word = "it went on; who remembered what it had acknowledged does not lead any more".to_owned();
            }
        }
        Ok(())
    }

    /// The node goes on with all that it had written. It begins the same life as the one that was refused; if that one had
    /// taken part before, this one is refused too (docs/roadmap.md), and told to try the next.
    async fn give_back(&mut self, name: &str, folder: &Path, newest: &Path) -> Result<()> {
        replace(folder, newest)?;
        self.stage.start(name)?;
        let until = Instant::now() + CAUGHT_WITHIN;
        while Instant::now() < until && !self.stage.is_ready(name).await {
            if self.stage.cluster.named(name)?.ended().is_some() {
                self.stage.excuse(name, CAUGHT_WITHIN);
                self.note_ends()?;
                fs::remove_file(folder.join(NOTED)).context("the note of a refusal")?;
                self.stage.start(name)?;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Starts it with what its disk really held, and sees what becomes of it.
    async fn is_caught(&mut self, name: &str) -> Result<Caught> {
        self.stage.start(name)?;
        self.stage.excuse(name, CAUGHT_WITHIN + CAUGHT_WITHIN);
        let until = Instant::now() + CAUGHT_WITHIN;
        while Instant::now() < until {
            let ended = self.stage.cluster.named(name)?.ended();
            let words = self.stage.cluster.node(name)?.last_words();
            let line = |of: &str| words.lines().find(|line| line.contains(of)).map(str::to_owned);
            if let Some(status) = ended {
                self.note_ends()?;
                return Ok(line(OUTDATED).filter(|_| !status.success()).map_or(Caught::No, Caught::Refused));
            }
            if let Some(said) = line(CUT) {
                return Ok(Caught::Cut(said));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(Caught::No)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_whole_when_each_of_its_files_is() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for folder in [&one, &other] {
            fs::create_dir(folder.path().join("wal")).unwrap();
            fs::write(folder.path().join("wal/1.wal"), "entries").unwrap();
        }
        fs::write(other.path().join("identity"), "of the other").unwrap();
        assert!(holds_the_log(one.path(), other.path()).unwrap());
        fs::write(other.path().join("wal/2.wal"), "").unwrap();
        assert!(!holds_the_log(one.path(), other.path()).unwrap());
        fs::remove_file(other.path().join("wal/2.wal")).unwrap();
        fs::write(other.path().join("wal/1.wal"), "entriez").unwrap();
        assert!(!holds_the_log(one.path(), other.path()).unwrap());
    }
}
