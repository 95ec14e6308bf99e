//! The services of the admin API, one per file. Large calls of a service have their own files.

mod audience;
mod campaign;
mod clock;
mod cluster;
mod dead_letter;
mod dead_letter_pages;
mod doubt;
mod initialize;
mod opt_out;
mod pool;
mod probe;
mod relay;
mod relay_hints;
pub(crate) mod run;
pub(crate) mod schedule;
mod tenant;
mod upgrade;
pub(crate) mod upload;
pub(crate) mod watch;
