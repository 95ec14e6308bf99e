//! The care of stored data: reading the archive, finding what of it is lost, and checking all files at rest.

pub mod archive;
pub mod archive_loss;
pub(crate) mod scrub;
