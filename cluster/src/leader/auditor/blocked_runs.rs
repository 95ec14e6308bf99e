//! Finds runs that wait for a part of their audience, or an attachment, that no live node has (P20), so that the ledger
//! marks them. It unmarks them when a node has the file again.
//!
//! Belongs to the auditor. Each lease request of a node lists the files that it lacks, but a node that has just started
//! has not checked them yet. So an observation counts only after it has lasted for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reveille_ledger::bitmap::CHUNK;
use reveille_ledger::command::RunBlock;
use reveille_ledger::ids::{Hash, PageId, RunId};
use reveille_ledger::{Ledger, RecipientState, Run, RunFile, RunState};

use crate::leader::claims::claimable::MissingFiles;

/// Time for which no live node must have the file before the run is marked. A node that restarts is back by then.
const BLOCKED_AFTER: Duration = Duration::from_secs(10);
/// Time for which a node must have the file before the mark is removed. A node that has just started reports its
/// missing files with its second request.
const FREE_AFTER: Duration = Duration::from_secs(3);

/// Runs whose mark should change: the file that should be marked, and since when. One for each leadership.
#[derive(Debug, Default)]
pub(crate) struct BlockedRunsWatch(BTreeMap<RunId, (Option<RunFile>, Duration)>);

impl BlockedRunsWatch {
    /// Returns the marks to change at `now`, a time of a monotonic clock. `live` has the nodes that may claim, with the
    /// files that each lacks.
    pub fn marks_to_change(&mut self, ledger: &Ledger, live: &MissingFiles, now: Duration) -> Vec<RunBlock> {
        let mut missing = live.values();
        // Without a live node it is unknown which files are missing.
        let Some(first) = missing.next() else {
            self.0.clear();
            return Vec::new();
        };
        let missing = missing.fold(first.clone(), |all, of| &all & of);
        let mut seen = BTreeMap::new();
        let mut found = Vec::new();
        for (id, page) in ledger.started_pages(ledger.head().now) {
            for run in &page.runs {
                let name = id.run_id(run);
                let file = waits_for(ledger, id, run, &missing);
                if file == run.blocked.map(|blocked| blocked.file) {
                    continue;
                }
                let known = self.0.get(&name).filter(|(known, _)| *known == file);
                let since = known.map_or(now, |(_, since)| *since);
                let settles = if file.is_some() { BLOCKED_AFTER } else { FREE_AFTER };
                if now.saturating_sub(since) >= settles {
                    found.push(RunBlock { run: name, file });
                }
                seen.insert(name, (file, since));
            }
        }
        self.0 = seen;
        found
    }
}

/// Returns an attachment, or else the first part of the audience, that all live nodes lack and that a pending recipient
/// needs.
fn waits_for(ledger: &Ledger, page: PageId, run: &Run, missing: &BTreeSet<Hash>) -> Option<RunFile> {
    let sends = matches!(run.state, RunState::Open | RunState::Paused { .. });
    if missing.is_empty() || !sends || run.counts.get(RecipientState::Pending) == 0 {
        return None;
    }
    if ledger.attached_files(&run.content).any(|file| missing.contains(&file)) {
        return Some(RunFile::Attachment);
    }
    let parts = ledger.seal(&run.audience)?.parts;
    // A large run is alone on its page, and each of its chunks is one part. Runs that share a page have one part each.
    let is_waited_for = |part: &u32| {
        let number = run.first / CHUNK + part;
        let chunk = ledger.chunks().get(&page.chunk(number));
        chunk.is_some_and(|chunk| !chunk.set(RecipientState::Pending).and(&run.slots_in(number)).is_empty())
    };
    let mut lacked = (0..).zip(&parts).filter(|(_, part)| missing.contains(*part)).map(|(index, _)| index);
    lacked.find(is_waited_for).map(RunFile::Part)
}

#[cfg(test)]
mod tests {
    use reveille_ledger::bitmap::Bitmap;
    use reveille_ledger::command::{
        Actor, AudienceSeal, ClaimRequest, Command, Entry, EpochStart, NodeUp, ScheduleCreate, Trigger, VoterClock,
    };
    use reveille_ledger::content::{AudienceChoice, NamedAudience, Seal};
    use reveille_ledger::ids::{ClaimOwner, Incarnation, NodeId, Time};
    use reveille_ledger::reply::CommandOutcome;

    use super::*;
    use crate::samples::schedule;

    const OWNER: ClaimOwner = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };

    fn put(ledger: &mut Ledger, command: Command) -> CommandOutcome {
        let head = ledger.head();
        let epoch = head.current_epoch().unwrap_or_default();
        ledger.apply(head.applied + 1, &Entry { epoch, now: Time(0), actor: Actor::System, command }).reply.outcome
    }

    fn part(number: u32) -> Hash {
        Hash([number as u8 + 1; 32])
    }

    /// Returns a ledger with a run that sends to a sealed audience of two parts.
    fn opened() -> (Ledger, RunId) {
        let mut ledger = Ledger::new();
        let readings = vec![VoterClock { node: NodeId(1), wall: Time(0) }];
        put(&mut ledger, Command::EpochStart(EpochStart::new(OWNER, 1, readings)));
        put(&mut ledger, Command::NodeUp(NodeUp { owner: OWNER, name: "n".into(), level: 1, process_nonce: 1 }));
        let rows = CHUNK + 1;
        let seal = Seal { name: "all".into(), columns: vec![], rows, parts: vec![part(0), part(1)] };
        let named = NamedAudience { name: "all".into(), seal: seal.blob().hash, rows };
        let seal = AudienceSeal { request: None, tenant: "default".into(), seal };
        assert_eq!(put(&mut ledger, Command::AudienceSeal(seal)), CommandOutcome::Done);
        let create = ScheduleCreate { audience: AudienceChoice::Sealed(named), ..schedule(Time(3_600_000), vec![]) };
        let created = put(&mut ledger, Command::ScheduleCreate(Box::new(create)));
        let CommandOutcome::Schedule(schedule) = created else { panic!("{created:?}") };
        let opened = put(&mut ledger, Command::Trigger(Trigger::new(schedule, "now")));
        let CommandOutcome::Run { run, .. } = opened else { panic!("{opened:?}") };
        (ledger, run)
    }

    fn nodes(missing: &[&[u32]]) -> MissingFiles {
        let parts = |numbers: &&[u32]| numbers.iter().map(|number| part(*number)).collect();
        (1..).map(NodeId).zip(missing.iter().map(parts)).collect()
    }

    #[test]
    fn part_missing_on_all_live_nodes_is_reported_and_its_return_too() {
        let (mut ledger, run) = opened();
        let mut watch = BlockedRunsWatch::default();
        let at = Duration::from_secs;
        let mut marks =
            |ledger: &Ledger, seconds, missing: &[&[u32]]| watch.marks_to_change(ledger, &nodes(missing), at(seconds));
        assert_eq!(marks(&ledger, 0, &[&[0], &[1]]), [], "each part is somewhere");
        assert_eq!(marks(&ledger, 1, &[&[0, 1], &[1]]), [], "not yet");
        assert_eq!(marks(&ledger, 8, &[&[0, 1], &[1], &[]]), [], "a third node has it");
        assert_eq!(marks(&ledger, 9, &[&[1], &[1]]), []);
        assert_eq!(marks(&ledger, 18, &[&[1], &[1]]), [], "counted anew");
        assert_eq!(marks(&ledger, 19, &[&[1], &[0, 1]]), [RunBlock { run, file: Some(RunFile::Part(1)) }]);
        assert_eq!(marks(&ledger, 20, &[]), [], "no node can be asked");
        put(&mut ledger, Command::RunBlock(vec![RunBlock { run, file: Some(RunFile::Part(1)) }]));
        assert_eq!(marks(&ledger, 21, &[&[1], &[1]]), [], "said already");
        assert_eq!(marks(&ledger, 22, &[&[1], &[]]), []);
        assert_eq!(marks(&ledger, 25, &[&[1], &[]]), [RunBlock { run, file: None }]);
    }

    #[test]
    fn missing_part_without_pending_recipients_blocks_no_run() {
        let (mut ledger, run) = opened();
        let claim = ClaimRequest { chunk: PageId(run).chunk(1), slice: Bitmap::range(0, 1), owner: OWNER };
        assert!(matches!(put(&mut ledger, Command::Claim(vec![claim])), CommandOutcome::Claimed(_)));
        let mut watch = BlockedRunsWatch::default();
        for seconds in [0, 60] {
            assert_eq!(watch.marks_to_change(&ledger, &nodes(&[&[1]]), Duration::from_secs(seconds)), []);
        }
    }
}
