//! Output of `events`.

use reveille_proto::admin::v1::Event;

use super::{format, some, text, word};
use crate::cli::wording;

/// Returns the event in one line.
pub fn line(event: &Event) -> String {
    let about = some(&event.run).or(some(&event.schedule)).unwrap_or("-");
    let time = text(event.time.as_ref()).unwrap_or_else(|| "-".to_owned());
    let mut line = format!("{:<12} {time} {:<21} {about}", event.cursor, word(event.r#type().as_str_name()));
    let recipients = (event.count > 0).then(|| format::counted(u64::from(event.count), "recipient"));
    let numbers = some(&event.numbers).map(|numbers| format!("#{numbers}"));
    let pause = event.pause.as_ref().map(wording::pause);
    let made_way = some(&event.cancelled_by).map(wording::made_way);
    let block = event.block.as_ref().map(wording::block);
    let more = [recipients, numbers, Some(event.addresses.join(" ")), pause, made_way, block];
    for words in more.into_iter().flatten().filter(|words| !words.is_empty()) {
        line.push_str("  ");
        line.push_str(&words);
    }
    line
}
