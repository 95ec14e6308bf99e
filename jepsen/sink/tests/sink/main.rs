//! The sink over real sockets: every test starts its own on a free port and talks to it as a client would.

mod client;
mod dialogue;
mod faults;
mod hold;
