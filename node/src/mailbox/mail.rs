//! The page of one email, and its source as a download.

use std::fmt::Write;

use axum::extract::{OriginalUri, Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use reveille_sink::{Accepted, Handle, headers};

use super::decode::words;
use super::html::{Escaped, instant, page as whole_page, size};
use super::{document, mime, not_found};

/// Maximum number of bytes that a page shows of the text and of the HTML. The source download has the rest.
const SHOWN_BYTES: usize = 1 << 20;

/// A second protection: the frame inherits the policy of the page, and also has this one.
const FRAME_POLICY: &str = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
                            style-src 'unsafe-inline'; img-src data:\">";

pub(super) async fn page(
    State(sink): State<Handle>,
    Path(number): Path<u64>,
    OriginalUri(uri): OriginalUri,
) -> Response {
    let emails = sink.emails();
    let Some(accept) = emails.get(number) else {
        return not_found("There is no such email, or it is no longer kept in memory.");
    };
    let text = sink.text(number);
    let head = text.as_deref().map(|text| headers::split(text).0).unwrap_or_default();
    let subject = headers::first(head, "Subject").map(|subject| words(&subject)).unwrap_or_default();
    let title = if subject.is_empty() { format!("Mail {number}") } else { subject };
    let content = match text.as_deref() {
        Some(text) => content(head, text, number),
        None => "<h2>Text</h2><div class=\"card empty\">Its text is no longer kept.</div>".to_owned(),
    };
    let body = format!(
        "<main><div class=\"top\"><h1>{}</h1><a href=\"{}\">All emails</a></div>{}{content}</main>",
        Escaped(&title),
        Escaped(&above(uri.path())),
        facts(accept),
    );
    document(StatusCode::OK, whole_page(&title, &body))
}

pub(super) async fn source(State(sink): State<Handle>, Path(number): Path<u64>) -> Response {
    let Some(text) = sink.text(number) else {
        return not_found("There is no such email, or its text is no longer kept.");
    };
    let name = format!("attachment; filename=\"mail-{number}.eml\"");
    let headers = [
        (header::CONTENT_TYPE, "message/rfc822"),
        (header::CONTENT_DISPOSITION, name.as_str()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, text.to_vec()).into_response()
}

/// Returns a table of what the sink recorded when it accepted the email.
fn facts(accept: &Accepted) -> String {
    let mut html = String::from("<div class=\"card\"><table class=\"facts\"><tbody>");
    let mut fact = |name: &str, value: &str| {
        if !value.is_empty() {
            // Writing into a String cannot fail.
            let _ok = write!(html, "<tr><th>{}</th><td>{}</td></tr>", Escaped(name), Escaped(value));
        }
    };
    fact("Recipient", &accept.recipient);
    fact("Sender", &accept.sender);
    fact("Accepted", &instant(accept.accept_unix_us));
    fact("Message-ID", accept.message_id.as_deref().unwrap_or_default());
    fact("Fence", accept.fence.as_deref().unwrap_or_default());
    accept.headers.iter().for_each(|(name, value)| fact(name, value));
    fact("From client", &format!("{} ({}), connection {}", accept.ehlo, accept.peer, accept.connection));
    fact("Size", &size(accept.size));
    html.push_str("</tbody></table></div>");
    html
}

fn content(head: &[u8], text: &[u8], number: u64) -> String {
    let view = mime::view(text);
    let mut html = String::with_capacity(text.len());
    if let Some(text) = &view.text {
        let _ok = write!(html, "<h2>Text</h2><div class=\"card\"><pre>{}</pre></div>", Escaped(shown(text)));
    }
    if let Some(markup) = &view.html {
        let _ok = write!(
            html,
            "<h2>HTML</h2><div class=\"card\"><iframe sandbox=\"\" referrerpolicy=\"no-referrer\" \
             title=\"HTML of the email\" srcdoc=\"{}{}\"></iframe></div>",
            Escaped(FRAME_POLICY),
            Escaped(shown(markup)),
        );
    }
    if !view.parts.is_empty() {
        html.push_str("<h2>Other parts</h2><div class=\"card\"><table class=\"facts\"><tbody>");
        for part in &view.parts {
            let (kind, bytes) = (Escaped(&part.kind), size(u64::try_from(part.bytes).unwrap_or(u64::MAX)));
            let _ok = write!(html, "<tr><th>{kind}</th><td>{} {bytes}</td></tr>", Escaped(&part.name));
        }
        html.push_str("</tbody></table></div>");
    }
    html.push_str("<h2>Headers</h2><div class=\"card\"><table class=\"facts\"><tbody>");
    for field in headers::fields(head) {
        let value = words(&field.value());
        let _ok = write!(html, "<tr><th>{}</th><td>{}</td></tr>", Escaped(field.name), Escaped(&value));
    }
    let _ok = write!(
        html,
        "</tbody></table></div><nav><a class=\"button\" href=\"{number}/source\" download>Download the source</a></nav>"
    );
    html
}

fn shown(text: &str) -> &str {
    text.get(..text.floor_char_boundary(SHOWN_BYTES)).unwrap_or(text)
}

/// Returns the link from `…/emails/N` to the list. `/mailbox/emails/7` needs `../../mailbox`: `..` alone would be
/// `/mailbox/`, which the router does not match as `/mailbox`. At the root it is `../`.
fn above(path: &str) -> String {
    let mounted_at = path.rsplitn(3, '/').nth(2).unwrap_or_default();
    match mounted_at.rsplit_once('/') {
        Some((_, last)) if !last.is_empty() => format!("../../{last}"),
        _ => "../".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_to_list_is_relative_to_mount_path() {
        assert_eq!(above("/mailbox/emails/7"), "../../mailbox");
        assert_eq!(above("/a/b/emails/7"), "../../b");
        assert_eq!(above("/emails/7"), "../");
    }
}
