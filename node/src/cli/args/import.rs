//! `reveille import …`.

use reveille_ledger::address::Mailbox;

use super::schedule::parse_address;
use super::{Args, PathBuf, PolicyArgs, Subcommand};

/// Whose.
#[derive(Debug, Subcommand)]
pub enum ImportCommand {
    /// Schedules from a crontab, as documents for `reveille apply`, all of them paused
    ///
    /// A line of a crontab runs a command, and cron sends what it prints. Reveille runs no command: of each
    /// line it takes the time, the zone and the recipients. Where the command is a mail program (mail -s,
    /// mutt, sendmail), subject, recipients and the text after % are taken from it; elsewhere the text is a
    /// placeholder. So every schedule is paused, with FILE:LINE in its reason: write its content,
    /// then resume it. A schedule sends every time; cron sends only what was printed.
    ///
    /// What the file says goes before the flags: CRON_TZ before --zone, MAILTO before --to, MAILFROM before
    /// --sender. TZ is taken for the time only without --zone, because most crons leave it to the command.
    ///
    /// Lines that cannot be taken over are named with the reason; the exit code is 7 then. It needs no cluster.
    #[command(after_long_help = "\
Examples:
  crontab -l | reveille import crontab - --sender cron@example.com
  reveille import crontab /etc/crontab --sender cron@example.com --to ops@example.com --write jobs.yaml
  reveille apply -f jobs.yaml

Refused: @reboot (no time), ~ (a random choice of cronie's), what the calendar cannot read.")]
    Crontab(Box<CrontabArgs>),
}

/// `import crontab`.
#[derive(Debug, Args)]
pub struct CrontabArgs {
    /// The crontab; - is stdin
    pub file: PathBuf,
    /// Its lines have a user before the command [default: for /etc/crontab and /etc/cron.d]
    #[arg(long, conflicts_with = "user")]
    pub system: bool,
    /// Its lines have no user before the command [default: for any other file]
    #[arg(long)]
    pub user: bool,
    /// Zone of lines that no CRON_TZ stands above [default: that of this machine]
    #[arg(long, value_name = "ZONE")]
    pub zone: Option<String>,
    /// From, where the file does not say: ADDRESS or 'NAME <ADDRESS>'
    #[arg(long, value_name = "ADDRESS", value_parser = parse_mailbox)]
    pub sender: Option<String>,
    /// To, where the file does not say; may be repeated
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub to: Vec<String>,
    /// Each name begins with this, such as web1-
    #[arg(long, value_name = "NAME-", default_value = "", hide_default_value = true, value_parser = parse_prefix)]
    pub prefix: String,
    /// Pool of relays
    #[arg(long, default_value = "default")]
    pub pool: String,
    /// Write the schedules as documents to this file, which must not exist yet
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    #[command(flatten)]
    pub policies: PolicyArgs,
}

fn parse_mailbox(text: &str) -> Result<String, String> {
    Mailbox::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// What a name may begin with, and short enough that a name still fits behind it.
fn parse_prefix(text: &str) -> Result<String, String> {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let begins = text.is_empty() || text.starts_with(|first: char| first.is_ascii_alphanumeric());
    if begins && text.len() <= 64 && text.bytes().all(inside) {
        return Ok(text.to_owned());
    }
    Err("a prefix has at most 64 letters, digits, '-', '_' and '.', and begins with a letter or a digit".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_begins_a_name() {
        for text in ["", "web1-", "a.b_"] {
            assert_eq!(parse_prefix(text).as_deref(), Ok(text));
        }
        for text in ["-a", "a b", "ä-", &"x".repeat(65)] {
            assert!(parse_prefix(text).is_err(), "{text}");
        }
    }
}
