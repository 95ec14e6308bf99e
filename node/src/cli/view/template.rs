//! Output of `template …` without `send-test`: stored templates, and one rendered email.

use reveille_proto::admin::v1;
use serde::Serialize;

use super::fields::view;
use super::layout::{Cell, card};
use super::{Row, View};

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
        lines.extend(lines_of(&self.subject, &self.headers, (&self.text, &self.html)));
        lines.join("\n")
    }
}

/// Returns subject, header fields and texts as lines.
fn lines_of(subject: &str, headers: &[HeaderView], (text, html): (&Option<String>, &Option<String>)) -> Vec<String> {
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

impl From<v1::Field> for HeaderView {
    fn from(field: v1::Field) -> HeaderView {
        HeaderView { name: field.name, value: field.value }
    }
}

view! {
    /// A stored template as one recipient would see it.
    pub struct PreviewView of v1::PreviewTemplateResponse as preview {
        subject: String,
        headers: Vec<HeaderView>,
        text: Option<String>,
        html: Option<String>,
        version: u32,
    }
}

impl View for PreviewView {
    fn name(&self) -> String {
        self.subject.clone()
    }

    fn text(&self, _paint: bool) -> String {
        lines_of(&self.subject, &self.headers, (&self.text, &self.html)).join("\n")
    }
}

view! {
    /// One version of a template.
    pub struct TemplateVersionView of v1::TemplateVersion as version {
        version: u32,
        content_hash: String,
        at: Option<String>,
        index: u64,
        users: u64,
    }
}

view! {
    /// A stored template.
    pub struct TemplateView of v1::Template as template {
        tenant: String,
        name: String,
        etag: String,
        versions: Vec<TemplateVersionView>,
    }
}

impl TemplateView {
    fn users(&self) -> u64 {
        self.versions.iter().map(|version| version.users).sum()
    }
}

impl View for TemplateView {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(&self, paint: bool) -> String {
        card(TemplateView::COLUMNS.iter().copied().zip(self.cells()).collect(), paint)
    }
}

impl Row for TemplateView {
    const NOUN: &'static str = "templates";
    const COLUMNS: &'static [&'static str] = &["NAME", "NEWEST", "VERSIONS", "USERS", "CHANGED"];

    fn cells(&self) -> Vec<Cell> {
        let newest = self.versions.last();
        let number = newest.map(|newest| newest.version.to_string());
        vec![
            self.name.as_str().into(),
            Cell::or_dash(number.as_deref()),
            self.versions.len().to_string().into(),
            self.users().to_string().into(),
            Cell::or_dash(newest.and_then(|newest| newest.at.as_deref())),
        ]
    }
}

view! {
    /// The content of a template.
    pub struct ContentView of v1::Content as content {
        sender: String,
        reply_to: Option<String>,
        subject: String,
        text: Option<String>,
        html: Option<String>,
        headers: Vec<HeaderView>,
        variables: Vec<HeaderView>,
        bulk: bool,
    }
}

view! {
    /// A stored template with the content of one version.
    pub struct StoredTemplateView of v1::GetTemplateResponse as answer {
        #[serde(flatten)]
        template: TemplateView,
        version: u32,
        content: ContentView,
    }
}

impl View for StoredTemplateView {
    fn name(&self) -> String {
        format!("{}@{}", self.template.name, self.version)
    }

    fn text(&self, _paint: bool) -> String {
        let ContentView { sender, subject, headers, text, html, .. } = &self.content;
        let mut lines = vec![
            format!("{}, of {} versions, {} users", self.name(), self.template.versions.len(), self.template.users()),
            format!("From: {sender}"),
        ];
        lines.extend(lines_of(subject, headers, (text, html)));
        lines.join("\n")
    }
}
