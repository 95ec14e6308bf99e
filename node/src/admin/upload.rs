//! What an import asks (P20): what is missing, here is a part, now seal.
//!
//! No node knows of an upload: it is some files that no seal names yet. So whichever node is asked next goes on with
//! it, and one that is given up leaves nothing. What a client says is not believed: each recipient is looked at when
//! its part comes, and all together before they are sealed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_cluster::parts::{Unfit, fetch, spread};
use reveille_ledger::content::{PARTS_MAX, Seal};
use reveille_ledger::ids::Hash;
use reveille_proto::admin::v1::{
    ErrorReason, PrepareAudienceRequest, PrepareAudienceResponse, PutPartRequest, PutPartResponse, SealAudienceRequest,
    SealAudienceResponse,
};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Code, Request, Status, Streaming};

use super::audience::{Order, WAITING_MAX, not_written, stopping};
use super::{Admin, Fault, deadline};

/// Bytes of a part that somebody sends: a recipient has one KiB on average.
pub const PART_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long the next piece of a part is waited for.
const PIECE_WITHIN: Duration = Duration::from_secs(30);
/// How often it is told how many parts were looked at.
const TELL_EVERY: Duration = Duration::from_millis(250);
/// What to do where a part is not what it was.
const AGAIN: &str = "the same import again: it sends what is missing";

impl Admin {
    pub(super) async fn prepare(
        &self,
        request: Request<PrepareAudienceRequest>,
    ) -> Result<PrepareAudienceResponse, Fault> {
        let deadline = deadline::of(&request);
        let PrepareAudienceRequest { tenant, name, recipients, columns, parts } = request.into_inner();
        let order = Order::read(Order { tenant, name, columns, rows: recipients, request: None })?;
        let parts = hashes(&parts)?;
        self.free(&order, deadline).await?;
        let missing = spread(&self.site, &parts).await.map_err(|error| not_written(&error))?;
        Ok(PrepareAudienceResponse { missing: missing.into_iter().map(|part| part.0.to_vec()).collect() })
    }

    pub(super) async fn receive(&self, mut pieces: Streaming<PutPartRequest>) -> Result<PutPartResponse, Status> {
        let busy = || Fault::new(Code::Unavailable, ErrorReason::Busy, "too many parts are received here now");
        let one = timeout(PIECE_WITHIN, Arc::clone(&self.uploads).acquire_owned()).await;
        let _one = one.ok().and_then(Result::ok).ok_or_else(busy)?;
        let (mut named, mut bytes): (Option<(Hash, u32)>, Vec<u8>) = (None, Vec::new());
        loop {
            let late = |_| Status::from(Fault::of_field("piece", "did not come in time"));
            let Some(next) = timeout(PIECE_WITHIN, pieces.message()).await.map_err(late)?? else { break };
            if named.is_none() {
                named = Some((hash(&next.part)?, next.number));
            }
            if bytes.len() + next.piece.len() > PART_BYTES_MAX {
                let message = format!("makes a part of more than {PART_BYTES_MAX} bytes; leave out columns");
                return Err(Fault::of_field("piece", message).into());
            }
            bytes.extend_from_slice(&next.piece);
        }
        let (part, number) = named.ok_or_else(|| Fault::of_field("part", "is missing"))?;
        let site = Arc::clone(&self.site);
        let kept = tokio::task::spawn_blocking(move || site.parts.admit(part, &bytes)).await;
        match kept.unwrap_or_else(|panic| Err(std::io::Error::other(panic))) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                return Err(Fault::of_field("piece", format!("part {number}: {error}")).into());
            }
            Err(error) => {
                let message = format!("{} cannot write part {number}: {error}", self.site.introduction.name);
                return Err(Fault::new(Code::Unavailable, ErrorReason::NoQuorum, message)
                    .next("reveille doctor")
                    .into());
            }
        }
        let missing = spread(&self.site, &[part]).await.map_err(|error| not_written(&error))?;
        if !missing.is_empty() {
            // P20: nobody of a majority has said that it has it, this node among them.
            let message = format!("part {number} is not on a majority yet");
            return Err(Fault::new(Code::Unavailable, ErrorReason::NoQuorum, message).next(AGAIN).into());
        }
        Ok(PutPartResponse {})
    }

    pub(super) async fn seal_uploaded(
        &self,
        request: Request<SealAudienceRequest>,
    ) -> Result<mpsc::Receiver<Result<SealAudienceResponse, Status>>, Fault> {
        let deadline = deadline::of(&request);
        let SealAudienceRequest { tenant, name, recipients, columns, parts, request_id } = request.into_inner();
        let order = Order::read(Order { tenant, name, columns, rows: recipients, request: Some(request_id) })?;
        let seal = order.seal(hashes(&parts)?);
        if let Some(wrong) = seal.wrong() {
            return Err(Fault::of_field("parts", wrong));
        }
        // What is sealed has been looked at; the ledger says so once more.
        let is_new = self.free(&order, deadline).await? != Some(seal.blob().hash);
        let (words, heard) = mpsc::channel(WAITING_MAX);
        let admin = self.share();
        tokio::spawn(async move {
            let count = seal.parts.len() as u32;
            let checked = tokio::select! {
                checked = admin.check(&seal, words.clone()), if is_new => checked,
                () = std::future::ready(()), if !is_new => Ok(()),
                () = words.closed() => return,
                () = admin.stop.cancelled() => Err(stopping()),
            };
            let last = match checked {
                Ok(()) => admin.seal(order, seal.parts).await,
                Err(fault) => Err(fault),
            };
            let last =
                last.map(|audience| SealAudienceResponse { checked: count, parts: count, audience: Some(audience) });
            // A caller who is gone needs no last word.
            let _ = words.send(last.map_err(Status::from)).await;
        });
        Ok(heard)
    }

    /// Are all parts on a majority, and nobody in them twice?
    async fn check(&self, seal: &Seal, words: mpsc::Sender<Result<SealAudienceResponse, Status>>) -> Result<(), Fault> {
        let missing = spread(&self.site, &seal.parts).await.map_err(|error| not_written(&error))?;
        if !missing.is_empty() {
            let message = format!("{} of {} parts are on no node", missing.len(), seal.parts.len());
            return Err(Fault::new(Code::FailedPrecondition, ErrorReason::NotPossible, message).next(AGAIN));
        }
        for part in seal.parts.iter().filter(|part| !self.site.parts.has(**part)) {
            fetch(&self.site, *part).await;
        }
        let (site, seal) = (Arc::clone(&self.site), seal.clone());
        let parts = seal.parts.len() as u32;
        let mut told = Instant::now();
        let tell = move |checked: u32| {
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                // How far it was does not matter any more when the next word comes.
                let _ = words.try_send(Ok(SealAudienceResponse { checked, parts, audience: None }));
            }
            !words.is_closed()
        };
        let checked = tokio::task::spawn_blocking(move || site.parts.check(&seal, tell)).await;
        checked.unwrap_or_else(|panic| Err(Unfit::Disk(panic.to_string()))).map_err(|unfit| match unfit {
            Unfit::Wrong(why) => Fault::of_field("parts", why),
            Unfit::Part(_) | Unfit::Disk(_) | Unfit::Left => {
                Fault::new(Code::Unavailable, ErrorReason::Busy, unfit.to_string()).next(AGAIN)
            }
        })
    }
}

fn hashes(parts: &[Vec<u8>]) -> Result<Vec<Hash>, Fault> {
    if parts.len() > PARTS_MAX {
        return Err(Fault::of_field("parts", format!("are {}, more than {PARTS_MAX}", parts.len())));
    }
    parts.iter().map(|part| hash(part)).collect()
}

fn hash(bytes: &[u8]) -> Result<Hash, Fault> {
    bytes.try_into().map(Hash).map_err(|_| Fault::of_field("part", "is no hash of 32 bytes"))
}
