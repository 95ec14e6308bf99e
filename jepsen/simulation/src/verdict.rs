//! The judgement of a run, by what the relay accepted and by the almanac. The numbers are those of the invariants in
//! `docs/protocol.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use reveille_cluster::site::Site;
use reveille_ledger::check::check;
use reveille_ledger::command::Cause;
use reveille_ledger::ids::{Hash, NodeId, RunId, ScheduleId, Time};
use reveille_ledger::{History, Ledger, Standing};
use tokio::time::Duration;

use crate::almanac::due;
use crate::clients::{Clients, Created};
use crate::plan::Plan;
use crate::relay::Arrival;
use crate::trace::Trace;

/// So far may ledger time be ahead of the true one: two of three clocks agree within two seconds (P18), and it is slewed.
const EARLY_MS: i64 = 2_500;
/// What is due this short before the end need not be done.
const LAST_MS: i64 = 90_000;

/// What came of a run.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Verdict {
    /// What is wrong; nothing where all invariants hold.
    pub violations: Vec<String>,
    /// Mails that the relay accepted.
    pub accepted: u64,
    /// Recipients whose mail is in doubt at the end.
    pub in_doubt: u64,
    /// How many of those had in fact arrived.
    pub in_doubt_arrived: u64,
    /// Runs that opened.
    pub runs: u64,
    /// Occurrences that the almanac expects.
    pub due: u64,
    /// Epochs that began.
    pub epochs: u64,
    /// Log index at the end.
    pub applied: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
}

/// What is looked at while a run goes on.
pub struct Watch {
    trace: Trace,
    violations: Vec<String>,
    hashes: BTreeMap<u64, (NodeId, Hash)>,
    epochs: BTreeSet<u64>,
    ended: BTreeSet<NodeId>,
}

impl Watch {
    /// Nothing seen yet.
    pub fn new(trace: Trace) -> Watch {
        let (hashes, epochs, ended) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Watch { trace, violations: Vec::new(), hashes, epochs, ended }
    }

    fn wrong(&mut self, what: String) {
        self.trace.say(format_args!("WRONG: {what}"));
        self.violations.push(what);
    }

    /// A node ended although nobody killed it.
    pub fn ended_by_itself(&mut self, node: NodeId) {
        if self.ended.insert(node) {
            self.wrong(format!("node {} stopped by itself", node.0));
        }
    }

    /// The ledger's own invariants, and I11.
    pub fn look(&mut self, sites: &[Arc<Site>]) {
        for site in sites {
            let (applied, epoch, hash, violations) = site.replica.read(|ledger| {
                let head = ledger.head();
                let epoch = head.epoch.as_ref().map_or(0, |epoch| epoch.epoch.0);
                (head.applied, epoch, ledger.state_hash(), check(ledger))
            });
            self.epochs.insert(epoch);
            self.trace.note(b'h', &[site.me.node.0, applied, u64::from(crc32c::crc32c(&hash.0))]);
            for violation in violations {
                self.wrong(format!("the ledger of node {} at {applied}: {violation:?}", site.me.node.0));
            }
            let (other, known) = *self.hashes.entry(applied).or_insert((site.me.node, hash));
            if known != hash {
                let node = site.me.node.0;
                self.wrong(format!("I11: nodes {node} and {} have different states at {applied}", other.0));
            }
        }
    }

    /// All that can be said at the end. `arrivals` is asked in the instant in which the state is read: until a node
    /// answers, which one that is cut off for good does not, mail goes on.
    pub async fn judge(
        mut self,
        sites: &[Arc<Site>],
        plan: &Plan,
        end: Time,
        clients: &Clients,
        arrivals: impl FnOnce() -> Vec<Arrival>,
    ) -> Result<Verdict> {
        let mut indices = Vec::new();
        for site in sites {
            indices.push(site.replica.linearizable(Instant::now() + Duration::from_secs(20)).await.ok());
        }
        let newest = indices.iter().enumerate().filter_map(|(place, index)| Some((index.as_ref()?, place))).max();
        let (_, newest) = newest.context("no node answers a read at the end")?;
        self.look(sites);
        let (site, arrivals) = (&sites[newest], arrivals());
        let mut verdict = Verdict {
            accepted: arrivals.iter().filter(|arrival| arrival.accepted).count() as u64,
            ..Verdict::default()
        };
        site.replica.read(|ledger| {
            self.mails(ledger, &arrivals, plan, &mut verdict);
            self.occurrences(ledger, plan, end, clients, &mut verdict);
            self.backlog(ledger, end, &mut verdict);
            verdict.applied = ledger.head().applied;
        });
        verdict.epochs = self.epochs.len() as u64;
        verdict.violations = self.violations;
        Ok(verdict)
    }

    /// I1, I3, I9, and the "never early" of I10.
    fn mails(&mut self, ledger: &Ledger, arrivals: &[Arrival], plan: &Plan, verdict: &mut Verdict) {
        let mut accepted: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        let mut fences: BTreeSet<(&str, &str, &str)> = BTreeSet::new();
        for arrival in arrivals {
            let Arrival { run, recipient, fence, .. } = arrival;
            if !fences.insert((run, recipient, fence)) {
                self.wrong(format!("I3: {recipient} of {run} came to its dot twice under {fence}"));
            }
            if arrival.accepted {
                *accepted.entry((run, recipient)).or_default() += 1;
            }
        }
        for ((run, recipient), times) in accepted.iter().filter(|(_, times)| **times > 1) {
            self.wrong(format!("I1: {recipient} of {run} was accepted {times} times"));
        }
        let mut known: BTreeSet<(String, String)> = BTreeSet::new();
        for (id, _, run) in ledger.runs() {
            verdict.runs += 1;
            let Some(recipients) = recipients(ledger, &run.audience) else {
                self.wrong(format!("the audience of {id} cannot be read"));
                continue;
            };
            for (number, recipient) in recipients.iter().enumerate() {
                let has = accepted.contains_key(&(id.to_string().as_str(), recipient.as_str()));
                let standing = ledger.standing(id, number as u32);
                match (standing, has) {
                    (Some(Standing::Sent), false) => {
                        self.wrong(format!("I9: {recipient} of {id} is sent, and the relay never took it"));
                    }
                    // What is claimed at the end is I4's to judge.
                    (Some(Standing::Sent), true) | (Some(Standing::Assumed | Standing::Claimed), _) => {}
                    (Some(Standing::InDoubt), has) => {
                        verdict.in_doubt += 1;
                        verdict.in_doubt_arrived += u64::from(has);
                    }
                    (other, true) => {
                        self.wrong(format!("I9: the relay took {recipient} of {id}, and it stands as {other:?}"));
                    }
                    (_, false) => {}
                }
                known.insert((id.to_string(), recipient.clone()));
            }
            let first = arrivals.iter().filter(|arrival| arrival.run == id.to_string()).map(|arrival| arrival.at).min();
            if let (Some(first), false) = (first, run.cause == Cause::Trigger) {
                let early = run.due.since_ms(plan.begins.plus_ms(first.as_millis() as i64));
                if early > EARLY_MS {
                    self.wrong(format!("I10: a mail of {id} came {early} ms before its instant"));
                }
            }
        }
        for (run, recipient) in accepted.keys() {
            if !known.contains(&((*run).to_owned(), (*recipient).to_owned())) {
                self.wrong(format!("I9: the relay took {recipient} of {run}, which the ledger does not know"));
            }
        }
    }

    /// I10: what opened or is explained is what the almanac says, each once.
    fn occurrences(&mut self, ledger: &Ledger, plan: &Plan, end: Time, clients: &Clients, verdict: &mut Verdict) {
        let created = clients.known(|known| known.created.clone());
        let unanswered = clients.known(|known| known.never) + created.len() as u64;
        if unanswered < plan.schedules.len() as u64 {
            self.wrong(format!("{} schedules were never created", plan.schedules.len() as u64 - unanswered));
        }
        for Created { planned, id, after_first, after_last } in created {
            let expected = due(&planned.rule, planned.zone, planned.changes, after_first.0, end.0);
            verdict.due += expected.len() as u64;
            let mut opened: BTreeMap<i64, RunId> = BTreeMap::new();
            for (run_id, _, run) in
                ledger.runs().filter(|(_, _, run)| run.schedule == id && run.cause != Cause::Trigger)
            {
                if let Some(other) = opened.insert(run.due.0, run_id) {
                    self.wrong(format!("I10: {} opened twice at {}: {other}, {run_id}", planned.name, run.due));
                }
                if !expected.contains(&run.due.0) {
                    self.wrong(format!("I10: {} opened at {}, which the almanac does not know", planned.name, run.due));
                }
            }
            let explained: u64 = explained(ledger, id);
            let (told, last) = (opened.len() as u64 + explained, end.0 - LAST_MS);
            let surely = |instant: &&i64| after_last.0 < **instant && **instant <= last;
            let at_least = expected.iter().filter(surely).count() as u64;
            if told < at_least || told > expected.len() as u64 {
                self.wrong(format!(
                    "I10: {} ({:?} in {}) has {} instants by the almanac, and {told} are told: {} opened, {explained} explained",
                    planned.name, planned.when, planned.zone, expected.len(), opened.len()
                ));
            }
        }
    }

    /// I4 and I13: nothing waits any more.
    fn backlog(&mut self, ledger: &Ledger, end: Time, _verdict: &mut Verdict) {
        let late = |due: Time| end.since_ms(due) > LAST_MS;
        for (id, page, run) in ledger.runs().filter(|(_, page, _)| late(page.opened_at)) {
            let (pending, claimed) = (run.counts.get(Standing::Pending), run.counts.get(Standing::Claimed));
            if pending + claimed > 0 {
                self.wrong(format!(
                    "I4: {id}, open since {}, has {pending} pending and {claimed} claimed: {:?}",
                    page.opened_at, run.state
                ));
            }
        }
    }
}

fn explained(ledger: &Ledger, id: ScheduleId) -> u64 {
    let history = ledger.history().iter().filter(|((schedule, _), _)| *schedule == id);
    history
        .map(|(_, row)| match row {
            History::Opened(_) => 0,
            History::Explained { strides, .. } => u64::from(strides.count()),
        })
        .sum()
}

fn recipients(ledger: &Ledger, audience: &Hash) -> Option<Vec<String>> {
    use reveille_ledger::content::Recipients;
    match Recipients::from_blob(ledger.blob(audience)?)? {
        Recipients::Inline(audience) => Some(audience.recipients.into_iter().map(|one| one.address).collect()),
        Recipients::Sealed(_) => None,
    }
}
