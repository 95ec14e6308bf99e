//! The progress bar of long commands.

use indicatif::{ProgressBar, ProgressStyle};

use super::CommandContext;

/// Returns a progress bar. It is hidden unless stdout is a terminal that shows a table.
pub fn bar(context: &CommandContext<'_>, length: u64, template: &str) -> ProgressBar {
    if length == 0 || !context.terminal.is_live() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}
