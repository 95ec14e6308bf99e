//! The sink over real sockets. Every test starts its own sink on a free port and uses it as a client.

mod client;
mod dialogue;
mod faults;
mod hold;
