//! Implements `reveille in-doubt …`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, Subcommand};
use prost::Message as _;
use reveille_ledger::ids::{Fence, Hash};
use reveille_proto::admin::v1::{
    Doubt, DoubtCause, DoubtGroup, GetDoubtRequest, ListDoubtsRequest, Resolution, ResolveDoubtsRequest,
};

use super::{CommandContext, Failure, OfTenant, Paging, Stop, View, Watch, after, format, input, relay_log};
use crate::cli::view::layout::{Cell, Tone, card};
use crate::cli::view::moved::MovedView;
use crate::cli::view::recipient::cause;

#[derive(Debug, Subcommand)]
pub enum DoubtCommand {
    /// What is in doubt, oldest first
    ///
    /// An email is in doubt when the end of its text may have reached the relay and no answer is known.
    #[command(after_long_help = "\
Examples:
  reveille in-doubt list
  reveille in-doubt list --run r1042.0 -o json

Start the nodes that are down before you decide anything: their journals may know.")]
    List {
        #[command(flatten)]
        paging: Paging,
        /// Only of this run: rINDEX.PLACE, or NAME@INSTANT
        #[arg(long)]
        run: Option<String>,
    },
    /// One recipient's doubt, with what speaks for either side
    #[command(after_long_help = "Example:\n  reveille in-doubt show r1042.0 ann@example.com")]
    Show {
        /// The run: rINDEX.PLACE, or NAME@INSTANT
        run: String,
        /// Address, or '#' and the number in the run
        recipient: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Decide: take it as sent, or send it again
    ///
    /// The command counts the recipients in doubt, shows the evidence, and asks for confirmation. What is in doubt
    /// because its node is lost resolves by itself when that node comes back with its journal: start it first.
    #[command(after_long_help = "\
Examples:
  reveille in-doubt resolve r1042.0 ann@example.com --sent
  reveille in-doubt resolve r1042.0 --all --resend --dry-run

--sent closes it as `assumed`, which is never counted as sent. --resend may make an email come twice.")]
    Resolve(ResolveArgs),
    /// Settle as sent what a relay's log shows as accepted
    ///
    /// Reads the log of a Postfix relay, and compares the Message-IDs. What the log does not show stays in doubt: that
    /// proves nothing.
    #[command(after_long_help = "\
Examples:
  reveille in-doubt settle /var/log/mail.log
  reveille in-doubt settle mail.log --run r1042.0 --dry-run")]
    Settle(SettleArgs),
}

/// `in-doubt settle`.
#[derive(Debug, Args)]
pub struct SettleArgs {
    /// The log; '-' is stdin
    #[arg(value_name = "FILE")]
    pub log: PathBuf,
    /// Only of this run: rINDEX.PLACE, or NAME@INSTANT
    #[arg(long)]
    pub run: Option<String>,
    /// Count them, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// `in-doubt resolve`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("decision").required(true).args(["sent", "resend"]))]
pub struct ResolveArgs {
    /// The run: rINDEX.PLACE, or NAME@INSTANT
    pub run: String,
    /// Recipients: addresses, or '#' and the number in the run; or --all
    #[arg(conflicts_with = "all", value_name = "RECIPIENT")]
    pub recipients: Vec<String>,
    /// All of them in this run
    #[arg(long)]
    pub all: bool,
    /// Close it as assumed
    #[arg(long)]
    pub sent: bool,
    /// Send it again: it may come twice
    #[arg(long)]
    pub resend: bool,
    /// Only doubts of handoffs up to this one, as `in-doubt show` prints it [default: those that are counted first]
    #[arg(long, value_name = "FENCE")]
    pub fence: Option<String>,
    /// Count them, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Rows requested per page.
const PAGE_SIZE: i32 = 1_000;
/// Maximum number of recipients that one request settles.
const SETTLED_MAX: usize = 1_000;

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: OfTenant<DoubtCommand>) -> Result<(), Stop> {
    let tenant = args.tenant;
    match args.command {
        DoubtCommand::List { paging, run } => {
            let run = run.unwrap_or_default();
            context.list_of(paging, ListDoubtsRequest { tenant, run, ..ListDoubtsRequest::default() }).await
        }
        DoubtCommand::Show { run, recipient, watch } => {
            let request = GetDoubtRequest { tenant, run, recipient, stale: context.stale };
            context.show(watch, request, |answer| (answer.freshness, answer.doubt)).await
        }
        DoubtCommand::Resolve(args) => resolve(context, tenant, args).await,
        DoubtCommand::Settle(args) => settle(context, tenant, args).await,
    }
}

async fn resolve(context: &CommandContext<'_>, tenant: String, args: ResolveArgs) -> Result<(), Stop> {
    let ResolveArgs { run, recipients, all, resend, dry_run, fence, .. } = args;
    let words = words_of_selection(&run, &recipients, all)?.unwrap_or_else(|| format!("all of run {run}"));
    let resolution = if resend { Resolution::Resend } else { Resolution::Sent };
    let request = ResolveDoubtsRequest {
        tenant,
        run: run.clone(),
        recipients: recipients.clone(),
        all,
        resolution: resolution.into(),
        validate_only: true,
        fence: fence.unwrap_or_default(),
        // A dry run shows what is in doubt now, whatever an earlier call with the id did.
        request_id: if dry_run { String::new() } else { context.client.request_id().to_owned() },
    };
    let preview = context.read(request.clone()).await?;
    let counted = format!("{} in doubt, {words}{}", format::counted(preview.resolved, "email"), known(&preview.groups));
    let (run, verb) = (Some(run), "resolved");
    // A repeated request id is answered as before.
    let is_repeat = preview.index > 0;
    if dry_run || preview.resolved == 0 && !is_repeat {
        context.terminal.remark(&counted);
        let groups = if dry_run { preview.groups } else { Vec::new() };
        let (moved, inside_gap) = (preview.resolved, preview.inside_gap);
        let view = MovedView { run, verb, moved, inside_gap, index: None, dry_run, groups };
        return show(context, &recipients, &view);
    }
    let answer = if is_repeat {
        preview
    } else {
        let what = match resend {
            true => "Send again what may have arrived: it may come twice",
            false => "Take as sent what may never have arrived",
        };
        context.confirm(&format!("{what}: {counted}?")).await?;
        // The fence excludes recipients that came into doubt after the user confirmed.
        let request = ResolveDoubtsRequest { validate_only: false, fence: preview.fence, ..request };
        context.change(request).await?
    };
    let (moved, inside_gap) = (answer.resolved, answer.inside_gap);
    let view = MovedView { run, verb, moved, inside_gap, index: Some(answer.index), dry_run, groups: Vec::new() };
    show(context, &recipients, &view)
}

/// Settles as sent what the log of a relay shows as accepted: reads all doubts, and resolves those that it names.
async fn settle(context: &CommandContext<'_>, tenant: String, args: SettleArgs) -> Result<(), Stop> {
    let SettleArgs { log, run, dry_run } = args;
    let accepted = read_log(&log).await?;
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    let (mut left, mut page_token) = (0_u64, String::new());
    loop {
        let run = run.clone().unwrap_or_default();
        let request = ListDoubtsRequest { tenant: tenant.clone(), run, ..ListDoubtsRequest::default() };
        context.restart_default_limit();
        let page = context.client.page(request, context.stale, PAGE_SIZE, page_token).await?;
        for doubt in page.rows {
            match accepted.contains(&doubt.message_id) {
                true => found.entry(doubt.run.clone()).or_default().add(&doubt),
                false => left += 1,
            }
        }
        page_token = page.next;
        if page_token.is_empty() {
            break;
        }
    }
    let mut moved: u64 = found.values().map(|of_run| of_run.recipients.len() as u64).sum();
    let mut index = None;
    if !dry_run && moved > 0 {
        let emails = format::counted(moved, "email");
        context.confirm(&format!("Settle as sent what the log shows: {emails}?")).await?;
        moved = 0;
        for (run, of_run) in found {
            for recipients in of_run.recipients.chunks(SETTLED_MAX) {
                let request = with_own_id(ResolveDoubtsRequest {
                    tenant: tenant.clone(),
                    run: run.clone(),
                    recipients: recipients.to_vec(),
                    all: false,
                    resolution: Resolution::Accepted.into(),
                    validate_only: false,
                    fence: of_run.newest.map(|fence| fence.to_string()).unwrap_or_default(),
                    request_id: context.client.request_id().to_owned(),
                });
                context.restart_default_limit();
                let answer = context.change(request).await;
                let answer = answer.map_err(|failure| after(moved, "email", "settled as sent", failure))?;
                moved += answer.resolved;
                index = Some(answer.index);
            }
        }
    }
    let view = MovedView { run, verb: "settled as sent", moved, inside_gap: 0, index, dry_run, groups: Vec::new() };
    context.terminal.show(&view)?;
    if left > 0 {
        let left = format::counted(left, "email");
        context.terminal.say(&format!("the log shows nothing of {left}, which proves nothing: they stay in doubt"));
    }
    Ok(())
}

/// Replaces the command's request id by one for this request. It depends on all fields: a repeated command finds other
/// emails in doubt, and the cluster refuses an id that had another request.
fn with_own_id(request: ResolveDoubtsRequest) -> ResolveDoubtsRequest {
    let request_id = format!("settle-{}", Hash::of(&request.encode_to_vec()));
    ResolveDoubtsRequest { request_id, ..request }
}

/// Recipients of a run that a relay's log shows as accepted.
#[derive(Default)]
struct Found {
    recipients: Vec<String>,
    newest: Option<Fence>,
}

impl Found {
    fn add(&mut self, doubt: &Doubt) {
        self.recipients.push(format!("#{}", doubt.number));
        self.newest = self.newest.max(doubt.fence.parse().ok());
    }
}

/// Returns the Message-IDs that the log shows as accepted.
async fn read_log(path: &Path) -> Result<BTreeSet<String>, Failure> {
    let owned = path.to_owned();
    let read = input::on_thread(move || match owned.as_path() == Path::new("-") {
        true => relay_log::accepted(io::stdin().lock()),
        false => relay_log::accepted(io::BufReader::new(std::fs::File::open(&owned)?)),
    });
    read.await.flatten().map_err(|error| {
        let message = format!("the log {} cannot be read: {error}", path.display());
        Failure::usage("FILE", message, "give the log of the relay, or - for stdin")
    })
}

/// Returns which recipients of a run are selected, in words; `None` if all are. Fails if none are.
pub fn words_of_selection(run: &str, recipients: &[String], all: bool) -> Result<Option<String>, Failure> {
    match recipients {
        [] if all => Ok(None),
        [] => {
            let message = format!("which recipients of run {run}? none is named");
            Err(Failure::usage("RECIPIENT", message, "name recipients, or take all of the run with --all"))
        }
        [one] => Ok(Some(format!("{one} of run {run}"))),
        more => Ok(Some(format!("{} of run {run}", format::counted(more.len() as u64, "recipient")))),
    }
}

/// Prints the answer. Fails with "partly done" if another email within the min gap kept recipients in doubt.
fn show(context: &CommandContext<'_>, named: &[String], view: &MovedView) -> Result<(), Stop> {
    if view.inside_gap == 0 {
        return context.moved(named, view);
    }
    context.terminal.show(view)?;
    let left = format::counted(view.inside_gap, "email");
    let message = format!("{left} left in doubt: they got an email of another run less than the min gap away");
    Err(Failure::partly(message, "reveille in-doubt resolve --sent takes them as sent").into())
}

/// Returns the known groups in a few words: count, node and cause.
fn known(groups: &[DoubtGroup]) -> String {
    let describe =
        |group: &DoubtGroup| format!("{} on {}: {}", format::count(group.count), group.node, cause(group.cause()));
    let described: Vec<String> = groups.iter().map(describe).collect();
    if described.is_empty() { String::new() } else { format!(" ({})", described.join("; ")) }
}

impl View for Doubt {
    const NOUN: &'static str = "emails in doubt";
    const COLUMNS: &'static [&'static str] = &["RUN", "RECIPIENT", "#", "SINCE", "UNTIL", "NODE", "CAUSE"];

    fn name(&self) -> String {
        format!("{} {}", self.run, self.recipient)
    }

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.run.as_str().into(),
            self.recipient.as_str().into(),
            self.number.to_string().into(),
            Cell::at(self.doubt_time.as_ref()),
            Cell::at(self.leave_time.as_ref()),
            self.node.as_str().into(),
            Cell::toned(cause(self.cause()), Tone::Notable),
        ]
    }

    fn text(&self, paint: bool) -> String {
        let pairs = vec![
            ("run", self.run.as_str().into()),
            ("recipient", format!("{} #{}", self.recipient, self.number).into()),
            ("since", Cell::at(self.doubt_time.as_ref())),
            ("until", Cell::at(self.leave_time.as_ref())),
            ("claimed", Cell::at(self.claim_time.as_ref())),
            ("cause", Cell::toned(cause(self.cause()), Tone::Notable)),
            ("node", self.node.as_str().into()),
            ("fence", self.fence.as_str().into()),
            ("evidence", evidence(self).into()),
            ("next", next_step(self).into()),
        ];
        card(pairs, paint)
    }
}

/// Returns what is known about the handoff, and what to look for in the log of the relay.
fn evidence(doubt: &Doubt) -> String {
    let Doubt { node, incarnation, message_id, fence, .. } = doubt;
    let known = match (doubt.cause(), doubt.node_returned) {
        (DoubtCause::NoAnswer, _) => format!("{node} handed it off and heard no answer, so only the relay can tell"),
        (DoubtCause::OwnerLost, false) => {
            format!("the lease of {node} is over and nothing came from it since: it may have been handed off or not")
        }
        (DoubtCause::OwnerLost, true) => {
            format!(
                "{node} is back, and what its journal of incarnation {incarnation} tells of this is not settled yet"
            )
        }
        (DoubtCause::Begun, _) => format!(
            "{node} came back with the journal of its incarnation {incarnation}: the handoff had begun and no answer is \
             written, so only the relay can tell"
        ),
        (DoubtCause::NoJournal, _) => format!(
            "{node} came back without a journal that proves anything of its incarnation {incarnation}: it may have been \
             handed off or not, so only the relay can tell"
        ),
        (DoubtCause::Restored, _) => {
            "the former cluster may have sent it after the backup, so only the relay can tell".to_owned()
        }
        (DoubtCause::Unspecified, _) => "only the relay can tell".to_owned(),
    };
    let search_term = match message_id.as_str() {
        "" => format!("X-Reveille-Fence {fence}"),
        id => format!("Message-ID <{id}>"),
    };
    format!("{known}; look for {search_term} in the relay's log")
}

/// Returns what to do next: let the node settle it if it can, or decide by the log of the relay.
fn next_step(doubt: &Doubt) -> String {
    let Doubt { node, incarnation, run, number, .. } = doubt;
    let resolve = format!(
        "if that log shows it accepted: reveille in-doubt resolve {run} '#{number}' --sent; if it does not: --resend"
    );
    match (doubt.cause(), doubt.node_returned) {
        (DoubtCause::OwnerLost, false) => format!(
            "start {node} again, with its data folder and its journal folder; if it runs, let it reach the others: it \
             settles this by its journal of incarnation {incarnation}. If it is gone for good, the relay's log tells: \
             {resolve}"
        ),
        (DoubtCause::OwnerLost, true) => format!("wait: {node} settles it when it reaches the leader"),
        _ => resolve,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handbook_has_a_line_for_each_cause() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/how-to/doubt-and-dead-letters.md");
        let page = std::fs::read_to_string(page).expect("the handbook");
        let table = page.split("| cause in `in-doubt list` |").nth(1).expect("a table");
        let rows = table.lines().skip(2).take_while(|line| line.starts_with("| "));
        let documented: Vec<&str> = rows.filter_map(|row| row.split(" | ").next()?.strip_prefix("| ")).collect();
        let causes = (1..).map_while(|number| DoubtCause::try_from(number).ok());
        assert_eq!(documented, causes.map(cause).collect::<Vec<_>>());
    }

    #[test]
    fn evidence_names_what_to_look_for_and_the_step_names_the_command() {
        let doubt = Doubt {
            cause: DoubtCause::NoAnswer.into(),
            node: "a".into(),
            run: "r7.0".into(),
            number: 3,
            message_id: "1@example.org".into(),
            ..Doubt::default()
        };
        let evidence = evidence(&doubt);
        assert!(evidence.starts_with("a handed it off and heard no answer"), "{evidence}");
        assert!(evidence.ends_with("look for Message-ID <1@example.org> in the relay's log"), "{evidence}");
        assert!(next_step(&doubt).contains("reveille in-doubt resolve r7.0 '#3' --sent"), "{}", next_step(&doubt));
        let lost = Doubt { cause: DoubtCause::OwnerLost.into(), ..doubt };
        assert!(next_step(&lost).starts_with("start a again"), "{}", next_step(&lost));
        let returned = Doubt { node_returned: true, ..lost };
        assert!(next_step(&returned).starts_with("wait: a settles it"), "{}", next_step(&returned));
    }
}
