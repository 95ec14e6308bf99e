//! Output of `message …`.

use reveille_proto::admin::v1;

use super::View;
use super::fields::view;
use super::run::RunView;
use crate::cli::word::word;

view! {
    /// A message with its run.
    pub struct MessageView of v1::Message as message {
        key: String,
        send_time: Option<String>,
        recipients: Vec<MessageRecipientView>,
        run: RunView,
    }
}

view! {
    /// A recipient of a message.
    struct MessageRecipientView of v1::MessageRecipient as recipient {
        number: u32,
        address: Option<String>,
        state: String = word("RECIPIENT_STATE_", recipient.state().as_str_name()),
    }
}

impl View for MessageView {
    fn name(&self) -> String {
        self.key.clone()
    }

    fn text(&self, paint: bool) -> String {
        let recipient = |one: &MessageRecipientView| {
            let address = one.address.clone().unwrap_or_else(|| format!("#{}", one.number));
            format!("{address}: {}", one.state.replace('_', " "))
        };
        let mut lines = vec![self.run.text(paint)];
        lines.extend(self.recipients.iter().map(recipient));
        lines.join("\n")
    }
}
