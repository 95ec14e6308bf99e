//! Messages: send, show, cancel. Each is a run that is named by the caller's key.

mod batches;

pub use batches::MessageBatches;
use reveille_ledger::Ledger;
use reveille_ledger::command::SendMessage;
use reveille_ledger::ids::{Hash, RunId};
use reveille_ledger::reply::MessageReceipt;
use reveille_proto::admin::v1::{
    self, CancelMessageRequest, CancelMessageResponse, CancelRunRequest, Freshness, GetMessageRequest,
    GetMessageResponse, Message, MessageRecipient, Run, RunCause, ScheduleBody, SendMessageRequest,
    SendMessageResponse,
};

use super::schedule::create;
use crate::server::admin::access::PII;
use crate::server::admin::archive::shown_or_lost;
use crate::server::admin::blobs::Blobs;
use crate::server::admin::enums::OnWire;
use crate::server::admin::validate::{self, CheckedMessage, Fields};
use crate::server::admin::{Admin, ApiResult, Call, error_texts, views};

/// Maximum number of recipients in the response about a message.
const RECIPIENTS_SHOWN: u32 = 1_000;

serve! {
    message_service_server::MessageService {
        tenant send_message(SendMessageRequest, key) -> SendMessageResponse;
        tenant get_message(GetMessageRequest) -> GetMessageResponse;
        tenant cancel_message(CancelMessageRequest) -> CancelMessageResponse;
    }
}

impl Admin {
    async fn send_message(&self, mut request: SendMessageRequest, call: &Call) -> ApiResult<SendMessageResponse> {
        let (key, validate_only) = (request.key.clone(), request.validate_only);
        if !request.template.is_empty() {
            // Another node may have stored the version that the caller means.
            self.read_latest(call, |_| ()).await?;
        }
        if let Some(first) = self.first_answer(&request, call).await? {
            return Ok(first);
        }
        let mut fields = Fields::default();
        // A message keeps no file of another one.
        let files = self.take_files(&mut fields, ("content", request.content.as_mut()), ("", ""), call).await?;
        fields.done(Some(()))?;
        let (tenant, message, duplicates) = match self.repeated_message(&request)? {
            Some(first) => first,
            None => self.checked_message(request)?,
        };
        let warnings = create::warnings_of(self, [&*message.pool], message.content.bulk);
        if validate_only {
            let known = self.read_latest(call, |ledger| ledger.check_message(&tenant, &message)).await?;
            let known = known.map_err(|refusal| error_texts::refused(&refusal))?;
            let run = match known {
                Some(run) => shown_or_lost(run, self.show_run(run).await)?,
                None => self.would_open(&tenant, &message),
            };
            let replayed = known.is_some();
            return Ok(SendMessageResponse { message: Some(shown(tenant, key, run)), replayed, warnings, duplicates });
        }
        self.store_files(files, [&message.content]).await?;
        let MessageReceipt { run, is_repeat } = MessageBatches::send(self, &tenant, message, call).await?;
        let run = shown_or_lost(run, self.show_run(run).await)?;
        let message = Some(shown(tenant, key, run));
        Ok(SendMessageResponse { message, replayed: is_repeat, warnings, duplicates })
    }

    /// Checks a request, by the state of this node. Returns its tenant, its message and the duplicates of its recipients.
    fn checked_message(&self, request: SendMessageRequest) -> ApiResult<(String, SendMessage, Vec<v1::Duplicate>)> {
        let now = self.now(self.context.replica.read(|ledger| ledger.head().now));
        let mut fields = Fields::default();
        let send_at = validate::message_fields(&mut fields, &request, now);
        let rule = validate::key_rule(&mut fields, request.key_rule);
        fields.done(Some(()))?;
        let SendMessageRequest { tenant, key, content, template, to, audience, pool, priority, policies, .. } = request;
        let is_by_address = audience.is_none();
        let recipient = |address| v1::Recipient { address, values: Vec::new() };
        let audience = audience.unwrap_or_else(|| v1::Audience {
            recipients: to.into_iter().map(recipient).collect(),
            ..v1::Audience::default()
        });
        let audience = Some(audience);
        let body =
            ScheduleBody { tenant, pool, priority, policies, content, template, audience, ..ScheduleBody::default() };
        let parts = validate::message_parts(&self.context, body, now);
        let rename = |field: &str| {
            let field = validate::without_schedule(field);
            let place = field.strip_prefix("audience.recipients").and_then(|rest| rest.strip_suffix(".address"));
            place.filter(|_| is_by_address).map_or_else(|| field.clone(), |place| format!("to{place}"))
        };
        let CheckedMessage { tenant, content, audience, pool, priority, policies, duplicates } =
            parts.map_err(|fault| fault.rename_fields(rename))?;
        let message = SendMessage { key, rule, is_test: false, content, audience, send_at, pool, priority, policies };
        Ok((tenant, message, duplicates))
    }

    /// Returns the first answer to a repeated key with the rule `first_wins`, whatever the body of the repeat is. The
    /// template may be deleted by now, so nothing else of the request is checked. A key that this node does not know yet
    /// is found when the message is applied.
    async fn first_answer(&self, request: &SendMessageRequest, call: &Call) -> ApiResult<Option<SendMessageResponse>> {
        if request.key_rule() != v1::KeyRule::FirstWins {
            return Ok(None);
        }
        let tenant = validate::tenant(&request.tenant)?;
        let known = self.context.replica.read(|ledger| {
            let Some(run) = ledger.run_of_message(&tenant, &request.key) else { return Ok(None) };
            let warnings = ledger.page_of(run).map(|(_, page, _)| create::warnings(ledger, &page.pool));
            call.check(ledger).map(|()| Some((run, warnings)))
        })?;
        let Some((run, warnings)) = known else { return Ok(None) };
        let run = shown_or_lost(run, self.show_run(run).await)?;
        let message = Some(shown(tenant, request.key.clone(), run));
        let (replayed, warnings) = (true, warnings.unwrap_or_default());
        Ok(Some(SendMessageResponse { message, replayed, warnings, ..SendMessageResponse::default() }))
    }

    /// Returns the message of the first call with this key, if the request repeats it and names a template: that may have
    /// newer versions since. `None`: the key is new, no template is named, or no stored version makes the same message.
    ///
    /// # Errors
    /// If the template or its version is gone, so that nothing can be compared.
    fn repeated_message(
        &self,
        request: &SendMessageRequest,
    ) -> ApiResult<Option<(String, SendMessage, Vec<v1::Duplicate>)>> {
        if request.template.is_empty() || request.content.is_some() {
            return Ok(None);
        }
        let Ok((name, version)) = validate::template_name(&request.template) else { return Ok(None) };
        let tenant = validate::tenant(&request.tenant)?;
        let versions: Option<Vec<u32>> = self.context.replica.read(|ledger| {
            ledger.run_of_message(&tenant, &request.key)?;
            let known = ledger.templates().get(&(tenant.clone(), name.to_owned()));
            let versions = known.into_iter().flat_map(|known| known.versions.iter().rev().map(|known| known.version));
            Some(versions.filter(|known| version.is_none_or(|version| version == *known)).collect())
        });
        let Some(versions) = versions else { return Ok(None) };
        if versions.is_empty() && request.key_rule() != v1::KeyRule::FirstWins {
            return Err(error_texts::other_message(&request.key, &request.template));
        }
        let first = versions.into_iter().find_map(|version| {
            let named = SendMessageRequest { template: format!("{name}@{version}"), ..request.clone() };
            let (tenant, message, duplicates) = self.checked_message(named).ok()?;
            let first = self.context.replica.read(|ledger| ledger.check_message(&tenant, &message));
            first.ok()?.map(|_| (tenant, message, duplicates))
        });
        Ok(first)
    }

    /// Returns the run that a message would open.
    fn would_open(&self, tenant: &str, message: &SendMessage) -> Run {
        let now = self.now(self.context.replica.read(|ledger| ledger.head().now));
        let (due, recipients) = (message.send_at.unwrap_or(now), message.audience.recipients.len() as u32);
        views::run_to_open(tenant, message.key.clone(), RunCause::Message, recipients, due, &message.policies)
    }

    async fn get_message(&self, request: GetMessageRequest, call: &Call) -> ApiResult<GetMessageResponse> {
        let GetMessageRequest { tenant, key, stale } = request;
        let tenant = validate::tenant(&tenant)?;
        let (id, freshness) = self.find_message((&tenant, &key), stale, call).await?;
        let with_addresses = call.has(PII);
        let mut blobs = Blobs::default();
        let found = self.read_run(id, |at| {
            let known = at.own.run(id);
            if let Some(known) = known.filter(|_| with_addresses) {
                blobs.take_of_run(at, known.audience);
            }
            let recipients = known.map(|known| (known.audience, states(at.own, id, known.count)));
            views::run_of(at.own, id).map(|run| (run, recipients))
        });
        let (run, recipients) = found.await?.ok_or_else(|| error_texts::no_message(&key))?;
        let (audience, mut recipients) = recipients.unwrap_or_default();
        if with_addresses {
            let wanted: Vec<(Hash, u32)> = recipients.iter().map(|recipient| (audience, recipient.number)).collect();
            let addresses = self.addresses(&blobs, &wanted).await;
            recipients.iter_mut().zip(addresses).for_each(|(recipient, address)| recipient.address = address);
        }
        let message = Message { recipients, ..shown(tenant, key, run) };
        Ok(GetMessageResponse { message: Some(message), freshness })
    }

    async fn cancel_message(&self, request: CancelMessageRequest, call: &Call) -> ApiResult<CancelMessageResponse> {
        let CancelMessageRequest { tenant, key, validate_only } = request;
        let tenant = validate::tenant(&tenant)?;
        let (run, _) = self.find_message((&tenant, &key), false, call).await?;
        let cancel = CancelRunRequest { tenant: tenant.clone(), run: run.to_string(), validate_only };
        let cancelled = self.cancel_run(cancel, call).await?;
        let message = shown(tenant, key, cancelled.run.unwrap_or_default());
        Ok(CancelMessageResponse { message: Some(message), barrier: cancelled.barrier })
    }

    /// Returns the run of the tenant's message with this key. The run may be in the archive.
    async fn find_message(
        &self,
        (tenant, key): (&str, &str),
        stale: bool,
        call: &Call,
    ) -> ApiResult<(RunId, Option<Freshness>)> {
        let (run, freshness) = self.read(stale, call, |ledger| ledger.run_of_message(tenant, key)).await?;
        Ok((run.ok_or_else(|| error_texts::no_message(key))?, freshness))
    }
}

/// Returns the recipients of a run with their states, without addresses.
fn states(ledger: &Ledger, run: RunId, count: u32) -> Vec<MessageRecipient> {
    let recipient = |number| {
        let state = ledger.state(run, number)?.wire().into();
        Some(MessageRecipient { number, address: String::new(), state })
    };
    (0..count.min(RECIPIENTS_SHOWN)).filter_map(recipient).collect()
}

fn shown(tenant: String, key: String, run: Run) -> Message {
    Message { tenant, key, send_time: run.due_time, run: Some(run), recipients: Vec::new() }
}
