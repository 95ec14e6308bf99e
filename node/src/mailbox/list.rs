//! The list of caught emails, as a page and as JSON.

use std::fmt::Write;

use axum::Json;
use axum::extract::{OriginalUri, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use reveille_sink::{Accepted, Handle, headers};
use serde::{Deserialize, Serialize};

use super::decode::words;
use super::document;
use super::html::{Escaped, instant, page as whole_page, query_value, size};

const PAGE_EMAILS: usize = 50;
const PAGE_EMAILS_MAX: usize = 1_000;

/// Parameters of the query string.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ListQuery {
    /// Part of the recipient's address. ASCII case is ignored. Empty for all recipients.
    #[serde(default)]
    recipient: String,
    /// Page number from 1; page 1 has the newest emails.
    page: Option<usize>,
    per_page: Option<usize>,
}

/// One email in the list.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// Number of the email, from 1 since the sink started.
    number: u64,
    /// `None` if the email has no subject, or if its text is no longer kept.
    subject: Option<String>,
    has_text: bool,
    #[serde(flatten)]
    accepted: Accepted,
}

struct Found {
    rows: Vec<Row>,
    /// Number of matching emails on all pages.
    total: usize,
    page: usize,
    pages: usize,
}

pub(super) async fn json(State(sink): State<Handle>, Query(requested): Query<ListQuery>) -> Json<Vec<Row>> {
    Json(look_up(&sink, &requested).rows)
}

pub(super) async fn page(
    State(sink): State<Handle>,
    Query(requested): Query<ListQuery>,
    OriginalUri(uri): OriginalUri,
) -> Response {
    // The page ignores `per_page`: its links do not carry it, so the next page would begin at another email.
    let requested = ListQuery { per_page: None, ..requested };
    let found = look_up(&sink, &requested);
    let prefix = below(uri.path());
    let mut body = String::with_capacity(16 << 10);
    // Writing into a String cannot fail.
    let _ok = write!(
        body,
        "<main><div class=\"top\"><div><h1>Mailbox</h1><span class=\"soft\">{} caught{} · \
         <a href=\"{prefix}emails.json\">JSON</a></span></div><form method=\"get\" role=\"search\">\
         <input type=\"search\" name=\"recipient\" value=\"{}\" placeholder=\"Recipient\" aria-label=\"Recipient\">\
         <button>Search</button></form></div>{}{}</main>",
        sink.accepted_count(),
        if requested.recipient.is_empty() { String::new() } else { format!(", {} found", found.total) },
        Escaped(&requested.recipient),
        table(&found, &prefix),
        turn_pages(&found, &requested.recipient),
    );
    document(StatusCode::OK, whole_page("Emails", &body))
}

fn look_up(sink: &Handle, requested: &ListQuery) -> Found {
    let per_page = requested.per_page.unwrap_or(PAGE_EMAILS).clamp(1, PAGE_EMAILS_MAX);
    let page = requested.page.unwrap_or(1).max(1);
    let emails = sink.emails();
    let fitting = || emails.iter().rev().filter(|(_, accept)| contains(&accept.recipient, &requested.recipient));
    let total = fitting().count();
    let shown = fitting().skip((page - 1).saturating_mul(per_page)).take(per_page);
    let rows = shown.map(|(number, accept)| row(sink, number, accept)).collect();
    Found { rows, total, page, pages: total.div_ceil(per_page) }
}

/// Returns true if `text` contains `part`, ignoring ASCII case.
fn contains(text: &str, part: &str) -> bool {
    part.is_empty() || text.as_bytes().windows(part.len()).any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
}

fn row(sink: &Handle, number: u64, accept: &Accepted) -> Row {
    let text = sink.text(number);
    let subject = text.as_deref().and_then(|text| headers::first(headers::split(text).0, "Subject"));
    Row { number, subject: subject.map(|subject| words(&subject)), has_text: text.is_some(), accepted: accept.clone() }
}

fn table(found: &Found, prefix: &str) -> String {
    if found.rows.is_empty() {
        return "<div class=\"card empty\">No email here.</div>".to_owned();
    }
    let mut html = String::from(
        "<div class=\"card wide\"><table><thead><tr><th>Accepted</th><th>Recipient</th><th>Subject</th>\
         <th>Size</th></tr></thead><tbody>",
    );
    for row in &found.rows {
        let subject = match (&row.subject, row.has_text) {
            (Some(subject), _) if !subject.is_empty() => subject,
            (_, true) => "(no subject)",
            (_, false) => "(text no longer kept)",
        };
        let _ok = write!(
            html,
            "<tr><td class=\"number soft\">{}</td><td>{}</td><td><a href=\"{prefix}emails/{}\">{}</a></td>\
             <td class=\"number soft\">{}</td></tr>",
            instant(row.accepted.accept_unix_us),
            Escaped(&row.accepted.recipient),
            row.number,
            Escaped(subject),
            size(row.accepted.size),
        );
    }
    html.push_str("</tbody></table></div>");
    html
}

fn turn_pages(found: &Found, recipient: &str) -> String {
    if found.pages <= 1 {
        return String::new();
    }
    let link = |page: usize, word: &str| {
        if (1..=found.pages).contains(&page) {
            format!("<a class=\"button\" href=\"?recipient={}&amp;page={page}\">{word}</a>", query_value(recipient))
        } else {
            "<span></span>".to_owned()
        }
    };
    let (newer, older) = (link(found.page - 1, "Newer"), link(found.page.saturating_add(1), "Older"));
    format!("<nav>{newer}<span class=\"soft\">Page {} of {}</span>{older}</nav>", found.page, found.pages)
}

/// Returns the prefix of relative links on the list. A browser resolves links against the folder of the page's path. So
/// a list mounted at `/mailbox` needs the prefix `mailbox/`; one at `/` or `/mailbox/` needs none.
fn below(path: &str) -> String {
    match path.rsplit_once('/').map_or(path, |(_, last)| last) {
        "" => String::new(),
        last => format!("{}/", Escaped(last)),
    }
}
