//! The care of stored data: reading the archive, finding what of it is lost, and checking all files at rest.

pub mod archive_loss;
pub mod archive_reader;
pub(crate) mod scrub;
pub mod scrub_report;
