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
mod decisions;
mod emails;
mod etags;
mod events;
mod forecasts;
mod gap;
mod jitter;
mod letters;
mod limits;
mod messages;
pub(crate) mod node;
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
mod too_late;
mod updates;
mod upgrade;
#[path = "../../../../../cluster/tests/cluster/support/wrong_clock.rs"]
mod wrong_clock;
