//! Implements `reveille optout …`.

use std::path::PathBuf;

use clap::Subcommand;
use reveille_proto::admin::v1::{
    AddOptOutRequest, CheckOptOutRequest, CheckOptOutResponse, ListOptOutsRequest, OptOut, TakeBackOptOutRequest,
    TakeBackOptOutResponse, TakenBack,
};

use super::export::{ExportFormat, export};
use super::{Answer, CommandContext, OfTenant, Paging, Stop, View, Watch, suppress};
use crate::cli::instant::text;
use crate::cli::view::barrier::sentence;
use crate::cli::view::layout::{Cell, Tone, card};

#[derive(Debug, Subcommand)]
pub enum OptOutCommand {
    /// Send no more to an address; answers when it holds on every node
    ///
    /// Handoffs that were past the last check are named: they may still arrive.
    #[command(after_long_help = "Example:\n  reveille optout add ann@example.com")]
    Add {
        /// The address
        recipient: String,
    },
    /// Send to an address again that has opted out: its own word is needed, and is kept as the reason
    ///
    /// Later email goes to it. It stays left out of runs that left it out, and a new opt-out while
    /// this is under way stays out.
    #[command(after_long_help = "Example:\n  reveille optout remove ann@example.com --reason 'her letter of 3 March'")]
    Remove {
        /// The address
        recipient: String,
        /// The reason: by which request, how and when
        #[arg(long)]
        reason: String,
        /// Look, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Has an address opted out?
    #[command(after_long_help = "Example:\n  reveille optout check ann@example.com")]
    Check {
        /// The address
        recipient: String,
    },
    /// The opted-out addresses
    #[command(after_long_help = "Example:\n  reveille optout list --limit 20")]
    List {
        #[command(flatten)]
        paging: Paging,
    },
    /// All opted-out addresses, as a file that `optout import` reads
    #[command(after_long_help = "Example:\n  reveille optout export optouts.csv")]
    Export {
        /// Output file; replaced only when the export is complete [default: stdout]
        file: Option<PathBuf>,
        /// Format
        #[arg(long, value_enum, default_value_t = ExportFormat::Csv)]
        format: ExportFormat,
    },
    /// Send no more to all addresses of a file: CSV with a column `email`, or one address a line
    ///
    /// A thousand go at once, each thousand by one entry and one barrier, as `add` does it. Rows that cannot be used
    /// are listed with their line and the reason, and the others are taken (exit code 7). Repeat the command after an
    /// interruption: recorded opt-outs stay.
    #[command(after_long_help = "\
Examples:
  reveille optout import suppressions.csv --dry-run
  reveille optout import suppressions.csv
  zcat list.gz | reveille optout import -")]
    Import {
        /// The file; `-` for stdin
        file: PathBuf,
        /// Count the addresses that would opt out, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: OfTenant<OptOutCommand>) -> Result<(), Stop> {
    let OfTenant { tenant, command } = args;
    match command {
        OptOutCommand::Add { recipient } => add(context, tenant, recipient).await,
        OptOutCommand::Remove { recipient, reason, dry_run } => {
            let (validate_only, etag) = (dry_run, String::new());
            take_back(context, TakeBackOptOutRequest { tenant, recipient, reason, validate_only, etag }).await
        }
        OptOutCommand::Check { recipient } => {
            let request = CheckOptOutRequest { tenant, recipient, stale: context.stale };
            let take = |mut answer: CheckOptOutResponse| (answer.freshness.take(), Some(answer));
            context.show(Watch { watch: false }, request, take).await
        }
        OptOutCommand::List { paging } => {
            context.list_of(paging, ListOptOutsRequest { tenant, ..ListOptOutsRequest::default() }).await
        }
        OptOutCommand::Export { file, format } => {
            let request = ListOptOutsRequest { tenant, ..ListOptOutsRequest::default() };
            export(context, (file, format), "opt-out", request).await
        }
        OptOutCommand::Import { file, dry_run } => suppress::run(context, tenant, &file, dry_run).await,
    }
}

async fn add(context: &CommandContext<'_>, tenant: String, recipient: String) -> Result<(), Stop> {
    let request = AddOptOutRequest { tenant, recipient, request_id: context.client.request_id().to_owned() };
    let answer = context.change(request).await?;
    let words = format!("{} opted out: {}", answer.recipient, sentence(answer.barrier.as_ref()));
    context.terminal.show(&Answer::new(&answer, answer.recipient.as_str(), words))
}

async fn take_back(context: &CommandContext<'_>, request: TakeBackOptOutRequest) -> Result<(), Stop> {
    let dry_run = request.validate_only;
    let preview_request = TakeBackOptOutRequest { validate_only: true, ..request.clone() };
    let preview = context.read(preview_request).await?;
    let is_done = preview.taken_back.is_some();
    if dry_run || is_done {
        context.terminal.show(&preview)?;
        context.checked(dry_run);
        return Ok(());
    }
    let (recipient, tenant) = (&preview.recipient, &request.tenant);
    context.confirm(&format!("Send emails of tenant {tenant} to {recipient} again? It has opted out.")).await?;
    // With the etag a repeat does not take back a new opt-out.
    let answer = context.change(TakeBackOptOutRequest { etag: preview.etag, ..request }).await?;
    context.terminal.show(&answer)
}

fn taken_back(back: &TakenBack) -> String {
    let at = text(back.take_back_time.as_ref()).unwrap_or_else(|| "?".to_owned());
    format!("{at} at log index {}: {}", back.index, back.reason)
}

/// `taken_back` is missing if the opt-out was only checked and is not revoked yet.
impl View for TakeBackOptOutResponse {
    const NAME: &'static str = "recipient";

    fn text(&self, _paint: bool) -> String {
        match &self.taken_back {
            Some(back) => format!("{} gets emails again: taken back {}", self.recipient, taken_back(back)),
            None => format!("{} has opted out, and would get emails again", self.recipient),
        }
    }
}

impl View for CheckOptOutResponse {
    const NAME: &'static str = "recipient";

    fn text(&self, paint: bool) -> String {
        let opted_out = if self.opted_out { Cell::toned("yes", Tone::Notable) } else { "no".into() };
        let mut pairs = vec![("recipient", self.recipient.as_str().into()), ("opted out", opted_out)];
        pairs.extend(text(self.opt_out_time.as_ref()).map(|at| ("since", at.into())));
        pairs.extend(self.index.map(|index| ("log index", index.to_string().into())));
        pairs.extend(self.taken_back.as_ref().map(|back| ("taken back", taken_back(back).into())));
        card(pairs, paint)
    }
}

impl View for OptOut {
    const NAME: &'static str = "recipient";
    const NOUN: &'static str = "opt-outs";
    const COLUMNS: &'static [&'static str] = &["RECIPIENT", "SINCE", "LOG INDEX"];

    fn cells(&self) -> Vec<Cell> {
        vec![self.recipient.as_str().into(), Cell::at(self.opt_out_time.as_ref()), self.index.to_string().into()]
    }
}
