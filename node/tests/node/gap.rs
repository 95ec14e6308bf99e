//! `min_gap` on three nodes with a test clock (P17). A daily email goes to all recipients. It is sent at most once a
//! day, however it is triggered, across a fail-over. After twenty hours it can be sent again.

use std::fs;

use jiff::{Timestamp, ToSpan};
use reveille_proto::admin::v1::schedule_service_client::ScheduleServiceClient;
use reveille_proto::admin::v1::{Run, TriggerScheduleRequest};
use reveille_sink::{Sink, SinkOptions};
use serde_json::Value;
use tokio::runtime::Runtime;
use tonic::{Code, Status};

use crate::process::{Ended, Process, STEP_TIMEOUT, until};

/// Three nodes of a cluster with a test clock. One of them may be killed.
struct Trio {
    nodes: Vec<Process>,
    runtime: Runtime,
}

impl Trio {
    fn json(&self, line: &str) -> Value {
        let ended = self.nodes[0].reveille(&format!("{line} -o json"));
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        serde_json::from_str(&ended.stdout).expect("JSON")
    }

    fn advance_to(&self, to: Timestamp) {
        self.json(&format!("clock advance --target-time {to}"));
    }

    /// Triggers the schedule with the command line.
    fn trigger(&self, request_id: &str) -> Ended {
        self.nodes[0].reveille(&format!("schedule trigger morning --request-id {request_id} -o json"))
    }

    /// Triggers the schedule over the API of another node.
    fn trigger_by_api(&self, request_id: &str) -> Result<Run, Status> {
        let node = &self.nodes[1];
        let (name, request_id) = ("morning".to_owned(), request_id.to_owned());
        let request = TriggerScheduleRequest { name, request_id, ..TriggerScheduleRequest::default() };
        let requested = async {
            let channel = node.access().channel(&node.admin, STEP_TIMEOUT).expect("an address");
            ScheduleServiceClient::new(channel).trigger_schedule(request).await
        };
        let answer = self.runtime.block_on(requested)?;
        Ok(answer.into_inner().run.expect("a run"))
    }

    /// Checks that both clients are refused, and that the error names the allowed instant.
    fn is_refused(&self, allowed: Timestamp) {
        let words = format!("allowed at {allowed}");
        let ended = self.trigger("by-command");
        assert!(ended.code == Some(4) && ended.stdout.is_empty(), "{ended:?}");
        assert!(ended.stderr.contains("INSIDE_GAP") && ended.stderr.contains(&words), "{ended:?}");
        let status = self.trigger_by_api("by-api").expect_err("too early");
        assert!(status.code() == Code::FailedPrecondition && status.message().contains(&words), "{status:?}");
    }

    /// Kills the leader, and waits for another one.
    fn fail_over(&mut self) {
        let leader = self.json("cluster status")["leader"].clone();
        let members = self.json("cluster member list");
        let leads = |member: &&Value| member["id"] == leader || member["name"] == leader;
        let name = members.as_array().and_then(|members| members.iter().find(leads)).expect("a leader")["name"].clone();
        let place = ["one", "two", "three"].iter().position(|known| name == *known).expect("one of them");
        let mut leads = self.nodes.remove(place);
        leads.kill();
        until("another one leads", || self.nodes[0].reveille("schedule list").code == Some(0));
    }
}

#[test]
fn daily_email_goes_to_all_once_a_day_whatever_is_invoked() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(Process::init(folder.path(), "one", "--test-clock").code, Some(0));
    let nodes = Process::cluster(folder.path(), ["one", "two", "three"], &[]);
    let mut trio = Trio { nodes: nodes.into(), runtime: Runtime::new().expect("a runtime") };
    let sink = trio.runtime.block_on(async { Sink::start(SinkOptions::default()) }).expect("a mailbox");
    trio.json(&format!("relay add mailbox --host 127.0.0.1 --port {} --tls none", sink.address().port()));
    let text = folder.path().join("text.txt");
    fs::write(&text, "Good morning\n").expect("written");

    let now: Timestamp =
        trio.json("clock show")["currentTime"].as_str().and_then(|now| now.parse().ok()).expect("an instant");
    let midnight = Timestamp::from_second((now.as_second() / 86_400 + 1) * 86_400).expect("an instant");
    let at = |hours: i64, minutes: i64| midnight + hours.hours() + minutes.minutes();
    trio.advance_to(midnight);
    let to = "--to ann@example.net --to ben@example.net --sender news@example.org --subject Morning";
    let created =
        trio.json(&format!("schedule create morning --daily 09:00 --zone UTC {to} --text {}", text.display()));
    assert_eq!(created["schedule"]["policies"]["minGap"], "72000s", "the default of a daily one");

    // Applying its document changes nothing, also without the line of the default gap.
    let document = trio.nodes[0].reveille("schedule show morning --manifest").stdout;
    assert!(document.lines().any(|line| line == "    minGap: \"72000s\""), "{document}");
    let short: String =
        document.lines().filter(|line| !line.contains("minGap")).map(|line| line.to_owned() + "\n").collect();
    let file = folder.path().join("morning.yaml");
    for text in [document, short] {
        fs::write(&file, &text).expect("written");
        assert_eq!(trio.json(&format!("apply -f {}", file.display()))[0]["outcome"], "unchanged", "{text}");
    }

    // The email goes to all recipients.
    trio.advance_to(at(9, 1));
    assert_eq!(sink.accepted_count(), 2);

    // It is sent at most once a day, however it is triggered.
    trio.is_refused(at(29, 0));
    let backfilled =
        trio.json(&format!("schedule backfill morning --start-time {} --end-time {} --yes", at(0, 0), at(9, 0)));
    assert_eq!((&backfilled["opened"], &backfilled["openedBefore"]), (&0.into(), &1.into()));
    trio.advance_to(at(28, 59));
    trio.is_refused(at(29, 0));
    trio.fail_over();
    trio.is_refused(at(29, 0));
    assert_eq!(sink.accepted_count(), 2);

    // It can be sent again after twenty hours. A repeated request returns the same run.
    trio.advance_to(at(29, 0));
    let triggered = trio.trigger("by-command");
    assert_eq!(triggered.code, Some(0), "{triggered:?}");
    let run = trio.trigger_by_api("by-command").expect("the same").run;
    assert!(triggered.stdout.contains(&format!("\"{run}\"")), "{triggered:?}");
    trio.advance_to(at(29, 1));
    assert_eq!(sink.accepted_count(), 4);
    let due = trio.json(&format!("run show {run}"))["occurrence"].clone();
    assert!(!due.is_null());

    // 09:00 is four hours later. The remark is shown before, and the history has the reason afterwards.
    let next = trio.json("schedule show morning")["nextInstants"].clone();
    let remark = &next[0]["remarks"][0];
    assert_eq!((&remark["kind"], &remark["run"]), (&"INSTANT_REMARK_KIND_INSIDE_MIN_GAP".into(), &run.clone().into()));
    assert_eq!(next[1]["remarks"], Value::Array(vec![]), "a day later it is outside: {next}");
    trio.advance_to(at(33, 1));
    assert_eq!(sink.accepted_count(), 4);
    let history = trio.json("schedule history morning");
    let latest = &history[0];
    assert_eq!(latest["insideGap"], 2, "{history}");
    let explanation = trio.json(&format!("explain {} ann@example.net", latest["run"].as_str().unwrap_or_default()));
    assert_eq!(explanation["state"], "RECIPIENT_STATE_SUPPRESSED");
    let is_near =
        |event: &Value| event["suppressionReason"] == "SUPPRESSION_REASON_MIN_GAP" && event["otherRun"] == run;
    let events = explanation["events"].as_array().expect("events");
    assert!(events.iter().any(is_near), "{explanation}");
    trio.advance_to(at(57, 1));
    assert_eq!(sink.accepted_count(), 6);
}
