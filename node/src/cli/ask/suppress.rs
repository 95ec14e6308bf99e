//! `reveille optout import`: a suppression list, a thousand addresses at a time.
//!
//! Each thousand is one request that may be asked twice: opting out again changes nothing. So an import that was
//! interrupted is finished by the same command.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use reveille_ledger::command::OPT_OUTS_MAX;
use reveille_proto::admin::v1::ImportOptOutsRequest;
use reveille_proto::admin::v1::opt_out_service_client::OptOutServiceClient as Service;

use super::{Desk, WITHIN};
use crate::cli::args::Format;
use crate::cli::client::{Client, Nature};
use crate::cli::failure::{Exit, Failure, Stop};
use crate::cli::human;
use crate::cli::suppressions::Suppressions;
use crate::cli::view::opt_out::ImportedView;

/// Rows that cannot be used of which each is told; the others are counted.
const BAD_ROWS_TOLD: usize = 1_000;
/// Of these, how many people see.
const BAD_ROWS_SHOWN: usize = 20;

/// Reads the file and sends it on.
pub(super) async fn run(desk: &Desk<'_>, tenant: String, file: &Path, dry_run: bool) -> Result<(), Stop> {
    let name = file.display().to_string();
    let unreadable = |error: io::Error| Failure::file(name.clone(), format!("cannot be read: {error}"));
    let (source, length): (Box<dyn BufRead + Send>, u64) = if file == Path::new("-") {
        (Box::new(BufReader::new(io::stdin())), 0)
    } else {
        let opened = File::open(file).map_err(unreadable)?;
        let length = opened.metadata().map_or(0, |metadata| metadata.len());
        (Box::new(BufReader::with_capacity(256 * 1024, opened)), length)
    };
    let mut import = Import {
        client: desk.patient_client(),
        question: ImportOptOutsRequest { tenant, recipients: Vec::new(), validate_only: dry_run },
        view: ImportedView { file: name.clone(), dry_run, ..ImportedView::default() },
    };
    let bar = bar(desk, length);
    let mut list = Suppressions::new(source);
    loop {
        let entry = list.next().map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => Failure::file(name.clone(), error.to_string()),
            _ => unreadable(error),
        });
        match entry.map_err(|failure| import.after(failure))? {
            None => break,
            Some(Ok(address)) => import.question.recipients.push(address),
            Some(Err(bad)) => {
                import.view.bad_rows += 1;
                if import.view.bad.len() < BAD_ROWS_TOLD {
                    import.view.bad.push(bad.into());
                }
            }
        }
        if import.question.recipients.len() == OPT_OUTS_MAX {
            import.send().await?;
            bar.set_position(list.bytes);
        }
    }
    if !import.question.recipients.is_empty() {
        import.send().await?;
    }
    bar.finish_and_clear();
    end(desk, import.view)
}

/// What was done so far, and what comes next.
struct Import {
    client: Client,
    question: ImportOptOutsRequest,
    view: ImportedView,
}

impl Import {
    /// Sends what was gathered.
    async fn send(&mut self) -> Result<(), Failure> {
        let recipients = std::mem::take(&mut self.question.recipients);
        let count = recipients.len() as u64;
        let question = ImportOptOutsRequest { recipients, ..self.question.clone() };
        let nature = if self.question.validate_only { Nature::Read } else { Nature::Repeatable };
        let call = |channel, question| async move { Service::new(channel).import_opt_outs(question).await };
        self.client.give(WITHIN);
        let answer = self.client.ask(nature, question, call).await.map_err(|failure| self.after(failure))?;
        self.view.take(count, answer);
        Ok(())
    }

    /// A failure in the middle says what holds already.
    fn after(&self, failure: Failure) -> Failure {
        if self.view.rows == 0 || self.view.dry_run {
            return failure;
        }
        let rows = human::counted(self.view.rows, "row");
        let message = format!("after {rows}, whose opt-outs hold: {}", failure.message);
        let next = format!("the same command again: who has opted out stays so; {}", failure.next.unwrap_or_default());
        Failure { message, next: Some(next.trim_end_matches("; ").to_owned()), ..failure }
    }
}

/// On a terminal, how far the file is read.
fn bar(desk: &Desk<'_>, length: u64) -> ProgressBar {
    if length == 0 || desk.terminal.format() != Format::Table || !desk.terminal.is_live() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("  {bar:40.green} {bytes}/{total_bytes}  {eta} left");
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn end(desk: &Desk<'_>, view: ImportedView) -> Result<(), Stop> {
    desk.checked(view.dry_run);
    desk.terminal.show(&view)?;
    if view.bad_rows == 0 {
        return Ok(());
    }
    let mut message = format!("{} cannot be used", human::counted(view.bad_rows, "row"));
    for bad in view.bad.iter().take(BAD_ROWS_SHOWN) {
        message.push_str(&format!("\n  line {}: {}", bad.line, bad.problem));
    }
    if let Some(more) = view.bad_rows.checked_sub(BAD_ROWS_SHOWN as u64).filter(|more| *more > 0) {
        message.push_str(&format!("\n  and {more} more; -o json lists {BAD_ROWS_TOLD}"));
    }
    let next = Some("correct them and give the command again: the others stay as they are".to_owned());
    Err(Failure { exit: Exit::Partly, reason: "PARTLY_DONE".into(), message, next, ..Failure::default() }.into())
}
