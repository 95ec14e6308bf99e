//! Lists: pages, limits, and names for scripts.

use prost::Message;
use reveille_proto::admin::v1;

use crate::fake::{Fake, one, unknown};

fn run(number: u64) -> v1::Run {
    v1::Run { run: format!("r{number}.0"), ..v1::Run::default() }
}

async fn three_pages() -> Fake {
    Fake::start(|method, bytes| {
        if method != "ListRuns" {
            return Err(unknown(method));
        }
        let request = v1::ListRunsRequest::decode(bytes).expect("a request");
        let page: u64 = request.page_token.parse().unwrap_or_default();
        let runs = vec![run(page * 2 + 1), run(page * 2 + 2)];
        let next_page_token = if page == 2 { String::new() } else { (page + 1).to_string() };
        one(v1::ListRunsResponse { runs, next_page_token, ..v1::ListRunsResponse::default() })
    })
    .await
}

#[tokio::test]
async fn all_pages_are_one_list() {
    let fake = three_pages().await;
    let ended = fake.reveille("run list --schedule morning --state open,paused -o name").await;
    assert_eq!(ended.stdout, "r1.0\nr2.0\nr3.0\nr4.0\nr5.0\nr6.0\n");
    let requested: Vec<v1::ListRunsRequest> = fake.requests("ListRuns");
    assert_eq!(requested.len(), 3);
    for request in requested {
        assert_eq!(request.schedule, "morning");
        assert_eq!(request.states, [v1::RunState::Open as i32, v1::RunState::Paused as i32]);
    }
}

#[tokio::test]
async fn limit_is_kept_and_what_is_left_out_is_said() {
    let fake = three_pages().await;
    let ended = fake.reveille("run list --limit 3 -o json").await;
    assert_eq!(ended.json().as_array().map(Vec::len), Some(3));
    assert_eq!(ended.stderr, "there are more: --limit above 3 shows them\n");
    let sizes: Vec<i32> =
        fake.requests::<v1::ListRunsRequest>("ListRuns").iter().map(|requested| requested.page_size).collect();
    assert_eq!(sizes, [3, 1]);
}

#[tokio::test]
async fn empty_list_is_an_empty_array_and_a_word_for_people() {
    let fake = Fake::answering("ListDoubts", v1::ListDoubtsResponse::default()).await;
    let json = fake.reveille("in-doubt list -o json").await;
    assert_eq!((json.stdout.as_str(), json.stderr.as_str()), ("[]\n", ""));
    let table = fake.reveille("in-doubt list").await;
    assert_eq!((table.stdout.as_str(), table.stderr.as_str()), ("", "no emails in doubt\n"));
    let quiet = fake.reveille("in-doubt list -q").await;
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
}

#[tokio::test]
async fn table_of_list_is_narrow() {
    let counts = v1::RunCounts { sent: 1_234, ..v1::RunCounts::default() };
    let mut run =
        v1::Run { schedule: "morning".into(), occurrence: "2026-03-08T09:00:00".into(), audience: 1_234, ..run(7) };
    run.set_state(v1::RunState::Finished);
    run.set_cause(v1::RunCause::Due);
    run.counts = Some(counts);
    let fake = Fake::answering("ListRuns", v1::ListRunsResponse { runs: vec![run], ..Default::default() }).await;
    assert_eq!(
        fake.reveille("run list").await.stdout,
        "RUN   SCHEDULE  OCCURRENCE           CAUSE  STATE     AUDIENCE  SENT   DEAD  IN DOUBT\n\
         r7.0  morning   2026-03-08T09:00:00  due    finished  1,234     1,234  0     0\n"
    );
}
