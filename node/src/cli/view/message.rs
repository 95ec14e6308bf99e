//! Output of `message …`.

use reveille_proto::admin::v1::{Message, MessageRecipient};

use super::{View, some, word};

impl View for Message {
    const NAME: &'static str = "key";

    fn text(&self, paint: bool) -> String {
        let recipient = |one: &MessageRecipient| {
            let address = some(&one.address).map_or_else(|| format!("#{}", one.number), str::to_owned);
            format!("{address}: {}", word(one.state().as_str_name()).replace('_', " "))
        };
        let mut lines = vec![self.run.clone().unwrap_or_default().text(paint)];
        lines.extend(self.recipients.iter().map(recipient));
        lines.join("\n")
    }
}
