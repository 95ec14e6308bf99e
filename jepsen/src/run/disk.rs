//! Blows to the disk of one node.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reveille_check::history::Fault;

use super::blows::{Undo, skipped};
use super::nemesis::{Begun, Nemesis, Skipped};
use super::plan::{DiskBlow, Strike, Whom};
use super::stage::Doing;
use super::trace::{self, Trace};

/// A node whose log lost its tail must follow or lead again within this.
const READY_WITHIN: Duration = Duration::from_secs(12);
/// A node that learned of a bad disk is gone within this.
const STOPS_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Less than a sector: the last batch of the log ends in its midst.
const TORN_BYTES: u64 = 256;

impl Nemesis {
    pub(super) async fn disk(&mut self, strike: &Strike, whom: Whom, how: DiskBlow) -> Result<Begun, Skipped> {
        let victim = self.whom(whom)?;
        let fault = self.fault(strike, &format!("a disk: {how:?}"), std::slice::from_ref(&victim));
        match how {
            DiskBlow::Fails => self.trace(strike, fault, victim, "error=EIO".to_owned(), true).await,
            DiskBlow::Slow(by) => {
                self.trace(strike, fault, victim, format!("delay_enter={}", by.as_micros()), false).await
            }
            DiskBlow::Full => self.fill(fault, victim),
            DiskBlow::StateLost | DiskBlow::StateDamaged => self.harm_state(fault, victim, how),
            DiskBlow::TornTail => self.tear(fault, victim).await,
        }
    }

    async fn trace(
        &mut self,
        strike: &Strike,
        mut fault: Fault,
        victim: String,
        what: String,
        fails: bool,
    ) -> Result<Begun, Skipped> {
        trace::is_possible().map_err(Skipped::Cannot)?;
        let process = self.stage.cluster.node(&victim).map_err(skipped)?.process_id();
        let process = process.ok_or_else(|| Skipped::NotNow(format!("{victim} does not run")))?;
        let folder = self.stage.cluster.folder().to_owned();
        // Whoever learns that its disk fails stops: that is what is asked of it. A slow one is no reason.
        if fails {
            self.stage.excuse(&victim, strike.lasts + STOPS_WITHIN);
        }
        let trace = Trace::of_syncs(process, &what, &folder).await.map_err(skipped)?;
        fault.word = what;
        Ok(Begun { fault, undo: Undo::Untrace { name: victim, trace, process, fails } })
    }

    /// `failed`: the process whose syncs failed.
    pub(super) async fn untrace(
        &mut self,
        name: &str,
        trace: Trace,
        failed: Option<u32>,
        fault: &mut Fault,
    ) -> Result<()> {
        let struck = trace.end().await;
        self.stage.look_for_ends()?;
        let went_down = self.stage.doing(name) == Doing::Down;
        if went_down {
            self.stage.start(name)?;
        } else if failed.is_some() && self.stage.cluster.node(name)?.process_id() == failed {
            // It may not have come to its end yet. A life that began since has met no such disk.
            self.stage.excuse(name, STOPS_WITHIN);
        }
        fault.observed = Some(struck > 0);
        let and = if went_down { ", and the node stopped" } else { "" };
        fault.word = format!("{}: {struck} syncs were struck{and}", fault.word);
        Ok(())
    }

    fn fill(&mut self, fault: Fault, victim: String) -> Result<Begun, Skipped> {
        let volumes = self.stage.cluster.footing().volumes.as_ref().map_err(|why| Skipped::Cannot(why.clone()))?;
        let volume = volumes.get(&victim).ok_or_else(|| Skipped::Cannot(format!("{victim} has no disk of its own")))?;
        volume.fill().map_err(skipped)?;
        self.stage.disk_is_full(&victim);
        Ok(Begun { fault, undo: Undo::Empty(victim) })
    }

    pub(super) fn empty(&mut self, name: &str, fault: &mut Fault) -> Result<()> {
        let emptied = match &self.stage.cluster.footing().volumes {
            Ok(volumes) => volumes.get(name).context("a node without a disk of its own").and_then(|disk| disk.empty()),
            Err(_) => Ok(()),
        };
        self.stage.look_for_ends()?;
        let went_down = self.stage.doing(name) == Doing::Down;
        self.stage.disk_has_room(name, STOPS_WITHIN);
        self.stage.start(name)?;
        emptied?;
        fault.observed = went_down.then_some(true);
        fault.word = if went_down { "the node stopped" } else { "the node went on, or wrote nothing" }.to_owned();
        Ok(())
    }

    /// The mirror of the state can be made again from snapshot and log, so any node may lose it at any time.
    fn harm_state(&mut self, mut fault: Fault, victim: String, how: DiskBlow) -> Result<Begun, Skipped> {
        let past_gate = self.stage.past_gate(&victim);
        self.stage.kill(&victim).map_err(skipped)?;
        (fault.inside_data, fault.past_gate) = (Some(past_gate > 0), Some(past_gate));
        let folder = self.stage.cluster.node(&victim).map_err(skipped)?.folder().join("state");
        let harmed = match how {
            DiskBlow::StateLost => fs::remove_dir_all(&folder).map(|()| "lost".to_owned()).context("the state folder"),
            _ => damage(&folder.join("db"), self.seed).map(|bytes| format!("{bytes} bytes of it are others")),
        };
        fault.observed = Some(harmed.is_ok());
        fault.word = harmed.unwrap_or_else(|error| format!("{error:#}"));
        Ok(Begun { fault, undo: Undo::Start(vec![victim]) })
    }

    /// A disk that lied about one sync. It may befall one node only, and while all others are well: two such disks
    /// are more than is promised.
    async fn tear(&mut self, mut fault: Fault, victim: String) -> Result<Begun, Skipped> {
        if !self.is_quiet() {
            return Err(Skipped::NotNow("a log may lose its tail only while all else is well".to_owned()));
        }
        let past_gate = self.stage.past_gate(&victim);
        self.stage.kill(&victim).map_err(skipped)?;
        (fault.inside_data, fault.past_gate) = (Some(past_gate > 0), Some(past_gate));
        let folder = self.stage.cluster.node(&victim).map_err(skipped)?.folder().join("wal");
        let torn = tear_last(&folder);
        self.stage.start(&victim).map_err(skipped)?;
        let until = Instant::now() + READY_WITHIN;
        while !self.stage.is_ready(&victim).await && Instant::now() < until {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        fault.observed = Some(torn.is_ok());
        fault.word = torn.map_or_else(|error| format!("{error:#}"), |length| format!("cut at byte {length}"));
        Ok(Begun { fault, undo: Undo::Nothing })
    }
}

/// Turns some bytes of a file over, at places that the seed says.
fn damage(path: &Path, seed: u64) -> Result<u64> {
    let mut file = File::options().read(true).write(true).open(path).with_context(|| path.display().to_string())?;
    let length = file.metadata()?.len().max(1);
    let mut place = seed;
    for _ in 0..16 {
        place = place.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17).wrapping_add(1);
        let mut byte = [0];
        file.seek(SeekFrom::Start(place % length))?;
        if file.read(&mut byte)? == 1 {
            file.seek(SeekFrom::Start(place % length))?;
            file.write_all(&[!byte[0]])?;
        }
    }
    file.sync_all()?;
    Ok(16)
}

/// Lets the last file of a log end inside its last batch.
fn tear_last(folder: &Path) -> Result<u64> {
    let mut files: Vec<_> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "wal"));
    files.sort();
    let last = files.pop().context("a log without files")?;
    let file = File::options().write(true).open(last)?;
    let length = file.metadata()?.len().checked_sub(TORN_BYTES).context("an empty log")?;
    file.set_len(length)?;
    file.sync_all()?;
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_file_of_a_log_ends_in_the_midst_of_a_sector() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("1.wal"), [1; 1_024]).unwrap();
        fs::write(folder.path().join("2.wal"), [1; 1_024]).unwrap();
        fs::write(folder.path().join("other"), [1; 1_024]).unwrap();
        assert_eq!(tear_last(folder.path()).unwrap(), 768);
        assert_eq!(fs::metadata(folder.path().join("1.wal")).unwrap().len(), 1_024);
        assert_eq!(fs::metadata(folder.path().join("2.wal")).unwrap().len(), 768);
    }

    #[test]
    fn damage_is_where_the_seed_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        let read = |seed| {
            fs::write(&path, [0; 4_096]).unwrap();
            damage(&path, seed).unwrap();
            fs::read(&path).unwrap()
        };
        let first = read(7);
        assert!(first == read(7) && first != read(8) && first.iter().any(|byte| *byte != 0));
    }
}
