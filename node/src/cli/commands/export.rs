//! Exports a list page by page for other programs; the list is never held in memory as a whole.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::{CommandContext, Failure, INCOMPLETE, Listing, PAGE_SIZE, Stop, View, format, lines, not_searched};

/// What an export is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// A heading and a row each, quoted by RFC 4180
    Csv,
    /// An object a line, as `list -o json` has them
    Jsonl,
}

/// Writes all pages to a file, or to stdout. `one` is the noun for a row.
pub(super) async fn export<Q: Listing>(
    context: &CommandContext<'_>,
    (file, format): (Option<PathBuf>, ExportFormat),
    one: &str,
    request: Q,
) -> Result<(), Stop>
where
    Q::Item: View,
{
    let mut target = file.as_deref().map(Target::create).transpose()?;
    let mut token = String::new();
    let (mut count, mut is_first, mut incomplete, mut lost_parts) = (0, true, false, BTreeSet::new());
    loop {
        let size = i32::try_from(PAGE_SIZE).unwrap_or_default();
        context.restart_default_limit();
        let answer = context.client.page(request.clone(), context.stale, size, token.clone()).await?;
        if is_first {
            context.note(answer.freshness.as_ref());
        }
        count += answer.rows.len() as u64;
        incomplete |= answer.incomplete;
        lost_parts.extend(answer.lost_parts);
        let bytes = written(&answer.rows, format, std::mem::take(&mut is_first));
        match &mut target {
            Some(target) => target.write(bytes.as_bytes())?,
            None if bytes.is_empty() => {}
            None => context.terminal.raw(&bytes)?,
        }
        if answer.next.is_empty() || answer.next == token {
            break;
        }
        token = answer.next;
    }
    if let (Some(target), Some(file)) = (target, &file) {
        target.finish()?;
        context.terminal.say(&format!("{} in {}", format::counted(count, one), file.display()));
    }
    if incomplete {
        context.terminal.say(INCOMPLETE);
    }
    not_searched(lost_parts.len()).iter().for_each(|remark| context.terminal.say(remark));
    Ok(())
}

/// Encodes one page. The first page of CSV begins with the headings.
fn written<R: View>(rows: &[R], format: ExportFormat, is_first: bool) -> String {
    match format {
        ExportFormat::Csv => lines::csv(lines::records(rows).into_iter().skip(usize::from(!is_first))),
        ExportFormat::Jsonl => rows.iter().map(|row| lines::json(&row.json()) + "\n").collect(),
    }
}

/// A file that gets its name only when it is complete.
struct Target {
    path: PathBuf,
    partial: PathBuf,
    file: BufWriter<File>,
}

impl Target {
    fn create(path: &Path) -> Result<Target, Failure> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = File::create(&partial).map_err(|error| {
            let failure = Failure::file(path.display().to_string(), format!("it cannot be written: {error}"));
            failure.then("name another file, or none for stdout")
        })?;
        Ok(Target { path: path.to_owned(), partial, file: BufWriter::new(file) })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(|error| unwritable(&self.partial, &error))
    }

    fn finish(mut self) -> Result<(), Failure> {
        let done = self.file.flush().and_then(|()| std::fs::rename(&self.partial, &self.path));
        done.map_err(|error| unwritable(&self.path, &error))
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::general(format!("{} cannot be written: {error}", path.display()), "name another file, or none for stdout")
}
