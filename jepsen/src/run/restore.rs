//! Loses all nodes of a cluster, restores it from a backup, and judges by the mailbox that both clusters send to: while
//! emails flow (`--nemesis loss`), and after a fault run with the family `restore` when all of them are sent.
//!
//! The former cluster goes on after its backup. Then all nodes and their files are lost. The restored cluster must send
//! nothing before it is accepted. While emails flow, half of the runs with doubts are then sent again, and the others
//! are closed as sent; after a fault run all are closed. The judge reads only the record of the mailbox: the history of
//! a fault run has one log, and this has two.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use reveille_harness::measure::{now_ms, sleep_until, unix_us};
use reveille_harness::{AdminClient, CallResult, Cluster, Report, wait};
use reveille_proto::admin::v1::{InDoubt, Resolution};
use reveille_sink::{Sink, SinkOptions};
use serde_json::{Value, json};

use super::LEAD;
use super::faults::{FaultAction, FaultTarget, Nemesis, PlannedFault};
use super::observe::final_state::all_runs;
use super::options::Args;
use super::scenario::{HarnessErrors, now, report};
use super::workload::{Workload, WorkloadItem};

/// Recipients of each of two schedules that are being sent while the backup is made, and how long before they are due.
const LARGE: u32 = 1_500;
const LARGE_BEFORE: Duration = Duration::from_millis(500);
/// Time after which nothing of a killed node arrives any more, and the distance from the acceptance at which an instant
/// is judged.
const MARGIN: Duration = Duration::from_secs(2);
/// How long the restored cluster is watched before it is accepted.
const HELD_FOR: Duration = Duration::from_secs(5);
const DOWN_FOR: Duration = Duration::from_secs(1);
/// Maximum time from the last instant until nothing is left to send.
const DRAINED_WITHIN: Duration = Duration::from_secs(60);
/// Number of recipients of the schedule that a cluster gets that was restored after a fault run.
const NEW: u32 = 20;

/// When each step was done, in microseconds since 1970.
struct Steps {
    backed_up_us: i64,
    lost_us: i64,
    accepted_us: i64,
}

/// When the backup is made of a cluster that is lost while emails flow, from the beginning of the fault phase.
fn backup_after(phase: Duration) -> Duration {
    phase / 5
}

/// When this cluster is lost.
pub fn lost_after(phase: Duration) -> Duration {
    phase * 3 / 10
}

/// Returns what happens before the loss: a kill, a backup, and another kill.
pub fn plan(phase: Duration) -> Vec<PlannedFault> {
    let kill = |at, target| {
        let action = FaultAction::Kill { target, inside: false };
        PlannedFault { at, lasts: DOWN_FOR, action }
    };
    let backup = PlannedFault { at: backup_after(phase), lasts: Duration::ZERO, action: FaultAction::BackUp };
    let first = kill(Duration::ZERO, FaultTarget::Leader);
    vec![first, backup, kill(backup_after(phase) + DOWN_FOR, FaultTarget::Sender)]
}

/// Returns the schedules that are being sent while the backup is made. `first`: the beginning of the fault phase.
pub fn large(first: SystemTime, phase: Duration) -> impl Iterator<Item = WorkloadItem> {
    let due_ms = unix_us(first + backup_after(phase) - LARGE_BEFORE) as u64 / 1_000;
    ["large-0", "large-1"].into_iter().map(move |name| WorkloadItem::once(name.to_owned(), due_ms, LARGE))
}

/// Performs the plan and the loss as the only faults of a run, and writes its last line.
pub async fn run_alone(
    mut nemesis: Nemesis,
    plan: &[PlannedFault],
    (began, faults_began): (Instant, Instant),
    args: &Args,
    workload: &Workload,
) -> Result<Report> {
    let mut errors = HarnessErrors::default();
    errors.record(nemesis.execute(plan, faults_began, lost_after(Duration::from_secs(args.seconds))).await);
    errors.record(nemesis.heal().await);
    errors.0.append(&mut nemesis.processes.unexpected_ends);
    let items = workload.items().clone();
    let restored = errors.record(Box::pin(lose_and_restore(&mut nemesis, &items, true)).await);
    let valid = errors.0.is_empty() && restored.as_ref().is_some_and(|restored| restored["valid"] == true);
    let line = json!({
        "seed": args.seed,
        "nemesis": args.nemesis.text,
        "nodes": args.nodes,
        "recipients": workload.recipients(),
        "restored": restored,
        "errors": errors.0,
        "seconds": began.elapsed().as_secs(),
        "at": now(),
        "valid": valid,
    });
    report(&line, valid, args.append.as_deref())
}

/// Loses the cluster, restores it from the newest backup, and decides all doubts. `while_sending`: emails of `items`,
/// the workload, are being sent. Otherwise all its instants are over and everything was sent, so that nothing may come
/// but the emails of a new schedule. Returns what came, for the last line, with the field `valid`.
pub async fn lose_and_restore(nemesis: &mut Nemesis, items: &[WorkloadItem], while_sending: bool) -> Result<Value> {
    let (backed_up_us, processes) = (nemesis.backed_up_us(), &mut nemesis.processes);
    let (cluster, former) = (&mut processes.cluster, &processes.sink);
    let admin = cluster.admin().clone();
    if backed_up_us.is_none() {
        admin.back_up().await?;
    }
    let amid_faults = backed_up_us.is_some();
    let backed_up_us = backed_up_us.unwrap_or_else(|| unix_us(SystemTime::now()));
    let lost_us = lose(cluster, former).await?;
    let own;
    let sink = if while_sending {
        former
    } else {
        // The sink of the run was stopped when it was judged.
        let options = SinkOptions { listen: former.address(), keep_bodies: 0, ..SinkOptions::default() };
        own = Sink::start(options).context("the mailbox of the restored cluster")?;
        &own
    };
    let (doubts, accepted_us) = restore(cluster).await?;
    let in_doubt = count(&doubts);
    let resent = decide(&admin, cluster.founders().len(), doubts, while_sending).await?;
    let new = WorkloadItem::once("restored".to_owned(), now_ms() + LEAD.as_millis() as u64, NEW);
    let in_us = |item: &WorkloadItem| item.due_ms as i64 * 1_000;
    let mut dues: Vec<(&WorkloadItem, i64)> =
        items.iter().map(|item| (item, if while_sending { in_us(item) } else { lost_us })).collect();
    let came = if while_sending {
        let last_ms = items.iter().map(|item| item.due_ms).max().unwrap_or_default();
        sleep_until(UNIX_EPOCH + Duration::from_millis(last_ms)).await;
        true
    } else {
        dues.push((&new, in_us(&new)));
        admin.create(new.body(InDoubt::Hold)).await?;
        sink.wait_for(NEW.into(), DRAINED_WITHIN).await.is_ok()
    };
    let drained = came && wait::until(DRAINED_WITHIN, || is_drained(&admin)).await;
    // What must not come may come now.
    tokio::time::sleep(MARGIN).await;

    let recipients = dues.into_iter().flat_map(|(item, due_us)| item.addresses().map(move |address| (address, due_us)));
    let steps = Steps { backed_up_us, lost_us, accepted_us };
    let judged = Judged::of(recipients, &arrivals(sink), &resent, &steps);
    sink.stop().await;
    let is_complete = [judged.accepted, judged.of_restored] == [NEW as usize; 2];
    let is_as_expected =
        if while_sending { in_doubt > 0 && judged.is_valid() } else { judged.is_right() && is_complete };
    Ok(json!({
        "amid_faults": amid_faults,
        // By the former cluster, after its backup; null after a fault run, whose mailbox is another one.
        "after_backup": while_sending.then_some(judged.after_backup),
        "in_doubt": in_doubt,
        "resent": resent.len(),
        "twice_by_decision": judged.twice_by_decision,
        "accepted": judged.accepted,
        "twice": judged.twice,
        "before_acceptance": judged.before_acceptance,
        "without_decision": judged.without_decision,
        "of_restored": judged.of_restored,
        "lost": judged.lost,
        "drained": drained,
        "valid": drained && is_as_expected,
    }))
}

/// Loses all nodes. Returns when it did, after everything on its way has arrived.
async fn lose(cluster: &mut Cluster, sink: &Sink) -> Result<i64> {
    cluster.lose()?;
    let lost_us = unix_us(SystemTime::now());
    eprintln!("all nodes and their files are lost, {} emails were accepted", sink.handle().accepted_count());
    tokio::time::sleep(MARGIN).await;
    Ok(lost_us)
}

/// Recipients in doubt, by tenant and run.
type Doubts = BTreeMap<(String, String), BTreeSet<String>>;

/// Restores a lost cluster from the newest backup, and accepts it after a while. Returns the doubts before that, and
/// when it was accepted.
async fn restore(cluster: &mut Cluster) -> Result<(Doubts, i64)> {
    cluster.restore().await?;
    let admin = cluster.admin();
    let mut doubts = Doubts::new();
    for run in all_runs(admin).await? {
        let recipients = admin.of_tenant(&run.tenant).doubts(&run.run).await?;
        if !recipients.is_empty() {
            doubts.insert((run.tenant, run.run), recipients);
        }
    }
    eprintln!("a restored cluster runs, {} emails are in doubt", count(&doubts));
    tokio::time::sleep(HELD_FOR).await;
    let accepted_us = unix_us(SystemTime::now());
    admin.accept_restore().await?;
    Ok((doubts, accepted_us))
}

fn count(doubts: &Doubts) -> usize {
    doubts.values().map(BTreeSet::len).sum()
}

/// Decides each run with doubts, by its number, at one of the first `nodes` nodes: as sent, or every second one to be
/// sent again if `resends`. Returns the addresses that may come twice.
async fn decide(admin: &AdminClient, nodes: usize, doubts: Doubts, resends: bool) -> Result<BTreeSet<String>> {
    let mut resent = BTreeSet::new();
    for (number, ((tenant, run), recipients)) in doubts.into_iter().enumerate() {
        let resolution = if resends && number % 2 == 0 { Resolution::Resend } else { Resolution::Sent };
        let answer = admin.of_tenant(&tenant).resolve_by(number % nodes.max(1), &run, Vec::new(), resolution).await;
        let CallResult::Done(answer) = answer else { anyhow::bail!("{run} is not decided: {answer:?}") };
        ensure!(answer.changed == recipients.len() as u64, "{run}: {} of {} decided", answer.changed, recipients.len());
        if resolution == Resolution::Resend {
            resent.extend(recipients);
        }
    }
    Ok(resent)
}

/// Returns true if nothing is left to send.
async fn is_drained(admin: &AdminClient) -> bool {
    let Ok(runs) = all_runs(admin).await else { return false };
    let counts = runs.iter().filter_map(|run| run.counts.as_ref());
    counts.map(|counts| counts.pending + counts.claimed + counts.in_doubt).sum::<u32>() == 0
}

/// Returns the times at which the mailbox accepted an email, by recipient.
fn arrivals(sink: &Sink) -> BTreeMap<String, Vec<i64>> {
    let mut arrivals: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for email in sink.handle().find(|_| true) {
        let at_us = i64::try_from(email.data_unix_us).unwrap_or(i64::MAX);
        arrivals.entry(email.recipient.clone()).or_default().push(at_us);
    }
    arrivals
}

/// What the mailbox shows.
#[derive(Debug, Default, PartialEq, Eq)]
struct Judged {
    accepted: usize,
    after_backup: usize,
    twice_by_decision: usize,
    /// Recipients with more emails than one, and one more by decision.
    twice: Vec<String>,
    /// Recipients with an email after the loss and before the acceptance.
    before_acceptance: Vec<String>,
    /// Recipients of instants before the acceptance, with an email after it and without a decision.
    without_decision: Vec<String>,
    /// Recipients of instants after the acceptance, each with its email.
    of_restored: usize,
    /// Recipients without the email that they should have.
    lost: Vec<String>,
}

impl Judged {
    fn of(
        recipients: impl Iterator<Item = (String, i64)>,
        arrivals: &BTreeMap<String, Vec<i64>>,
        resent: &BTreeSet<String>,
        steps: &Steps,
    ) -> Judged {
        let margin_us = MARGIN.as_micros() as i64;
        let mut judged = Judged { accepted: arrivals.values().map(Vec::len).sum(), ..Judged::default() };
        for (recipient, due_us) in recipients {
            let times = arrivals.get(&recipient).map(Vec::as_slice).unwrap_or_default();
            let later = times.iter().filter(|at| **at >= steps.accepted_us).count();
            let is_resent = resent.contains(&recipient);
            let is_after = |at: &&i64| **at > steps.backed_up_us && **at <= steps.lost_us + margin_us;
            judged.after_backup += times.iter().filter(is_after).count();
            judged.twice_by_decision += usize::from(is_resent && times.len() == 2);
            if times.len() > 1 + usize::from(is_resent) {
                judged.twice.push(recipient.clone());
            }
            if times.iter().any(|at| *at > steps.lost_us + margin_us && *at < steps.accepted_us) {
                judged.before_acceptance.push(recipient.clone());
            }
            if due_us < steps.accepted_us - margin_us && later > 0 && !is_resent {
                judged.without_decision.push(recipient.clone());
            }
            let is_new = due_us > steps.accepted_us + margin_us;
            judged.of_restored += usize::from(is_new && later == 1);
            if (is_new || is_resent) && later != 1 {
                judged.lost.push(recipient);
            }
        }
        judged
    }

    /// True if nothing came that must not, and everything came that must.
    fn is_right(&self) -> bool {
        let wrong = [&self.twice, &self.before_acceptance, &self.without_decision, &self.lost];
        wrong.iter().all(|recipients| recipients.is_empty())
    }

    /// True if it is right, and emails came of each kind that a loss amid emails is about.
    fn is_valid(&self) -> bool {
        let seen = [self.after_backup, self.of_restored, self.twice_by_decision];
        self.is_right() && seen.iter().all(|count| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn judged(times: &[(&str, i64, &[i64])], resent: &[&str]) -> Judged {
        let steps = Steps { backed_up_us: 10 * SECOND, lost_us: 20 * SECOND, accepted_us: 40 * SECOND };
        let arrivals = times.iter().map(|(name, _, at)| {
            let at = at.iter().map(|second| second * SECOND).collect();
            ((*name).to_owned(), at)
        });
        let due = times.iter().map(|(name, due, _)| ((*name).to_owned(), due * SECOND));
        let resent = resent.iter().map(|name| (*name).to_owned()).collect();
        Judged::of(due, &arrivals.collect(), &resent, &steps)
    }

    const GOOD: [(&str, i64, &[i64]); 4] =
        [("former", 5, &[6]), ("after", 12, &[13]), ("again", 15, &[16, 45]), ("new", 50, &[51])];

    #[test]
    fn restored_cluster_that_repeats_only_by_decision_is_valid() {
        let judged = judged(&GOOD, &["again"]);
        assert!(judged.is_valid(), "{judged:?}");
        assert_eq!((judged.accepted, judged.after_backup, judged.twice_by_decision, judged.of_restored), (5, 2, 1, 1));
    }

    #[test]
    fn each_wrong_email_and_each_missing_one_is_found() {
        let with = |name: &'static str, due, at: &'static [i64]| {
            let all: Vec<_> = GOOD.into_iter().chain([(name, due, at)]).collect();
            judged(&all, &["again"])
        };
        let bad = "bad".to_owned();
        assert_eq!(with("bad", 5, &[6, 45]).twice, std::slice::from_ref(&bad));
        assert_eq!(with("bad", 5, &[45]).without_decision, std::slice::from_ref(&bad));
        assert_eq!(with("bad", 5, &[30]).before_acceptance, std::slice::from_ref(&bad));
        assert_eq!(with("bad", 50, &[]).lost, [bad]);
        assert!(with("bad", 15, &[]).is_valid(), "it is undecided");
        assert!(!judged(&GOOD[..3], &["again"]).is_valid(), "nothing of the restored cluster");
    }
}
