//! Tests of the relays against a scripted server that shares no code with them.

mod announcements;
mod certificates;
mod circuits;
mod dialogues;
mod gates;
mod pools;
mod replies;
mod secured;
mod server;
mod sinks;
