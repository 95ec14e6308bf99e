//! `reveille doctor`.

use super::{Args, PathBuf};

/// Options of `reveille doctor`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  reveille doctor
  reveille doctor --config /etc/reveille/reveille.toml -o json

Exit codes:
  0 no problem, perhaps warnings   1 at least one problem")]
pub struct DoctorArgs {
    /// Tenant
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// The file of the node that runs on this machine: its folders are checked too
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The data folder of the node that runs on this machine
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}
