//! The tenant that each message of the API names.
//!
//! A request without an implementation here does not compile as the message of a method.

use reveille_ledger::DEFAULT_TENANT;
use reveille_ledger::token::Rights;
use reveille_proto::admin::v1::{
    AbortRotationRequest, AcceptRestoreRequest, AddMemberRequest, AddOptOutRequest, AddRelayRequest,
    AdvanceClockRequest, BackfillScheduleRequest, BatchCreateSchedulesRequest, CancelCampaignRequest,
    CancelMessageRequest, CancelRunRequest, CheckOptOutRequest, CountDeadLettersRequest, CreateBackupRequest,
    CreateCampaignRequest, CreateScheduleRequest, CreateTokenRequest, DeleteAudienceRequest, DeleteCampaignRequest,
    DeleteScheduleRequest, DeleteTemplateRequest, DiscardDeadLettersRequest, DrainMemberRequest, EraseRecipientRequest,
    ExplainRequest, ExportRunRecipientsRequest, FindRecipientRequest, FinishUpgradeRequest, GetAudienceRequest,
    GetAuthorityRequest, GetCampaignRequest, GetClockRequest, GetClusterStatusRequest, GetDoubtRequest,
    GetMessageRequest, GetOwnTokenRequest, GetPoolRequest, GetRelayRequest, GetRestoreRequest, GetRunRequest,
    GetScheduleRequest, GetTemplateRequest, GetTenantRequest, GetUpgradeRequest, ImportOptOutsRequest,
    LaunchCampaignRequest, ListAudiencesRequest, ListAuditRecordsRequest, ListCampaignsRequest, ListDeadLettersRequest,
    ListDoubtsRequest, ListEventsRequest, ListMembersRequest, ListOptOutsRequest, ListPoolsRequest, ListRelaysRequest,
    ListRunRecipientsRequest, ListRunsRequest, ListScheduleHistoryRequest, ListSchedulesRequest, ListTemplatesRequest,
    ListTenantsRequest, ListTokensRequest, PauseCampaignRequest, PauseRunRequest, PauseScheduleRequest,
    PrepareAudienceRequest, PreviewTemplateRequest, PutPartRequest, PutTemplateRequest, RemoveMemberRequest,
    RemovePoolRequest, RemoveRelayRequest, RemoveTenantRequest, RequeueDeadLettersRequest, ResetTokensRequest,
    ResolveDoubtsRequest, ResumeCampaignRequest, ResumeRunRequest, ResumeScheduleRequest, RevokeTokenRequest,
    RotateAuthorityRequest, ScheduleBody, ScrubRequest, SealAudienceRequest, SendMessageRequest, SendTestRequest,
    SetPoolRequest, SetTenantRequest, TakeBackOptOutRequest, TestRelayRequest, TransferLeaderRequest,
    TriggerScheduleRequest, UpdateScheduleRequest, UploadRecipientsRequest, WatchEventsRequest, WatchRunRequest,
};
use tonic::Streaming;

use super::rights::{NONE, PII};

/// The message of a request, as the access rules read it.
pub trait Subject {
    /// Calls `visit` with each tenant that the message names. A message about the cluster names none.
    fn visit_tenants(&mut self, _visit: &mut dyn FnMut(&mut String)) {}

    /// Returns the rights that this message needs, beside those of its method.
    fn needs_more(&self) -> Rights {
        NONE
    }
}

/// Messages with a field `tenant`.
macro_rules! of_tenant {
    ($($request:ty),* $(,)?) => {
        $(impl Subject for $request {
            fn visit_tenants(&mut self, visit: &mut dyn FnMut(&mut String)) {
                visit(&mut self.tenant);
            }
        })*
    };
}
of_tenant! {
    AddOptOutRequest,
    BackfillScheduleRequest,
    CancelCampaignRequest,
    CancelMessageRequest,
    CancelRunRequest,
    CheckOptOutRequest,
    CountDeadLettersRequest,
    DeleteAudienceRequest,
    DeleteCampaignRequest,
    DeleteScheduleRequest,
    DeleteTemplateRequest,
    DiscardDeadLettersRequest,
    EraseRecipientRequest,
    ExplainRequest,
    ExportRunRecipientsRequest,
    FindRecipientRequest,
    GetAudienceRequest,
    GetCampaignRequest,
    GetDoubtRequest,
    GetMessageRequest,
    GetRunRequest,
    GetTemplateRequest,
    ImportOptOutsRequest,
    LaunchCampaignRequest,
    ListAudiencesRequest,
    ListCampaignsRequest,
    ListDeadLettersRequest,
    ListDoubtsRequest,
    ListEventsRequest,
    ListOptOutsRequest,
    ListRunRecipientsRequest,
    ListRunsRequest,
    ListScheduleHistoryRequest,
    ListSchedulesRequest,
    ListTemplatesRequest,
    PauseCampaignRequest,
    PauseRunRequest,
    PauseScheduleRequest,
    PrepareAudienceRequest,
    PreviewTemplateRequest,
    PutTemplateRequest,
    RequeueDeadLettersRequest,
    ResolveDoubtsRequest,
    ResumeCampaignRequest,
    ResumeRunRequest,
    ResumeScheduleRequest,
    SealAudienceRequest,
    SendMessageRequest,
    TakeBackOptOutRequest,
    TriggerScheduleRequest,
    WatchEventsRequest,
    WatchRunRequest,
}

/// Messages whose field `schedule` names the tenant.
macro_rules! of_schedule {
    ($($request:ty),* $(,)?) => {
        $(impl Subject for $request {
            fn visit_tenants(&mut self, visit: &mut dyn FnMut(&mut String)) {
                visit_body(self.schedule.as_mut(), visit);
            }
        })*
    };
}
of_schedule! {
    CreateCampaignRequest, CreateScheduleRequest, SendTestRequest, UpdateScheduleRequest,
}

/// Messages about no tenant.
macro_rules! of_cluster {
    ($($request:ty),* $(,)?) => {
        $(impl Subject for $request {})*
    };
}
of_cluster! {
    AbortRotationRequest,
    AcceptRestoreRequest,
    AddMemberRequest,
    AddRelayRequest,
    AdvanceClockRequest,
    CreateBackupRequest,
    CreateTokenRequest,
    DrainMemberRequest,
    FinishUpgradeRequest,
    GetAuthorityRequest,
    GetClockRequest,
    GetClusterStatusRequest,
    GetOwnTokenRequest,
    GetPoolRequest,
    GetRelayRequest,
    GetRestoreRequest,
    GetUpgradeRequest,
    ListAuditRecordsRequest,
    ListMembersRequest,
    ListPoolsRequest,
    ListRelaysRequest,
    ListTenantsRequest,
    ListTokensRequest,
    RemoveMemberRequest,
    RemovePoolRequest,
    RemoveRelayRequest,
    RemoveTenantRequest,
    ResetTokensRequest,
    RevokeTokenRequest,
    RotateAuthorityRequest,
    ScrubRequest,
    SetPoolRequest,
    SetTenantRequest,
    Streaming<PutPartRequest>,
    Streaming<UploadRecipientsRequest>,
    TestRelayRequest,
    TransferLeaderRequest,
}

impl Subject for BatchCreateSchedulesRequest {
    fn visit_tenants(&mut self, visit: &mut dyn FnMut(&mut String)) {
        match self.schedules.as_mut_slice() {
            [] => visit_body(None, visit),
            schedules => schedules.iter_mut().for_each(|schedule| visit(&mut schedule.tenant)),
        }
    }
}

impl Subject for GetTenantRequest {
    fn visit_tenants(&mut self, visit: &mut dyn FnMut(&mut String)) {
        visit(&mut self.name);
    }
}

impl Subject for GetScheduleRequest {
    fn visit_tenants(&mut self, visit: &mut dyn FnMut(&mut String)) {
        visit(&mut self.tenant);
    }

    /// The body contains the recipients.
    fn needs_more(&self) -> Rights {
        if self.with_body { PII } else { NONE }
    }
}

/// A missing body is refused later, like one of the default tenant.
fn visit_body(body: Option<&mut ScheduleBody>, visit: &mut dyn FnMut(&mut String)) {
    match body {
        Some(body) => visit(&mut body.tenant),
        None => visit(&mut DEFAULT_TENANT.to_owned()),
    }
}
