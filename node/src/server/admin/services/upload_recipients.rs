//! Makes a part of an audience from recipients as text (P20), for clients that do not know the format of a part.
//!
//! The text is read while it arrives. Nothing is stored unless every row can be used.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use axum::body::Bytes;
use reveille_cluster::file_store::{encode, name};
use reveille_ledger::bitmap::CHUNK;
use reveille_ledger::content::Recipient;
use reveille_proto::admin::v1::{ErrorReason, UploadRecipientsRequest, UploadRecipientsResponse};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::{Code, Status, Streaming};

use super::upload::{PART_BYTES_MAX, PART_WITHIN, PIECE_WITHIN, next_piece};
use crate::format::counted;
use crate::recipients::{self, BadRow, JsonLines, Reader};
use crate::server::admin::error::FieldViolation;
use crate::server::admin::validate::{self, Fields};
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts};

/// Maximum number of pieces that wait for the reader.
const WAITING_MAX: usize = 4;
/// Number of unusable rows after which no further one is read.
const BAD_ROWS_MAX: usize = 100;

/// How the recipients are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextForm {
    Csv,
    JsonLines,
}

/// The recipients of a part, and the names of their variables if the text has them.
type Part = (Vec<String>, Vec<Recipient>);

impl Admin {
    pub(crate) async fn upload_recipients(
        &self,
        mut pieces: Streaming<UploadRecipientsRequest>,
        call: &Call,
    ) -> Result<UploadRecipientsResponse, Status> {
        let _place = self.upload_place(call).await?;
        let ends = Instant::now() + PART_WITHIN;
        let first = next_piece(&mut pieces, PIECE_WITHIN, ends).await?.unwrap_or_default();
        let form = TextForm::of(&first.content_type);
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let reading = form.map(|form| {
            tokio::task::spawn_blocking(move || {
                let (columns, recipients) = read(form, BufReader::new(Pieces { receiver, piece: Bytes::new() }))?;
                let bytes = encode(&recipients);
                Ok((columns, recipients.len() as u32, bytes))
            })
        });
        // The whole text is received, whatever is wrong with it: many clients report no answer that comes before they
        // have sent everything.
        let (mut next, mut bytes) = (Some(first), 0);
        while let Some(UploadRecipientsRequest { piece, .. }) = next {
            bytes += piece.len();
            if bytes > 2 * PART_BYTES_MAX {
                break;
            }
            if bytes <= PART_BYTES_MAX {
                // Fails if the reader has found what is wrong.
                let _ = sender.send(Bytes::from(piece)).await;
            }
            next = next_piece(&mut pieces, PIECE_WITHIN, ends).await?;
        }
        drop(sender);
        if bytes > PART_BYTES_MAX {
            return Err(too_large("the text of one part").into());
        }
        let read: ApiResult<_> = reading?.await.unwrap_or_else(|panic| Err(error_texts::broken(panic.to_string())));
        let (columns, recipients, bytes) = read?;
        let part = name(&bytes).filter(|_| bytes.len() <= PART_BYTES_MAX);
        let part = part.ok_or_else(|| too_large("one part, with its values"))?;
        self.keep_part(part, "the part", bytes).await?;
        Ok(UploadRecipientsResponse { part: part.0.to_vec(), recipients, columns })
    }
}

impl TextForm {
    fn of(content_type: &str) -> ApiResult<TextForm> {
        match content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
            "text/csv" => Ok(TextForm::Csv),
            "application/jsonl" | "application/x-ndjson" => Ok(TextForm::JsonLines),
            _ => {
                let message = format!("is '{content_type}'; recipients come as text/csv or application/jsonl");
                Err(ApiError::of_field("content_type", message))
            }
        }
    }
}

/// Reads the recipients of one part. Blocks its thread.
fn read(form: TextForm, input: impl BufRead) -> ApiResult<Part> {
    match form {
        TextForm::Csv => {
            let mut reader = Reader::open(input).map_err(unreadable)?;
            let columns = reader.columns().to_vec();
            let mut fields = Fields::default();
            validate::columns(&mut fields, "columns", &columns);
            fields.done(Some(()))?;
            Ok((columns, collect(|| reader.next())?))
        }
        TextForm::JsonLines => {
            let mut lines = JsonLines::new(input);
            Ok((Vec::new(), collect(|| lines.next())?))
        }
    }
}

fn collect(mut next: impl FnMut() -> Result<Option<recipients::Read>, BadRow>) -> ApiResult<Vec<Recipient>> {
    let (mut recipients, mut bad) = (Vec::<Recipient>::new(), Vec::new());
    // Line of each address.
    let mut lines: BTreeMap<Arc<str>, u64> = BTreeMap::new();
    while let Some((line, row)) = next().map_err(unreadable)?
        && bad.len() < BAD_ROWS_MAX
    {
        let values = recipients.first().map(|first| first.values.len());
        let known = |recipient: &Recipient| lines.get(recipient.key.as_str());
        match row {
            Ok(_) if recipients.len() == CHUNK as usize => {
                let problem = format!("is more than the {CHUNK} recipients of a part; begin another part with it");
                let message = BadRow { line, problem }.to_string();
                return Err(ApiError::new(Code::InvalidArgument, ErrorReason::TooLarge, message));
            }
            Ok(recipient) if let Some(first) = known(&recipient) => {
                bad.push((line, format!("has the address of line {first} again; leave one out")));
            }
            Ok(recipient) if values.is_some_and(|values| values != recipient.values.len()) => {
                let has = counted(recipient.values.len() as u64, "value");
                bad.push((line, format!("has {has}, the first recipient has {}", values.unwrap_or_default())));
            }
            Ok(recipient) => {
                lines.insert(recipient.key.as_str().into(), line);
                recipients.push(recipient);
            }
            Err(problem) => bad.push((line, problem)),
        }
    }
    let bad = bad.into_iter().map(|(line, problem)| wrong(BadRow { line, problem })).collect();
    match ApiError::of_fields(bad) {
        Some(bad) => Err(bad),
        None if recipients.is_empty() => Err(ApiError::of_field("body", "has no recipient")),
        None => Ok(recipients),
    }
}

fn wrong(BadRow { line, problem }: BadRow) -> FieldViolation {
    FieldViolation { field: format!("line {line}"), message: problem, reason: ErrorReason::InvalidField }
}

fn unreadable(bad: BadRow) -> ApiError {
    let BadRow { line, problem } = bad;
    ApiError::of_field(format!("line {line}"), problem)
}

fn too_large(what: &str) -> ApiError {
    let message = format!("{what} has more than {PART_BYTES_MAX} bytes; send fewer recipients at a time");
    ApiError::new(Code::InvalidArgument, ErrorReason::TooLarge, message)
}

/// The text as it arrives, for a reader on a blocking thread.
struct Pieces {
    receiver: mpsc::Receiver<Bytes>,
    piece: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let count = self.piece.len().min(into.len());
        into[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(form: TextForm, text: &str) -> String {
        read(form, text.as_bytes()).map(|read| panic!("taken as {read:?}")).unwrap_or_else(|bad| bad.to_string())
    }

    #[test]
    fn equal_recipients_are_one_part_in_both_forms() {
        let (columns, csv) = read(TextForm::Csv, "email,name\nann@example.com,Ann\n".as_bytes()).expect("a part");
        let lines = "{\"address\": \"ann@example.com\", \"values\": [\"Ann\"]}\n";
        let (_, lines) = read(TextForm::JsonLines, lines.as_bytes()).expect("a part");
        assert_eq!((columns, name(&encode(&csv))), (vec!["name".to_owned()], name(&encode(&lines))));
    }

    #[test]
    fn refusal_names_the_line() {
        let csv = |text: &str| refused(TextForm::Csv, text);
        assert_eq!(csv("name\nx\n"), "line 1: no column is named `email`; the header has: name");
        assert_eq!(csv("email\na@x.org\nA@X.org\n"), "line 3: has the address of line 2 again; leave one out");
        assert_eq!(
            csv("email\nann\na@x.org\nbob\n"),
            "line 2: 'ann' has no '@': an address is LOCAL@DOMAIN (and 1 more field)"
        );
        assert_eq!(csv("email\n"), "body: has no recipient");
        let lines = "{\"address\":\"a@x.org\"}\n{\"address\":\"b@x.org\",\"values\":[\"B\"]}";
        assert_eq!(refused(TextForm::JsonLines, lines), "line 2: has 1 value, the first recipient has 0");
        let many: String = (0..=CHUNK).map(|number| format!("r{number}@x.org\n")).collect();
        let refused = csv(&format!("email\n{many}"));
        assert!(refused.starts_with("line 65538: is more than the 65536 recipients of a part"), "{refused}");
    }
}
