//! The demo's requests to the admin API.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};
use reveille_node_client::AdminClient;
use reveille_proto::admin::v1::{
    Audience, Content, Daily, ExplainedEventKind, Field, Recipient, RunCounts, ScheduleBody, When, when,
};

/// Maximum wait for an expected answer.
const COMES_WITHIN: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Time from the creation of the campaign to its due time.
const STARTS_IN: Duration = Duration::from_secs(2);

/// Returns the name of the leader. Waits until there is one.
pub async fn leader(admin: &AdminClient) -> Result<String> {
    let until = Instant::now() + COMES_WITHIN;
    loop {
        let status = admin.status().await?;
        if !status.leader.is_empty() && status.epoch > 0 {
            return Ok(status.leader);
        }
        if Instant::now() > until {
            bail!("no leader within {} s", COMES_WITHIN.as_secs());
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Creates a daily schedule, the most common kind.
pub async fn create_daily(admin: &AdminClient, name: &str) -> Result<()> {
    let pattern = when::Pattern::Daily(Daily { hour: 9, ..Daily::default() });
    admin.create(schedule(name, pattern, "Europe/Berlin", 1)).await
}

/// Creates a campaign that starts soon. Waits until its run opens, and returns the run.
pub async fn start_campaign(admin: &AdminClient, name: &str, recipients: u32) -> Result<String> {
    let at = prost_types::Timestamp::from(SystemTime::now() + STARTS_IN);
    admin.create(schedule(name, when::Pattern::At(at), "UTC", recipients)).await?;
    let until = Instant::now() + COMES_WITHIN;
    loop {
        if let Some(run) = admin.run_of(name).await? {
            return Ok(run.run);
        }
        if Instant::now() > until {
            bail!("the campaign did not open within {} s", COMES_WITHIN.as_secs());
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

fn schedule(name: &str, pattern: when::Pattern, zone: &str, recipients: u32) -> ScheduleBody {
    let content = Content {
        sender: "Reveille demo <demo@example.org>".to_owned(),
        subject: "Hello {{ name }}".to_owned(),
        text: Some("Dear {{ name }},\n\nthis email was sent once.\n\n{{ signature }}\n".to_owned()),
        html: Some("<p>Dear {{ name }},</p><p>this email was sent <b>once</b>.</p><p>{{ signature }}</p>".to_owned()),
        variables: vec![Field { name: "signature".to_owned(), value: "Reveille".to_owned() }],
        bulk: false,
        attachments: Vec::new(),
        ..Content::default()
    };
    let recipient = |number| Recipient { address: address_of(number), values: vec![format!("reader {number}")] };
    let audience = Audience {
        columns: vec!["name".to_owned()],
        recipients: (0..recipients).map(recipient).collect(),
        sealed: String::new(),
    };
    ScheduleBody {
        name: name.to_owned(),
        timing: Some(When { pattern: Some(pattern) }),
        zone: zone.to_owned(),
        content: Some(content),
        audience: Some(audience),
        ..ScheduleBody::default()
    }
}

/// Returns when a recipient was claimed under a fence, by ledger time.
pub async fn claimed_at(admin: &AdminClient, run: &str, recipient: &str, fence: &str) -> Option<SystemTime> {
    let events = admin.explain(run, recipient).await.ok()?.events;
    let claimed =
        events.into_iter().find(|event| event.kind() == ExplainedEventKind::Claimed && event.fence == fence)?;
    SystemTime::try_from(claimed.time?).ok()
}

/// Returns the address of a recipient.
pub fn address_of(number: u32) -> String {
    format!("reader-{number}@example.net")
}

/// True if no recipient is pending or claimed.
pub fn is_finished(counts: &RunCounts) -> bool {
    counts.pending == 0 && counts.claimed == 0
}
