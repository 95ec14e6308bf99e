//! The listener of the admin API: all services on one port, in gRPC and in JSON over HTTP, with their limits.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use reveille_proto::DESCRIPTORS;
use reveille_proto::admin::v1;
use reveille_proto::admin::v1::schedule_service_server::ScheduleServiceServer;
use reveille_raft::connections;
use reveille_raft::listen::{self, HTTP2_PREFACE, Incoming};
use reveille_raft::tls::ServerTls;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::{Code, Status};

use super::access::{Authenticator, ListenerKind, authenticate};
use super::error_texts::CallKind;
use super::http_json::{HttpJson, by_message, by_path, with_body};
use super::limits::request_bytes_max;
use super::{Admin, ApiError, deadline, error_texts};

/// Maximum size of a response, in bytes: enough for a page of a thousand dead letters with the longest texts.
pub const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum number of concurrent requests on one connection. Further ones wait.
const REQUESTS_MAX: usize = 128;
/// Maximum number of open streams on one connection, including watched runs.
const STREAMS_MAX: u32 = 256;
/// Interval of keep-alive pings. A connection that does not answer one within `PONG_WITHIN` is closed.
const PING_EVERY: Duration = Duration::from_secs(20);
const PONG_WITHIN: Duration = Duration::from_secs(20);
/// The only calls without the time limit of all calls, because a client stream is answered after its last piece.
/// `upload` limits the time and the size of a piece and of the whole stream.
const UPLOADS: [&str; 2] =
    ["/reveille.admin.v1.AudienceService/PutPart", "/reveille.admin.v1.AudienceService/UploadRecipients"];
/// Start of the error text of `prost` for bytes that are not a valid message.
const NO_MESSAGE: &str = "failed to decode Protobuf message";
/// First words of the methods that change nothing. `TestRelay` opens a session and sends no email;
/// `ServerReflectionInfo` and `Check` are gRPC's own.
const READS: [&str; 11] = [
    "List",
    "Get",
    "Find",
    "Watch",
    "Explain",
    "Export",
    "Preview",
    "Count",
    "Check",
    "TestRelay",
    "ServerReflectionInfo",
];
/// Time for running requests to finish after the node was asked to stop.
const STOP_WITHIN: Duration = Duration::from_secs(2);

/// Serves the API on `listener` until `stop` is cancelled. Running requests then get [`STOP_WITHIN`] to finish. Without
/// `tls` connections are in plaintext.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    admin: Admin,
    listener: TcpListener,
    tls: Option<ServerTls>,
    stop: CancellationToken,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (health, health_service) = tonic_health::server::health_reporter();
    let admin = Arc::new(Admin { stop: stop.clone(), ..admin });
    health.set_serving::<ScheduleServiceServer<Admin>>().await;
    let routes = router(&admin)?.add_service(health_service).into_axum_router();
    let memory =
        from_fn_with_state(listen::message_memory(), |State(memory), request: Request, next: Next| async move {
            match UPLOADS.contains(&request.uri().path()) {
                // Upload pieces are limited by `upload` itself.
                true => next.run(request).await,
                false => listen::meter_memory(memory, request, next)
                    .await
                    .unwrap_or_else(|| Status::from(error_texts::out_of_memory()).into_http()),
            }
        });
    let by = Authenticator { context: Arc::clone(&admin.context), listener: admin.listener };
    let routes = bounded(routes.layer(from_fn(by_message)), deadline::LONGEST).layer(memory).layer(from_fn(with_body));
    let routes = routes.layer(from_fn_with_state(by, authenticate));
    // A router of its own, because the path must change before the inner one reads it.
    let json = Arc::new(HttpJson::new(admin.listener == ListenerKind::Insecure)?);
    let routes = Routes::from(Router::new().fallback_service(routes).layer(from_fn_with_state(json, by_path)));
    let serving = Server::builder()
        .accept_http1(true)
        .concurrency_limit_per_connection(REQUESTS_MAX)
        .max_concurrent_streams(STREAMS_MAX)
        .http2_keepalive_interval(Some(PING_EVERY))
        .http2_keepalive_timeout(Some(PONG_WITHIN))
        .add_routes(routes)
        .serve_with_incoming_shutdown(
            connections(Incoming::new(listener, "admin", HTTP2_PREFACE).kept_by_calls(), tls),
            stop.clone().cancelled_owned(),
        );
    let stopped = async {
        stop.cancelled().await;
        health.set_service_status("", tonic_health::ServingStatus::NotServing).await;
        health.set_not_serving::<ScheduleServiceServer<Admin>>().await;
        tokio::time::sleep(STOP_WITHIN).await;
    };
    tokio::select! {
        served = serving => Ok(served?),
        () = stopped => Ok(()),
    }
}

/// Returns all services of the API, with reflection.
///
/// # Errors
/// If the built-in descriptors do not decode.
pub fn router(admin: &Arc<Admin>) -> Result<Routes, tonic_reflection::server::Error> {
    let mut reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name(tonic_health::pb::health_server::SERVICE_NAME);
    let mut routes = Routes::default();
    macro_rules! add {
        ($($module:ident::$server:ident),*) => {$(
            let name = v1::$module::$server::<Admin>::NAME;
            reflection = reflection.with_service_name(name);
            routes = routes.add_service(
                v1::$module::$server::from_arc(Arc::clone(admin))
                    .max_decoding_message_size(request_bytes_max(name))
                    .max_encoding_message_size(ANSWER_BYTES_MAX),
            );
        )*};
    }
    add!(
        cluster_service_server::ClusterServiceServer,
        backup_service_server::BackupServiceServer,
        clock_service_server::ClockServiceServer,
        relay_service_server::RelayServiceServer,
        schedule_service_server::ScheduleServiceServer,
        message_service_server::MessageServiceServer,
        run_service_server::RunServiceServer,
        doubt_service_server::DoubtServiceServer,
        dead_letter_service_server::DeadLetterServiceServer,
        opt_out_service_server::OptOutServiceServer,
        recipient_service_server::RecipientServiceServer,
        event_service_server::EventServiceServer,
        audience_service_server::AudienceServiceServer,
        audit_service_server::AuditServiceServer,
        campaign_service_server::CampaignServiceServer,
        template_service_server::TemplateServiceServer,
        tenant_service_server::TenantServiceServer,
        pool_service_server::PoolServiceServer,
        token_service_server::TokenServiceServer
    );
    let routes = routes.add_service(reflection.build_v1()?);
    Ok(Routes::from(routes.into_axum_router().layer(from_fn(fix_tonic_errors))))
}

/// Limits the time until the response of every call begins, except for [`UPLOADS`].
fn bounded(routes: Router, longest: Duration) -> Router {
    routes.layer(from_fn_with_state(longest, within))
}

async fn within(State(longest): State<Duration>, request: Request, next: Next) -> Response {
    if UPLOADS.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let kind = kind_of(request.uri().path());
    let answer = tokio::time::timeout(longest, next.run(request)).await;
    answer.unwrap_or_else(|_| Status::from(error_texts::timed_out(kind)).into_http())
}

/// Returns whether a call may change something, by its method. A method that is not known to read is a write: its
/// client must not believe that nothing happened.
fn kind_of(path: &str) -> CallKind {
    let method = path.rsplit('/').next().unwrap_or_default();
    let reads = READS.iter().any(|verb| method.starts_with(verb));
    if reads { CallKind::Read } else { CallKind::Write }
}

/// Corrects errors that `tonic` returns before a service sees the message. For a message that is too large it adds a
/// reason that programs can read. For an invalid message it reports an error of the client, not of the server.
async fn fix_tonic_errors(request: Request, next: Next) -> Response {
    let service = request.uri().path().split('/').nth(1).unwrap_or_default();
    let most = request_bytes_max(service);
    let response = next.run(request).await;
    let Some(status) = Status::from_header_map(response.headers()).filter(|status| status.details().is_empty()) else {
        return response;
    };
    match status.code() {
        Code::OutOfRange => Status::from(error_texts::request_too_large(status.message(), most)).into_http(),
        Code::Internal if status.message().starts_with(NO_MESSAGE) => {
            Status::from(ApiError::of_field("request", status.message())).into_http()
        }
        _ => response,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::routing::post;
    use tonic::codegen::Service as _;
    use tonic_types::StatusExt as _;

    #[tokio::test]
    async fn part_has_its_own_time_and_every_other_call_the_longest() {
        let [upload, _] = UPLOADS;
        assert!(UPLOADS.iter().all(|path| {
            path.starts_with(&format!("/{}/", v1::audience_service_server::AudienceServiceServer::<Admin>::NAME))
        }));
        let longest = Duration::from_millis(50);
        let slow = move || async move { tokio::time::sleep(4 * longest).await };
        let stuck = || std::future::pending::<()>();
        let routes = Router::new().route(upload, post(slow)).route("/other/Call", post(stuck));
        let mut routes = bounded(routes.route("/other/GetIt", post(stuck)), longest);
        let mut answered = async |path: &str| {
            let request = Request::post(path).body(Body::empty()).expect("a request");
            let answer = routes.call(request).await.expect("an answer");
            let status = Status::from_header_map(answer.headers())?;
            Some((status.code(), status.get_details_error_info().map(|info| info.reason)))
        };
        assert_eq!(answered(upload).await, None, "it was not cut short");
        let unknown = Some("OUTCOME_UNKNOWN".to_owned());
        assert_eq!(answered("/other/Call").await, Some((Code::DeadlineExceeded, unknown)), "it may have happened");
        let timed_out = Some("TIMED_OUT".to_owned());
        assert_eq!(answered("/other/GetIt").await, Some((Code::DeadlineExceeded, timed_out)), "a read changes nothing");
    }

    /// A write that is reported as a read hides that it may have happened.
    #[test]
    fn methods_are_reads_or_writes_by_their_names() {
        for read in ["RunService/GetRun", "RunService/Explain", "OptOutService/CheckOptOut", "RelayService/TestRelay"] {
            assert_eq!(kind_of(&format!("/reveille.admin.v1.{read}")), CallKind::Read, "{read}");
        }
        for write in ["RunService/PauseRun", "ScheduleService/SendTest", "ClusterService/TransferLeader"] {
            assert_eq!(kind_of(&format!("/reveille.admin.v1.{write}")), CallKind::Write, "{write}");
        }
    }
}
