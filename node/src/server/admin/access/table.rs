//! The table of rights: for each method of the admin listener, what a token needs.

use reveille_ledger::token::Rights;

use super::rights::{ADMIN, CANCEL, EDIT, NONE, OPERATE, PAUSE, PII, SEND, VIEW};

/// What a call reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nothing that needs a token.
    Open,
    /// No rows of any tenant.
    NoTenant,
    /// The tenant that its message names.
    Tenant,
    /// The cluster as a whole: the token must reach all tenants.
    Cluster,
    /// The cluster, from a user of this machine: served on its socket alone, without a token.
    Local,
}

/// What one method needs.
#[derive(Debug)]
pub struct AccessRow {
    /// Path of the method, as HTTP/2 carries it.
    pub path: &'static str,
    /// The rights that a token must have.
    pub needs: Rights,
    /// What the call reaches.
    pub reach: Reach,
}

const fn row(path: &'static str, needs: Rights, reach: Reach) -> AccessRow {
    AccessRow { path, needs, reach }
}

/// All methods. A method that is not here is refused.
pub const ACCESS: &[AccessRow] = &[
    row("/grpc.health.v1.Health/Check", NONE, Reach::Open),
    row("/grpc.health.v1.Health/List", NONE, Reach::Open),
    row("/grpc.health.v1.Health/Watch", NONE, Reach::Open),
    row("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", NONE, Reach::NoTenant),
    row("/reveille.admin.v1.ScheduleService/CreateSchedule", EDIT, Reach::Tenant),
    row("/reveille.admin.v1.ScheduleService/BatchCreateSchedules", EDIT, Reach::Tenant),
    row("/reveille.admin.v1.ScheduleService/ListSchedules", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.ScheduleService/GetSchedule", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.ScheduleService/UpdateSchedule", EDIT, Reach::Tenant),
    row("/reveille.admin.v1.ScheduleService/PauseSchedule", PAUSE, Reach::Tenant),
    row("/reveille.admin.v1.ScheduleService/ResumeSchedule", SEND, Reach::Tenant),
    row("/reveille.admin.v1.ScheduleService/TriggerSchedule", SEND, Reach::Tenant),
    row("/reveille.admin.v1.ScheduleService/BackfillSchedule", SEND, Reach::Tenant),
    row("/reveille.admin.v1.ScheduleService/SendTest", SEND, Reach::Tenant),
    row("/reveille.admin.v1.ScheduleService/DeleteSchedule", EDIT, Reach::Tenant),
    row("/reveille.admin.v1.ScheduleService/ListScheduleHistory", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.MessageService/SendMessage", SEND, Reach::Tenant),
    row("/reveille.admin.v1.MessageService/GetMessage", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.MessageService/CancelMessage", CANCEL, Reach::Tenant),
    row("/reveille.admin.v1.RunService/ListRuns", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.RunService/GetRun", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.RunService/WatchRun", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.RunService/PauseRun", PAUSE, Reach::Tenant),
    row("/reveille.admin.v1.RunService/ResumeRun", SEND, Reach::Tenant),
    row("/reveille.admin.v1.RunService/CancelRun", CANCEL, Reach::Tenant),
    row("/reveille.admin.v1.RunService/Explain", VIEW.and(PII), Reach::Tenant),
    row("/reveille.admin.v1.CampaignService/CreateCampaign", EDIT, Reach::Tenant),
    row("/reveille.admin.v1.CampaignService/LaunchCampaign", SEND, Reach::Tenant),
    row("/reveille.admin.v1.CampaignService/ListCampaigns", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.CampaignService/GetCampaign", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.CampaignService/PauseCampaign", PAUSE, Reach::Tenant),
    row("/reveille.admin.v1.CampaignService/ResumeCampaign", SEND, Reach::Tenant),
    row("/reveille.admin.v1.CampaignService/CancelCampaign", CANCEL, Reach::Tenant),
    row("/reveille.admin.v1.CampaignService/DeleteCampaign", EDIT, Reach::Tenant),
    row("/reveille.admin.v1.AudienceService/PrepareAudience", EDIT, Reach::Tenant),
    row("/reveille.admin.v1.AudienceService/PutPart", EDIT, Reach::NoTenant),
    row("/reveille.admin.v1.AudienceService/UploadRecipients", EDIT, Reach::NoTenant),
    row("/reveille.admin.v1.AudienceService/SealAudience", EDIT, Reach::Tenant),
    row("/reveille.admin.v1.AudienceService/ListAudiences", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.AudienceService/GetAudience", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.AudienceService/DeleteAudience", EDIT, Reach::Tenant),
    row("/reveille.admin.v1.DeadLetterService/ListDeadLetters", VIEW.and(PII), Reach::Tenant),
    row("/reveille.admin.v1.DeadLetterService/CountDeadLetters", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.DeadLetterService/RequeueDeadLetters", SEND, Reach::Tenant),
    row("/reveille.admin.v1.DeadLetterService/DiscardDeadLetters", SEND, Reach::Tenant),
    row("/reveille.admin.v1.DoubtService/ListDoubts", VIEW.and(PII), Reach::Tenant),
    row("/reveille.admin.v1.DoubtService/GetDoubt", VIEW.and(PII), Reach::Tenant),
    row("/reveille.admin.v1.DoubtService/ResolveDoubts", SEND, Reach::Tenant),
    row("/reveille.admin.v1.OptOutService/AddOptOut", EDIT, Reach::Tenant),
    row("/reveille.admin.v1.OptOutService/CheckOptOut", VIEW.and(PII), Reach::Tenant),
    row("/reveille.admin.v1.OptOutService/ImportOptOuts", EDIT, Reach::Tenant),
    row("/reveille.admin.v1.OptOutService/ListOptOuts", VIEW.and(PII), Reach::Tenant),
    row("/reveille.admin.v1.OptOutService/TakeBackOptOut", SEND, Reach::Tenant),
    row("/reveille.admin.v1.RecipientService/ListRunRecipients", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.RecipientService/ExportRunRecipients", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.RecipientService/FindRecipient", VIEW.and(PII), Reach::Tenant),
    row("/reveille.admin.v1.RecipientService/EraseRecipient", EDIT.and(PII), Reach::Tenant),
    row("/reveille.admin.v1.TemplateService/PutTemplate", EDIT, Reach::Tenant),
    row("/reveille.admin.v1.TemplateService/GetTemplate", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.TemplateService/ListTemplates", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.TemplateService/DeleteTemplate", EDIT, Reach::Tenant),
    row("/reveille.admin.v1.TemplateService/PreviewTemplate", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.EventService/ListEvents", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.EventService/WatchEvents", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.TenantService/SetTenant", OPERATE, Reach::Cluster),
    row("/reveille.admin.v1.TenantService/ListTenants", VIEW, Reach::Cluster),
    row("/reveille.admin.v1.TenantService/GetTenant", VIEW, Reach::Tenant),
    row("/reveille.admin.v1.TenantService/RemoveTenant", OPERATE, Reach::Cluster),
    row("/reveille.admin.v1.PoolService/SetPool", OPERATE, Reach::Cluster),
    row("/reveille.admin.v1.PoolService/ListPools", VIEW, Reach::Cluster),
    row("/reveille.admin.v1.PoolService/GetPool", VIEW, Reach::Cluster),
    row("/reveille.admin.v1.PoolService/RemovePool", OPERATE, Reach::Cluster),
    row("/reveille.admin.v1.RelayService/AddRelay", OPERATE, Reach::Cluster),
    row("/reveille.admin.v1.RelayService/ListRelays", VIEW, Reach::Cluster),
    row("/reveille.admin.v1.RelayService/GetRelay", VIEW, Reach::Cluster),
    row("/reveille.admin.v1.RelayService/TestRelay", OPERATE, Reach::Cluster),
    row("/reveille.admin.v1.RelayService/RemoveRelay", OPERATE, Reach::Cluster),
    row("/reveille.admin.v1.ClusterService/GetClusterStatus", VIEW, Reach::Cluster),
    row("/reveille.admin.v1.ClusterService/ListMembers", VIEW, Reach::Cluster),
    row("/reveille.admin.v1.ClusterService/AddMember", ADMIN, Reach::Cluster),
    row("/reveille.admin.v1.ClusterService/DrainMember", OPERATE, Reach::Cluster),
    row("/reveille.admin.v1.ClusterService/RemoveMember", ADMIN, Reach::Cluster),
    row("/reveille.admin.v1.ClusterService/TransferLeader", OPERATE, Reach::Cluster),
    row("/reveille.admin.v1.ClusterService/GetUpgrade", VIEW, Reach::Cluster),
    row("/reveille.admin.v1.ClusterService/FinishUpgrade", ADMIN, Reach::Cluster),
    row("/reveille.admin.v1.ClusterService/GetRestore", VIEW, Reach::Cluster),
    row("/reveille.admin.v1.ClusterService/AcceptRestore", ADMIN, Reach::Cluster),
    row("/reveille.admin.v1.ClusterService/GetAuthority", VIEW, Reach::Cluster),
    row("/reveille.admin.v1.ClusterService/RotateAuthority", ADMIN, Reach::Cluster),
    row("/reveille.admin.v1.ClusterService/AbortRotation", ADMIN, Reach::Cluster),
    row("/reveille.admin.v1.ClusterService/Scrub", OPERATE, Reach::Cluster),
    row("/reveille.admin.v1.BackupService/CreateBackup", ADMIN, Reach::Cluster),
    row("/reveille.admin.v1.ClockService/GetClock", VIEW, Reach::Cluster),
    row("/reveille.admin.v1.ClockService/AdvanceClock", OPERATE, Reach::Cluster),
    row("/reveille.admin.v1.AuditService/ListAuditRecords", ADMIN, Reach::Cluster),
    row("/reveille.admin.v1.TokenService/CreateToken", ADMIN, Reach::Cluster),
    row("/reveille.admin.v1.TokenService/GetOwnToken", NONE, Reach::NoTenant),
    row("/reveille.admin.v1.TokenService/ListTokens", ADMIN, Reach::Cluster),
    row("/reveille.admin.v1.TokenService/RevokeToken", ADMIN, Reach::Cluster),
    row("/reveille.admin.v1.TokenService/ResetTokens", ADMIN, Reach::Local),
];

/// Returns the row of a path.
pub fn row_of(path: &str) -> Option<&'static AccessRow> {
    ACCESS.iter().find(|row| row.path == path)
}
