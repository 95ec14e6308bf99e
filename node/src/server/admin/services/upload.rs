//! The calls of an import (P20): find missing parts, receive a part, seal.
//!
//! No node keeps the state of an upload: its parts are files that no seal names yet. So any node can continue it, and
//! the parts of an abandoned upload are removed later. Clients are not trusted: each recipient is checked when its part
//! arrives, and all together before the seal.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_cluster::file_store::{AudienceFault, fetch, spread};
use reveille_cluster::process::peer_messages::PeerFile;
use reveille_ledger::content::{PARTS_MAX, Seal};
use reveille_ledger::ids::Hash;
use reveille_proto::admin::v1::{
    ErrorReason, PrepareAudienceRequest, PrepareAudienceResponse, PutPartRequest, PutPartResponse, SealAudienceRequest,
    SealAudienceResponse,
};
use reveille_raft::crash;
use tokio::sync::mpsc;
use tokio::time::{timeout, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Code, Status, Streaming};

use super::audience::{AudienceRequest, WAITING_MAX, not_written};
use super::watch::{Watched, Watcher};
use crate::server::admin::places::Place;
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts};

/// Maximum size of a part in bytes: one KiB per recipient on average.
pub const PART_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Timeout for the next piece of a part.
pub(super) const PIECE_WITHIN: Duration = Duration::from_secs(30);
/// Timeout for a whole part: the largest takes about this long at a megabit per second. No other timeout applies to
/// this call (`listen`).
pub(super) const PART_WITHIN: Duration = Duration::from_secs(600);
/// Minimum interval between two progress messages of the check.
const REPORT_EVERY: Duration = Duration::from_millis(250);
/// What helps if a part is missing or has changed.
const AGAIN: &str = "a repeat of the import sends what is missing";

impl Admin {
    pub(crate) async fn prepare_audience(
        &self,
        request: PrepareAudienceRequest,
        call: &Call,
    ) -> ApiResult<PrepareAudienceResponse> {
        let PrepareAudienceRequest { tenant, name, recipients, columns, parts } = request;
        let (parts, request_id) = (hashes(&parts), String::new());
        let seal = SealAudienceRequest { tenant, name, recipients, columns, parts: Vec::new(), request_id };
        let order = AudienceRequest::read(seal, self.limits())?;
        let parts = parts?;
        self.free(&order, call).await?;
        let missing = spread(&self.context, &parts).await.map_err(|error| not_written(&error))?;
        Ok(PrepareAudienceResponse { missing: missing.into_iter().map(|part| part.0.to_vec()).collect() })
    }

    pub(crate) async fn put_part(
        &self,
        pieces: Streaming<PutPartRequest>,
        call: &Call,
    ) -> Result<PutPartResponse, Status> {
        let _place = self.upload_place(call).await?;
        let Sent { part, number, bytes } = sent(pieces, PIECE_WITHIN, PART_WITHIN).await?;
        self.keep_part(part, &format!("part {number}"), bytes).await?;
        Ok(PutPartResponse {})
    }

    /// Waits for one of the few places for parts that are received at a time.
    pub(super) async fn upload_place(&self, call: &Call) -> ApiResult<Place> {
        let place = timeout(PIECE_WITHIN, self.uploads.take(call.tenants())).await;
        place.map_err(|_| self.uploads.refused(call.tenants(), "uploads"))
    }

    /// Stores a part on a majority. `what` names it in errors.
    pub(super) async fn keep_part(&self, part: Hash, what: &str, bytes: Vec<u8>) -> ApiResult<()> {
        match self.blocking(move |node| node.files.store_upload(part, &bytes)).await? {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return Err(ApiError::of_field("piece", format!("{what}: {error}")));
            }
            Err(error) => return Err(self.not_kept(what, &error)),
        }
        self.spread_part(part, what).await?;
        crash::point("admin.upload-part");
        Ok(())
    }

    /// Brings a part that this node has to a majority (P20). `what` names it.
    pub(super) async fn spread_part(&self, part: Hash, what: &str) -> ApiResult<()> {
        let missing = spread(&self.context, &[part]).await.map_err(|error| not_written(&error))?;
        if missing.is_empty() {
            return Ok(());
        }
        let message = format!("{what} is not on a majority yet; {AGAIN}");
        Err(ApiError::new(Code::Unavailable, ErrorReason::NoQuorum, message))
    }

    /// Returns the error of a file that this node cannot write. `what` names it.
    pub(crate) fn not_kept(&self, what: &str, error: &std::io::Error) -> ApiError {
        let name = &self.context.introduction.name;
        let help = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; free space on its volume",
            _ => "",
        };
        ApiError::new(Code::Unavailable, ErrorReason::NoQuorum, format!("{name} cannot write {what}: {error}{help}"))
    }

    pub(crate) async fn seal_audience(
        &self,
        request: SealAudienceRequest,
        call: &Call,
    ) -> ApiResult<Watched<SealAudienceResponse>> {
        let parts = hashes(&request.parts);
        let order = AudienceRequest::read(request, self.limits())?;
        let seal = order.seal(parts?);
        if let Some(wrong) = seal.wrong(self.limits()) {
            return Err(ApiError::of_field("parts", wrong.to_string()));
        }
        // A sealed audience was checked before. Its parts are spread again each time: it may be deleted just now, and
        // old parts without a seal are removed.
        let is_new = self.free(&order, call).await? != Some(seal.blob().hash);
        let (words, heard) = mpsc::channel(WAITING_MAX);
        let (admin, call) = (self.clone(), call.clone());
        tokio::spawn(async move {
            let count = seal.parts.len() as u32;
            let check = async {
                admin.check_held(&seal).await?;
                if is_new { admin.check(&seal, words.clone()).await } else { Ok(()) }
            };
            let checked = tokio::select! {
                checked = check => checked,
                () = words.closed() => return,
                () = admin.stop.cancelled() => Err(error_texts::stopping("this node is stopping; nothing was sealed")),
            };
            crash::point("admin.seal");
            let last = match checked {
                Ok(()) => admin.seal(order, seal.parts, &call).await,
                Err(fault) => Err(fault),
            };
            let last =
                last.map(|audience| SealAudienceResponse { checked: count, parts: count, audience: Some(audience) });
            // The caller may have disconnected.
            let _ = words.send(last.map_err(|fault| fault.request(call.request_id()).into())).await;
        });
        Ok(ReceiverStream::new(heard))
    }

    /// Checks that all parts are on a majority, and protects them from removal as if they were new.
    async fn check_held(&self, seal: &Seal) -> ApiResult<()> {
        let missing = spread(&self.context, &seal.parts).await.map_err(|error| not_written(&error))?;
        if missing.is_empty() {
            return Ok(());
        }
        let message = format!("{} of {} parts are on no node; {AGAIN}", missing.len(), seal.parts.len());
        Err(error_texts::precondition(ErrorReason::PartsMissing, message))
    }

    /// Checks that each recipient matches the seal, and that none is there twice.
    async fn check(&self, seal: &Seal, words: Watcher<SealAudienceResponse>) -> ApiResult<()> {
        for part in seal.parts.iter().filter(|part| !self.context.files.has(**part)) {
            fetch(&self.context, PeerFile::AudiencePart(*part)).await;
        }
        // One check at a time on a node, because each reads a whole audience and stores a mark for each row in a file.
        let turn = Arc::clone(&self.checks).acquire_owned().await;
        let seal = seal.clone();
        let parts = seal.parts.len() as u32;
        let mut reported_at = Instant::now();
        let report = move |checked: u32| {
            if reported_at.elapsed() >= REPORT_EVERY {
                reported_at = Instant::now();
                // A message that cannot be sent is dropped: a newer one follows.
                let _ = words.try_send(Ok(SealAudienceResponse { checked, parts, audience: None }));
            }
            !words.is_closed()
        };
        let checked = self.blocking(move |node| {
            // The permit is held until the thread ends, because the caller may disconnect before that.
            let _turn = turn;
            node.files.check(&seal, report)
        });
        checked.await?.map_err(|unfit| match unfit {
            AudienceFault::Wrong(why) => ApiError::of_field("parts", why),
            AudienceFault::Part(_) | AudienceFault::Disk(_) | AudienceFault::Left => {
                ApiError::new(Code::Unavailable, ErrorReason::Busy, format!("{unfit}; {AGAIN}"))
            }
        })
    }
}

/// A part as the client sent it.
#[derive(Debug)]
struct Sent {
    part: Hash,
    number: u32,
    bytes: Vec<u8>,
}

/// Receives the pieces of a part, with a time limit, because a slow sender blocks one of a few places.
async fn sent(
    mut pieces: impl Stream<Item = Result<PutPartRequest, Status>> + Unpin,
    piece_within: Duration,
    part_within: Duration,
) -> Result<Sent, Status> {
    let ends = tokio::time::Instant::now() + part_within;
    let (mut named, mut bytes): (Option<(Hash, u32)>, Vec<u8>) = (None, Vec::new());
    loop {
        let Some(next) = next_piece(&mut pieces, piece_within, ends).await? else { break };
        if named.is_none() {
            named = Some((hash(&next.part)?, next.number));
        }
        if bytes.len() + next.piece.len() > PART_BYTES_MAX {
            let message = format!("makes a part of more than {PART_BYTES_MAX} bytes; leave out columns");
            return Err(ApiError::of_field("piece", message).into());
        }
        bytes.extend_from_slice(&next.piece);
    }
    let (part, number) = named.ok_or_else(|| ApiError::of_field("part", "is missing"))?;
    Ok(Sent { part, number, bytes })
}

/// Receives the next piece; `None` at the end of the stream. Each piece and the whole part have a time limit.
pub(super) async fn next_piece<T>(
    pieces: &mut (impl Stream<Item = Result<T, Status>> + Unpin),
    within: Duration,
    ends: tokio::time::Instant,
) -> Result<Option<T>, Status> {
    let late = |_| {
        // The connection may recover, so the error suggests another attempt.
        let message = format!("the next piece of a part did not come within {} s; {AGAIN}", within.as_secs());
        Status::from(ApiError::new(Code::Unavailable, ErrorReason::Busy, message))
    };
    let too_slow = |_| Status::from(ApiError::of_field("piece", "did not come in time; make the connection faster"));
    timeout_at(ends, timeout(within, pieces.next())).await.map_err(too_slow)?.map_err(late)?.transpose()
}

fn hashes(parts: &[Vec<u8>]) -> ApiResult<Vec<Hash>> {
    if parts.len() > PARTS_MAX {
        return Err(ApiError::of_field("parts", format!("are {}, more than {PARTS_MAX}", parts.len())));
    }
    parts.iter().map(|part| hash(part)).collect()
}

fn hash(bytes: &[u8]) -> ApiResult<Hash> {
    bytes.try_into().map(Hash).map_err(|_| ApiError::of_field("part", "is not a hash of 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(bytes: usize) -> Result<PutPartRequest, Status> {
        Ok(PutPartRequest { part: vec![7; 32], number: 3, piece: vec![0; bytes] })
    }

    #[tokio::test]
    async fn part_is_its_pieces_and_has_a_size() {
        let minute = Duration::from_secs(60);
        let whole = sent(tokio_stream::iter([piece(2), piece(3)]), minute, minute).await.expect("it came");
        assert_eq!((whole.part, whole.number, whole.bytes.len()), (Hash([7; 32]), 3, 5));
        let large = tokio_stream::iter([piece(PART_BYTES_MAX), piece(1)]);
        let refused = sent(large, minute, minute).await.expect_err("too large");
        assert!(refused.message().contains("more than 67108864 bytes"), "{refused:?}");
        let nothing = sent(tokio_stream::iter([]), minute, minute).await.expect_err("nothing came");
        assert_eq!(nothing.message(), "part: is missing");
    }

    /// A sender occupies one of four places. A few bytes now and then must not keep the place.
    #[tokio::test]
    async fn slow_sender_is_disconnected() {
        let (minute, soon) = (Duration::from_secs(60), Duration::from_millis(100));
        let drip = || {
            Box::pin(tokio_stream::iter(std::iter::repeat_with(|| piece(0))).then(|piece| async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                piece
            }))
        };
        let slow = tokio::time::timeout(minute, sent(drip(), minute, soon)).await.expect("it ends by itself");
        assert!(slow.expect_err("too slow").message().contains("did not come in time"));
        let silent = sent(tokio_stream::pending(), soon, minute).await.expect_err("nothing comes");
        assert_eq!(silent.code(), Code::Unavailable, "it is tried again");
        assert!(silent.message().starts_with("the next piece of a part did not come"), "{silent:?}");
    }
}
