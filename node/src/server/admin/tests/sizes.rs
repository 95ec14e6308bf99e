//! Requests that are too large are refused with a clear error, before they cost anything.

use reveille_proto::admin::v1::{Content, ScheduleBody};
use tonic::Code;

use super::harness::{creation, node, reason, yearly};

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
