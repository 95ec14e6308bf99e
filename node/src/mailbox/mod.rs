//! The mailbox of `reveille dev` and `reveille demo` as web pages: a list of the caught emails, newest first, and a
//! page for each. The pages are plain HTML without scripts. All links are relative, so that the caller can mount them
//! at any path.
//!
//! An email is untrusted text. Every page escapes it, and shows its HTML in a sandboxed frame that loads nothing.

mod decode;
pub mod html;
mod list;
mod mail;
mod mime;
#[cfg(test)]
mod tests;

use axum::Router;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use reveille_sink::Handle;

/// Forbids scripts and external content. The frames with emails inherit the policy. Inline styles are allowed for the
/// emails.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'self'";

/// Returns the pages of a sink. They can be mounted at any path (`Router::nest("/mailbox", pages(sink.handle()))`):
///
/// | path | what |
/// | --- | --- |
/// | `/` | the caught emails, newest first; `?recipient=PART&page=N` |
/// | `/emails.json` | the same as a JSON array: number, subject, `has_text`, [`Accepted`]; `&per_page=N`, up to 1,000 |
/// | `/emails/N` | one email: headers, text, HTML in a sandboxed frame, other parts |
/// | `/emails/N/source` | its source, as a download |
///
/// [`Accepted`]: reveille_sink::Accepted
pub fn pages(sink: Handle) -> Router {
    Router::new()
        .route("/", get(list::page))
        .route("/emails.json", get(list::json))
        .route("/emails/{number}", get(mail::page))
        .route("/emails/{number}/source", get(mail::source))
        .with_state(sink)
}

/// Returns a page with headers that make untrusted text harmless.
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
