//! What `template render` prints: one mail.

use serde::Serialize;

use super::View;

/// An email as one recipient reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MailView {
    /// The sender.
    pub sender: String,
    /// The recipient.
    pub recipient: String,
    /// Where answers go, if elsewhere.
    pub reply_to: Option<String>,
    /// The subject.
    pub subject: String,
    /// The content's own header fields.
    pub headers: Vec<HeaderView>,
    /// The plain text.
    pub text: Option<String>,
    /// The HTML.
    pub html: Option<String>,
    /// As a relay gets it.
    pub raw: String,
}

/// A header field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeaderView {
    /// Its name.
    pub name: String,
    /// Its value.
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
