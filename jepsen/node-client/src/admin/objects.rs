//! Schedules, campaigns, templates, audiences and opt-outs.

use std::time::Duration;

use anyhow::{Result, anyhow};
use reveille_proto::admin::v1::audience_service_client::AudienceServiceClient;
use reveille_proto::admin::v1::campaign_service_client::CampaignServiceClient;
use reveille_proto::admin::v1::message_service_client::MessageServiceClient;
use reveille_proto::admin::v1::opt_out_service_client::OptOutServiceClient;
use reveille_proto::admin::v1::recipient_service_client::RecipientServiceClient;
use reveille_proto::admin::v1::schedule_service_client::ScheduleServiceClient;
use reveille_proto::admin::v1::template_service_client::TemplateServiceClient;
use reveille_proto::admin::v1::{self as api, Barrier, Schedule, ScheduleBody};
use tonic::Code;

use super::{AdminClient, CallResult, PAGE_SIZE, rpc, timestamp};

/// Timeout for a read from one node.
const READ_ONE_WITHIN: Duration = Duration::from_secs(2);

impl AdminClient {
    /// Creates a schedule. Returns when the schedule is durable.
    pub async fn create(&self, schedule: ScheduleBody) -> Result<()> {
        let (schedule, request_id) = (Some(schedule), uuid::Uuid::now_v7().to_string());
        let request = api::CreateScheduleRequest { schedule, request_id, validate_only: false };
        self.read("schedule create", rpc!(ScheduleServiceClient, create_schedule), request).await.map(drop)
    }

    /// Creates up to 1,000 schedules in one call. Returns when they are durable.
    pub async fn batch_create(&self, schedules: Vec<ScheduleBody>) -> Result<()> {
        let request = api::BatchCreateSchedulesRequest { schedules };
        let call = rpc!(ScheduleServiceClient, batch_create_schedules);
        let results = self.read("batch of creates", call, request).await?.results;
        let refusal = results.into_iter().find_map(|result| result.refusal);
        refusal.map_or(Ok(()), |refusal| Err(anyhow!("a schedule was refused: {}", refusal.message)))
    }

    /// Creates a schedule under this request id.
    pub async fn create_as(&self, request_id: &str, schedule: &ScheduleBody) -> CallResult {
        let (schedule, request_id) = (Some(schedule.clone()), request_id.to_owned());
        let request = api::CreateScheduleRequest { schedule, request_id, validate_only: false };
        self.change(rpc!(ScheduleServiceClient, create_schedule), request).await.map(drop)
    }

    /// Triggers a schedule, for recipients of this run only if an audience is given. Returns the run.
    pub async fn trigger(
        &self,
        request_id: &str,
        schedule: &str,
        audience: Option<api::Audience>,
    ) -> CallResult<String> {
        let (tenant, name, request_id) = (self.tenant(), schedule.into(), request_id.into());
        let request = api::TriggerScheduleRequest { tenant, name, request_id, audience, ..Default::default() };
        let answer = self.change(rpc!(ScheduleServiceClient, trigger_schedule), request).await;
        answer.map(|answer| answer.run.unwrap_or_default().run)
    }

    /// Sends a message of this tenant. Returns the run.
    pub async fn send_message(&self, message: api::SendMessageRequest) -> CallResult<String> {
        let request = api::SendMessageRequest { tenant: self.tenant(), ..message };
        let answer = self.change(rpc!(MessageServiceClient, send_message), request).await;
        answer.map(|answer| answer.message.and_then(|message| message.run).unwrap_or_default().run)
    }

    /// Cancels a message by its key.
    pub async fn cancel_message(&self, key: &str) -> CallResult<Barrier> {
        let request = api::CancelMessageRequest { tenant: self.tenant(), key: key.into(), validate_only: false };
        let answer = self.change(rpc!(MessageServiceClient, cancel_message), request).await;
        answer.map(|answer| answer.barrier.unwrap_or_default())
    }

    /// Stores a version of a template.
    pub async fn put_template(&self, name: &str, content: api::Content) -> Result<()> {
        let (tenant, name, content) = (self.tenant(), name.to_owned(), Some(content));
        let request = api::PutTemplateRequest { tenant, name, content, ..Default::default() };
        self.read("template put", rpc!(TemplateServiceClient, put_template), request).await.map(drop)
    }

    /// Changes the timing of a schedule if its etag is unchanged.
    pub async fn retime(&self, request_id: &str, etag: &str, body: &ScheduleBody) -> CallResult {
        let update_mask = Some(prost_types::FieldMask { paths: vec!["timing".to_owned()] });
        let (schedule, etag, request_id) = (Some(body.clone()), etag.into(), request_id.into());
        let request = api::UpdateScheduleRequest { schedule, update_mask, etag, request_id, ..Default::default() };
        self.change(rpc!(ScheduleServiceClient, update_schedule), request).await.map(drop)
    }

    /// Deletes a schedule. Returns the log index.
    pub async fn delete_schedule(&self, name: &str) -> CallResult<u64> {
        let request = api::DeleteScheduleRequest { tenant: self.tenant(), name: name.into(), ..Default::default() };
        self.change(rpc!(ScheduleServiceClient, delete_schedule), request).await.map(|answer| answer.index)
    }

    /// Pauses a schedule. Returns the log index.
    pub async fn pause_schedule(&self, name: &str) -> CallResult<u64> {
        let request = api::PauseScheduleRequest { tenant: self.tenant(), name: name.into(), ..Default::default() };
        let answer = self.change(rpc!(ScheduleServiceClient, pause_schedule), request).await;
        answer.map(|answer| answer.schedule.map_or(0, |schedule| schedule.index))
    }

    /// Resumes a schedule. Returns the log index.
    pub async fn resume_schedule(&self, name: &str) -> CallResult<u64> {
        let request = api::ResumeScheduleRequest { tenant: self.tenant(), name: name.into(), ..Default::default() };
        let answer = self.change(rpc!(ScheduleServiceClient, resume_schedule), request).await;
        answer.map(|answer| answer.schedule.map_or(0, |schedule| schedule.index))
    }

    /// Opens the instants between two instants, both included, that never opened. In milliseconds since 1970.
    pub async fn backfill(
        &self,
        request_id: &str,
        name: &str,
        between_ms: (i64, i64),
    ) -> CallResult<api::BackfillScheduleResponse> {
        let (tenant, name, request_id) = (self.tenant(), name.into(), request_id.into());
        let (start_time, end_time) = (Some(timestamp(between_ms.0)), Some(timestamp(between_ms.1)));
        let request =
            api::BackfillScheduleRequest { tenant, name, start_time, end_time, request_id, ..Default::default() };
        self.change(rpc!(ScheduleServiceClient, backfill_schedule), request).await
    }

    /// Asks one node for a schedule, once. The outer `None` means no answer, the inner `None` means no such schedule.
    pub async fn schedule_by(&self, node: usize, name: &str) -> Option<Option<Schedule>> {
        let request = api::GetScheduleRequest { tenant: self.tenant(), name: name.into(), ..Default::default() };
        match self.ask_one(node, READ_ONE_WITHIN, rpc!(ScheduleServiceClient, get_schedule), request).await? {
            Ok(answer) => answer.schedule.map(Some),
            Err(status) => (status.code() == Code::NotFound).then_some(None),
        }
    }

    /// Returns a schedule from the first node that answers. Asks each node at most twice.
    pub async fn schedule(&self, name: &str) -> Option<Option<Schedule>> {
        for node in 0..2 * self.endpoints().len() {
            if let Some(found) = self.schedule_by(node, name).await {
                return Some(found);
            }
        }
        None
    }

    /// Returns all schedules.
    pub async fn schedules(&self) -> Result<Vec<Schedule>> {
        let base = || api::ListSchedulesRequest { tenant: self.tenant(), with_campaigns: true, ..Default::default() };
        let request = |page_token| api::ListSchedulesRequest { page_size: PAGE_SIZE, page_token, ..base() };
        let call = rpc!(ScheduleServiceClient, list_schedules);
        self.list("schedule list", call, request, |answer| (answer.schedules, answer.next_page_token)).await
    }

    /// Returns one page of the history of a schedule, latest first, and the token of the next page. The token is empty
    /// after the last page.
    pub async fn history_page(
        &self,
        schedule: &str,
        page_size: i32,
        page_token: String,
    ) -> Result<(Vec<api::HistoryEntry>, String)> {
        let (tenant, name) = (self.tenant(), schedule.to_owned());
        let request = api::ListScheduleHistoryRequest { tenant, name, page_size, page_token, stale: false };
        let answer = self.read("schedule history", rpc!(ScheduleServiceClient, list_schedule_history), request).await?;
        Ok((answer.entries, answer.next_page_token))
    }

    /// Creates the draft of a campaign.
    pub async fn create_campaign(&self, request_id: &str, body: &ScheduleBody) -> CallResult {
        let (schedule, request_id) = (Some(body.clone()), request_id.to_owned());
        let request = api::CreateCampaignRequest { schedule, request_id, ..Default::default() };
        self.change(rpc!(CampaignServiceClient, create_campaign), request).await.map(drop)
    }

    /// Launches a campaign. A second call has no effect.
    pub async fn launch_campaign(&self, name: &str) -> CallResult {
        let request = api::LaunchCampaignRequest { tenant: self.tenant(), name: name.into(), ..Default::default() };
        self.change(rpc!(CampaignServiceClient, launch_campaign), request).await.map(drop)
    }

    /// Returns one page of campaigns.
    pub async fn campaigns(&self) -> Result<Vec<api::Campaign>> {
        let request = api::ListCampaignsRequest { tenant: self.tenant(), page_size: PAGE_SIZE, ..Default::default() };
        Ok(self.read("campaign list", rpc!(CampaignServiceClient, list_campaigns), request).await?.campaigns)
    }

    /// Opts a recipient out.
    pub async fn opt_out(&self, request_id: &str, recipient: &str) -> CallResult<api::Barrier> {
        let (tenant, recipient, request_id) = (self.tenant(), recipient.into(), request_id.into());
        let request = api::AddOptOutRequest { tenant, recipient, request_id };
        let answer = self.change(rpc!(OptOutServiceClient, add_opt_out), request).await;
        answer.map(|answer| answer.barrier.unwrap_or_default())
    }

    /// Asks one node, once, if a recipient has opted out. `None`: no answer.
    pub async fn is_opted_out_by(&self, node: usize, recipient: &str) -> Option<bool> {
        let (tenant, recipient) = (self.tenant(), recipient.to_owned());
        let request = api::CheckOptOutRequest { tenant, recipient, ..Default::default() };
        let answer = self.ask_one(node, READ_ONE_WITHIN, rpc!(OptOutServiceClient, check_opt_out), request).await?;
        answer.ok().map(|answer| answer.opted_out)
    }

    /// Returns true if a recipient has opted out, also if it was erased.
    pub async fn is_opted_out(&self, recipient: &str) -> Result<bool> {
        let (tenant, recipient) = (self.tenant(), recipient.to_owned());
        let request = api::CheckOptOutRequest { tenant, recipient, ..Default::default() };
        Ok(self.read("optout check", rpc!(OptOutServiceClient, check_opt_out), request).await?.opted_out)
    }

    /// Returns all opt-outs.
    pub async fn opt_outs(&self) -> Result<Vec<api::OptOut>> {
        let base = || api::ListOptOutsRequest { tenant: self.tenant(), page_size: PAGE_SIZE, ..Default::default() };
        let request = |page_token| api::ListOptOutsRequest { page_token, ..base() };
        let call = rpc!(OptOutServiceClient, list_opt_outs);
        self.list("optout list", call, request, |answer| (answer.opt_outs, answer.next_page_token)).await
    }

    /// Returns all versions of templates with their contents, each as its name, its number and its content.
    pub async fn template_versions(&self) -> Result<Vec<(String, u32, api::Content)>> {
        let request = api::ListTemplatesRequest { tenant: self.tenant(), page_size: PAGE_SIZE, ..Default::default() };
        let call = rpc!(TemplateServiceClient, list_templates);
        let mut versions = Vec::new();
        for api::Template { name, versions: known, .. } in self.read("template list", call, request).await?.templates {
            for api::TemplateVersion { version, .. } in known {
                let (tenant, call) = (self.tenant(), rpc!(TemplateServiceClient, get_template));
                let request = api::GetTemplateRequest { tenant, name: name.clone(), version, stale: false };
                let content = self.read("template show", call, request).await?.content.unwrap_or_default();
                versions.push((name.clone(), version, content));
            }
        }
        Ok(versions)
    }

    /// Returns all sealed audiences.
    pub async fn audiences(&self) -> Result<Vec<api::SealedAudience>> {
        let request = api::ListAudiencesRequest { tenant: self.tenant(), page_size: PAGE_SIZE, ..Default::default() };
        Ok(self.read("audience list", rpc!(AudienceServiceClient, list_audiences), request).await?.audiences)
    }

    /// Returns all places of an address: its opt-out, and lists that have it.
    pub async fn places_of(&self, recipient: &str) -> Result<Vec<api::RecipientPlace>> {
        let base = || api::FindRecipientRequest { tenant: self.tenant(), page_size: PAGE_SIZE, ..Default::default() };
        let request = |page_token| api::FindRecipientRequest { recipient: recipient.to_owned(), page_token, ..base() };
        let call = rpc!(RecipientServiceClient, find_recipient);
        self.list("recipient find", call, request, |answer| (answer.places, answer.next_page_token)).await
    }
}
