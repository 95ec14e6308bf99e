//! Dead letters: list, count by reason, requeue, discard.

use std::collections::BTreeMap;

use prost::Message;
use reveille_ledger::DeadLetter;
use reveille_ledger::command::{Command, PickedLetters, PickedRecipients, Requeue};
use reveille_ledger::ids::{Hash, RecipientId, RunId, Time};
use reveille_ledger::reply::{ChangedRecipients, CommandOutcome};
use reveille_ledger::{GapLookups, Ledger};
use reveille_proto::admin::v1::{
    CountDeadLettersRequest, CountDeadLettersResponse, DeadLetterGroup, DeadLetterReason, DiscardDeadLettersRequest,
    DiscardDeadLettersResponse, ListDeadLettersRequest, ListDeadLettersResponse, RequeueDeadLettersRequest,
    RequeueDeadLettersResponse,
};

use super::dead_letter_pages::{Filter, reason};
use super::doubt::states_in_words;
use crate::server::admin::access::PII;
use crate::server::admin::paging::Paging;
use crate::server::admin::recipient_list::RecipientPage;
use crate::server::admin::validate::Fields;
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts, validate, views};

/// Name of the list, for its page tokens.
const LIST: &str = "dead-letters";
/// Maximum number of dead letters that one entry moves, so that it does not delay other entries.
const BATCH: i32 = 1_000;

/// Key, audience of the run, and the dead letter itself.
type DeadLetterRow = (RecipientId, Hash, DeadLetter);

/// Dead letters with the same reason, among all that a page has read.
struct Group {
    count: u64,
    oldest: Time,
    newest: DeadLetterRow,
}

/// The dead letters to requeue or discard, from the state.
#[derive(Default)]
struct Batch {
    picked: Vec<PickedRecipients>,
    /// Number of dead letters among the picked recipients.
    count: u64,
    /// Number of dead letters that were left out because their run is cancelled.
    cancelled: u64,
    /// Recipient after which the next page begins.
    rest: Option<RecipientId>,
}

impl Admin {
    /// Returns the recipients that the request names, or one page of all dead letters that its filter selects.
    /// `cancelled`: with those of cancelled runs.
    async fn letters(&self, request: RequeueDeadLettersRequest, cancelled: bool, call: &Call) -> ApiResult<Batch> {
        let RequeueDeadLettersRequest { tenant, run, recipients, all, filter, page_token, .. } = request;
        if !all || !recipients.is_empty() {
            if filter.is_some() {
                let both = "goes with all, and recipients are named; choose one";
                return Err(ApiError::of_field("filter", both));
            }
            let picked = self.pick((&tenant, &run), (&recipients, all), call).await?;
            let (run, numbers) = (picked.run, picked.numbers);
            let count = self.context.replica.read(|ledger| {
                if !cancelled {
                    ledger.may_send_again(run).map_err(|refusal| error_texts::refused(&refusal))?;
                }
                let letters = numbers.iter().filter_map(|number| ledger.dead().get(&run.recipient(*number)));
                let count = letters.filter(|letter| !letter.discarded).count();
                if count > 0 || recipients.is_empty() {
                    return Ok(count);
                }
                let states = states_in_words(ledger, run, &numbers);
                Err(error_texts::none_is("a dead letter of", &recipients, run, &states))
            })?;
            let picked = vec![PickedRecipients { run, recipients: numbers }];
            return Ok(Batch { picked, count: count as u64, ..Batch::default() });
        }
        let filter = Filter::read(filter)?;
        let (of, paging) = ((LIST, &*tenant, &*run, &*filter.schedule), (false, BATCH, &*page_token));
        let (mut left_out, mut rest) = (0, None);
        let listed = self.list(of, paging, call, |page: &mut RecipientPage<_, RecipientId>, ledger, wanted| {
            page.walk(ledger, wanted, &filter, |page, (key, run, _)| {
                if cancelled || !run.state.is_cancelled() {
                    page.rows.push(key);
                } else {
                    left_out += 1;
                }
            });
            rest = page.last.filter(|_| page.more);
        });
        let listed = listed.await?;
        let mut by_run: BTreeMap<RunId, Vec<u32>> = BTreeMap::new();
        for recipient in &listed.rows {
            by_run.entry(recipient.run).or_default().push(recipient.number);
        }
        let picked = by_run.into_iter().map(|(run, recipients)| PickedRecipients { run, recipients }).collect();
        Ok(Batch { picked, count: listed.rows.len() as u64, cancelled: left_out, rest })
    }

    /// Requeues dead letters, or `discards` them. With `validate_only` it counts them.
    async fn move_letters(
        &self,
        request: RequeueDeadLettersRequest,
        discards: bool,
        call: &Call,
    ) -> ApiResult<RequeueDeadLettersResponse> {
        let body = RequeueDeadLettersRequest { request_id: String::new(), validate_only: false, ..request.clone() };
        let body_hash = Hash::of(&body.encode_to_vec());
        let mut fields = Fields::default();
        let request_id = fields.request_id(&request.request_id);
        fields.done(Some(()))?;
        let tenant = validate::tenant(&request.tenant)?;
        let pool = Some(body.pool).filter(|pool| !pool.is_empty());
        let validate_only = request.validate_only;
        let command = |Batch { picked, cancelled, rest, .. }: Batch| {
            let (request, tenant, of) = (request_id.clone(), tenant.clone(), body.run.clone());
            let letters = PickedLetters { request, body_hash, tenant, of, picked, cancelled, rest };
            match discards {
                true => Command::Discard(letters),
                false => Command::Requeue(Requeue { letters, pool: pool.clone() }),
            }
        };
        let batch = self.letters(request, discards, call).await;
        // A repeat finds other dead letters, or none: the stored answer counts. The state is as new as that read.
        let repeated = command(Batch::default());
        let first = self.context.replica.read(|ledger| ledger.check_repeat(&repeated).map(|first| first.cloned()));
        if let Some(first) = first.map_err(|refusal| error_texts::refused(&refusal))? {
            return response(&first.outcome, first.index);
        }
        let batch = batch?;
        if let Some(pool) = &pool {
            let serves = |ledger: &Ledger| ledger.serves(pool) && ledger.tenant(&tenant).may_use(pool);
            let wrong = || ApiError::of_field("pool", validate::no_relay_of(pool));
            self.context.replica.read(serves).then_some(()).ok_or_else(wrong)?;
        }
        if validate_only || batch.picked.is_empty() {
            let inside_gap = match discards {
                true => 0,
                false => self.context.replica.read(|ledger| inside_gap(ledger, &batch.picked)),
            };
            let moved = ChangedRecipients { recipients: batch.count.saturating_sub(inside_gap), inside_gap };
            let Batch { cancelled, rest, .. } = batch;
            return response(&CommandOutcome::DeadLetters { moved, cancelled, rest }, 0);
        }
        let reply = self.write(command(batch), call).await?;
        response(&reply.outcome, reply.index)
    }
}

/// Builds the response to a command that was applied at this log index.
fn response(outcome: &CommandOutcome, index: u64) -> ApiResult<RequeueDeadLettersResponse> {
    let CommandOutcome::DeadLetters { moved, cancelled, rest } = outcome else {
        return Err(error_texts::broken(format!("dead letters were answered by {outcome:?}")));
    };
    Ok(RequeueDeadLettersResponse {
        requeued: moved.recipients,
        index,
        next_page_token: Paging::<RecipientId>::new(LIST, 0, "")?.token(rest.as_ref()),
        cancelled: *cancelled,
        inside_gap: moved.inside_gap,
    })
}

/// Returns how many of the picked recipients a requeue would leave, because of an email within `min_gap` (P17).
fn inside_gap(ledger: &Ledger, picked: &[PickedRecipients]) -> u64 {
    let mut lookups = GapLookups::default();
    let of_run = |picked: &PickedRecipients| {
        let listed =
            |number: &u32| ledger.dead().get(&picked.run.recipient(*number)).is_some_and(|letter| !letter.discarded);
        let numbers = picked.recipients.iter().copied().filter(listed);
        ledger.inside_gap(&mut lookups, picked.run, numbers).len() as u64
    };
    picked.iter().map(of_run).sum()
}

serve! {
    dead_letter_service_server::DeadLetterService {
        tenant list_dead_letters(ListDeadLettersRequest) -> ListDeadLettersResponse;
        tenant count_dead_letters(CountDeadLettersRequest) -> CountDeadLettersResponse;
        tenant requeue_dead_letters(RequeueDeadLettersRequest, request_id) -> RequeueDeadLettersResponse;
        tenant discard_dead_letters(DiscardDeadLettersRequest, request_id) -> DiscardDeadLettersResponse;
    }
}

impl Admin {
    async fn list_dead_letters(
        &self,
        request: ListDeadLettersRequest,
        call: &Call,
    ) -> ApiResult<ListDeadLettersResponse> {
        let ListDeadLettersRequest { tenant, run, filter, stale, page_size, page_token } = request;
        let filter = Filter::read(filter)?;
        let (of, paging) = ((LIST, &*tenant, &*run, &*filter.schedule), (stale, page_size, &*page_token));
        let listed = self.list(of, paging, call, |page: &mut RecipientPage<DeadLetterRow, _>, ledger, wanted| {
            page.walk(ledger, wanted, &filter, |page, (key, run, letter)| {
                page.blobs.take(ledger, run.audience);
                page.rows.push((key, run.audience, letter.clone()));
            });
        });
        let listed = listed.await?;
        let wanted: Vec<_> = listed.rows.iter().map(|(recipient, audience, _)| (*audience, recipient.number)).collect();
        let addresses = self.addresses(&listed.blobs, &wanted).await;
        let letters = listed.rows.iter().zip(addresses);
        let dead_letters =
            letters.map(|((recipient, _, letter), address)| views::dead_letter(*recipient, address, letter));
        Ok(ListDeadLettersResponse {
            dead_letters: dead_letters.collect(),
            next_page_token: listed.next_page_token,
            freshness: listed.freshness,
        })
    }

    async fn count_dead_letters(
        &self,
        request: CountDeadLettersRequest,
        call: &Call,
    ) -> ApiResult<CountDeadLettersResponse> {
        let CountDeadLettersRequest { tenant, run, filter, page_token, stale } = request;
        let filter = Filter::read(filter)?;
        let (of, paging) = ((LIST, &*tenant, &*run, &*filter.schedule), (stale, BATCH, &*page_token));
        // A caller who may not see addresses needs no audience copied under the read lock.
        let sees_addresses = call.has(PII);
        let mut groups: BTreeMap<(u32, String, i32), Group> = BTreeMap::new();
        let listed = self.list(of, paging, call, |page: &mut RecipientPage<(), _>, ledger, wanted| {
            page.walk(ledger, wanted, &filter, |page, (key, run, letter)| {
                let this = || (key, run.audience, letter.clone());
                let DeadLetterReason { death_reason, code, enhanced } = reason(letter);
                let group = groups.entry((code, enhanced, death_reason)).or_insert_with(|| {
                    // The page counts groups, not letters.
                    page.rows.push(());
                    Group { count: 0, oldest: letter.since, newest: this() }
                });
                group.count += 1;
                group.oldest = group.oldest.min(letter.since);
                if letter.since > group.newest.2.since {
                    group.newest = this();
                }
                if sees_addresses {
                    page.blobs.take(ledger, group.newest.1);
                }
            });
        });
        let listed = listed.await?;
        let wanted: Vec<_> = groups.values().map(|group| (group.newest.1, group.newest.0.number)).collect();
        let addresses = self.addresses(&listed.blobs, &wanted).await;
        let views_of_groups = groups.into_iter().zip(addresses).map(|((reason, group), address)| {
            let (code, enhanced, death_reason) = reason;
            let (recipient, _, letter) = &group.newest;
            DeadLetterGroup {
                reason: Some(DeadLetterReason { death_reason, code, enhanced }),
                count: group.count,
                oldest_time: Some(views::timestamp(group.oldest)),
                newest_time: Some(views::timestamp(letter.since)),
                // A relay's text often contains the address too, so the whole example is left out.
                example: sees_addresses.then(|| views::dead_letter(*recipient, address, letter)),
            }
        });
        let mut groups: Vec<DeadLetterGroup> = views_of_groups.collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.count));
        let (next_page_token, freshness) = (listed.next_page_token, listed.freshness);
        Ok(CountDeadLettersResponse { groups, next_page_token, freshness })
    }

    async fn requeue_dead_letters(
        &self,
        request: RequeueDeadLettersRequest,
        call: &Call,
    ) -> ApiResult<RequeueDeadLettersResponse> {
        self.move_letters(request, false, call).await
    }

    async fn discard_dead_letters(
        &self,
        request: DiscardDeadLettersRequest,
        call: &Call,
    ) -> ApiResult<DiscardDeadLettersResponse> {
        let DiscardDeadLettersRequest { tenant, run, recipients, all, filter, .. } = request;
        let DiscardDeadLettersRequest { validate_only, page_token, request_id, .. } = request;
        let request = RequeueDeadLettersRequest {
            tenant,
            run,
            recipients,
            all,
            filter,
            validate_only,
            page_token,
            request_id,
            pool: String::new(),
        };
        let RequeueDeadLettersResponse { requeued: discarded, index, next_page_token, .. } =
            self.move_letters(request, true, call).await?;
        Ok(DiscardDeadLettersResponse { discarded, index, next_page_token })
    }
}
