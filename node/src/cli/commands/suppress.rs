//! `reveille optout import`: imports a suppression list, a thousand addresses per request.
//!
//! Each request may be repeated, because opting out again changes nothing. So the same command completes an interrupted
//! import.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use indicatif::ProgressBar;
use reveille_ledger::command::OPT_OUTS_MAX;
use reveille_proto::admin::v1::{Barrier, ImportOptOutsRequest, ImportOptOutsResponse};
use serde::{Serialize, Serializer};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::bar::bar;
use super::{BadRow, Client, CommandContext, Failure, RetrySafety, Stop, View, WITHIN, format};
use crate::api_json;
use crate::cli::suppressions::Suppressions;
use crate::cli::view::{barrier, own_objects};

/// Limit of unusable rows that `-o json` lists; the rest is only counted.
const BAD_ROWS_NAMED: usize = 1_000;
/// Limit of unusable rows that the error message lists.
const BAD_ROWS_SHOWN: usize = 20;
const BAR: &str = "  {bar:40.green} {bytes}/{total_bytes}  {eta} left";
const AGAIN: &str = "the same command again: recorded opt-outs stay";

/// Rows of the file that the reading thread hands to the requests.
#[derive(Default)]
struct Piece {
    /// Usable addresses, at most `OPT_OUTS_MAX`, the limit of one request.
    addresses: Vec<String>,
    /// Unusable rows, at most `OPT_OUTS_MAX`.
    bad: Vec<BadRow>,
    /// Offset in the file after the last row of this piece.
    bytes: u64,
}

/// Reads the file and sends its addresses. `--timeout` ends it at any point.
pub(super) async fn run(context: &CommandContext<'_>, tenant: String, file: &Path, dry_run: bool) -> Result<(), Stop> {
    let (pieces, mut waiting) = mpsc::channel(1);
    let path = file.to_owned();
    // The thread is not joined after a timeout, because a read of stdin may never return.
    let reader = std::thread::spawn(move || read(&path, |piece| pieces.blocking_send(piece).is_ok()));
    let length = std::fs::metadata(file).map_or(0, |metadata| metadata.len());
    let bar = bar(context, length, BAR);
    let mut import = Import {
        client: &context.client,
        request: ImportOptOutsRequest { tenant, recipients: Vec::new(), validate_only: dry_run },
        view: ImportedView { file: file.display().to_string(), dry_run, ..ImportedView::default() },
    };
    let all = async {
        while let Some(piece) = waiting.recv().await {
            import.take(piece, &bar).await?;
        }
        let panicked = |_| Err(Failure::general("reading failed", AGAIN));
        reader.join().unwrap_or_else(panicked)
    };
    let done = match context.global.timeout {
        Some(within) => {
            let late = |_| Err(Failure::timed_out("the time is over", AGAIN));
            timeout(within, all).await.unwrap_or_else(late)
        }
        None => all.await,
    };
    bar.finish_and_clear();
    done.map_err(|failure| import.after(failure))?;
    end(context, import.view)
}

/// Reads the whole file piece by piece. Stops early if the receiver is gone.
fn read(file: &Path, take: impl Fn(Piece) -> bool) -> Result<(), Failure> {
    let name = file.display().to_string();
    let source: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(BufReader::new(io::stdin()))
    } else {
        let opened = File::open(file);
        let opened = opened.map_err(|error| Failure::file(name.clone(), format!("cannot be read: {error}")))?;
        Box::new(BufReader::with_capacity(256 * 1024, opened))
    };
    let wrong = |BadRow { line, problem }: BadRow| Failure::file(format!("{name}:{line}"), problem);
    let mut list = Suppressions::open(source).map_err(wrong)?;
    let mut piece = Piece::default();
    while let Some(entry) = list.next().map_err(wrong)? {
        match entry {
            Ok(address) => piece.addresses.push(address),
            Err(bad) => piece.bad.push(bad),
        }
        if piece.addresses.len().max(piece.bad.len()) == OPT_OUTS_MAX {
            piece.bytes = list.bytes();
            if !take(std::mem::take(&mut piece)) {
                return Ok(());
            }
        }
    }
    // Without a receiver the command has already failed, so the last piece is not needed.
    let _ = take(Piece { bytes: list.bytes(), ..piece });
    Ok(())
}

/// The import's progress, and the request for the next piece.
struct Import<'a> {
    client: &'a Client,
    request: ImportOptOutsRequest,
    view: ImportedView,
}

impl Import<'_> {
    /// Sends the addresses of a piece and records its unusable rows.
    async fn take(&mut self, piece: Piece, bar: &ProgressBar) -> Result<(), Failure> {
        self.view.bad_rows += piece.bad.len() as u64;
        let room = BAD_ROWS_NAMED.saturating_sub(self.view.bad.len());
        self.view.bad.extend(piece.bad.into_iter().take(room));
        if !piece.addresses.is_empty() {
            self.send(piece.addresses).await?;
        }
        bar.set_position(piece.bytes);
        Ok(())
    }

    async fn send(&mut self, recipients: Vec<String>) -> Result<(), Failure> {
        let count = recipients.len() as u64;
        let request = ImportOptOutsRequest { recipients, ..self.request.clone() };
        let safety = if self.request.validate_only { RetrySafety::Read } else { RetrySafety::Repeatable };
        self.client.set_timeout(WITHIN);
        let answer = self.client.ask(safety, request).await?;
        self.view.take(count, answer);
        Ok(())
    }

    /// Adds to a failure in the middle how many rows are already recorded.
    fn after(&self, failure: Failure) -> Failure {
        if self.view.rows == 0 || self.view.dry_run {
            return failure;
        }
        let rows = format::counted(self.view.rows, "row");
        let message = format!("after {rows}, whose opt-outs hold: {}", failure.message);
        let next = match failure.next.as_deref() {
            None | Some(AGAIN) => AGAIN.to_owned(),
            Some(first) => format!("{AGAIN}; {first}"),
        };
        Failure { message, next: Some(next), ..failure }
    }
}

fn end(context: &CommandContext<'_>, view: ImportedView) -> Result<(), Stop> {
    context.checked(view.dry_run);
    context.terminal.show(&view)?;
    if view.bad_rows == 0 {
        return Ok(());
    }
    let mut message = format!("{} cannot be used", format::counted(view.bad_rows, "row"));
    for bad in view.bad.iter().take(BAD_ROWS_SHOWN) {
        message.push_str(&format!("\n  line {}: {}", bad.line, bad.problem));
    }
    if let Some(more) = view.bad_rows.checked_sub(BAD_ROWS_SHOWN as u64).filter(|more| *more > 0) {
        message.push_str(&format!("\n  and {more} more; -o json lists {BAD_ROWS_NAMED}"));
    }
    let next = "correct them and give the command again: the others stay as they are";
    Err(Failure::partly(message, next).into())
}

/// Result of importing a suppression list.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ImportedView {
    /// The file as the user named it.
    pub file: String,
    /// Rows with an address.
    pub rows: u64,
    /// Addresses that had not opted out before.
    pub added: u64,
    /// Rows whose address had opted out before, or occurs in an earlier row.
    pub known: u64,
    /// Unusable rows.
    pub bad_rows: u64,
    /// The first unusable rows, at most a thousand.
    pub bad: Vec<BadRow>,
    /// The barriers of all entries as one, with the index of the last entry; null if there was none.
    #[serde(serialize_with = "or_null")]
    pub barrier: Option<Barrier>,
    /// True if the rows were only counted.
    pub dry_run: bool,
}

fn or_null<S: Serializer>(barrier: &Option<Barrier>, serializer: S) -> Result<S::Ok, S::Error> {
    barrier.as_ref().map(api_json::of).serialize(serializer)
}

impl ImportedView {
    /// Adds the answer to a request with this number of rows.
    pub fn take(&mut self, rows: u64, answer: ImportOptOutsResponse) {
        self.rows += rows;
        self.added += answer.added;
        self.known += rows.saturating_sub(answer.added);
        let Some(Barrier { index, crossed, unconfirmed }) = answer.barrier else { return };
        let all = self.barrier.get_or_insert_default();
        all.index = index;
        all.crossed.extend(crossed);
        all.unconfirmed.extend(unconfirmed);
        all.unconfirmed.sort_unstable();
        all.unconfirmed.dedup();
    }
}

own_objects!(ImportedView);

impl View for ImportedView {
    const NAME: &'static str = "file";

    fn text(&self, _paint: bool) -> String {
        let rows = format::counted(self.rows, "row");
        let (added, known) = (format::count(self.added), format::count(self.known));
        if self.dry_run {
            return format!("{rows}: {added} would opt out, {known} have already or stand there again");
        }
        let holds = self.barrier.as_ref().map(|all| format!("; {}", barrier::sentence(Some(all))));
        format!("{rows}: {added} opted out, {known} had already or stood there again{}", holds.unwrap_or_default())
    }
}
