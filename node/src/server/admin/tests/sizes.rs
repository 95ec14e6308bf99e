//! Requests that are too large are refused with a clear error, before they cost anything.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use reveille_proto::admin::v1::{Content, ScheduleBody};
use tonic::codegen::Service as _;
use tonic::{Code, Status};

use super::node::{creation, node, reason, yearly};

/// Returns a body whose subject has `bytes` bytes.
fn with_subject(bytes: usize) -> ScheduleBody {
    let body = yearly("report", &["ada@example.net"]);
    let content = body.content.map(|content| Content { subject: "x".repeat(bytes), ..content });
    ScheduleBody { content, ..body }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_above_its_bound_is_refused_by_field_or_as_a_whole() {
    let node = node("").await;
    let refused = node.schedules().create_schedule(creation(with_subject(1 << 20))).await.expect_err("a long subject");
    assert_eq!(reason(&refused).0, Code::InvalidArgument);
    assert_eq!(refused.message(), "schedule.content: has 1048640 bytes, more than 524288; link to large parts instead");
    for megabytes in [17, 40] {
        let whole = node.schedules().create_schedule(creation(with_subject(megabytes << 20))).await;
        let whole = whole.expect_err("too large");
        assert_eq!(reason(&whole), (Code::InvalidArgument, "TOO_LARGE".to_owned()), "{whole:?}");
        assert!(whole.message().contains("16777216 bytes"), "{whole:?}");
    }
    node.schedules().create_schedule(creation(with_subject(9))).await.expect("the connection still serves");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_no_message_are_an_invalid_argument() {
    let node = node("").await;
    let call = async |kind: &str| {
        // A gRPC frame with three bytes: field 1 announces five bytes, but only one follows.
        let frame = vec![0, 0, 0, 0, 3, 0x0a, 5, 1];
        let request = Request::post("http://node/reveille.admin.v1.RelayService/AddRelay")
            .header("content-type", kind)
            .header("te", "trailers")
            .body(tonic::body::Body::new(Body::from(frame)));
        let mut channel = node.channel.clone();
        std::future::poll_fn(|context| channel.poll_ready(context)).await.expect("a connection");
        channel.call(request.expect("a request")).await.expect("an answer")
    };
    let refused = call("application/grpc").await;
    let status = Status::from_header_map(refused.headers()).expect("a status");
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert_eq!(call("application/json").await.status(), StatusCode::NOT_FOUND, "JSON has paths of its own");
    node.stop().await;
}
