//! Sends a test email: validated like a schedule, and opened as a separate run.

use reveille_ledger::TEST_NAME;
use reveille_ledger::command::{Command, SendTest};
use reveille_ledger::content::AudienceChoice;
use reveille_ledger::policy::Policies;
use reveille_ledger::reply::CommandOutcome;
use reveille_proto::admin::v1::{self, ScheduleBody, SendTestRequest, SendTestResponse};

use super::create;
use crate::server::admin::validate;
use crate::server::admin::validate::{CheckContext, CheckedSchedule, Fields};
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts, views};

/// Default of `finish_within`, in milliseconds. A test email that is not sent within it expires.
const FINISH_WITHIN_MS: i64 = 60_000;
/// Maximum of `finish_within`, in milliseconds.
const FINISH_WITHIN_MS_MAX: i64 = 3_600_000;

/// Opens the run. With `validate_only` it returns the run that would open.
pub async fn send_test(admin: &Admin, request: SendTestRequest, call: &Call) -> ApiResult<SendTestResponse> {
    let SendTestRequest { schedule, finish_within, request_id, validate_only } = request;
    let ScheduleBody { tenant, pool, content, audience, .. } = schedule.unwrap_or_default();
    let mut fields = Fields::default();
    let id = fields.request_id(&request_id);
    if id.is_none() {
        fields.refuse("request_id", "is missing; it names the email, so that asking again sends no second one");
    }
    let finish_within_ms = match finish_within {
        None => FINISH_WITHIN_MS,
        Some(within) => {
            let ms = within.seconds.saturating_mul(1_000).saturating_add(i64::from(within.nanos / 1_000_000));
            if !(1_000..=FINISH_WITHIN_MS_MAX).contains(&ms) {
                fields.refuse("finish_within", format!("is {}; give from 1 s to 1 h", validate::in_words(ms)));
            }
            ms
        }
    };
    let count = audience.as_ref().map_or(0, |audience| audience.recipients.len());
    if count != 1 {
        fields.refuse("schedule.audience.recipients", format!("{count} are given; a test mail goes to one"));
    }
    let id = fields.done(id)?;
    let now = admin.read_latest(call, |ledger| ledger.head().now).await?;
    let now = admin.now(now);
    // It is validated like a schedule. Fields that a test email does not have get placeholder values.
    let body = ScheduleBody {
        tenant,
        name: TEST_NAME.to_owned(),
        when: Some(v1::When { pattern: Some(v1::when::Pattern::At(views::timestamp(now.plus_ms(60_000)))) }),
        zone: "UTC".to_owned(),
        pool,
        content,
        audience,
        ..ScheduleBody::default()
    };
    let limits = admin.limits();
    let asked = admin.calendar(move |zones| {
        validate::schedule(Some(body), &CheckContext { now, exists: false, zones, sealed: &|_, _| None, limits })
    });
    let asked = asked.await?;
    let CheckedSchedule { create, .. } = asked.map_err(|fault| fault.request(&request_id))?;
    let AudienceChoice::Listed(audience) = create.audience else {
        return Err(ApiError::of_field("schedule.audience.sealed", "is named; a test mail goes to one recipient"));
    };
    let keys = audience.recipients.iter().map(|recipient| (create.tenant.clone(), recipient.key.clone()));
    let (warnings, opted_out) = admin.context.replica.read(|ledger| {
        let opted_out = keys.into_iter().any(|place| ledger.opt_out_of(&place).is_some());
        (create::warnings(ledger, &create.pool), opted_out)
    });
    if validate_only {
        return Ok(SendTestResponse { run: None, warnings, opted_out });
    }
    let test = SendTest {
        request: id,
        tenant: create.tenant,
        pool: create.pool,
        content: create.content,
        audience,
        policies: Policies { finish_by_ms: finish_within_ms, ..create.policies },
    };
    let reply = admin.write(Command::SendTest(Box::new(test)), &request_id, call).await?;
    let CommandOutcome::Run { run: opened, .. } = reply.outcome else {
        return Err(error_texts::broken(format!("a test email was answered by {:?}", reply.outcome)));
    };
    let run = admin.show_run(opened).await?;
    Ok(SendTestResponse { run: Some(run), warnings, opted_out: false })
}
