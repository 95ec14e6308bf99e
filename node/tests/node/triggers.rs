//! Two servers that trigger one job at the same time, each with links of its own, as two web servers with one cron line
//! do.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Stdio};
use std::sync::Barrier;
use std::time::Duration;

use reveille_sink::SinkOptions;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::http_json::{Answer, Curl};
use crate::messages::mailbox;
use crate::process::{Process, until};

const JOBS: usize = 200;
const RECIPIENTS: usize = 3;
const SERVERS: [&str; 2] = ["a", "b"];

/// Returns the times after which a server is killed, which look random and are the same in each run.
fn delay(job: usize) -> Duration {
    Duration::from_micros((job as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32).mul_f64(1.0 / 100_000.0)
}

/// Returns the request of a server. The key names the job, and each recipient has a link that this server made.
fn request(server: &str, job: usize) -> Value {
    let recipient = |number| {
        json!({
            "address": format!("u{number}-{job}@example.com"),
            "values": [format!("https://example.com/{server}/{job}/{number}")],
        })
    };
    let recipients: Vec<Value> = (0..RECIPIENTS).map(recipient).collect();
    json!({
        "requestId": format!("job-{job}"),
        "keyRule": "KEY_RULE_FIRST_WINS",
        "audience": { "columns": ["link"], "recipients": recipients },
    })
}

/// What a server read of an answer.
#[derive(Debug)]
struct Opened {
    run: String,
    is_repeat: bool,
}

/// Starts a call, and kills it after `killed_after`. Returns the run if the server read the answer.
fn trigger(client: &Curl, address: &str, body: &Value, killed_after: Option<Duration>) -> Option<Opened> {
    let mut command = client.command(address, "POST", "/v1/schedules/job/trigger", &["-d", &body.to_string()]);
    let mut child: Child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("curl runs");
    if let Some(after) = killed_after {
        std::thread::sleep(after);
        child.kill().expect("killed");
    }
    let out = child.wait_with_output().expect("it ends");
    let answer = Answer::of(&out.stdout).filter(|_| out.status.success())?;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    let run = answer["run"]["run"].as_str().expect("a run").to_owned();
    Some(Opened { run, is_repeat: answer["replayed"].as_bool().expect("it says whether it is a repeat") })
}

#[test]
fn two_servers_with_different_links_open_one_run_with_the_links_of_the_first() {
    let (folder, runtime) = (tempfile::tempdir().expect("a folder"), Runtime::new().expect("a runtime"));
    let nodes = Process::cluster(folder.path(), ["one", "two", "three"], &[]);
    let sink = mailbox(&runtime, &nodes[0], SinkOptions { excerpt_bytes: 200, ..SinkOptions::default() });
    let client = Curl::of(folder.path(), &nodes[0]);
    let schedule = json!({
        "name": "job",
        "timing": { "daily": { "hour": 8 } },
        "zone": "UTC",
        "policies": { "overlap": "OVERLAP_ALLOW" },
        "content": { "sender": "jobs@example.com", "subject": "Your link", "text": "{{ link }}" },
        "audience": { "columns": ["link"], "recipients": [{ "address": "daily@example.com", "values": ["none"] }] },
    });
    let created = client.call(&nodes[0].admin, "POST", "/v1/schedules", &["-d", &schedule.to_string()]);
    assert_eq!(created.as_ref().map(|answer| answer.status), Ok(200), "{created:?}");

    let (mut runs, mut read, mut told_first) = (BTreeSet::new(), 0, BTreeMap::new());
    for job in 0..JOBS {
        let together = Barrier::new(SERVERS.len());
        let answers: Vec<Option<Opened>> = std::thread::scope(|scope| {
            let servers = SERVERS.iter().enumerate().map(|(place, server)| {
                let (client, together) = (&client, &together);
                let address = &nodes[(job + place) % nodes.len()].admin;
                let killed_after = (job % SERVERS.len() == place).then(|| delay(job));
                scope.spawn(move || {
                    let body = request(server, job);
                    together.wait();
                    trigger(client, address, &body, killed_after)
                })
            });
            let servers: Vec<_> = servers.collect();
            servers.into_iter().map(|server| server.join().expect("it ends")).collect()
        });
        let named: BTreeSet<String> = answers.iter().flatten().map(|opened| opened.run.clone()).collect();
        assert_eq!(named.len(), 1, "job {job}: {answers:?}");
        read += answers.iter().flatten().count();
        for (server, _) in
            SERVERS.iter().zip(&answers).filter(|(_, opened)| opened.as_ref().is_some_and(|one| !one.is_repeat))
        {
            assert_eq!(told_first.insert(job, *server), None, "job {job}: two answers say that they opened the run");
        }
        runs.extend(named);
    }
    assert_eq!(runs.len(), JOBS, "one run a job");

    until("all arrive", || sink.accepted_count() >= (JOBS * RECIPIENTS) as u64);
    let mut links: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, email) in sink.emails().iter() {
        let text = email.excerpt.as_deref().unwrap_or_default().trim();
        links.entry(email.recipient.clone()).or_default().push(text.to_owned());
    }
    let mut first_of = BTreeMap::new();
    for job in 0..JOBS {
        // The server whose links came; they are the only ones, and each recipient has its own.
        let server = SERVERS.into_iter().find(|server| {
            (0..RECIPIENTS).all(|number| {
                let link = format!("https://example.com/{server}/{job}/{number}");
                links.get(&format!("u{number}-{job}@example.com")) == Some(&vec![link])
            })
        });
        let server = server.unwrap_or_else(|| panic!("the links of job {job} differ: {links:?}"));
        assert!(told_first.get(&job).is_none_or(|told| *told == server), "job {job} has the links of the other server");
        *first_of.entry((server, job % SERVERS.len())).or_insert(0) += 1;
    }
    assert_eq!(links.len(), JOBS * RECIPIENTS);
    println!(
        "{read} answers read, {} of the first server; jobs by first server and by the server that was killed: {first_of:?}",
        told_first.len()
    );
}
