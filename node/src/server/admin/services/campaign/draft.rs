//! Creates the draft of a campaign: validates it like a schedule, compares it with an existing one, and proposes it.

use reveille_cluster::compose::columns_used;
use reveille_ledger::Ledger;
use reveille_ledger::calendar::When;
use reveille_ledger::command::{CampaignCreate, CampaignName, Command};
use reveille_ledger::content::Content;
use reveille_ledger::forecast::CAMPAIGN_FINISH_MS_MIN;
use reveille_ledger::ids::Time;
use reveille_ledger::policy::HOUR_MS;
use reveille_ledger::refusal::CommandRefusal;
use reveille_proto::admin::v1::{CreateCampaignRequest, CreateCampaignResponse, ScheduleBody, when};

use crate::server::admin::services::schedule::create;
use crate::server::admin::validate::{self, CheckContext, CheckedSchedule, Fields};
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts, views};

/// Default of `start_within`: a campaign that is later than this does not open (P16).
const START_WITHIN_MS: i64 = HOUR_MS;
/// Header field by which a mail program opts out.
const LIST_UNSUBSCRIBE: &str = "list-unsubscribe";

impl Admin {
    pub(crate) async fn create_campaign(
        &self,
        request: CreateCampaignRequest,
        call: &Call,
    ) -> ApiResult<CreateCampaignResponse> {
        let CreateCampaignRequest { schedule, request_id, validate_only, canary } = request;
        let mut fields = Fields::default();
        let id = fields.request_id(&request_id);
        let canary = canary.map(|requested| validate::canary(&mut fields, &requested));
        let mut schedule = schedule.unwrap_or_default();
        let files = create::files(self, &mut fields, Some(&mut schedule), call).await?;
        let body = fields.done(Some(schedule))?;
        let place = (validate::tenant(&body.tenant)?, body.name.clone());
        let query = |ledger: &Ledger| {
            let known = ledger.campaigns().get(&place).cloned();
            (known, ledger.schedule_named(&place.0, &place.1).is_some(), ledger.head().now)
        };
        let (known, is_schedule, now) = self.read_latest(call, query).await?;
        let exists = known.is_some();
        let (mut create, content) = self.requested(body, exists, self.now(now)).await?;
        create.policies.canary = canary;
        let named = CampaignName { tenant: create.tenant.clone(), name: create.name.clone() };
        let draft = create.to_campaign(create.content.hash(), 0);
        // An existing campaign whose instant has passed needs no warnings.
        let warnings = match exists && create.due <= self.now(now) {
            true => Vec::new(),
            false => {
                let mut warnings = self.context.replica.read(|ledger| self.in_its_way(ledger, &named, &draft));
                warnings.extend(create::no_page(self, content.bulk));
                warnings
            }
        };
        if validate_only {
            let taken = match known {
                Some(known) if !known.matches_request(&create) => {
                    Some(CommandRefusal::CampaignNameTaken(create.name.clone()))
                }
                None if is_schedule => Some(CommandRefusal::NameTaken(create.name.clone())),
                _ => None,
            };
            if let Some(taken) = taken {
                return Err(error_texts::refused(&taken));
            }
            let campaign = match exists {
                true => self.campaign(&named)?,
                false => self.context.replica.read(|ledger| views::campaign(ledger, &named, &draft)),
            };
            return Ok(CreateCampaignResponse { campaign: Some(campaign), created: false, warnings });
        }
        self.store_files(files, [&content]).await?;
        create.request = id;
        let reply = self.write(Command::CampaignCreate(Box::new(create)), call).await?;
        let campaign = Some(self.campaign(&named)?);
        Ok(CreateCampaignResponse { campaign, created: !reply.is_repeat, warnings })
    }

    /// Validates the request like a schedule. If the audience is not sealed yet, it is assumed to have the columns that
    /// the content uses.
    async fn requested(&self, mut body: ScheduleBody, exists: bool, now: Time) -> ApiResult<(CampaignCreate, Content)> {
        let mut fields = Fields::default();
        if !matches!(body.timing.as_ref().and_then(|when| when.pattern.as_ref()), Some(when::Pattern::At(_))) {
            fields.refuse("schedule.timing", "is not an instant; a campaign is sent once: give one as `at`");
        }
        let audience = body.audience.as_ref().map(|audience| audience.sealed.clone()).unwrap_or_default();
        if audience.is_empty() {
            fields.refuse("schedule.audience.sealed", "is missing; a campaign goes to an audience: name one");
        } else {
            // The audience need not be sealed yet, but its name must be valid.
            fields.name("schedule.audience.sealed", &audience, validate::SCHEDULE_NAME_MAX);
        }
        let rest = [body.start_time.is_some(), body.end_time.is_some(), body.max_runs.is_some(), body.paused.is_some()];
        if rest.contains(&true) {
            fields.refuse("schedule", "has a start, an end, a bound of runs or a pause; a campaign has none of them");
        }
        if body.policies.is_some_and(|policies| policies.jitter.is_some_and(|jitter| jitter != Default::default())) {
            fields.refuse(
                "schedule.policies.jitter",
                "spreads what recurs; a campaign opens at its instant: leave it out",
            );
        }
        fields.done(Some(()))?;
        // If the cluster has an unsubscribe page, the emails get a one-click link to it.
        if let Some(content) = body.content.as_mut().filter(|_| self.context.unsubscribe.is_some()) {
            let has_its_own = content.headers.iter().any(|field| field.name.eq_ignore_ascii_case(LIST_UNSUBSCRIBE));
            content.bulk |= !has_its_own;
        }
        let policies = body.policies.get_or_insert_default();
        let finish_by_given = policies.finish_by.is_some();
        policies.start_within.get_or_insert(views::duration(START_WITHIN_MS));
        policies.finish_by.get_or_insert(views::duration(CAMPAIGN_FINISH_MS_MIN));
        let requested = self.blocking(move |node| {
            let chosen = (body.content.clone(), body.template.as_str());
            let content = validate::chosen_content(&mut Fields::default(), "", chosen, (&body.tenant, Some(node)));
            let columns_to_come = Some(content.map(|checked| columns_used(&checked.content)).unwrap_or_default());
            let context = CheckContext { columns_to_come, ..CheckContext::of(node, now, exists) };
            validate::schedule(Some(body), &context)
        });
        let CheckedSchedule { create, content, .. } = requested.await??;
        if create.content.template().is_some() && self.context.unsubscribe.is_some() && !can_opt_out(&content) {
            let message = "is not bulk email, so its emails would carry no way to opt out; put it with `bulk`";
            return Err(ApiError::of_field("schedule.template", message));
        }
        let When::At { instant_ms } = create.timing.when else {
            return Err(ApiError::of_field("schedule.timing", "is not an instant"));
        };
        let create = CampaignCreate {
            request: None,
            tenant: create.tenant,
            name: create.name,
            due: Time(instant_ms),
            zone: create.timing.zone,
            audience,
            content: create.content,
            policies: create.policies,
            finish_by_given,
            pool: create.pool,
            priority: create.priority,
            labels: create.labels,
        };
        Ok((create, content))
    }
}

/// True if each email of the content carries a way to opt out.
fn can_opt_out(content: &Content) -> bool {
    content.bulk || content.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(LIST_UNSUBSCRIBE))
}
