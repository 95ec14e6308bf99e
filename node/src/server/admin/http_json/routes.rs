//! The table of HTTP requests: for each method of the API, its verb and path.

/// Which part of a request's message is the body of the HTTP request. The rest is in path and query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyPart {
    /// No body.
    None,
    /// The whole message.
    Whole,
    /// This field.
    Field(&'static str),
    /// This field of bytes, in the messages of a client stream. The first message has the content type too.
    Pieces(&'static str),
}

impl BodyPart {
    /// Returns the field that is the body.
    pub fn field(self) -> Option<&'static str> {
        match self {
            BodyPart::Field(field) => Some(field),
            BodyPart::None | BodyPart::Whole | BodyPart::Pieces(_) => None,
        }
    }
}

/// One HTTP request.
#[derive(Debug)]
pub struct HttpRow {
    /// `GET`, `POST` …
    pub verb: &'static str,
    /// The path. A segment in braces is the field of the message whose path it names.
    pub path: &'static str,
    /// What the body is.
    pub body: BodyPart,
    /// Service and method, without the package.
    pub method: &'static str,
}

const fn get(path: &'static str, method: &'static str) -> HttpRow {
    HttpRow { verb: "GET", path, body: BodyPart::None, method }
}

const fn delete(path: &'static str, method: &'static str) -> HttpRow {
    HttpRow { verb: "DELETE", path, body: BodyPart::None, method }
}

const fn post(path: &'static str, method: &'static str) -> HttpRow {
    HttpRow { verb: "POST", path, body: BodyPart::Whole, method }
}

const fn put(path: &'static str, method: &'static str) -> HttpRow {
    HttpRow { verb: "PUT", path, body: BodyPart::Whole, method }
}

const fn with_field(verb: &'static str, path: &'static str, field: &'static str, method: &'static str) -> HttpRow {
    HttpRow { verb, path, body: BodyPart::Field(field), method }
}

/// All requests. The first row that fits is taken.
pub const HTTP_ROWS: &[HttpRow] = &[
    with_field("POST", "/v1/schedules", "schedule", "ScheduleService/CreateSchedule"),
    post("/v1/schedules/batch", "ScheduleService/BatchCreateSchedules"),
    get("/v1/schedules", "ScheduleService/ListSchedules"),
    get("/v1/schedules/{name}", "ScheduleService/GetSchedule"),
    with_field("PATCH", "/v1/schedules/{schedule.name}", "schedule", "ScheduleService/UpdateSchedule"),
    delete("/v1/schedules/{name}", "ScheduleService/DeleteSchedule"),
    post("/v1/schedules/{name}/pause", "ScheduleService/PauseSchedule"),
    post("/v1/schedules/{name}/resume", "ScheduleService/ResumeSchedule"),
    post("/v1/schedules/{name}/trigger", "ScheduleService/TriggerSchedule"),
    post("/v1/schedules/{name}/backfill", "ScheduleService/BackfillSchedule"),
    get("/v1/schedules/{name}/history", "ScheduleService/ListScheduleHistory"),
    post("/v1/test-emails", "ScheduleService/SendTest"),
    post("/v1/messages", "MessageService/SendMessage"),
    get("/v1/messages/{key}", "MessageService/GetMessage"),
    post("/v1/messages/{key}/cancel", "MessageService/CancelMessage"),
    get("/v1/runs", "RunService/ListRuns"),
    get("/v1/runs/{run}", "RunService/GetRun"),
    get("/v1/runs/{run}/watch", "RunService/WatchRun"),
    post("/v1/runs/{run}/pause", "RunService/PauseRun"),
    post("/v1/runs/{run}/resume", "RunService/ResumeRun"),
    post("/v1/runs/{run}/cancel", "RunService/CancelRun"),
    get("/v1/runs/{run}/recipients", "RecipientService/ListRunRecipients"),
    get("/v1/runs/{run}/recipients/export", "RecipientService/ExportRunRecipients"),
    get("/v1/runs/{run}/recipients/{recipient}", "RunService/Explain"),
    get("/v1/runs/{run}/doubts", "DoubtService/ListDoubts"),
    get("/v1/runs/{run}/doubts/{recipient}", "DoubtService/GetDoubt"),
    post("/v1/runs/{run}/doubts/resolve", "DoubtService/ResolveDoubts"),
    get("/v1/runs/{run}/dead-letters", "DeadLetterService/ListDeadLetters"),
    get("/v1/runs/{run}/dead-letters/count", "DeadLetterService/CountDeadLetters"),
    post("/v1/runs/{run}/dead-letters/requeue", "DeadLetterService/RequeueDeadLetters"),
    post("/v1/runs/{run}/dead-letters/discard", "DeadLetterService/DiscardDeadLetters"),
    post("/v1/campaigns", "CampaignService/CreateCampaign"),
    get("/v1/campaigns", "CampaignService/ListCampaigns"),
    get("/v1/campaigns/{name}", "CampaignService/GetCampaign"),
    delete("/v1/campaigns/{name}", "CampaignService/DeleteCampaign"),
    post("/v1/campaigns/{name}/launch", "CampaignService/LaunchCampaign"),
    post("/v1/campaigns/{name}/pause", "CampaignService/PauseCampaign"),
    post("/v1/campaigns/{name}/resume", "CampaignService/ResumeCampaign"),
    post("/v1/campaigns/{name}/cancel", "CampaignService/CancelCampaign"),
    get("/v1/audiences", "AudienceService/ListAudiences"),
    get("/v1/audiences/{name}", "AudienceService/GetAudience"),
    delete("/v1/audiences/{name}", "AudienceService/DeleteAudience"),
    post("/v1/audiences/{name}/prepare", "AudienceService/PrepareAudience"),
    HttpRow {
        verb: "POST",
        path: "/v1/audience-parts",
        body: BodyPart::Pieces("piece"),
        method: "AudienceService/UploadRecipients",
    },
    post("/v1/audiences/{name}/seal", "AudienceService/SealAudience"),
    post("/v1/opt-outs", "OptOutService/AddOptOut"),
    post("/v1/opt-outs/import", "OptOutService/ImportOptOuts"),
    get("/v1/opt-outs", "OptOutService/ListOptOuts"),
    get("/v1/opt-outs/{recipient}", "OptOutService/CheckOptOut"),
    post("/v1/opt-outs/{recipient}/take-back", "OptOutService/TakeBackOptOut"),
    get("/v1/recipients/{recipient}", "RecipientService/FindRecipient"),
    delete("/v1/recipients/{recipient}", "RecipientService/EraseRecipient"),
    with_field("PUT", "/v1/templates/{name}", "content", "TemplateService/PutTemplate"),
    get("/v1/templates", "TemplateService/ListTemplates"),
    get("/v1/templates/{name}", "TemplateService/GetTemplate"),
    delete("/v1/templates/{name}", "TemplateService/DeleteTemplate"),
    post("/v1/templates/{name}/preview", "TemplateService/PreviewTemplate"),
    get("/v1/events", "EventService/ListEvents"),
    get("/v1/events/watch", "EventService/WatchEvents"),
    get("/v1/tenants", "TenantService/ListTenants"),
    get("/v1/tenants/{name}", "TenantService/GetTenant"),
    put("/v1/tenants/{name}", "TenantService/SetTenant"),
    delete("/v1/tenants/{name}", "TenantService/RemoveTenant"),
    get("/v1/pools", "PoolService/ListPools"),
    get("/v1/pools/{name}", "PoolService/GetPool"),
    put("/v1/pools/{name}", "PoolService/SetPool"),
    delete("/v1/pools/{name}", "PoolService/RemovePool"),
    with_field("POST", "/v1/relays", "relay", "RelayService/AddRelay"),
    get("/v1/relays", "RelayService/ListRelays"),
    get("/v1/relays/{name}", "RelayService/GetRelay"),
    post("/v1/relays/{name}/test", "RelayService/TestRelay"),
    delete("/v1/relays/{name}", "RelayService/RemoveRelay"),
    get("/v1/cluster", "ClusterService/GetClusterStatus"),
    get("/v1/cluster/members", "ClusterService/ListMembers"),
    post("/v1/cluster/members", "ClusterService/AddMember"),
    post("/v1/cluster/members/{member}/drain", "ClusterService/DrainMember"),
    delete("/v1/cluster/members/{member}", "ClusterService/RemoveMember"),
    post("/v1/cluster/transfer-leader", "ClusterService/TransferLeader"),
    get("/v1/cluster/upgrade", "ClusterService/GetUpgrade"),
    post("/v1/cluster/upgrade/finish", "ClusterService/FinishUpgrade"),
    get("/v1/cluster/restore", "ClusterService/GetRestore"),
    post("/v1/cluster/restore/accept", "ClusterService/AcceptRestore"),
    get("/v1/cluster/authority", "ClusterService/GetAuthority"),
    post("/v1/cluster/authority/rotate", "ClusterService/RotateAuthority"),
    post("/v1/cluster/authority/abort", "ClusterService/AbortRotation"),
    post("/v1/cluster/scrub", "ClusterService/Scrub"),
    post("/v1/backups", "BackupService/CreateBackup"),
    get("/v1/clock", "ClockService/GetClock"),
    post("/v1/clock/advance", "ClockService/AdvanceClock"),
    get("/v1/audit-records", "AuditService/ListAuditRecords"),
    post("/v1/tokens", "TokenService/CreateToken"),
    get("/v1/tokens", "TokenService/ListTokens"),
    get("/v1/tokens/self", "TokenService/GetOwnToken"),
    delete("/v1/tokens/{id}", "TokenService/RevokeToken"),
];

/// Methods that only gRPC has: a client stream, and what the socket of the machine serves.
#[cfg(test)]
pub const GRPC_ONLY: [&str; 2] = ["AudienceService/PutPart", "TokenService/ResetTokens"];
