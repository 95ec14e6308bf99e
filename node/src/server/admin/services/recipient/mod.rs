//! Recipients of a run; and one person: where an address of a tenant is, and its erasure ([decision
//! 0037](../../../../../../docs/decisions/0037-erasing-an-address.md)).
//!
//! The calls about a person read the whole state and the archive. They do so in slices, each with a page token, so that
//! no call takes long and no read holds the lock of the state for long.

mod erase;
mod of_run;
mod search;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use prost::Message as _;
use reveille_ledger::Ledger;
use reveille_ledger::content::Content;
use reveille_ledger::ids::RunId;
use reveille_proto::admin::v1::{
    self, EraseRecipientRequest, EraseRecipientResponse, ExportRunRecipientsRequest, FindRecipientRequest,
    FindRecipientResponse, ListRunRecipientsRequest, ListRunRecipientsResponse, PlaceKind, RecipientPlace,
    RunRecipient,
};

use super::watch::Watched;
use crate::server::admin::enums::OnWire;
use crate::server::admin::explain::{self, WaitContext};
use crate::server::admin::paging::Paging;
use crate::server::admin::{Admin, ApiResult, Call, validate, views};
use search::{FoundPerson, PersonCursor, PersonSearch, PersonUse};

/// Time after which a call ends its page.
const PAGE_WITHIN: Duration = Duration::from_secs(3);
/// Size of a page from which on it ends: places may have contents of 512 KiB each.
const PAGE_BYTES_MAX: usize = 1024 * 1024;

serve! {
    recipient_service_server::RecipientService {
        [type ExportRunRecipientsStream = Watched<RunRecipient>]
        tenant list_run_recipients(ListRunRecipientsRequest) -> ListRunRecipientsResponse;
        tenant export_run_recipients(ExportRunRecipientsRequest) -> Watched<RunRecipient>;
        tenant find_recipient(FindRecipientRequest) -> FindRecipientResponse;
        tenant erase_recipient(EraseRecipientRequest) -> EraseRecipientResponse;
    }
}

impl Admin {
    async fn find_recipient(&self, request: FindRecipientRequest, call: &Call) -> ApiResult<FindRecipientResponse> {
        let (tenant, key) =
            (validate::tenant(&request.tenant)?, validate::address_key("recipient", &request.recipient)?);
        let paging =
            Paging::<PersonCursor>::within("places", &(&tenant, &key), request.page_size, &request.page_token)?;
        let (mut places, freshness) = match &paging.after {
            None => self.read(request.stale, call, |ledger| opt_outs(ledger, &tenant, &key)).await?,
            Some(_) => self.read(request.stale, call, |_| Vec::new()).await?,
        };
        let around = WaitContext {
            node: self.context.introduction.name.clone(),
            relays: BTreeMap::new(),
            missing: self.missing(),
        };
        let (mut search, begun) = (PersonSearch::new(self, &tenant, &key), Instant::now());
        let (mut next, mut bytes) = (Some(paging.after.clone().unwrap_or_default()), 0);
        let has_room = |count, bytes| count < paging.size && bytes < PAGE_BYTES_MAX;
        while let Some(cursor) = next.take_if(|_| has_room(places.len(), bytes) && begun.elapsed() < PAGE_WITHIN) {
            let (found, after) = search.slice(&cursor).await?;
            let mut found = found.into_iter();
            let mut last = None;
            while has_room(places.len(), bytes)
                && let Some(found) = found.next()
            {
                last = Some(found.next.clone());
                let events = request.with_events.then_some(&around);
                let place = self.place(found, &key, events).await?;
                bytes += place.encoded_len();
                places.push(place);
            }
            next = if found.len() > 0 { last } else { after };
        }
        let (next_page_token, lost_parts) = (paging.token(next.as_ref()), search.lost_parts());
        Ok(FindRecipientResponse { places, next_page_token, freshness, lost_parts })
    }

    /// Shows a place. `events`: with the history of a run.
    async fn place(&self, found: FoundPerson, key: &str, events: Option<&WaitContext>) -> ApiResult<RecipientPlace> {
        let FoundPerson { place, archived, person, has_no_other_person, .. } = found;
        let with_content = has_no_other_person && events.is_some();
        let shown = RecipientPlace {
            number: Some(person.number),
            address: person.recipient.address,
            values: person.columns.into_iter().zip(person.recipient.values).collect::<BTreeMap<_, _>>(),
            archived,
            ..RecipientPlace::default()
        };
        match place {
            PersonUse::Audience(name) => Ok(RecipientPlace { kind: PlaceKind::Audience.into(), name, ..shown }),
            PersonUse::Schedule(id, name) => {
                let read = |ledger: &Ledger| {
                    let content = ledger.schedules().get(&id)?.content;
                    ledger.blob(&content).map(<[u8]>::to_vec)
                };
                let content = with_content.then(|| self.context.replica.read(read)).flatten().and_then(mail);
                Ok(RecipientPlace { kind: PlaceKind::Schedule.into(), name, content, ..shown })
            }
            PersonUse::Run(id) => self.run_place(id, person.number, (key, with_content), shown, events).await,
        }
    }

    async fn run_place(
        &self,
        id: RunId,
        number: u32,
        (key, with_content): (&str, bool),
        shown: RecipientPlace,
        events: Option<&WaitContext>,
    ) -> ApiResult<RecipientPlace> {
        let read = self.read_run(id, |at| {
            let (_, page, position) = at.own.page_of(id)?;
            let run = page.runs.get(position)?;
            let schedule = run.name.to_string();
            let content = at.own.blob(&run.content).or_else(|| at.state.blob(&run.content));
            let content = content.filter(|_| with_content).map(<[u8]>::to_vec);
            let state = at.own.state(id, number)?.wire();
            let reported = events.and_then(|around| explain::collect_events(at, (id, number, Some(key)), around));
            let events = reported.map(|(_, events)| events).unwrap_or_default();
            Some((schedule, state, views::timestamp(page.opened_at), (events, content)))
        });
        let shown = RecipientPlace { kind: PlaceKind::Run.into(), name: id.to_string(), ..shown };
        // The run may have left since it was found.
        let Some((schedule, state, at, (events, content))) = read.await? else { return Ok(shown) };
        let content = content.and_then(mail);
        Ok(RecipientPlace { schedule, state: state.into(), time: Some(at), events, content, ..shown })
    }
}

/// Builds the message of a stored content.
fn mail(bytes: Vec<u8>) -> Option<v1::Content> {
    Some(views::mail(&Content::from_blob(&bytes)?))
}

/// Returns the opt-out of an address, or how it was taken back.
fn opt_outs(ledger: &Ledger, tenant: &str, key: &str) -> Vec<RecipientPlace> {
    let place = |kind: PlaceKind| RecipientPlace { kind: kind.into(), ..RecipientPlace::default() };
    let of = (tenant.to_owned(), key.to_owned());
    let opted_out = ledger.opt_out_of(&of);
    let opted_out =
        opted_out.map(|known| RecipientPlace { time: Some(views::timestamp(known.at)), ..place(PlaceKind::OptOut) });
    let back = ledger.taken_back().get(&of);
    let back = back.map(|back| {
        let (at, reason) = (Some(views::timestamp(back.at)), back.reason.clone());
        RecipientPlace { time: at, reason, address: key.to_owned(), ..place(PlaceKind::TakenBack) }
    });
    opted_out.into_iter().chain(back).collect()
}
