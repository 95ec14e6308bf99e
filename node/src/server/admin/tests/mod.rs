//! Tests of the whole API over real gRPC, on a one-node cluster that sends to a mailbox in the same process.

mod access;
mod archive;
mod attachments;
mod attacks;
mod audiences;
mod audit;
mod campaign_faults;
mod campaigns;
mod canary;
mod clock;
mod cluster;
mod dead_letters;
mod decisions;
mod emails;
mod etags;
mod events;
mod forecasts;
pub(crate) mod harness;
mod jitter;
mod messages;
mod min_gap;
mod overlap;
mod pools;
mod recipients;
mod restore;
mod schedules;
mod send_test;
mod sizes;
mod smtputf8;
mod templates;
mod tenants;
mod throttling;
mod too_late;
mod updates;
mod upgrade;
#[path = "../../../../../cluster/tests/cluster/support/wrong_clock.rs"]
mod wrong_clock;
