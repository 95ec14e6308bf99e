//! Recipients in doubt: list them with evidence, and resolve them by an operator's decision.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use reveille_cluster::compose::message_id;
use reveille_ledger::address::Mailbox;
use reveille_ledger::bitmap::{Bitmap, CHUNK};
use reveille_ledger::command::{Command, Decide, Decider, Decision};
use reveille_ledger::ids::{Fence, Hash, RecipientId, RunId};
use reveille_ledger::reply::{ChangedRecipients, CommandOutcome};
use reveille_ledger::{GapLookups, Ledger};
use reveille_proto::admin::v1::{
    Doubt, DoubtCause, DoubtGroup, GetDoubtRequest, GetDoubtResponse, ListDoubtsRequest, ListDoubtsResponse,
    Resolution, ResolveDoubtsRequest, ResolveDoubtsResponse,
};

use crate::server::admin::blobs::Blobs;
use crate::server::admin::enums::OnWire;
use crate::server::admin::lookup::{RunRecipient, RunRecipients};
use crate::server::admin::paging::EXAMINED_MAX;
use crate::server::admin::recipient_list::{PageRequest, RecipientPage};
use crate::server::admin::validate::Fields;
use crate::server::admin::views::DoubtRow;
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts, validate, views};

/// Fence of the claim and slot of a recipient in doubt.
type Key = (Fence, u16);

impl RecipientPage<DoubtRow, Key> {
    /// Reads claims, oldest first, from the end of the previous page.
    fn collect_rows(&mut self, ledger: &Ledger, wanted: &PageRequest<'_, Key>) {
        let &PageRequest { tenant, only, paging } = wanted;
        let from = paging.after.map_or(Bound::Unbounded, |(fence, _)| Bound::Included(fence));
        for (fence, claim) in ledger.claims().range((from, Bound::Unbounded)) {
            self.examined += 1;
            if self.examined > EXAMINED_MAX {
                self.more = self.last.is_some();
                return;
            }
            for slot in claim.in_doubt.iter() {
                let key = (*fence, slot);
                if paging.after.is_some_and(|after| key <= after) {
                    continue;
                }
                if self.rows.len() >= paging.size || self.blobs.is_full() {
                    self.more = true;
                    return;
                }
                self.take(ledger, (tenant, only), key);
            }
            self.last = Some((*fence, u16::MAX));
        }
    }

    fn take(&mut self, ledger: &Ledger, (tenant, only): (&str, Option<RunId>), (fence, slot): Key) {
        self.last = Some((fence, slot));
        let Some(claim) = ledger.claims().get(&fence) else { return };
        let Some(page) = ledger.pages().get(&claim.chunk.page).filter(|page| *page.tenant == *tenant) else { return };
        let whole = claim.chunk.number * CHUNK + u32::from(slot);
        let Some(run) = page.run_of_slot(whole).and_then(|position| page.runs.get(position)) else { return };
        let id = claim.chunk.page.run_id(run);
        if only.is_some_and(|only| only != id) {
            return;
        }
        self.blobs.take(ledger, run.audience);
        self.blobs.take(ledger, run.content);
        let place = (id, run, page.cluster_incarnation);
        self.rows.extend(DoubtRow::new(ledger, place, whole - run.first, (fence, claim, slot)));
    }
}

/// Builds the messages, with addresses and Message-IDs.
async fn messages(admin: &Admin, held: &[DoubtRow], blobs: &Blobs) -> Vec<Doubt> {
    let cluster = admin.context.cluster();
    let wanted: Vec<(Hash, u32)> = held.iter().map(|held| (held.audience, held.number)).collect();
    let addresses = admin.addresses(blobs, &wanted).await;
    let doubts = held.iter().zip(addresses).map(|(held, address)| {
        let sender = blobs.sender(&held.content).and_then(|sender| Mailbox::parse(&sender).ok());
        let id = sender.map(|sender| {
            let cluster = held.former_cluster.unwrap_or(cluster);
            message_id(cluster, held.cluster_incarnation, held.run, held.number, sender.address.domain())
        });
        views::doubt(held, address, id.as_deref())
    });
    doubts.collect()
}

/// What a decision would do.
#[derive(Default)]
struct ResolvePreview {
    /// The recipients that it would resolve, by cause and node, largest group first.
    groups: Vec<DoubtGroup>,
    /// Number of recipients that it would leave, because of an email within `min_gap` (P17).
    inside_gap: u64,
    /// The newest handoff of all these recipients.
    newest: Option<Fence>,
}

/// Returns what a decision about handoffs up to `up_to` would do. Fails if it concerns none of the `named` recipients.
fn preview_resolve(
    ledger: &Ledger,
    picked: &RunRecipients,
    named: &[String],
    up_to: Option<Fence>,
    resends: bool,
) -> ApiResult<ResolvePreview> {
    if resends {
        ledger.may_send_again(picked.run).map_err(|refusal| error_texts::refused(&refusal))?;
    }
    let page = ledger.page_of(picked.run).map(|(page, _, _)| page);
    let numbers: BTreeSet<u32> = picked.numbers.iter().copied().collect();
    let mut counts: BTreeMap<(DoubtCause, String), u64> = BTreeMap::new();
    let (mut lookups, mut inside_gap, mut newest, mut later) = (GapLookups::default(), 0, None, None);
    for (fence, claim) in
        ledger.claims().iter().filter(|(_, claim)| Some(claim.chunk.page) == page && !claim.in_doubt.is_empty())
    {
        let near = if resends { ledger.doubts_inside_gap(&mut lookups, picked.run, *fence) } else { Bitmap::new() };
        for slot in claim.in_doubt.iter() {
            let Some(RecipientId { run, number }) = ledger.recipient_at(claim.chunk, slot) else { continue };
            let is_meant = run == picked.run && (numbers.is_empty() || numbers.contains(&number));
            if is_meant && up_to.is_some_and(|up_to| *fence > up_to) {
                later = Some(*fence);
                continue;
            }
            if is_meant {
                newest = Some(*fence);
            }
            if is_meant && near.contains(slot) {
                inside_gap += 1;
            } else if let Some((doubt, _)) = claim.doubt(slot).filter(|_| is_meant) {
                *counts.entry((doubt.wire(), views::node_name(ledger, claim.owner.node))).or_default() += 1;
            }
        }
    }
    if counts.is_empty() && inside_gap == 0 && !named.is_empty() {
        if let Some(later) = later {
            return Err(error_texts::later_doubt(picked.run, later));
        }
        let states = states_in_words(ledger, picked.run, &picked.numbers);
        return Err(error_texts::none_is("in doubt in", named, picked.run, &states));
    }
    let group = |((cause, node), count): ((DoubtCause, String), u64)| DoubtGroup { cause: cause.into(), count, node };
    let mut groups: Vec<DoubtGroup> = counts.into_iter().map(group).collect();
    groups.sort_by_key(|group| Reverse(group.count));
    Ok(ResolvePreview { groups, inside_gap, newest })
}

/// Returns how many recipients of the command's first run changed their state.
fn changed(outcome: &CommandOutcome) -> ChangedRecipients {
    match outcome {
        CommandOutcome::ChangedByRun(runs) => runs.iter().flatten().next().copied().unwrap_or_default(),
        _ => ChangedRecipients::default(),
    }
}

/// Builds the response to a decision that was applied at this log index.
fn resolved(outcome: &CommandOutcome, index: u64) -> ResolveDoubtsResponse {
    let ChangedRecipients { recipients: resolved, inside_gap } = changed(outcome);
    ResolveDoubtsResponse { resolved, index, inside_gap, ..ResolveDoubtsResponse::default() }
}

/// Returns the states of the recipients as text: `sent`, or `2 sent, 1 dead`.
pub(crate) fn states_in_words(ledger: &Ledger, run: RunId, numbers: &[u32]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for number in numbers {
        let state = ledger.state(run, *number).map(views::state_word);
        *counts.entry(state.unwrap_or("gone")).or_default() += 1;
    }
    let words = counts
        .iter()
        .map(|(word, count)| if numbers.len() == 1 { (*word).to_owned() } else { format!("{count} {word}") });
    words.collect::<Vec<_>>().join(", ")
}

serve! {
    doubt_service_server::DoubtService {
        tenant list_doubts(ListDoubtsRequest) -> ListDoubtsResponse;
        tenant get_doubt(GetDoubtRequest) -> GetDoubtResponse;
        tenant resolve_doubts(ResolveDoubtsRequest, request_id) -> ResolveDoubtsResponse;
    }
}

impl Admin {
    async fn list_doubts(&self, request: ListDoubtsRequest, call: &Call) -> ApiResult<ListDoubtsResponse> {
        let ListDoubtsRequest { tenant, run, stale, page_size, page_token } = request;
        let (of, paging) = (("doubts", &*tenant, &*run, ""), (stale, page_size, &*page_token));
        let listed = self.list(of, paging, call, RecipientPage::collect_rows).await?;
        Ok(ListDoubtsResponse {
            doubts: messages(self, &listed.rows, &listed.blobs).await,
            next_page_token: listed.next_page_token,
            freshness: listed.freshness,
        })
    }

    async fn get_doubt(&self, request: GetDoubtRequest, call: &Call) -> ApiResult<GetDoubtResponse> {
        let picked = self.pick_one((&request.tenant, &request.run), &request.recipient, request.stale, call).await?;
        let RunRecipient { run, number, address, .. } = picked;
        let tenant = validate::tenant(&request.tenant)?;
        let mut page = RecipientPage::default();
        // `pick_one` has already waited for a fresh state, unless the caller wants a stale one.
        let (found, freshness) = self
            .read(request.stale, call, |ledger| {
                let (chunk, slot) = ledger.slot_of(run, number)?;
                let mut claims = ledger.claims().iter();
                let (fence, _) = claims.find(|(_, claim)| claim.chunk == chunk && claim.in_doubt.contains(slot))?;
                page.take(ledger, (&tenant, Some(run)), (*fence, slot));
                Some(())
            })
            .await?;
        found.ok_or_else(|| error_texts::not_in_doubt(&address, run))?;
        let doubt = messages(self, &page.rows, &page.blobs).await.pop();
        Ok(GetDoubtResponse { doubt, freshness })
    }

    async fn resolve_doubts(&self, request: ResolveDoubtsRequest, call: &Call) -> ApiResult<ResolveDoubtsResponse> {
        let ResolveDoubtsRequest { tenant, run, recipients, all, resolution, validate_only, fence, request_id } =
            request;
        let decision = match Resolution::try_from(resolution) {
            Ok(Resolution::Sent) => Decision::Assume,
            Ok(Resolution::Resend) => Decision::Resend,
            Ok(Resolution::Accepted) => Decision::Sent,
            Ok(Resolution::Unspecified) | Err(_) => {
                return Err(ApiError::of_field("resolution", "is missing; it is to say what becomes of them"));
            }
        };
        let mut fields = Fields::default();
        let request = fields.request_id(&request_id);
        let up_to = (!fence.is_empty()).then(|| fence.parse::<Fence>());
        if !validate_only && up_to.is_none() {
            let next = "give the newest that you have read: validate_only and ListDoubts name it";
            fields.refuse("fence", format!("is missing; {next}"));
        }
        let up_to = up_to.and_then(|parsed| parsed.map_err(|error| fields.refuse("fence", error.to_string())).ok());
        fields.done(Some(()))?;
        let picked = self.pick((&tenant, &run), (&recipients, all), call).await?;
        let (run, numbers, by) = (picked.run, picked.numbers.clone(), Decider::Operator);
        let command = Command::Decide(Decide { run, recipients: numbers, decision, by, up_to, request });
        let resends = decision == Decision::Resend;
        let read = self.read_latest(call, |ledger| -> ApiResult<ResolveDoubtsResponse> {
            // A repeated request finds nothing in doubt any more: the stored answer counts.
            if let Some(first) = ledger.check_repeat(&command).map_err(|refusal| error_texts::refused(&refusal))? {
                return Ok(resolved(&first.outcome, first.index));
            }
            let ResolvePreview { groups, inside_gap, newest } =
                preview_resolve(ledger, &picked, &recipients, up_to, resends)?;
            let resolved = groups.iter().map(|group| group.count).sum();
            let fence = newest.map(|fence| fence.to_string()).unwrap_or_default();
            Ok(ResolveDoubtsResponse { resolved, index: 0, groups, inside_gap, fence })
        });
        let read = read.await??;
        if validate_only || read.index > 0 {
            return Ok(read);
        }
        let reply = self.write(command, call).await?;
        Ok(resolved(&reply.outcome, reply.index))
    }
}
