//! Output of `template render`: one email.

use serde::Serialize;

use super::View;

/// An email as one recipient sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MailView {
    /// The sender's address.
    pub sender: String,
    /// The recipient's address.
    pub recipient: String,
    /// The address for replies, if it is not the sender.
    pub reply_to: Option<String>,
    /// The rendered subject.
    pub subject: String,
    /// Header fields that the content adds.
    pub headers: Vec<HeaderView>,
    /// The plain text; null without one.
    pub text: Option<String>,
    /// The HTML text; null without one.
    pub html: Option<String>,
    /// The message as a relay receives it.
    pub raw: String,
}

/// A header field of the content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeaderView {
    /// Name of the field.
    pub name: String,
    /// Value of the field.
    pub value: String,
}

impl View for MailView {
    fn name(&self) -> String {
        self.recipient.clone()
    }

    fn text(&self, _paint: bool) -> String {
        let mut lines = vec![format!("From: {}", self.sender), format!("To: {}", self.recipient)];
        lines.extend(self.reply_to.iter().map(|address| format!("Reply-To: {address}")));
        lines.push(format!("Subject: {}", self.subject));
        lines.extend(self.headers.iter().map(|header| format!("{}: {}", header.name, header.value)));
        let both = self.text.is_some() && self.html.is_some();
        for (part, media_type) in [(&self.text, "text/plain"), (&self.html, "text/html")] {
            let Some(part) = part else { continue };
            lines.push(String::new());
            lines.extend(both.then(|| format!("--- {media_type}")));
            lines.push(part.trim_end_matches('\n').to_owned());
        }
        lines.join("\n")
    }
}
