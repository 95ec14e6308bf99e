//! Output of `template …` without `send-test`: stored templates, and one rendered email.

use reveille_proto::admin::v1::{Content, Field, GetTemplateResponse, PreviewTemplateResponse, Template};

use super::{Cell, Serialize, View};

/// An email as one recipient sees it, rendered without a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
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
    #[serde(serialize_with = "crate::api_json::serialize_all")]
    pub headers: Vec<Field>,
    /// The plain text; null without one.
    pub text: Option<String>,
    /// The HTML text; null without one.
    pub html: Option<String>,
    /// The message as a relay receives it.
    pub raw: String,
}

impl View for MailView {
    const NAME: &'static str = "recipient";

    fn text(&self, _paint: bool) -> String {
        let mut lines = vec![format!("From: {}", self.sender), format!("To: {}", self.recipient)];
        lines.extend(self.reply_to.iter().map(|address| format!("Reply-To: {address}")));
        lines.extend(lines_of(&self.subject, &self.headers, (&self.text, &self.html)));
        lines.join("\n")
    }
}

/// Returns subject, header fields and texts as lines.
fn lines_of(subject: &str, headers: &[Field], (text, html): (&Option<String>, &Option<String>)) -> Vec<String> {
    let mut lines = vec![format!("Subject: {subject}")];
    lines.extend(headers.iter().map(|header| format!("{}: {}", header.name, header.value)));
    let both = text.is_some() && html.is_some();
    for (part, media_type) in [(text, "text/plain"), (html, "text/html")] {
        let Some(part) = part else { continue };
        lines.push(String::new());
        lines.extend(both.then(|| format!("--- {media_type}")));
        lines.push(part.trim_end_matches('\n').to_owned());
    }
    lines
}

impl View for PreviewTemplateResponse {
    const NAME: &'static str = "subject";

    fn text(&self, _paint: bool) -> String {
        lines_of(&self.subject, &self.headers, (&self.text, &self.html)).join("\n")
    }
}

fn users(template: &Template) -> u64 {
    template.versions.iter().map(|version| version.users).sum()
}

impl View for Template {
    const NOUN: &'static str = "templates";
    const COLUMNS: &'static [&'static str] = &["NAME", "NEWEST", "VERSIONS", "USERS", "CHANGED"];

    fn cells(&self) -> Vec<Cell> {
        let newest = self.versions.last();
        vec![
            self.name.as_str().into(),
            Cell::number(newest.map(|newest| newest.version.into())),
            self.versions.len().to_string().into(),
            users(self).to_string().into(),
            Cell::at(newest.and_then(|newest| newest.create_time.as_ref())),
        ]
    }
}

impl View for GetTemplateResponse {
    fn name(&self) -> String {
        let name = self.template.as_ref().map(View::name).unwrap_or_default();
        format!("{name}@{}", self.version)
    }

    fn text(&self, _paint: bool) -> String {
        let Content { sender, subject, headers, text, html, .. } = self.content.clone().unwrap_or_default();
        let template = self.template.clone().unwrap_or_default();
        let mut lines = vec![
            format!("{}, of {} versions, {} users", self.name(), template.versions.len(), users(&template)),
            format!("From: {sender}"),
        ];
        lines.extend(lines_of(&subject, &headers, (&text, &html)));
        lines.join("\n")
    }
}
