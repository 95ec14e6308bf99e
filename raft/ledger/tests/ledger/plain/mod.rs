//! A simple schedule for tests and examples that are about something else. They change what they need.

use reveille_ledger::ScheduleTiming;
use reveille_ledger::calendar::When;
use reveille_ledger::command::ScheduleCreate;
use reveille_ledger::content::{AudienceChoice, Content};
use reveille_ledger::ids::Time;
use reveille_ledger::labels::Labels;
use reveille_ledger::policy::Policies;

/// Returns a schedule for every minute in UTC, created at `after`, with the default policies and no planned instant.
pub fn schedule(name: &str, audience: impl Into<AudienceChoice>, after: Time) -> ScheduleCreate {
    ScheduleCreate {
        request: None,
        tenant: "default".into(),
        name: name.into(),
        timing: ScheduleTiming::new(When::Cron { expression: "* * * * *".into() }, "UTC"),
        policies: Policies::default(),
        pool: "default".into(),
        priority: 0,
        paused: None,
        content: content("s").into(),
        audience: audience.into(),
        after,
        next: None,
        tzdb: "test".into(),
        labels: Labels::default(),
    }
}

/// Returns a content with this subject.
pub fn content(subject: &str) -> Content {
    Content { sender: "a@example.org".into(), subject: subject.into(), text: Some("t".into()), ..Content::default() }
}
