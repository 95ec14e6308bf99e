//! Live progress on stderr: a bar on a terminal, otherwise a line from time to time.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use reveille_proto::admin::v1::RunCounts;

/// Interval of lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// Output of the demo while it runs.
pub struct DemoProgress {
    bar: Option<ProgressBar>,
    recipients: u32,
    next_line: Instant,
}

impl DemoProgress {
    /// Creates the output for a campaign of this many recipients.
    pub fn new(recipients: u32) -> DemoProgress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("  {bar:40.green} {pos}/{len} arrived  {msg}");
            ProgressBar::new(recipients.into()).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        DemoProgress { bar, recipients, next_line: Instant::now() }
    }

    /// Shows how many emails arrived, and the counts of the ledger.
    pub fn show(&mut self, arrived: u64, counts: Option<&RunCounts>) {
        let ledger = counts.map_or("no answer from the cluster".to_owned(), |counts| {
            format!(
                "sent {} claimed {} pending {} in doubt {}",
                counts.sent, counts.claimed, counts.pending, counts.in_doubt
            )
        });
        match &self.bar {
            Some(bar) => {
                bar.set_position(arrived);
                bar.set_message(ledger);
            }
            None if Instant::now() >= self.next_line => {
                self.next_line = Instant::now() + LINE_EVERY;
                eprintln!("  {arrived}/{} arrived  {ledger}", self.recipients);
            }
            None => {}
        }
    }

    /// Prints an event.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(format!("  {text}")),
            None => eprintln!("  {text}"),
        }
    }

    /// Ends the bar; its last state stays on the screen.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}
