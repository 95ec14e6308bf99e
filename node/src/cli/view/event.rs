//! Output of `events`.

use reveille_proto::admin::v1;

use super::fields::view;
use super::run::CountsView;
use crate::cli::args::TYPE_PREFIX;
use crate::cli::word::word;
use crate::format;

view! {
    /// An event.
    pub struct LedgerEventView of v1::Event as event {
        pub cursor: String,
        time: Option<String>,
        r#type: String = word(TYPE_PREFIX, event.r#type().as_str_name()),
        tenant: String,
        schedule: Option<String>,
        run: Option<String>,
        nominal: Option<String>,
        /// Null if it is about no run.
        cause: Option<String> = (!event.run.is_empty()).then(|| word("RUN_CAUSE_", event.cause().as_str_name())),
        /// Numbers of recipients in the run: `0-511,600`.
        numbers: Option<String>,
        count: u32,
        addresses: Vec<String>,
        reason: Option<String>,
        counts: Option<CountsView>,
    }
}

impl LedgerEventView {
    /// Returns the event in one line.
    pub fn line(&self) -> String {
        let about = self.run.as_deref().or(self.schedule.as_deref()).unwrap_or("-");
        let mut line =
            format!("{:<12} {} {:<21} {about}", self.cursor, self.time.as_deref().unwrap_or("-"), self.r#type);
        let recipients = (self.count > 0).then(|| format::counted(u64::from(self.count), "recipient"));
        let numbers = self.numbers.as_deref().map(|numbers| format!("#{numbers}"));
        let more = [recipients, numbers, Some(self.addresses.join(" ")), self.reason.clone()];
        for words in more.into_iter().flatten().filter(|words| !words.is_empty()) {
            line.push_str("  ");
            line.push_str(&words);
        }
        line
    }
}
