//! The table of methods: for each method of the admin listener, what a token needs, and its request over HTTP.

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

/// The HTTP request of a method.
#[derive(Debug)]
pub struct HttpRequest {
    /// `GET`, `POST` …
    pub verb: &'static str,
    /// The path. A segment in braces is the field of the message whose path it names.
    pub path: &'static str,
    /// What the body is.
    pub body: BodyPart,
}

/// One method.
#[derive(Debug)]
pub struct MethodRow {
    /// Path of the method, as HTTP/2 carries it.
    pub path: &'static str,
    /// The rights that a token must have.
    pub needs: Rights,
    /// What the call reaches.
    pub reach: Reach,
    /// Its HTTP request. `None`: only gRPC has it.
    pub http: Option<HttpRequest>,
}

const fn row(path: &'static str, needs: Rights, reach: Reach, http: Option<HttpRequest>) -> MethodRow {
    MethodRow { path, needs, reach, http }
}

/// Returns the HTTP request whose body is the whole message, or that has none.
const fn request(verb: &'static str, path: &'static str) -> HttpRequest {
    let has_body = !matches!(verb.as_bytes(), b"GET" | b"DELETE");
    HttpRequest { verb, path, body: if has_body { BodyPart::Whole } else { BodyPart::None } }
}

macro_rules! http {
    () => {
        None
    };
    ($verb:ident $path:literal) => {
        Some(request(stringify!($verb), $path))
    };
    ($verb:ident $path:literal $part:ident($field:literal)) => {
        Some(HttpRequest { body: BodyPart::$part($field), ..request(stringify!($verb), $path) })
    };
}

/// The methods of each service: needed rights, reach, and the HTTP request.
macro_rules! methods {
    ($($service:ident {
        $($method:ident: $needs:expr, $reach:ident $(, $verb:ident $http:literal $($part:ident($field:literal))?)?;)*
    })*) => {
        /// All methods. A method that is not here is refused. The first HTTP request that fits is taken.
        pub const METHODS: &[MethodRow] = &[
            row("/grpc.health.v1.Health/Check", NONE, Reach::Open, None),
            row("/grpc.health.v1.Health/List", NONE, Reach::Open, None),
            row("/grpc.health.v1.Health/Watch", NONE, Reach::Open, None),
            row("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", NONE, Reach::NoTenant, None),
            $($(row(
                concat!("/reveille.admin.v1.", stringify!($service), "/", stringify!($method)),
                $needs,
                Reach::$reach,
                http!($($verb $http $($part($field))?)?),
            ),)*)*
        ];
    };
}
methods! {
    ScheduleService {
        CreateSchedule: EDIT, Tenant, POST "/v1/schedules" Field("schedule");
        BatchCreateSchedules: EDIT, Tenant, POST "/v1/schedules/batch";
        ListSchedules: VIEW, Tenant, GET "/v1/schedules";
        GetSchedule: VIEW, Tenant, GET "/v1/schedules/{name}";
        PutSchedule: EDIT, Tenant, PUT "/v1/schedules/{schedule.name}" Field("schedule");
        UpdateSchedule: EDIT, Tenant, PATCH "/v1/schedules/{schedule.name}" Field("schedule");
        PauseSchedule: PAUSE, Tenant, POST "/v1/schedules/{name}/pause";
        ResumeSchedule: SEND, Tenant, POST "/v1/schedules/{name}/resume";
        TriggerSchedule: SEND, Tenant, POST "/v1/schedules/{name}/trigger";
        BackfillSchedule: SEND, Tenant, POST "/v1/schedules/{name}/backfill";
        SendTest: SEND, Tenant, POST "/v1/test-emails";
        DeleteSchedule: EDIT, Tenant, DELETE "/v1/schedules/{name}";
        ListScheduleHistory: VIEW, Tenant, GET "/v1/schedules/{name}/history";
    }
    MessageService {
        SendMessage: SEND, Tenant, POST "/v1/messages";
        GetMessage: VIEW, Tenant, GET "/v1/messages/{key}";
        CancelMessage: CANCEL, Tenant, POST "/v1/messages/{key}/cancel";
    }
    // Before RunService: its path `.../recipients/export` would match `.../recipients/{recipient}` there.
    RecipientService {
        ListRunRecipients: VIEW, Tenant, GET "/v1/runs/{run}/recipients";
        ExportRunRecipients: VIEW, Tenant, GET "/v1/runs/{run}/recipients/export";
        FindRecipient: VIEW.union(PII), Tenant, GET "/v1/recipients/{recipient}";
        EraseRecipient: EDIT.union(PII), Tenant, DELETE "/v1/recipients/{recipient}";
    }
    RunService {
        ListRuns: VIEW, Tenant, GET "/v1/runs";
        GetRun: VIEW, Tenant, GET "/v1/runs/{run}";
        WatchRun: VIEW, Tenant, GET "/v1/runs/{run}/watch";
        PauseRun: PAUSE, Tenant, POST "/v1/runs/{run}/pause";
        ResumeRun: SEND, Tenant, POST "/v1/runs/{run}/resume";
        CancelRun: CANCEL, Tenant, POST "/v1/runs/{run}/cancel";
        Explain: VIEW.union(PII), Tenant, GET "/v1/runs/{run}/recipients/{recipient}";
    }
    CampaignService {
        CreateCampaign: EDIT, Tenant, POST "/v1/campaigns";
        LaunchCampaign: SEND, Tenant, POST "/v1/campaigns/{name}/launch";
        ListCampaigns: VIEW, Tenant, GET "/v1/campaigns";
        GetCampaign: VIEW, Tenant, GET "/v1/campaigns/{name}";
        PauseCampaign: PAUSE, Tenant, POST "/v1/campaigns/{name}/pause";
        ResumeCampaign: SEND, Tenant, POST "/v1/campaigns/{name}/resume";
        CancelCampaign: CANCEL, Tenant, POST "/v1/campaigns/{name}/cancel";
        DeleteCampaign: EDIT, Tenant, DELETE "/v1/campaigns/{name}";
    }
    AudienceService {
        PrepareAudience: EDIT, Tenant, POST "/v1/audiences/{name}/prepare";
        PutPart: EDIT, NoTenant;
        UploadRecipients: EDIT, NoTenant, POST "/v1/audience-parts" Pieces("piece");
        SealAudience: EDIT, Tenant, POST "/v1/audiences/{name}/seal";
        ListAudiences: VIEW, Tenant, GET "/v1/audiences";
        GetAudience: VIEW, Tenant, GET "/v1/audiences/{name}";
        DeleteAudience: EDIT, Tenant, DELETE "/v1/audiences/{name}";
    }
    DeadLetterService {
        ListDeadLetters: VIEW.union(PII), Tenant, GET "/v1/runs/{run}/dead-letters";
        CountDeadLetters: VIEW, Tenant, GET "/v1/runs/{run}/dead-letters/count";
        RequeueDeadLetters: SEND, Tenant, POST "/v1/runs/{run}/dead-letters/requeue";
        DiscardDeadLetters: SEND, Tenant, POST "/v1/runs/{run}/dead-letters/discard";
    }
    DoubtService {
        ListDoubts: VIEW.union(PII), Tenant, GET "/v1/runs/{run}/doubts";
        GetDoubt: VIEW.union(PII), Tenant, GET "/v1/runs/{run}/doubts/{recipient}";
        ResolveDoubts: SEND, Tenant, POST "/v1/runs/{run}/doubts/resolve";
    }
    OptOutService {
        AddOptOut: EDIT, Tenant, POST "/v1/opt-outs";
        CheckOptOut: VIEW.union(PII), Tenant, GET "/v1/opt-outs/{recipient}";
        ImportOptOuts: EDIT, Tenant, POST "/v1/opt-outs/import";
        ListOptOuts: VIEW.union(PII), Tenant, GET "/v1/opt-outs";
        TakeBackOptOut: SEND, Tenant, POST "/v1/opt-outs/{recipient}/take-back";
    }
    TemplateService {
        PutTemplate: EDIT, Tenant, PUT "/v1/templates/{name}" Field("content");
        GetTemplate: VIEW, Tenant, GET "/v1/templates/{name}";
        ListTemplates: VIEW, Tenant, GET "/v1/templates";
        DeleteTemplate: EDIT, Tenant, DELETE "/v1/templates/{name}";
        PreviewTemplate: VIEW, Tenant, POST "/v1/templates/{name}/preview";
    }
    EventService {
        ListEvents: VIEW, Tenant, GET "/v1/events";
        WatchEvents: VIEW, Tenant, GET "/v1/events/watch";
    }
    TenantService {
        SetTenant: OPERATE, Cluster, PUT "/v1/tenants/{name}";
        ListTenants: VIEW, Cluster, GET "/v1/tenants";
        GetTenant: VIEW, Tenant, GET "/v1/tenants/{name}";
        RemoveTenant: OPERATE, Cluster, DELETE "/v1/tenants/{name}";
    }
    PoolService {
        SetPool: OPERATE, Cluster, PUT "/v1/pools/{name}";
        ListPools: VIEW, Cluster, GET "/v1/pools";
        GetPool: VIEW, Cluster, GET "/v1/pools/{name}";
        RemovePool: OPERATE, Cluster, DELETE "/v1/pools/{name}";
    }
    RelayService {
        AddRelay: OPERATE, Cluster, POST "/v1/relays" Field("relay");
        ListRelays: VIEW, Cluster, GET "/v1/relays";
        GetRelay: VIEW, Cluster, GET "/v1/relays/{name}";
        TestRelay: OPERATE, Cluster, POST "/v1/relays/{name}/test";
        RemoveRelay: OPERATE, Cluster, DELETE "/v1/relays/{name}";
    }
    ClusterService {
        GetClusterStatus: VIEW, Cluster, GET "/v1/cluster";
        ListMembers: VIEW, Cluster, GET "/v1/cluster/members";
        AddMember: ADMIN, Cluster, POST "/v1/cluster/members";
        DrainMember: OPERATE, Cluster, POST "/v1/cluster/members/{member}/drain";
        RemoveMember: ADMIN, Cluster, DELETE "/v1/cluster/members/{member}";
        TransferLeader: OPERATE, Cluster, POST "/v1/cluster/transfer-leader";
        GetUpgrade: VIEW, Cluster, GET "/v1/cluster/upgrade";
        FinishUpgrade: ADMIN, Cluster, POST "/v1/cluster/upgrade/finish";
        GetRestore: VIEW, Cluster, GET "/v1/cluster/restore";
        AcceptRestore: ADMIN, Cluster, POST "/v1/cluster/restore/accept";
        GetAuthority: VIEW, Cluster, GET "/v1/cluster/authority";
        RotateAuthority: ADMIN, Cluster, POST "/v1/cluster/authority/rotate";
        AbortRotation: ADMIN, Cluster, POST "/v1/cluster/authority/abort";
        Scrub: OPERATE, Cluster, POST "/v1/cluster/scrub";
        GetArchiveLoss: VIEW, Cluster, GET "/v1/cluster/archive-loss";
        AcceptArchiveLoss: ADMIN, Cluster, POST "/v1/cluster/archive-loss/accept";
    }
    BackupService {
        CreateBackup: ADMIN, Cluster, POST "/v1/backups";
    }
    ClockService {
        GetClock: VIEW, Cluster, GET "/v1/clock";
        AdvanceClock: OPERATE, Cluster, POST "/v1/clock/advance";
    }
    AuditService {
        ListAuditRecords: ADMIN, Cluster, GET "/v1/audit-records";
    }
    TokenService {
        CreateToken: ADMIN, Cluster, POST "/v1/tokens";
        GetOwnToken: NONE, NoTenant, GET "/v1/tokens/self";
        ListTokens: ADMIN, Cluster, GET "/v1/tokens";
        RevokeToken: ADMIN, Cluster, DELETE "/v1/tokens/{id}";
        ResetTokens: ADMIN, Local;
    }
}

/// Methods whose repeat may do more, and that keep no id of a request: a second token or backup, a second step of the
/// clock, the end of an opt-out or of a pause that was made meanwhile. All other writes keep an id, or leave the same
/// state again.
pub const NON_IDEMPOTENT: [&str; 9] = [
    "BackupService/CreateBackup",
    "CampaignService/ResumeCampaign",
    "ClockService/AdvanceClock",
    "ClusterService/AddMember",
    "ClusterService/TransferLeader",
    "OptOutService/TakeBackOptOut",
    "RunService/ResumeRun",
    "ScheduleService/ResumeSchedule",
    "TokenService/CreateToken",
];

/// Returns the row of a path.
pub fn row_of(path: &str) -> Option<&'static MethodRow> {
    METHODS.iter().find(|row| row.path == path)
}
