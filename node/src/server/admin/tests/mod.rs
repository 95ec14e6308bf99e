//! Tests of the whole API over real gRPC, on a one-node cluster that sends to a mailbox in the same process.

mod access;
mod archive;
mod audiences;
mod campaign_faults;
mod campaigns;
mod canary;
mod clock;
mod cluster;
mod decisions;
mod emails;
mod forecasts;
mod gap;
mod jitter;
mod letters;
mod limits;
pub(crate) mod node;
mod overlap;
mod pools;
mod restore;
mod schedules;
mod send_test;
mod sizes;
mod smtputf8;
mod tenants;
mod too_late;
mod updates;
mod upgrade;
