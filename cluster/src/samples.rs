//! A content, a recipient and a schedule for the unit tests of the actors.

use reveille_ledger::ScheduleTiming;
use reveille_ledger::calendar::When;
use reveille_ledger::command::{NextInstant, ScheduleCreate};
use reveille_ledger::content::{Audience, Content, Recipient};
use reveille_ledger::ids::{OccurrenceName, Time};
use reveille_ledger::labels::Labels;
use reveille_ledger::policy::Policies;

/// Returns a recipient with this address.
pub fn recipient(address: &str) -> Recipient {
    Recipient { address: address.to_owned(), key: address.to_owned(), values: vec![] }
}

/// Returns a content without variables and attachments.
pub fn content() -> Content {
    Content {
        sender: "from@example.org".into(),
        subject: "hello".into(),
        text: Some("text".into()),
        ..Content::default()
    }
}

/// Returns a schedule with one instant and the default policies.
pub fn schedule(due: Time, recipients: Vec<Recipient>) -> ScheduleCreate {
    ScheduleCreate {
        request: None,
        tenant: "default".into(),
        name: "once".into(),
        timing: ScheduleTiming::new(When::At { instant_ms: due.0 }, "UTC"),
        policies: Policies::default(),
        pool: "default".into(),
        priority: 0,
        paused: None,
        content: content().into(),
        audience: Audience { columns: vec![], recipients }.into(),
        after: Time(0),
        next: Some(NextInstant { occurrence: OccurrenceName::Instant(due), due, jitter_ms: 0 }),
        tzdb: "test".into(),
        labels: Labels::default(),
    }
}
