//! Blows to the disk of one node, and what is left of a log that was written to when the power failed.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reveille_check::history::Fault;

use super::blows::{Undo, skipped};
use super::nemesis::{Begun, Nemesis, Skipped};
use super::plan::{DiskBlow, Strike, Whom};
use super::stage::Doing;
use super::trace::{self, Trace};
use crate::node::Node;

/// A node whose log lost its tail must follow or lead again within this.
const READY_WITHIN: Duration = Duration::from_secs(12);
/// A node that learned of a bad disk is gone within this.
const STOPS_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Less than a sector: the last batch of the log ends in its midst.
const TORN_BYTES: u64 = 256;
/// A sync takes so long while the power is about to fail, and each log is written to within that.
const HELD_SYNCS: &str = "delay_enter=3000000";
const WRITES_WITHIN: Duration = Duration::from_millis(1_500);
const LOOK_FOR_WRITES_EVERY: Duration = Duration::from_millis(5);
/// A node whose log ends inside a batch says so at its start (`raft/src/wal/open.rs`), within this.
const CUT_A_TAIL: &str = "cut a batch that was half written";
const SAYS_WITHIN: Duration = Duration::from_secs(5);

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
        for name in self.stage.names() {
            // The others have what this log loses.
            self.is_soon_ready(&name).await;
        }
        let past_gate = self.stage.past_gate(&victim);
        self.stage.kill(&victim).map_err(skipped)?;
        (fault.inside_data, fault.past_gate) = (Some(past_gate > 0), Some(past_gate));
        let folder = self.stage.cluster.node(&victim).map_err(skipped)?.folder().join("wal");
        let torn = tear_last(&folder);
        self.stage.start(&victim).map_err(skipped)?;
        self.is_soon_ready(&victim).await;
        fault.observed = Some(torn.is_ok() && self.have_cut_tails(&[victim]).await);
        fault.word = torn.map_or_else(|error| format!("{error:#}"), |length| format!("cut at byte {length}"));
        Ok(Begun { fault, undo: Undo::Nothing })
    }

    async fn is_soon_ready(&self, name: &str) {
        let until = Instant::now() + READY_WITHIN;
        while !self.stage.is_ready(name).await && Instant::now() < until {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Delays the syncs of these nodes; returns when each has written to its log since, or after a while. What was written
    /// is not synced then.
    pub(super) async fn amid_writes(&self, names: &[String]) -> Vec<Trace> {
        let mut traces = Vec::new();
        for name in names {
            let process = self.stage.cluster.node(name).ok().and_then(Node::process_id);
            let Some(process) = process else { continue };
            traces.extend(Trace::of_syncs(process, HELD_SYNCS, self.stage.cluster.folder()).await.ok());
        }
        let length = |name: &String| {
            let segment = last_segment(&self.stage.cluster.node(name).ok()?.folder().join("wal")).ok()?;
            let length = segment.metadata().ok()?.len();
            Some((segment, length))
        };
        let before: Vec<_> = names.iter().map(length).collect();
        let until = Instant::now() + WRITES_WITHIN;
        while names.iter().zip(&before).any(|(name, before)| length(name) <= *before) && Instant::now() < until {
            tokio::time::sleep(LOOK_FOR_WRITES_EVERY).await;
        }
        traces
    }

    /// Does one of these, by its own word, cut the end of its log? They were started a moment ago.
    pub(super) async fn have_cut_tails(&self, names: &[String]) -> bool {
        let until = Instant::now() + SAYS_WITHIN;
        let says_so = |name: &String| self.stage.cluster.node(name).is_ok_and(|node| node.says(CUT_A_TAIL));
        while !names.is_empty() && Instant::now() < until {
            if names.iter().any(says_so) {
                return true;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        false
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

/// The last file of a log.
pub(super) fn last_segment(folder: &Path) -> Result<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "wal"));
    files.sort();
    files.pop().context("a log without files")
}

/// After a power cut: of what was written to this file and not synced, a part had reached the disk. None where everything
/// had been synced, or nothing of the file.
pub(super) fn keep_part(segment: &Path, written: &[u8], chance: u64) -> Result<Option<String>> {
    let synced = match fs::read(segment) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        synced => synced?,
    };
    let lost = written.strip_prefix(synced.as_slice()).unwrap_or_default();
    let Some(most) = lost.len().checked_sub(1).filter(|most| *most > 0) else { return Ok(None) };
    let kept = 1 + (chance.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % most;
    let mut file = File::options().append(true).open(segment)?;
    file.write_all(lost.get(..kept).unwrap_or_default())?;
    file.sync_all()?;
    Ok(Some(format!("{kept} of {} bytes that were not synced are in the log", lost.len())))
}

/// Lets the last file of a log end inside its last batch.
fn tear_last(folder: &Path) -> Result<u64> {
    let file = File::options().write(true).open(last_segment(folder)?)?;
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
    fn power_cut_amid_write_keeps_a_strict_part_of_what_was_not_synced() {
        let folder = tempfile::tempdir().unwrap();
        let segment = folder.path().join("1.wal");
        let written = [[1; 512], [2; 512]].concat();
        for chance in 0..200 {
            fs::write(&segment, &written[..512]).unwrap();
            assert!(keep_part(&segment, &written, chance).unwrap().is_some());
            let left = fs::read(&segment).unwrap();
            assert!(left.len() > 512 && left.len() < 1_024 && written.starts_with(&left), "{} bytes", left.len());
        }
        fs::write(&segment, &written).unwrap();
        assert_eq!(keep_part(&segment, &written, 7).unwrap(), None, "everything was synced");
        fs::remove_file(&segment).unwrap();
        assert_eq!(keep_part(&segment, &written, 7).unwrap(), None, "the file was not");
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
