//! The page behind the unsubscribe link in bulk email (RFC 8058). It is the only listener of a node that is meant for
//! the public.
//!
//! A GET shows a page with a button and changes nothing, because mail programs and scanners follow links. A POST with
//! `List-Unsubscribe=One-Click`, from the button or a mail program, opts out in the same way as `optout add`. It
//! returns 200 only when no node can start a handoff to that recipient any more (P15). If that cannot be proved, it
//! returns 503 with Retry-After; a repeated request does no harm.
//!
//! The load from the public is limited: connections, concurrent opt-outs, bytes, time, and the rate of opt-outs for one
//! recipient ([`single_flight`]). Log lines name no recipient and no token. TLS is terminated by a proxy in front of
//! this listener.

mod form;
mod page;
mod single_flight;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use reveille_cluster::compose::unsubscribe::OptOutSubject;
use reveille_cluster::process::context::NodeContext;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::server::admin::{Admin, Call};
use crate::server::http;
use crate::server::http::READ_TIMEOUT;
use form::Form;
use page::UnsubscribePage;
use single_flight::SingleFlight;

/// Maximum number of concurrent opt-outs. Each costs a log entry and a request to every node. Further opt-outs get 503
/// with `Retry-After`.
const AT_WORK_MAX: usize = 64;
/// Time limit of an opt-out. A barrier that waits for the lease of a lost node takes about five seconds.
const OPT_OUT_WITHIN: Duration = Duration::from_secs(15);
/// Value of `Retry-After`, in seconds.
const RETRY_AFTER_SECONDS: &str = "10";

/// State that the request handlers share.
#[derive(Clone)]
struct UnsubscribeHandler {
    admin: Arc<Admin>,
    context: Arc<NodeContext>,
    at_work: Arc<Semaphore>,
    turns: Arc<SingleFlight<Outcome>>,
}

/// Serves the page on `listener` until `stop` is cancelled.
pub async fn serve(admin: Arc<Admin>, context: Arc<NodeContext>, listener: TcpListener, stop: CancellationToken) {
    http::serve("unsubscribe", router(admin, context, AT_WORK_MAX), listener, None, stop).await;
}

/// Only the last segment of the path is read, as the token. A proxy may use any prefix.
fn router(admin: Arc<Admin>, context: Arc<NodeContext>, at_work: usize) -> Router {
    let handler = UnsubscribeHandler {
        admin,
        context,
        at_work: Arc::new(Semaphore::new(at_work)),
        turns: Arc::new(SingleFlight::new()),
    };
    Router::new().fallback(answer).with_state(handler)
}

/// Outcome of a request; also the label of its metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The page with the button was shown.
    Shown,
    /// The opt-out holds on all nodes.
    OptedOut,
    /// The link is not signed by a known key.
    Unknown,
    /// The body is not a one-click request.
    Malformed,
    /// Too many opt-outs are running.
    Full,
    /// It could not be proved that the opt-out holds.
    Unavailable,
}

impl Outcome {
    /// Returns the label of its metric, and the status of its response.
    fn described(self) -> (&'static str, StatusCode) {
        match self {
            Outcome::Shown => ("shown", StatusCode::OK),
            Outcome::OptedOut => ("opted_out", StatusCode::OK),
            Outcome::Unknown => ("unknown", StatusCode::NOT_FOUND),
            Outcome::Malformed => ("malformed", StatusCode::BAD_REQUEST),
            Outcome::Full => ("full", StatusCode::SERVICE_UNAVAILABLE),
            Outcome::Unavailable => ("unavailable", StatusCode::SERVICE_UNAVAILABLE),
        }
    }
}

async fn answer(State(handler): State<UnsubscribeHandler>, request: Request) -> Response {
    let method = request.method().clone();
    if !matches!(method, Method::GET | Method::HEAD | Method::POST) {
        let allowed = [(header::ALLOW, "GET, HEAD, POST")];
        return (StatusCode::METHOD_NOT_ALLOWED, allowed, "405: GET shows the page, POST opts out\n").into_response();
    }
    let token = request.uri().path().rsplit('/').next().unwrap_or_default();
    let subject = handler.context.unsubscribe.as_ref().and_then(|unsubscribe| unsubscribe.read(token));
    let (outcome, page) = match subject {
        None => (Outcome::Unknown, UnsubscribePage::Unknown),
        Some(subject) if method == Method::POST => handler.opt_out(subject, request).await,
        Some(subject) => (Outcome::Shown, UnsubscribePage::Confirm(subject.key)),
    };
    let (word, status) = outcome.described();
    metrics::counter!("reveille_unsubscribe_requests_total", "outcome" => word).increment(1);
    respond(status, &page)
}

impl UnsubscribeHandler {
    async fn opt_out(&self, subject: OptOutSubject, request: Request) -> (Outcome, UnsubscribePage) {
        match tokio::time::timeout(READ_TIMEOUT, form::read(request)).await {
            Ok(Form::OneClick) => {}
            Ok(Form::Other) | Err(_) => return (Outcome::Malformed, UnsubscribePage::Malformed),
        }
        let deadline = Instant::now() + OPT_OUT_WITHIN;
        let OptOutSubject { tenant, key } = subject;
        let act = self.opt_out_now(&tenant, &key, deadline);
        let outcome = self.turns.take((tenant.clone(), key.clone()), deadline.into(), act).await;
        match outcome.unwrap_or(Outcome::Full) {
            Outcome::OptedOut => (Outcome::OptedOut, UnsubscribePage::Done(key)),
            other => (other, UnsubscribePage::Later),
        }
    }

    async fn opt_out_now(&self, tenant: &str, key: &str, deadline: Instant) -> Outcome {
        // The permit is taken only after the request is complete and has its turn, so idle and waiting clients use
        // none.
        let Ok(_permit) = self.at_work.try_acquire() else { return Outcome::Full };
        match self.admin.opt_out(tenant, [key.to_owned()].into(), &Call::of_system(deadline)).await {
            Ok(_) => Outcome::OptedOut,
            Err(fault) => {
                tracing::warn!(%fault, "an unsubscribe was answered with 503");
                Outcome::Unavailable
            }
        }
    }
}

fn respond(status: StatusCode, page: &UnsubscribePage) -> Response {
    let mut response = Response::new(Body::from(page.html()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let mut say = |name, value| headers.insert(name, header::HeaderValue::from_static(value));
    say(header::CONTENT_TYPE, "text/html; charset=utf-8");
    // The URL of this page authorizes the opt-out, so it must not be cached or sent as a referrer.
    say(header::CACHE_CONTROL, "no-store");
    say(header::REFERRER_POLICY, "no-referrer");
    say(header::HeaderName::from_static("x-robots-tag"), "noindex");
    say(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    say(
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    );
    if status == StatusCode::SERVICE_UNAVAILABLE {
        say(header::RETRY_AFTER, RETRY_AFTER_SECONDS);
    }
    response
}
