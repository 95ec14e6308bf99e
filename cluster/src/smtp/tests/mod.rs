//! The relay room from the outside: against a scripted server that shares no code with it.

mod certificates;
mod circuits;
mod dialogues;
mod gates;
mod pools;
mod replies;
mod secured;
mod server;
mod sinks;
