//! From a crontab to schedules: read the file, understand each line, say what it would become.
//!
//! Called by `import crontab` (`ask/import.rs`), which reads the file, looks at the calendar and asks the
//! cluster. All of this is pure: bytes in, a plan for each line out.
//!
//! What it promises:
//! - **Every line is accounted for.** A line is blank, a comment, a setting or a job; a job is planned, or
//!   left out with a reason that names what to do. Nothing is dropped in silence.
//! - **Cron's meaning, not what it looks like.** Where a crontab means something else to cron than the same
//!   words mean here, the line is rewritten or refused, and says so ([`timing`]).
//! - **The same file gives the same plan**: names do not depend on what the cluster holds.
//!
//! What it is not: it runs no command and reads none of the files that a command names. A command that
//! sends an email is understood ([`mailer`]); of any other one only the time and the recipients are taken.
//!
//! Reading order: [`crontab`] (lines and settings), [`timing`] (the five fields), [`shell`] (words of a
//! command), [`mailer`] (the email that a command sends), [`name`], [`plan`].

pub mod crontab;
pub mod mailer;
pub mod name;
pub mod plan;
pub mod shell;
pub mod timing;
