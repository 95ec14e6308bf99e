//! The recipients of a run in the order of their numbers: one page, or a stream of all.
//!
//! Both read slice by slice: each is copied under the lock of the state, and made into rows without it.

use std::time::Instant;

use reveille_ledger::RecipientState;
use reveille_ledger::ids::RunId;
use reveille_proto::admin::v1::{
    ExportRunRecipientsRequest, ListRunRecipientsRequest, ListRunRecipientsResponse, RunRecipient,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::PAGE_WITHIN;
use crate::server::admin::access::PII;
use crate::server::admin::blobs::Blobs;
use crate::server::admin::enums::OnWire;
use crate::server::admin::lookup::absent;
use crate::server::admin::paging::Paging;
use crate::server::admin::services::watch::{STOPPING, Watched};
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts, validate, views};

/// Name of the list, for its page tokens.
const LIST: &str = "recipients of a run";
/// Maximum number of recipients that an export reads at once. The claims of a chunk are unpacked each time.
const SLICE_MAX: usize = 4_096;
/// Maximum number of recipients that wait for the client of an export.
const WAITING_MAX: usize = 256;

/// What is listed.
#[derive(Clone)]
struct RecipientListing {
    run: RunId,
    /// Empty for all states.
    states: Vec<RecipientState>,
    call: Call,
}

/// Reads the states of a request. The ledger has each of the API's.
fn states_of(requested: &[i32]) -> ApiResult<Vec<RecipientState>> {
    let wanted = validate::states(requested)?;
    Ok(RecipientState::ALL.into_iter().filter(|state| wanted.contains(&state.wire())).collect())
}

impl Admin {
    pub(super) async fn list_run_recipients(
        &self,
        request: ListRunRecipientsRequest,
        call: &Call,
    ) -> ApiResult<ListRunRecipientsResponse> {
        let states = states_of(&request.states)?;
        // The key of a page is the number of its first recipient.
        let paging =
            Paging::<u32>::within(LIST, &(&request.run, &request.states), request.page_size, &request.page_token)?;
        let (run, freshness) = self.find_run((&request.tenant, &request.run), request.stale, call).await?;
        let listing = RecipientListing { run, states, call: call.clone() };
        let (mut recipients, begun) = (Vec::new(), Instant::now());
        let mut next = Some(paging.after.unwrap_or_default());
        while let Some(from) = next
            && recipients.len() < paging.size
            && begun.elapsed() < PAGE_WITHIN
        {
            let (found, after) = self.recipients_of(&listing, from, paging.size - recipients.len()).await?;
            recipients.extend(found);
            next = after;
        }
        Ok(ListRunRecipientsResponse { recipients, next_page_token: paging.token(next.as_ref()), freshness })
    }

    /// Streams the recipients. The stream ends with an error if it is not whole.
    pub(super) async fn export_run_recipients(
        &self,
        request: ExportRunRecipientsRequest,
        call: &Call,
    ) -> ApiResult<Watched<RunRecipient>> {
        let states = states_of(&request.states)?;
        let (run, _) = self.find_run((&request.tenant, &request.run), request.stale, call).await?;
        let listing = RecipientListing { run, states, call: call.clone() };
        // An error about the run comes before the stream.
        let mut slice = self.recipients_of(&listing, 0, SLICE_MAX).await?;
        let place = self.stream_place(call)?;
        let (rows, received) = mpsc::channel(WAITING_MAX);
        let admin = self.clone();
        tokio::spawn(async move {
            let _place = place;
            loop {
                let (found, next) = slice;
                for row in found {
                    if rows.send(Ok(row)).await.is_err() {
                        return;
                    }
                }
                let Some(from) = next else { return };
                let read = match admin.stop.is_cancelled() {
                    true => Err(error_texts::stopping(STOPPING)),
                    false => admin.recipients_of(&listing, from, SLICE_MAX).await,
                };
                slice = match read {
                    Ok(read) => read,
                    Err(fault) => {
                        // The client may have disconnected.
                        let _ = rows.send(Err(fault.into())).await;
                        return;
                    }
                };
            }
        });
        Ok(ReceiverStream::new(received))
    }

    /// Returns at most `most` recipients of a run from number `from` on, and the number from which to go on; `None`:
    /// there are no more.
    async fn recipients_of(
        &self,
        listing: &RecipientListing,
        from: u32,
        most: usize,
    ) -> ApiResult<(Vec<RunRecipient>, Option<u32>)> {
        let RecipientListing { run, states, call } = listing;
        let shows_addresses = call.has(PII);
        let mut blobs = Blobs::default();
        let slice = self.read_run(*run, |at| {
            // A token that was revoked before this state reads nothing of it.
            call.check(at.state)?;
            let slice = at.own.recipient_slice(*run, from, states, most).ok_or_else(|| absent(at.own, *run))?;
            if shows_addresses && !slice.is_empty() {
                blobs.take_of_run(at, slice.audience);
            }
            Ok::<_, ApiError>(slice)
        });
        let slice = slice.await??;
        let (audience, next) = (slice.audience, slice.next);
        let rows = self.blocking(move |_| slice.rows()).await?;
        let addresses = match shows_addresses {
            true => {
                let wanted: Vec<_> = rows.iter().map(|row| (audience, row.number)).collect();
                self.addresses(&blobs, &wanted).await.into_iter().map(Some).collect()
            }
            false => vec![None; rows.len()],
        };
        let recipients = rows.into_iter().zip(addresses);
        Ok((recipients.map(|(row, address)| views::run_recipient(row, address)).collect(), next))
    }
}
