//! Loses all nodes of a cluster, restores it from a backup, and judges by the mailbox that both clusters send to: as
//! the command `restore` while emails flow, and after a fault run with the family `restore` when all of them are sent.
//!
//! Nodes are killed before. The former cluster goes on after its backup. Then all nodes and their files are lost. The
//! restored cluster must send nothing before it is accepted. Afterwards the operator of the command lets half of the
//! runs with doubts be sent again, and closes the others as sent; after a fault run all are closed. The judge reads
//! only the record of the mailbox: the history of a fault run has one log, and this has two.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use reveille_harness::load::{self, CreateLoad};
use reveille_harness::measure::{sleep_until, unix_us};
use reveille_harness::{AdminClient, CallResult, Cluster, Needs, Report, StartArgs, wait};
use reveille_proto::admin::v1::{Resolution, Run};
use reveille_sink::{Sink, SinkOptions};
use serde_json::{Value, json};

use super::faults::Nemesis;
use super::scenario::start_sink;
use super::workload::{TENANT, TENANTS, WorkloadItem};
use super::{LEAD, LEAD_A_SCHEDULE, SNAPSHOT_EVERY};

const SCHEDULES_PER_SECOND: u32 = 3;
const RECIPIENTS: u32 = 8;
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

/// Options of `restore`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Decides which nodes are killed before the loss
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Half of the time in which instants are due; the cluster is lost before it is over
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(20..=3_600))]
    pub seconds: u64,
}

/// A schedule that is due once.
#[derive(Clone)]
struct Due {
    name: String,
    at: SystemTime,
    count: u32,
}

impl Due {
    /// Returns the recipients, and when they are due in microseconds since 1970.
    fn recipients(&self) -> impl Iterator<Item = (String, i64)> + '_ {
        let due_us = unix_us(self.at);
        (0..self.count).map(move |recipient| (load::address(&self.name, recipient), due_us))
    }
}

/// When each step was done, in microseconds since 1970.
struct Steps {
    backed_up_us: i64,
    lost_us: i64,
    accepted_us: i64,
}

/// Runs the command `restore`.
pub async fn run(start: &StartArgs, args: &Args) -> Result<Report> {
    let began = Instant::now();
    let phase = Duration::from_secs(args.seconds);
    let needs = Needs { backups: true, snapshot_every: Some(SNAPSHOT_EVERY), ..Needs::default() };
    let mut cluster = Cluster::start(start, 3, needs).await?;
    let sink = start_sink(&cluster, SinkOptions::default()).await?;
    let admin = cluster.admin().clone();
    let small = 2 * args.seconds as u32 * SCHEDULES_PER_SECOND;
    let first = SystemTime::now() + LEAD + LEAD_A_SCHEDULE * small;
    let backup_at = first + phase * 2 / 5;
    let instant = move |number: u32| first + 2 * phase * number / small;
    let small = (0..small).map(|number| Due { name: format!("s{number}"), at: instant(number), count: RECIPIENTS });
    let large =
        ["large-0", "large-1"].map(|name| Due { name: name.to_owned(), at: backup_at - LARGE_BEFORE, count: LARGE });
    let dues: Vec<Due> = small.chain(large).collect();
    let creates = CreateLoad { clients: 8, count: dues.len() as u64, batch: 1 };
    let created = dues.clone();
    let body = move |number: u64| {
        let Due { name, at, count } = created[number as usize].clone();
        load::once_to(name, at, count)
    };
    load::create(&admin, creates, "schedules", body).await?;
    sleep_until(first).await;

    let mut random = StdRng::seed_from_u64(args.seed);
    kill_one(&mut cluster, &mut random).await?;
    sleep_until(backup_at).await;
    admin.back_up().await?;
    let backed_up_us = unix_us(SystemTime::now());
    kill_one(&mut cluster, &mut random).await?;
    sleep_until(first + phase * 3 / 5).await;
    let lost_us = lose(&mut cluster, &sink).await?;
    let (doubts, accepted_us) = restore(&mut cluster, &[TENANT]).await?;
    let in_doubt = count(&doubts);
    let every_other = |number| if number % 2 == 0 { Resolution::Resend } else { Resolution::Sent };
    let resent = decide(&admin, cluster.founders().len(), doubts, every_other).await?;
    sleep_until(first + 2 * phase).await;
    let drained = wait::until(DRAINED_WITHIN, || is_drained(&admin, &[TENANT])).await;

    let steps = Steps { backed_up_us, lost_us, accepted_us };
    let recipients = dues.iter().flat_map(Due::recipients);
    let judged = Judged::of(recipients, &arrivals(&sink), &resent, &steps);
    sink.stop().await;
    let valid = drained && judged.is_valid();
    let line = json!({
        "seed": args.seed,
        "seconds": began.elapsed().as_secs(),
        "recipients": dues.iter().map(|due| due.count).sum::<u32>(),
        "accepted": judged.accepted,
        // By the former cluster, after its backup.
        "after_backup": judged.after_backup,
        "in_doubt": in_doubt,
        "resent": resent.len(),
        "twice_by_decision": judged.twice_by_decision,
        "twice": judged.twice,
        "before_acceptance": judged.before_acceptance,
        "without_decision": judged.without_decision,
        "of_restored": judged.of_restored,
        "lost": judged.lost,
        "drained": drained,
        "valid": valid,
    });
    Report::new(&line, valid)
}

/// Kills a node, and starts it again.
async fn kill_one(cluster: &mut Cluster, random: &mut StdRng) -> Result<()> {
    let number = random.random_range(0..cluster.nodes().len());
    let name = cluster.nodes().get(number).context("a cluster without nodes")?.name.clone();
    eprintln!("kill -9 of {name}");
    cluster.node_mut(&name)?.kill()?;
    tokio::time::sleep(DOWN_FOR).await;
    cluster.node_mut(&name)?.start()
}

/// Loses the cluster of a fault run when everything was sent, restores it from the newest backup, and closes all doubts
/// as sent. All instants of `items`, the workload, are over. So nothing may come but the emails of a new schedule.
/// Returns what came, for the last line, with the field `valid`.
pub async fn after_run(nemesis: &mut Nemesis, items: &[WorkloadItem]) -> Result<Value> {
    let (amid_faults, processes) = (nemesis.has_backup(), &mut nemesis.processes);
    let (cluster, former) = (&mut processes.cluster, &processes.sink);
    let admin = cluster.admin().clone();
    if !amid_faults {
        admin.back_up().await?;
    }
    let backed_up_us = unix_us(SystemTime::now());
    let lost_us = lose(cluster, former).await?;
    // The sink of the run was stopped when it was judged.
    let options = SinkOptions { listen: former.address(), keep_bodies: 0, ..SinkOptions::default() };
    let sink = Sink::start(options).context("the mailbox of the restored cluster")?;
    let (doubts, accepted_us) = restore(cluster, &TENANTS).await?;
    let in_doubt = count(&doubts);
    decide(&admin, cluster.founders().len(), doubts, |_| Resolution::Sent).await?;
    let due = Due { name: "restored".to_owned(), at: SystemTime::now() + LEAD, count: NEW };
    admin.create(load::once_to(due.name.clone(), due.at, due.count)).await?;
    let came = sink.wait_for(NEW.into(), DRAINED_WITHIN).await.is_ok();
    // What must not come may come now.
    tokio::time::sleep(MARGIN).await;
    let drained = came && is_drained(&admin, &TENANTS).await;

    let steps = Steps { backed_up_us, lost_us, accepted_us };
    let former = items.iter().flat_map(|item| item.addresses().map(|address| (address, lost_us)));
    let judged = Judged::of(former.chain(due.recipients()), &arrivals(&sink), &BTreeSet::new(), &steps);
    sink.stop().await;
    let is_complete = [judged.accepted, judged.of_restored] == [NEW as usize; 2];
    Ok(json!({
        "amid_faults": amid_faults,
        "in_doubt": in_doubt,
        "accepted": judged.accepted,
        "twice": judged.twice,
        "before_acceptance": judged.before_acceptance,
        "without_decision": judged.without_decision,
        "lost": judged.lost,
        "drained": drained,
        "valid": drained && judged.is_right() && is_complete,
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
async fn restore(cluster: &mut Cluster, tenants: &[&str]) -> Result<(Doubts, i64)> {
    cluster.restore().await?;
    let admin = cluster.admin();
    let mut doubts = Doubts::new();
    for run in runs(admin, tenants).await? {
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

/// Returns the runs of these tenants.
async fn runs(admin: &AdminClient, tenants: &[&str]) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for tenant in tenants {
        runs.extend(admin.of_tenant(tenant).runs().await?);
    }
    Ok(runs)
}

/// Decides each run with doubts, by its number, at one of the first `nodes` nodes. Returns the addresses that may come
/// twice.
async fn decide(
    admin: &AdminClient,
    nodes: usize,
    doubts: Doubts,
    resolution: impl Fn(usize) -> Resolution,
) -> Result<BTreeSet<String>> {
    let mut resent = BTreeSet::new();
    for (number, ((tenant, run), recipients)) in doubts.into_iter().enumerate() {
        let resolution = resolution(number);
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
async fn is_drained(admin: &AdminClient, tenants: &[&str]) -> bool {
    let Ok(runs) = runs(admin, tenants).await else { return false };
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

    /// True if it is right, and the command `restore` saw what it is about.
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
