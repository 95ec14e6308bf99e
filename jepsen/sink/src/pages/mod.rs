//! The mailbox as a web page: what was caught, newest first, and one mail in full. Plain HTML without a line
//! of script; whoever mounts it chooses the path, so all links are relative.
//!
//! Mails are foreign text: everything is escaped, a mail's HTML is shown in a sandboxed frame whose policy lets
//! it load nothing from anywhere, and no page of ours allows scripts.

mod decode;
mod html;
mod list;
mod mail;
mod mime;

use axum::Router;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::sink::Handle;

/// No scripts at all, nothing from elsewhere; frames of mails inherit it. Inline styles are for the mails.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'self'";

/// The pages of a sink, to be mounted anywhere (`Router::nest("/mailbox", pages(sink.handle()))`):
///
/// | path | what |
/// | --- | --- |
/// | `/` | the caught mails, newest first; `?recipient=PART&page=N` |
/// | `/mails.json` | the same as a JSON array: number, subject, `has_text` and the fields of [`Accepted`](crate::Accepted); also `&per_page=N`, up to 1,000 |
/// | `/mails/N` | one mail: headers, text, HTML in a sandboxed frame, parts |
/// | `/mails/N/source` | its source, as a download |
pub fn pages(sink: Handle) -> Router {
    Router::new()
        .route("/", get(list::page))
        .route("/mails.json", get(list::json))
        .route("/mails/{number}", get(mail::page))
        .route("/mails/{number}/source", get(mail::source))
        .with_state(sink)
}

/// A page of ours, with the headers that keep foreign text harmless.
fn document(status: StatusCode, html: String) -> Response {
    let headers: [(HeaderName, &str); 5] = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, headers, html).into_response()
}

fn not_found(what: &str) -> Response {
    let body = format!("<main><h1>Not here</h1><p>{}</p></main>", html::Escaped(what));
    document(StatusCode::NOT_FOUND, html::page("Not here", &body))
}
