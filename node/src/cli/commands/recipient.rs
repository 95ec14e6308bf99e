//! Implements `reveille recipient …`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Subcommand;
use reveille_proto::admin::v1::{
    EraseRecipientRequest, EraseRecipientResponse, FindRecipientRequest, RecipientPlace, RecipientState,
};

use super::export::{ExportFormat, export};
use super::{Answer, CommandContext, OfTenant, Paging, Stop, View, format};
use crate::api_json::word;
use crate::cli::view::barrier;
use crate::cli::view::layout::Cell;
use crate::cli::view::recipient::not_searched;

#[derive(Debug, Subcommand)]
pub enum RecipientCommand {
    /// Every place where an address is: opt-out, audiences, schedules, runs with their results
    ///
    /// Reads the whole state and the archive, so it may take a while.
    #[command(after_long_help = "Example:\n  reveille recipient find ann@example.com")]
    Find {
        /// The address
        recipient: String,
        #[command(flatten)]
        paging: Paging,
    },
    /// All that the cluster knows about an address, as JSON: one place a line, with values and the history of each run
    #[command(after_long_help = "Example:\n  reveille recipient export ann@example.com ann.jsonl")]
    Export {
        /// The address
        recipient: String,
        /// Where to; it appears when it is whole, in the place of one that is there [default: stdout]
        file: Option<PathBuf>,
    },
    /// Erase an address: nothing is sent to it from now on, and its rows in lists, files and the archive become empty
    ///
    /// An opt-out without the address stays, so that an old list cannot bring it back. It asks first (`--yes` answers).
    /// Repeat the command after an interruption.
    #[command(after_long_help = "Example:\n  reveille recipient erase ann@example.com")]
    Erase {
        /// The address
        recipient: String,
    },
}

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: OfTenant<RecipientCommand>) -> Result<(), Stop> {
    let OfTenant { tenant, command } = args;
    let find = |recipient, with_events| FindRecipientRequest {
        tenant: tenant.clone(),
        recipient,
        with_events,
        ..FindRecipientRequest::default()
    };
    match command {
        RecipientCommand::Find { recipient, paging } => context.list_of(paging, find(recipient, false)).await,
        RecipientCommand::Export { recipient, file } => {
            export(context, (file, ExportFormat::Jsonl), "place", find(recipient, true)).await
        }
        RecipientCommand::Erase { recipient } => erase(context, tenant, recipient).await,
    }
}

async fn erase(context: &CommandContext<'_>, tenant: String, recipient: String) -> Result<(), Stop> {
    let question = format!("Erase {recipient} from all lists of tenant {tenant}? This cannot be undone.");
    context.confirm(&question).await?;
    let mut request = EraseRecipientRequest { tenant, recipient, page_token: String::new() };
    let mut sum = EraseRecipientResponse::default();
    loop {
        context.restart_default_limit();
        let answer = context.change(request.clone()).await?;
        let next = answer.next_page_token.clone();
        add(&mut sum, answer);
        if next.is_empty() {
            let words = erased(&request.recipient, &sum);
            return context.terminal.show(&Answer::new(&sum, request.recipient, words));
        }
        request.page_token = next;
    }
}

impl View for RecipientPlace {
    const NOUN: &'static str = "places";
    const COLUMNS: &'static [&'static str] = &["KIND", "NAME", "SCHEDULE", "NUMBER", "STATE", "AT"];

    fn name(&self) -> String {
        if self.name.is_empty() { kind(self) } else { self.name.clone() }
    }

    fn cells(&self) -> Vec<Cell> {
        let number = self.number.map(|number| format!("#{number}"));
        let known = self.state() != RecipientState::Unspecified;
        let state = known.then(|| word(self.state().as_str_name()));
        vec![
            kind(self).into(),
            Cell::or_dash(self.name.as_str()),
            Cell::or_dash(self.schedule.as_str()),
            Cell::or_dash(number.as_deref()),
            Cell::or_dash(state.as_deref()),
            Cell::at(self.time.as_ref()),
        ]
    }
}

fn kind(place: &RecipientPlace) -> String {
    word(place.kind().as_str_name()).replace('_', "-")
}

/// Adds the answer to another part of an erasure.
fn add(sum: &mut EraseRecipientResponse, answer: EraseRecipientResponse) {
    sum.lists += answer.lists;
    sum.blocks += answer.blocks;
    sum.index = sum.index.max(answer.index);
    let known: BTreeSet<String> = sum.lost_parts.drain(..).chain(answer.lost_parts).collect();
    sum.lost_parts.extend(known);
    if let Some(barrier) = answer.barrier {
        sum.barrier = Some(barrier);
    }
}

/// Returns the result of an erasure in words.
fn erased(recipient: &str, sum: &EraseRecipientResponse) -> String {
    let lists = format::counted(u64::from(sum.lists), "list");
    let blocks = format::counted(u64::from(sum.blocks), "block");
    let barrier = barrier::sentence(sum.barrier.as_ref());
    let lost = not_searched(sum.lost_parts.len()).map(|lost| format!("\n{lost}")).unwrap_or_default();
    format!(
        "{recipient} erased from {lists} and {blocks} of the archive: {barrier}\nIts files leave each running node \
         within a minute. Backups from before still have it: docs/how-to/erase-a-person.md{lost}"
    )
}
