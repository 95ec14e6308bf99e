//! Implements `reveille audit …`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use data_encoding::BASE64;
use jiff::Timestamp;
use reveille_ledger::audit::AuditRecord;
use reveille_ledger::ids::Hash;
use reveille_proto::admin::v1::{self, ListAuditRecordsRequest};
use serde_json::{Value, json};

use super::export::{ExportFormat, export};
use super::{Answer, CommandContext, Failure, Json, Own, Paging, Stop, View, format, input, lines, to_wire};
use crate::api_json::word;
use crate::cli::instant::parse_instant;
use crate::cli::view::layout::Cell;
use crate::server::admin::shown_audit_record;

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Records, latest first
    #[command(after_long_help = "\
Examples:
  reveille audit list --limit 20
  reveille audit list --command token_create --since-time 2026-03-08T00:00:00Z
  reveille audit list --caller 0123456789abcdef --tenant acme")]
    List {
        #[command(flatten)]
        paging: Paging,
        /// Only of this caller: the id of a token, `insecure` or `local`
        #[arg(long, value_name = "ID")]
        caller: Option<String>,
        /// Only of calls about this tenant
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// Only of this command, as a list shows it
        #[arg(long, value_name = "NAME")]
        command: Option<String>,
        #[command(flatten)]
        time: AuditTime,
    },
    /// Records as lines of JSON, oldest first, with their hashes
    #[command(after_long_help = "\
Examples:
  reveille audit export audit.jsonl
  reveille audit export --since-time 2026-03-01T00:00:00Z --until-time 2026-04-01T00:00:00Z march.jsonl")]
    Export {
        /// The file [default: stdout]
        file: Option<PathBuf>,
        #[command(flatten)]
        time: AuditTime,
    },
    /// Check an exported file: no record was changed, removed or added. It asks no node
    ///
    /// The hashes show changes up to the last record. Whether records are missing at the end, and whether all of them
    /// were made anew, is shown by --head with a hash that you noted elsewhere: `reveille cluster status` prints it.
    #[command(after_long_help = "\
Example:
  reveille audit verify audit.jsonl --head \"$(reveille cluster status -o json | jq -r .auditHead)\"")]
    Verify {
        /// The file, or - for stdin
        file: PathBuf,
        /// Hash that one of the records must have
        #[arg(long, value_name = "HASH")]
        head: Option<String>,
    },
}

/// Which records are meant.
#[derive(Clone, Debug, Args)]
pub struct AuditTime {
    /// Only from then on
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub since_time: Option<Timestamp>,
    /// Only before then
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub until_time: Option<Timestamp>,
}

/// Maximum length of a line in bytes: above what texts of 256 bytes make of a record.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, command: AuditCommand) -> Result<(), Stop> {
    match command {
        AuditCommand::List { paging, caller, tenant, command, time } => {
            let request = ListAuditRecordsRequest {
                caller: caller.unwrap_or_default(),
                of_tenant: tenant.unwrap_or_default(),
                command: command.unwrap_or_default(),
                ..of_time(&time)
            };
            context.list_of(paging, request).await
        }
        AuditCommand::Export { file, time } => {
            let request = ListAuditRecordsRequest { oldest_first: true, ..of_time(&time) };
            export(context, (file, ExportFormat::Jsonl), "record", request).await
        }
        AuditCommand::Verify { file, head } => verify(context, &file, head.as_deref()).await,
    }
}

fn of_time(time: &AuditTime) -> ListAuditRecordsRequest {
    let (since_time, until_time) = (time.since_time.map(to_wire), time.until_time.map(to_wire));
    ListAuditRecordsRequest { since_time, until_time, ..ListAuditRecordsRequest::default() }
}

async fn verify(context: &CommandContext<'_>, file: &Path, head: Option<&str>) -> Result<(), Stop> {
    let (path, wanted) = (file.to_owned(), head.map(|head| head.trim().to_ascii_lowercase()));
    let read = input::on_thread(move || read(&path, wanted.as_deref())).await;
    let (chain, has_head) = read.unwrap_or_else(|error| Err(unreadable(file, &error)))?;
    let Some((first, last)) = chain.ends else {
        return Err(Failure::file(file.display().to_string(), "it has no records").into());
    };
    if head.is_some() && !has_head {
        let message = format!("{}: no record has that hash; the last one is {last}", file.display());
        let next = "compare with reveille cluster status: records are missing at the end, or the file is another one";
        return Err(Failure::general(message, next).at("--head").into());
    }
    let Chain { records, begins, hash, .. } = chain;
    let hash = hash.to_string();
    let own = json!({ "records": records, "first": first, "last": last, "fromTheBeginning": begins, "hash": hash });
    let records = format::counted(records, "record");
    let before = if begins { "the first ones of the cluster" } else { "others were before them" };
    let words = format!("{records} from index {first} to {last} are unchanged; {before}; the last hash is {hash}");
    context.terminal.show(&Answer::new(&Own(own), hash, words))
}

/// Reads the records of a file, and returns if one of them has the hash `head`.
fn read(file: &Path, head: Option<&str>) -> Result<(Chain, bool), Failure> {
    let failed = |error| unreadable(file, &error);
    let mut lines: Box<dyn BufRead> = match file == Path::new("-") {
        true => Box::new(BufReader::new(std::io::stdin())),
        false => Box::new(BufReader::new(File::open(file).map_err(failed)?)),
    };
    let (mut chain, mut has_head, mut line) = (Chain::default(), false, Vec::new());
    while next_line(&mut lines, &mut line).map_err(failed)? {
        let hash = chain.add(&line).map_err(|why| {
            let place = format!("{}, line {}", file.display(), chain.records + 1);
            let next = "reveille audit export writes the records anew; keep this file, and find out who changed it";
            Failure::general(format!("{place}: {why}"), next)
        })?;
        has_head |= head.is_some_and(|head| hash.to_string() == head);
    }
    Ok((chain, has_head))
}

fn unreadable(file: &Path, error: &std::io::Error) -> Failure {
    Failure::file(file.display().to_string(), error.to_string())
}

/// Reads a line without its end. Returns false at the end of the file.
fn next_line(lines: &mut dyn BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    line.clear();
    let mut limited = std::io::Read::take(lines, LINE_BYTES_MAX as u64);
    let read = limited.read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(read > 0)
}

/// The records of a file so far.
#[derive(Default)]
struct Chain {
    records: u64,
    /// Log index of the first and the last record.
    ends: Option<(u64, u64)>,
    /// True if the first record is the first one of the cluster.
    begins: bool,
    /// Hash of the last record.
    hash: Hash,
}

impl Chain {
    /// Adds the record of a line, and returns its hash.
    fn add(&mut self, line: &[u8]) -> Result<Hash, String> {
        let value: Value = serde_json::from_slice(line).map_err(|_| "it is not a record".to_owned())?;
        let index = value["index"].as_str().map_or_else(|| "it".to_owned(), |index| format!("record {index}"));
        let bytes = value["record"].as_str().and_then(|text| BASE64.decode(text.as_bytes()).ok());
        let record = bytes.and_then(|bytes| AuditRecord::from_bytes(&bytes).ok());
        let record = record.ok_or_else(|| format!("{index} was changed: its bytes are not a record"))?;
        let index = format!("record {}", record.index);
        if line_of(&record).as_bytes() != line {
            return Err(format!("{index} was changed: its fields differ from its bytes"));
        }
        if let Some((_, last)) = self.ends
            && (record.previous != self.hash || record.index <= last)
        {
            return Err(format!(
                "{index} does not follow record {last}: one of both was changed, or others are missing"
            ));
        }
        self.begins |= self.records == 0 && record.previous == Hash::default();
        self.ends = Some((self.ends.map_or(record.index, |(first, _)| first), record.index));
        (self.records, self.hash) = (self.records + 1, record.hash());
        Ok(self.hash)
    }
}

/// Returns the line of a record in an exported file.
fn line_of(record: &AuditRecord) -> String {
    lines::json(&shown_audit_record(record).json())
}

/// Returns what came of the command, such as `12 done, 3 refused`.
fn outcome(record: &v1::AuditRecord) -> String {
    match record.outcome() {
        v1::AuditOutcome::Repeated => format!("repeats {}", record.repeated_index),
        v1::AuditOutcome::Partly => format!("{} done, {} refused", record.done_count, record.refused_count),
        v1::AuditOutcome::Refused => format!("refused: {}", word(record.refusal().as_str_name())),
        done => word(done.as_str_name()),
    }
}

impl View for v1::AuditRecord {
    const NAME: &'static str = "index";
    const NOUN: &'static str = "audit records";
    const COLUMNS: &'static [&'static str] = &["INDEX", "TIME", "CALLER", "TENANT", "COMMAND", "OBJECT", "OUTCOME"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.index.to_string().into(),
            Cell::at(self.time.as_ref()),
            self.caller.as_str().into(),
            Cell::or_dash(self.tenant.as_str()),
            self.command.as_str().into(),
            self.subject.as_str().into(),
            outcome(self).into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reveille_ledger::audit::{AuditCaller, AuditObject, AuditOutcome, CommandKind, RefusalKind};
    use reveille_ledger::ids::{Time, TokenId};

    /// Returns an export of some records, and their indexes.
    fn exported() -> (Vec<String>, Vec<u64>) {
        let mut previous = Hash::default();
        let records = (3..9).map(|index| {
            let record = AuditRecord {
                previous,
                index: index * 10,
                at: Time(1_772_409_600_000 + index as i64),
                caller: AuditCaller::Token(TokenId(index)),
                tenant: Some("acme".to_owned()),
                command: CommandKind::SchedulePause,
                object: AuditObject::Name("report".to_owned()),
                request: None,
                reason: Some("\u{1b}[2J \"quoted\"\n".to_owned()),
                outcome: AuditOutcome::Refused(RefusalKind::NotPermitted),
            };
            previous = record.hash();
            (line_of(&record), record.index)
        });
        records.unzip()
    }

    /// Returns the line at which the check fails, and the message.
    fn fails(lines: &[Vec<u8>]) -> Option<(usize, String)> {
        let mut chain = Chain::default();
        lines.iter().enumerate().find_map(|(place, line)| Some((place, chain.add(line).err()?)))
    }

    fn as_bytes(lines: &[String]) -> Vec<Vec<u8>> {
        lines.iter().map(|line| line.clone().into_bytes()).collect()
    }

    #[test]
    fn every_changed_byte_is_found_in_its_line() {
        let (lines, indexes) = exported();
        assert_eq!(fails(&as_bytes(&lines)), None);
        let changed = lines[2].replacen("acme", "acmf", 1).into_bytes();
        let expected = format!("record {} was changed: its fields differ from its bytes", indexes[2]);
        assert_eq!(Chain::default().add(&changed), Err(expected));
        for field in [r#""command":"schedule_pause""#, "AUDIT_OUTCOME_REFUSED", "AUDIT_REFUSAL_NOT_PERMITTED"] {
            assert!(lines[0].contains(field), "{field}: {}", lines[0]);
        }
        for place in 0..lines.len() {
            for at in 0..lines[place].len() {
                for other in [b'0', b'1', b' ', b'\n', 0xff] {
                    let mut changed = as_bytes(&lines);
                    if std::mem::replace(&mut changed[place][at], other) == other {
                        continue;
                    }
                    let (found, why) = fails(&changed).unwrap_or_else(|| panic!("line {place}, byte {at}"));
                    assert_eq!(found, place, "byte {at}: {why}");
                }
            }
        }
    }

    #[test]
    fn missing_swapped_and_remade_records_are_found() {
        let (lines, _) = exported();
        for place in 1..lines.len() - 1 {
            let mut missing = as_bytes(&lines);
            missing.remove(place);
            assert_eq!(fails(&missing).map(|(found, _)| found), Some(place));
            let mut swapped = as_bytes(&lines);
            swapped.swap(place, place + 1);
            assert_eq!(fails(&swapped).map(|(found, _)| found), Some(place));
            let value: Value = serde_json::from_str(&lines[place]).expect("JSON");
            let digits = value["record"].as_str().expect("digits");
            let bytes = BASE64.decode(digits.as_bytes()).expect("bytes");
            let record = AuditRecord::from_bytes(&bytes).expect("a record");
            let record = AuditRecord { outcome: AuditOutcome::Done, ..record };
            let mut remade = as_bytes(&lines);
            remade[place] = line_of(&record).into_bytes();
            assert_eq!(fails(&remade).map(|(found, _)| found), Some(place + 1), "its hash is another one");
        }
        assert_eq!(fails(&as_bytes(&lines[2..])), None, "a file may begin anywhere");
    }
}
