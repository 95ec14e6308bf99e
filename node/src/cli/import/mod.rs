//! Converts a crontab to schedules: parses each line and plans its schedule. Pure: bytes in, a plan for each line out.
//! Called by `import crontab` (`commands/import.rs`), which reads the file, computes instants and sends the requests.
//!
//! - **Every line is accounted for.** It is blank, a comment, a setting or a job. A job is planned, or left out with a
//!   reason and a next step.
//! - **Cron's meaning decides.** A line that means something else here is rewritten or refused ([`timing`]).
//! - **The same file gives the same plan.** Names do not depend on the cluster's state.
//! - **Nothing is run or read.** If a command sends an email, its content is taken over ([`mailer`]); from other
//!   commands, only time and recipients.
//!
//! Reading order: [`crontab`] (lines and settings), [`timing`] (time fields), [`shell`] (words), [`mailer`], [`name`],
//! [`plan`].

pub mod crontab;
pub mod mailer;
pub mod name;
pub mod plan;
pub mod shell;
pub mod timing;
