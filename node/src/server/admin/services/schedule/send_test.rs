//! Sends a test email: validated like a schedule, and opened as the run of a message.

use reveille_ledger::command::{Command, KeyRule, SendMessage, SendMessages};
use reveille_ledger::policy::Policies;
use reveille_ledger::reply::CommandOutcome;
use reveille_proto::admin::v1::{ScheduleBody, SendTestRequest, SendTestResponse};

use super::create;
use crate::server::admin::archive::shown_or_lost;
use crate::server::admin::validate::{self, CheckedMessage, DurationBounds, Fields};
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts};

/// Bounds of `finish_within`. A test email that is not sent within it expires.
const FINISH_WITHIN: DurationBounds = DurationBounds { least_ms: 1_000, most_ms: 3_600_000, default_ms: 60_000 };

/// Opens the run. With `validate_only` it returns the run that would open.
pub async fn send_test(admin: &Admin, request: SendTestRequest, call: &Call) -> ApiResult<SendTestResponse> {
    let SendTestRequest { schedule, finish_within, request_id, validate_only } = request;
    let schedule = schedule.unwrap_or_default();
    let mut fields = Fields::default();
    refuse_rest(&mut fields, &schedule);
    let ScheduleBody { tenant, pool, mut content, template, audience, .. } = schedule;
    let files = admin.take_files(&mut fields, ("schedule.content", content.as_mut()), ("", ""), call).await?;
    let id = fields.request_id(&request_id);
    if id.is_none() {
        fields.refuse("request_id", "is missing; it names the email, so that asking again sends no second one");
    }
    let finish_within_ms = fields.length("finish_within", finish_within, FINISH_WITHIN);
    let count = audience.as_ref().map_or(0, |audience| audience.recipients.len());
    if count != 1 {
        fields.refuse("schedule.audience.recipients", format!("{count} are given; a test email goes to one"));
    }
    let key = fields.done(id)?;
    let now = admin.read_latest(call, |ledger| ledger.head().now).await?;
    let now = admin.now(now);
    let body = ScheduleBody { tenant, pool, content, template, audience, ..ScheduleBody::default() };
    let checked = admin.blocking(move |node| validate::message_parts(node, body, now)).await?;
    let CheckedMessage { tenant, content, audience, pool, policies, .. } = checked?;
    let keys = audience.recipients.iter().map(|recipient| (tenant.clone(), recipient.key.clone()));
    let (warnings, opted_out, may_use) = admin.context.replica.read(|ledger| {
        let opted_out = keys.into_iter().any(|place| ledger.opt_out_of(&place).is_some());
        (create::warnings(ledger, &pool), opted_out, ledger.tenant(&tenant).may_use(&pool))
    });
    if validate_only && !may_use {
        return Err(ApiError::of_field("schedule.pool", validate::no_relay_of(&pool)));
    }
    if validate_only {
        return Ok(SendTestResponse { run: None, warnings, opted_out });
    }
    admin.store_files(files, [&content]).await?;
    let message = SendMessage {
        key,
        rule: KeyRule::Strict,
        is_test: true,
        content,
        audience,
        send_at: None,
        pool,
        priority: u8::MAX,
        policies: Policies { finish_by_ms: finish_within_ms, ..policies },
    };
    // It shares no entry with others: the relay's answer is kept for claims of one recipient only.
    let send = Command::SendMessages(SendMessages { tenant, messages: vec![message] });
    let reply = admin.write(send, call).await?;
    let CommandOutcome::Messages(mut receipts) = reply.outcome else {
        return Err(error_texts::broken(format!("a test email was answered by {:?}", reply.outcome)));
    };
    let receipt = receipts.pop().ok_or_else(|| error_texts::broken("a test email was not answered".to_owned()))?;
    let receipt = receipt.map_err(|refusal| error_texts::refused(&refusal))?;
    let run = shown_or_lost(receipt.run, admin.show_run(receipt.run).await)?;
    Ok(SendTestResponse { run: Some(run), warnings, opted_out: false })
}

/// Refuses what a schedule has and a test email has not.
fn refuse_rest(fields: &mut Fields, body: &ScheduleBody) {
    let rest = [
        ("name", !body.name.is_empty()),
        ("timing", body.timing.is_some()),
        ("zone", !body.zone.is_empty()),
        ("start_time", body.start_time.is_some()),
        ("end_time", body.end_time.is_some()),
        ("max_runs", body.max_runs.is_some()),
        ("policies", body.policies.is_some()),
        ("priority", body.priority != 0),
        ("paused", body.paused.is_some()),
        ("labels", !body.labels.is_empty()),
    ];
    for (name, _) in rest.into_iter().filter(|(_, is_given)| *is_given) {
        fields.refuse(format!("schedule.{name}"), "is given, but a test email has none; leave it out");
    }
}
