//! A schedule of the workload: the form for the product, and the form for the checker's calendar.

use std::collections::BTreeMap;

use chrono_tz::Tz;
use reveille_check::calendar::{Fold, Gap, Named, Rule};
use reveille_check::events as checked;
use reveille_cluster::file_store;
use reveille_ledger::ScheduleTiming;
use reveille_ledger::calendar::{self, DstGap, DstOverlap, Pattern, When};
use reveille_ledger::command::ScheduleCreate;
use reveille_ledger::content::{Audience, AudienceChoice, Content, NamedAudience, Recipient, Seal};
use reveille_ledger::ids::{Hash, Time};
use reveille_ledger::labels::Labels;
use reveille_ledger::planning::timing::{Calendar, Jitter, Zone, first_instant_after};
use reveille_ledger::policy::{CatchUp, InDoubt, Overlap, Policies};

use crate::random::RandomStream;

/// A change of clocks or calendar. A run begins ten minutes before it.
#[derive(Clone, Copy, Debug)]
pub struct CalendarScenario {
    /// Text for people.
    pub name: &'static str,
    /// Time at which the run begins.
    pub begins: &'static str,
    /// Time zone of the event.
    pub zone: Tz,
}

/// Addresses by audience. The ledger does not have the addresses of sealed audiences.
pub type AddressLists = BTreeMap<String, Vec<String>>;

/// Length of the end of a run in which nothing becomes due, so that everything can finish.
pub const LAST_MS: i64 = 90_000;

/// The tenants of the workload.
pub const TENANTS: [&str; 2] = ["default", "second"];

/// How a campaign is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchKind {
    /// The audience is sealed first, and the proposer has compiled the content with it.
    Checked,
    /// The audience is sealed first, and the leader compiles the content.
    Unchecked,
    /// The audience is sealed after the launch.
    BeforeSeal,
    /// The campaign is cancelled first, so the launch is refused.
    Cancelled,
}

impl LaunchKind {
    /// Draws a kind of launch.
    pub fn draw(random: &mut RandomStream) -> LaunchKind {
        use LaunchKind::{BeforeSeal, Cancelled, Checked, Unchecked};
        *random.one_of(&[Checked, Checked, Unchecked, Unchecked, BeforeSeal, BeforeSeal, Cancelled])
    }
}

/// A schedule of the workload.
#[derive(Clone, Debug)]
pub struct PlannedSchedule {
    /// Tenant of the schedule.
    pub tenant: &'static str,
    /// Name, unique over all tenants.
    pub name: String,
    /// True if the recipients are a sealed audience of the same name, and not an inline list.
    pub is_sealed: bool,
    /// How the campaign is launched. `None`: a schedule that is not a campaign.
    pub launch: Option<LaunchKind>,
    /// Milliseconds from the beginning of the run to the creation.
    pub at_ms: i64,
    /// Timing in the product's form.
    pub when: When,
    /// Timing in the form of the checker's calendar.
    pub rule: Rule,
    /// Time zone of the timing.
    pub zone: Tz,
    /// Policies for local times that do not exist or exist twice.
    pub changes: (Gap, Fold),
    /// End of the schedule.
    pub end: Time,
    /// The recipients.
    pub recipients: Vec<String>,
    /// Policy for missed instants.
    pub catch_up: CatchUp,
    /// Policy for recipients in doubt, equal for the whole plan.
    pub in_doubt: InDoubt,
    /// Policy for a run that is open when the next instant is due.
    pub overlap: Overlap,
    /// Pool of the relays.
    pub pool: &'static str,
    /// Minimum gap between two emails to a recipient, in milliseconds. 0: no gap.
    pub min_gap_ms: i64,
    /// Maximum number of attempts for a recipient.
    pub max_attempts: u8,
}

/// Returns the value of a schedule in the format of histories.
pub fn value(when: &When, zone: &str, recipients: u32) -> String {
    format!("{when:?} in {zone} for {recipients}")
}

impl PlannedSchedule {
    /// Returns the value of this schedule in the format of histories.
    pub fn value(&self) -> String {
        value(&self.when, self.zone.name(), self.recipients.len() as u32)
    }

    /// Returns the instants in `after < t <= until` by the checker's calendar, in milliseconds since 1970.
    pub fn due(&self, after: i64, until: i64) -> Vec<i64> {
        // The instants of a period begin at its anchor.
        let from = match self.rule {
            Rule::Every { anchor_unix_ms, .. } => anchor_unix_ms.max(after + 1),
            _ => after + 1,
        };
        // An invalid rule has no instants, so the checker counts any run of it as a surplus run.
        self.rule.instants(from, until).unwrap_or_default()
    }

    /// Returns the civil times of these instants.
    pub fn names(&self, after: i64, until: i64) -> Vec<Named> {
        self.rule.named(after + 1, until).unwrap_or_default()
    }

    fn list(&self) -> Vec<Recipient> {
        list(&self.name, &self.recipients)
    }

    /// Returns the content. Its body names the schedule, the recipient and the recipient's code (I16).
    pub fn content(&self) -> Content {
        content(&self.name)
    }

    fn audience(&self) -> AudienceChoice {
        if self.is_sealed {
            let (name, seal) = (self.name.clone(), self.seal().blob().hash);
            return AudienceChoice::Sealed(NamedAudience { name, seal, rows: self.recipients.len() as u32 });
        }
        Audience { columns: columns(), recipients: self.list() }.into()
    }

    /// Returns the bytes of the only part of the sealed audience.
    pub fn part(&self) -> Vec<u8> {
        file_store::encode(&self.list())
    }

    /// Returns the seal of the sealed audience.
    pub fn seal(&self) -> Seal {
        let parts = vec![file_store::name(&self.part()).unwrap_or(Hash([0; 32]))];
        Seal { name: self.name.clone(), columns: columns(), rows: self.recipients.len() as u32, parts }
    }

    /// Returns the policies of the schedule.
    pub fn policies(&self) -> Policies {
        let (gap, overlap) = self.changes;
        let gap = match gap {
            Gap::After => DstGap::After,
            Gap::Shift => DstGap::Shift,
            Gap::Skip => DstGap::Skip,
        };
        let overlap = match overlap {
            Fold::First => DstOverlap::First,
            Fold::Second => DstOverlap::Second,
            Fold::Both => DstOverlap::Both,
        };
        Policies {
            dst: calendar::DstPolicies { gap, overlap },
            catch_up: self.catch_up,
            in_doubt: self.in_doubt,
            overlap: self.overlap,
            min_gap_ms: self.min_gap_ms,
            max_attempts: self.max_attempts,
            ..short_waits()
        }
    }

    /// Returns the command that the admin API would propose at this ledger time. `None`: the schedule never fires from
    /// then on.
    pub fn create(&self, zone: &Zone, now: Time) -> Option<ScheduleCreate> {
        let policies = self.policies();
        let pattern = Pattern::compile(&self.when).ok()?;
        let jitter = Jitter { tenant: self.tenant, name: &self.name, window_ms: 0 };
        let calendar = Calendar { pattern: &pattern, zone };
        let next = first_instant_after(calendar, &policies.dst, now, (None, Some(self.end)), jitter)?;
        Some(ScheduleCreate {
            request: Some(format!("create-{}", self.name)),
            tenant: self.tenant.into(),
            name: self.name.clone(),
            timing: ScheduleTiming { end: Some(self.end), ..ScheduleTiming::new(self.when.clone(), self.zone.name()) },
            policies,
            pool: self.pool.into(),
            priority: 0,
            paused: None,
            content: self.content().into(),
            audience: self.audience(),
            after: now,
            next: Some(next),
            tzdb: zone.tzdb.clone(),
            labels: Labels::default(),
        })
    }
}

/// Returns the recipients of a schedule or a message, each with its code (I16).
pub fn list(name: &str, addresses: &[String]) -> Vec<Recipient> {
    let recipient = |address: &String| Recipient {
        address: address.clone(),
        key: address.clone(),
        values: vec![checked::Content::code_of(name, address)],
    };
    addresses.iter().map(recipient).collect()
}

/// Returns the content of a schedule or a message. Its body names it, the recipient and the recipient's code (I16).
pub fn content(name: &str) -> Content {
    Content {
        sender: "Simulation <from@example.org>".into(),
        subject: "Hello".into(),
        text: Some(checked::Content::template(name)),
        ..Content::default()
    }
}

/// Returns the default policies with a short back-off.
pub fn short_waits() -> Policies {
    Policies { backoff_from_ms: 5_000, backoff_to_ms: 20_000, ..Policies::default() }
}

/// Returns the only variable of each recipient.
pub fn columns() -> Vec<String> {
    vec![checked::Content::VARIABLE.into()]
}
