//! Implements `reveille dead-letter …`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use reveille_ledger::ids::Hash;
use reveille_proto::admin::v1::{
    CountDeadLettersRequest, DeadLetter, DeadLetterFilter, DeadLetterGroup, DeadLetterReason,
    DiscardDeadLettersRequest, DiscardDeadLettersResponse, ListDeadLettersRequest, RequeueDeadLettersRequest,
    RequeueDeadLettersResponse,
};

use super::doubt::words_of_selection;
use super::export::{ExportFormat, export};
use super::{CommandContext, Failure, OfTenant, Paging, RetrySafety, Stop, Unary, View, after, format, to_wire};
use crate::cli::instant::parse_instant;
use crate::cli::view::layout::{Cell, Tone, card};
use crate::cli::view::moved::MovedView;
use crate::cli::view::recipient::why_dead;
use crate::cli::wording::{self, reason_of_words, reason_words};

#[derive(Debug, Subcommand)]
pub enum DeadLetterCommand {
    /// Recipients that were refused for good, and why; latest run first
    #[command(after_long_help = "\
Examples:
  reveille dead-letter list --group-by reason
  reveille dead-letter list --reason '550 5.1.1' --schedule morning --since-time 2026-03-08T00:00:00Z")]
    List {
        #[command(flatten)]
        paging: Paging,
        /// Only of this run: rINDEX.PLACE, or NAME@INSTANT
        #[arg(long)]
        run: Option<String>,
        #[command(flatten)]
        filter: LetterFilter,
        /// Count them instead: one line for each reason, with the first, the last, and an example
        #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "limit")]
        group_by: Option<GroupBy>,
    },
    /// Try again, with attempts counted anew; by the same relays or by another pool
    ///
    /// Name recipients of a run, or --all of a run, or all that --schedule, --reason and --since-time select. What
    /// is not named one by one is counted first, and you are asked.
    ///
    /// With --pool they go by that pool from now on: this recipient of this run, at every later attempt too. Their
    /// run, its counts and its Message-IDs stay what they are. Recipients of a cancelled run are not sent again.
    #[command(after_long_help = "\
Examples:
  reveille dead-letter requeue r1042.0 ann@example.com
  reveille dead-letter requeue r1042.0 --all --dry-run
  reveille dead-letter requeue --reason '550 5.2.1' --pool backup")]
    Requeue(RequeueArgs),
    /// Take off the list; they stay dead
    #[command(after_long_help = "\
Examples:
  reveille dead-letter discard r1042.0 ann@example.com --yes
  reveille dead-letter discard --reason '550 5.1.1' --dry-run")]
    Discard(Letters),
    /// All of them as CSV or as lines of JSON, page by page as they come
    #[command(after_long_help = "\
Examples:
  reveille dead-letter export letters.csv
  reveille dead-letter export --format jsonl --reason '550 5.1.1' | jq -r .recipient")]
    Export(ExportArgs),
}

/// Which dead letters are meant.
#[derive(Clone, Debug, Args)]
pub struct LetterFilter {
    /// Only of this schedule
    #[arg(long, value_name = "NAME")]
    pub schedule: Option<String>,
    /// Only those of this reason, as `list --group-by reason` has it, such as '550 5.1.1'
    #[arg(long, value_parser = reason_of_words)]
    pub reason: Option<DeadLetterReason>,
    /// Only those that failed then or later
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub since_time: Option<Timestamp>,
}

impl LetterFilter {
    /// Returns true if no filter is set.
    pub fn is_empty(&self) -> bool {
        self.schedule.is_none() && self.reason.is_none() && self.since_time.is_none()
    }
}

/// What `list --group-by` counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GroupBy {
    /// The relay's codes, or the cause where no relay answered
    Reason,
}

/// The dead letters that a command selects.
#[derive(Debug, Args)]
pub struct Letters {
    /// The run: rINDEX.PLACE, or NAME@INSTANT; none for those of all runs
    pub run: Option<String>,
    /// Recipients of the run: addresses, or '#' and the number in the run
    #[arg(conflicts_with_all = ["all", "schedule", "reason", "since_time"], value_name = "RECIPIENT")]
    pub recipients: Vec<String>,
    /// All of the run; without a run, all there are
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub filter: LetterFilter,
    /// Count them, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// `dead-letter requeue`.
#[derive(Debug, Args)]
pub struct RequeueArgs {
    #[command(flatten)]
    pub letters: Letters,
    /// By this pool of relays from now on
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub pool: Option<String>,
}

/// `dead-letter export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Output file; replaced only when the export is complete [default: stdout]
    pub file: Option<PathBuf>,
    /// Format [default: jsonl if the name of the file ends in it, else csv]
    #[arg(long, value_enum)]
    pub format: Option<ExportFormat>,
    /// Only of this run: rINDEX.PLACE, or NAME@INSTANT
    #[arg(long)]
    pub run: Option<String>,
    #[command(flatten)]
    pub filter: LetterFilter,
}

impl ExportArgs {
    /// Returns the requested format, or that of the name of the file.
    pub fn format(&self) -> ExportFormat {
        let is_jsonl = self.file.as_ref().is_some_and(|file| file.extension().is_some_and(|end| end == "jsonl"));
        self.format.unwrap_or(if is_jsonl { ExportFormat::Jsonl } else { ExportFormat::Csv })
    }
}

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: OfTenant<DeadLetterCommand>) -> Result<(), Stop> {
    let tenant = args.tenant;
    match args.command {
        DeadLetterCommand::List { run, filter, group_by: Some(_), .. } => {
            count(context, tenant, run.unwrap_or_default(), &filter).await
        }
        DeadLetterCommand::List { paging, run, filter, group_by: None } => {
            let request = request(tenant, run, &filter);
            let found = std::cell::Cell::new(false);
            let pages = async |size, token| {
                let page = context.client.page(request.clone(), context.stale, size, token).await?;
                found.set(found.get() || !page.rows.is_empty());
                Ok(page)
            };
            context.list(paging, pages).await?;
            if !found.get() {
                warn_of_unknown_reason(context, &filter);
            }
            Ok(())
        }
        DeadLetterCommand::Requeue(args) => requeue(context, tenant, args).await,
        DeadLetterCommand::Discard(letters) => discard(context, tenant, &letters).await,
        DeadLetterCommand::Export(args) => {
            let format = args.format();
            let ExportArgs { file, run, filter, .. } = args;
            export(context, (file, format), "dead letter", request(tenant, run, &filter)).await
        }
    }
}

fn to_filter(filter: &LetterFilter) -> DeadLetterFilter {
    DeadLetterFilter {
        schedule: filter.schedule.clone().unwrap_or_default(),
        reason: filter.reason.clone(),
        since_time: filter.since_time.map(to_wire),
    }
}

fn request(tenant: String, run: Option<String>, filter: &LetterFilter) -> ListDeadLettersRequest {
    let (run, filter) = (run.unwrap_or_default(), Some(to_filter(filter)));
    ListDeadLettersRequest { tenant, run, filter, ..ListDeadLettersRequest::default() }
}

/// A mistyped code matches no dead letter. This warns the user.
fn warn_of_unknown_reason(context: &CommandContext<'_>, filter: &LetterFilter) {
    if let Some(reason) = &filter.reason {
        let (reason, next) =
            (reason_words(reason), "reveille dead-letter list --group-by reason shows which there are");
        context.terminal.remark(&format!("none of these dead letters has the reason '{reason}'; {next}"));
    }
}

/// Counts the dead letters by group, as the sum over all pages.
async fn count(context: &CommandContext<'_>, tenant: String, run: String, filter: &LetterFilter) -> Result<(), Stop> {
    let (filter, stale) = (Some(to_filter(filter)), context.stale);
    let mut request = CountDeadLettersRequest { tenant, run, filter, stale, ..Default::default() };
    let mut groups = Groups::default();
    let mut is_first = true;
    loop {
        context.restart_default_limit();
        let answer = context.read(request.clone()).await?;
        if std::mem::take(&mut is_first) {
            context.note(answer.freshness.as_ref());
        }
        groups.add(answer.groups);
        if answer.next_page_token.is_empty() || answer.next_page_token == request.page_token {
            return context.terminal.list(&groups.rows());
        }
        request.page_token = answer.next_page_token;
    }
}

/// Result of one page, or the sum over all pages: what was moved, or would be.
#[derive(Default)]
struct Batch {
    moved: u64,
    index: u64,
    /// Recipients left out because their run is cancelled.
    cancelled: u64,
    /// Recipients left out because they got another email less than the min gap away.
    inside_gap: u64,
    /// Token of the next page.
    next: String,
}

/// Requests page after page until the last one. A failure in the middle names how many were moved before it.
async fn total(verb: &str, page: impl AsyncFn(String) -> Result<Batch, Failure>) -> Result<Batch, Failure> {
    let mut total = Batch::default();
    let mut token = String::new();
    loop {
        let batch = page(token.clone()).await.map_err(|failure| after(total.moved, "recipient", verb, failure))?;
        total.moved += batch.moved;
        total.cancelled += batch.cancelled;
        total.inside_gap += batch.inside_gap;
        total.index = total.index.max(batch.index);
        if batch.next.is_empty() || batch.next == token {
            return Ok(total);
        }
        token = batch.next;
    }
}

/// Returns in words which dead letters the arguments select. Fails if they select none.
fn selection(letters: &Letters) -> Result<String, Failure> {
    let filter = &letters.filter;
    let (run, all) = (letters.run.as_deref(), letters.all || !filter.is_empty());
    match run {
        Some(run) => {
            if let Some(words) = words_of_selection(run, &letters.recipients, all)? {
                return Ok(words);
            }
        }
        None if all => {}
        None => {
            let next = "name a run and recipients; or say which: --schedule, --reason, --since-time; or --all";
            return Err(Failure::usage("RUN", "which dead letters? nothing says it", next));
        }
    }
    let part = |word: &str, value: Option<String>| value.map(|value| format!("{word} {value}"));
    let parts = [
        part("of run", run.map(str::to_owned)),
        part("of schedule", filter.schedule.clone()),
        part("with the reason", filter.reason.as_ref().map(|reason| format!("'{}'", reason_words(reason)))),
        part("since", filter.since_time.map(|since| since.to_string())),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    Ok(parts.join(", "))
}

async fn requeue(context: &CommandContext<'_>, tenant: String, args: RequeueArgs) -> Result<(), Stop> {
    let RequeueArgs { letters, pool } = args;
    let by = pool.as_ref().map(|pool| format!(" by pool {pool}")).unwrap_or_default();
    let operation = LetterOperation {
        verb: "requeued",
        prompt: format!("Send again{by}"),
        asks: letters.recipients.is_empty(),
        requested: |request: RequeueDeadLettersRequest| {
            let pool = pool.clone().unwrap_or_default();
            RequeueDeadLettersRequest { pool, ..request }
        },
        batch: |answer: RequeueDeadLettersResponse| Batch {
            moved: answer.requeued,
            index: answer.index,
            cancelled: answer.cancelled,
            inside_gap: answer.inside_gap,
            next: answer.next_page_token,
        },
    };
    carry_out(context, tenant, &letters, operation).await
}

async fn discard(context: &CommandContext<'_>, tenant: String, letters: &Letters) -> Result<(), Stop> {
    let operation = LetterOperation {
        verb: "discarded",
        prompt: "Take off the list for good".to_owned(),
        asks: true,
        requested: |request: RequeueDeadLettersRequest| {
            let RequeueDeadLettersRequest { tenant, run, recipients, all, filter, .. } = request;
            let RequeueDeadLettersRequest { validate_only, page_token, request_id, .. } = request;
            DiscardDeadLettersRequest { tenant, run, recipients, all, filter, validate_only, page_token, request_id }
        },
        batch: |answer: DiscardDeadLettersResponse| {
            let (moved, index, next) = (answer.discarded, answer.index, answer.next_page_token);
            Batch { moved, index, next, ..Batch::default() }
        },
    };
    carry_out(context, tenant, letters, operation).await
}

/// The action of a subcommand, and its texts.
struct LetterOperation<R, B> {
    verb: &'static str,
    prompt: String,
    /// True if the command asks for confirmation first.
    asks: bool,
    /// Makes its request of that of a requeue.
    requested: R,
    /// Reads its answer.
    batch: B,
}

/// Counts the dead letters, asks for confirmation if required, acts, and prints the result.
async fn carry_out<Q: Unary>(
    context: &CommandContext<'_>,
    tenant: String,
    letters: &Letters,
    operation: LetterOperation<impl Fn(RequeueDeadLettersRequest) -> Q, impl Fn(Q::Response) -> Batch>,
) -> Result<(), Stop> {
    let words = selection(letters)?;
    let LetterOperation { verb, prompt, asks, requested, batch } = operation;
    let is_named = !letters.recipients.is_empty();
    let request = RequeueDeadLettersRequest {
        tenant,
        run: letters.run.clone().unwrap_or_default(),
        recipients: letters.recipients.clone(),
        all: !is_named,
        filter: (!is_named).then(|| to_filter(&letters.filter)),
        ..RequeueDeadLettersRequest::default()
    };
    let requested = async |validate_only: bool, page_token: String| {
        let safety = if validate_only { RetrySafety::Read } else { RetrySafety::Repeatable };
        // A dry run counts what is dead now, whatever an earlier call with the id did.
        let request_id = if letters.dry_run { String::new() } else { id_of_page(context, &page_token) };
        let request = requested(RequeueDeadLettersRequest { validate_only, page_token, request_id, ..request.clone() });
        context.restart_default_limit();
        Ok::<_, Failure>(batch(context.client.ask(safety, request).await?))
    };
    if letters.dry_run || asks {
        let preview = total(verb, async |token| requested(true, token).await).await?;
        let counted = format!("{} {words}", format::counted(preview.moved, "dead letter"));
        let counted = counted.trim_end();
        if letters.dry_run || preview.moved == 0 && letters.recipients.is_empty() {
            context.terminal.remark(counted);
            if preview.moved == 0 {
                warn_of_unknown_reason(context, &letters.filter);
            }
            return report(context, letters, verb, &preview);
        }
        context.confirm(&format!("{prompt}: {counted}?")).await?;
    }
    let done = total(verb, async |token| requested(false, token).await).await?;
    report(context, letters, verb, &done)
}

/// Returns the request id of a page: that of the command for the first one, and one of its own for each other page.
fn id_of_page(context: &CommandContext<'_>, page_token: &str) -> String {
    match (context.client.request_id(), page_token) {
        (command, "") => command.to_owned(),
        (command, token) => format!("page-{}", Hash::of(format!("{command} {token}").as_bytes())),
    }
}

/// Prints how many moved, or would. Fails with "partly done" if some stay dead letters.
fn report(context: &CommandContext<'_>, letters: &Letters, verb: &'static str, batch: &Batch) -> Result<(), Stop> {
    let (run, dry_run) = (letters.run.clone(), letters.dry_run);
    let &Batch { moved, index, cancelled, inside_gap, .. } = batch;
    let index = (index > 0).then_some(index);
    let view = MovedView { run, verb, moved, inside_gap, index, dry_run, groups: Vec::new() };
    match inside_gap {
        0 => context.moved(&letters.recipients, &view)?,
        // The failure below reports named recipients that the min gap kept back.
        _ => context.terminal.show(&view)?,
    }
    left_out(cancelled, inside_gap)
}

/// Fails with "partly done" if recipients stay dead letters: their run is cancelled, or another email is less than the
/// min gap away.
fn left_out(cancelled: u64, inside_gap: u64) -> Result<(), Stop> {
    let left = |count: u64, why: &str| {
        let counted = format::counted(count, "dead letter");
        (count > 0).then(|| format!("{counted} left: {why}"))
    };
    let reasons = [
        left(cancelled, "recipients of a cancelled run are not sent again"),
        left(inside_gap, "they got an email of another run less than the min gap away"),
    ];
    let reasons: Vec<String> = reasons.into_iter().flatten().collect();
    if reasons.is_empty() {
        return Ok(());
    }
    Err(Failure::partly(reasons.join("; "), "reveille dead-letter discard takes them off the list").into())
}

fn answer_of(letter: &DeadLetter) -> String {
    why_dead(letter.death_reason(), &wording::answer(letter.code, &letter.enhanced, &letter.text))
}

impl View for DeadLetter {
    const NOUN: &'static str = "dead letters";
    const COLUMNS: &'static [&'static str] = &["RUN", "RECIPIENT", "#", "ATTEMPTS", "SINCE", "ANSWER"];

    fn name(&self) -> String {
        format!("{} {}", self.run, self.recipient)
    }

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.run.as_str().into(),
            self.recipient.as_str().into(),
            self.number.to_string().into(),
            self.attempts.to_string().into(),
            Cell::at(self.settle_time.as_ref()),
            answer_of(self).into(),
        ]
    }

    fn text(&self, paint: bool) -> String {
        let pairs = vec![
            ("run", self.run.as_str().into()),
            ("recipient", format!("{} #{}", self.recipient, self.number).into()),
            ("answer", Cell::toned(answer_of(self), Tone::Bad)),
            ("attempts", self.attempts.to_string().into()),
            ("since", Cell::at(self.settle_time.as_ref())),
        ];
        card(pairs, paint)
    }
}

impl View for DeadLetterGroup {
    const NOUN: &'static str = "dead letters";
    const COLUMNS: &'static [&'static str] = &["COUNT", "REASON", "OLDEST", "NEWEST", "EXAMPLE"];

    fn name(&self) -> String {
        self.reason.as_ref().map(reason_words).unwrap_or_default()
    }

    fn cells(&self) -> Vec<Cell> {
        let example = self.example.as_ref().map(|example| format!("{}: {}", example.name(), answer_of(example)));
        vec![
            self.count.to_string().into(),
            Cell::toned(self.name(), Tone::Bad),
            Cell::at(self.oldest_time.as_ref()),
            Cell::at(self.newest_time.as_ref()),
            Cell::or_dash(example.as_deref()),
        ]
    }
}

/// Groups of dead letters, summed over the pages of a count.
#[derive(Default)]
struct Groups(BTreeMap<String, DeadLetterGroup>);

impl Groups {
    /// Adds the groups of one page.
    pub fn add(&mut self, groups: Vec<DeadLetterGroup>) {
        let time = |instant: &Option<prost_types::Timestamp>| instant.map(|at| (at.seconds, at.nanos));
        for group in groups {
            match self.0.get_mut(&group.name()) {
                None => drop(self.0.insert(group.name(), group)),
                Some(known) => {
                    known.count += group.count;
                    if time(&group.oldest_time) < time(&known.oldest_time) {
                        known.oldest_time = group.oldest_time;
                    }
                    if time(&group.newest_time) > time(&known.newest_time) {
                        (known.newest_time, known.example) = (group.newest_time, group.example);
                    }
                }
            }
        }
    }

    /// Returns one row per reason, the largest group first.
    pub fn rows(self) -> Vec<DeadLetterGroup> {
        let mut rows: Vec<DeadLetterGroup> = self.0.into_values().collect();
        rows.sort_by_key(|group| std::cmp::Reverse(group.count));
        rows
    }
}
