//! The API in its other form: JSON over HTTP/1.1, on a connection that stays open, as the client libraries use it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::sync::Mutex;

use super::{ANSWER_WITHIN, ASK_AGAIN_AFTER, AdminClient, CHANGE_WITHIN, CallResult};

/// Maximum bytes of an answer. A page of events is the longest one.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Timeout for the answer to an upload, which a majority of the nodes must have on disk.
const UPLOADED_WITHIN: Duration = Duration::from_secs(20);
const JSON: &str = "application/json";

/// A request over HTTP that changes something.
#[derive(Clone, Debug)]
pub struct HttpChange<'a> {
    /// The method, such as `PUT`.
    pub verb: &'a str,
    /// The path, with a query if there is one.
    pub path: &'a str,
    /// The idempotency key. `None`: the request has none.
    pub key: Option<&'a str>,
    /// Media type of the body, for an upload. `None`: it is JSON.
    pub content_type: Option<&'a str>,
    /// The body.
    pub body: &'a str,
}

impl<'a> HttpChange<'a> {
    /// Returns a POST of JSON.
    pub fn post(path: &'a str, key: Option<&'a str>, body: &'a str) -> HttpChange<'a> {
        HttpChange { verb: "POST", path, key, content_type: None, body }
    }
}

/// The request was not sent, because there was no connection.
#[derive(Debug, thiserror::Error)]
#[error("no connection")]
struct NoConnection(#[source] io::Error);

/// The connection to the first node, opened by the first request. `None`: there is none, or its last request failed.
pub(super) type JsonConnection = Arc<Mutex<Option<SendRequest<Full<Bytes>>>>>;

impl AdminClient {
    /// Posts JSON to the first node, with an idempotency key. Returns the JSON of the answer. Clones of an
    /// administrator share one connection, and wait for each other.
    ///
    /// # Errors
    /// Fails unless the node answers in time with a status of success.
    pub async fn post_json(&self, path: &str, key: &str, json: String) -> Result<String> {
        let request = hyper::Request::post(path).header("idempotency-key", key).header(CONTENT_TYPE, JSON);
        let (status, text) = self.send_json(request, json, ANSWER_WITHIN).await?;
        ensure!(status.is_success(), "{path}: {status}: {text}");
        Ok(text)
    }

    /// Gets JSON from the first node.
    ///
    /// # Errors
    /// Fails unless the node answers within this time with a status of success.
    pub async fn get_json(&self, path: &str, within: Duration) -> Result<String> {
        let request = hyper::Request::builder().method(Method::GET).uri(path);
        let (status, text) = self.send_json(request, String::new(), within).await?;
        ensure!(status.is_success(), "{path}: {status}: {text}");
        Ok(text)
    }

    /// Sends a change to one node after the other, until one answers, for a limited time. Returns the answer's text.
    /// A refusal after an unanswered try counts as unknown, as with [`AdminClient::change`].
    pub async fn change_json(&self, change: &HttpChange<'_>) -> CallResult<String> {
        let until = Instant::now() + CHANGE_WITHIN;
        let within = if change.content_type.is_some() { UPLOADED_WITHIN } else { ANSWER_WITHIN };
        let mut may_be_done = false;
        loop {
            for number in 0..self.endpoints.len() {
                let Ok(node) = self.another(number) else { continue };
                let mut request = hyper::Request::builder().method(change.verb).uri(change.path);
                request = request.header(CONTENT_TYPE, change.content_type.unwrap_or(JSON));
                if let Some(key) = change.key {
                    request = request.header("idempotency-key", key);
                }
                match node.send_json(request, change.body.to_owned(), within).await {
                    Ok((status, text)) if status.is_success() => return CallResult::Done(text),
                    // Too many requests at a time: this one was not executed.
                    Ok((StatusCode::TOO_MANY_REQUESTS, _)) => {}
                    Ok((status, text)) if status.is_client_error() && !may_be_done => {
                        return CallResult::Refused(format!("{status}: {text}"));
                    }
                    Ok((status, _)) if status.is_client_error() => return CallResult::Unknown,
                    Err(error) if error.is::<NoConnection>() => {}
                    _ => may_be_done = true,
                }
            }
            if Instant::now() > until {
                return CallResult::Unknown;
            }
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
        }
    }

    /// Begins to send a change to the first node, and breaks the connection in the middle of the body.
    ///
    /// # Errors
    /// Fails if the node does not take the first half.
    pub async fn break_off(&self, HttpChange { verb, path, content_type, body, .. }: &HttpChange<'_>) -> Result<()> {
        let node = self.endpoints.first().context("no node")?;
        let token = self.access.token().map(|token| format!("authorization: {token}\r\n")).unwrap_or_default();
        let (kind, length) = (content_type.unwrap_or(JSON), body.len());
        let head = format!("host: {node}\r\n{token}content-type: {kind}\r\ncontent-length: {length}\r\n");
        let half = body.get(..length / 2).context("a character in the middle of the body")?;
        let sent = async {
            let mut stream = self.access.connect(node).await?;
            stream.write_all(format!("{verb} {path} HTTP/1.1\r\n{head}\r\n{half}").as_bytes()).await?;
            stream.flush().await
        };
        Ok(tokio::time::timeout(ANSWER_WITHIN, sent).await.context("the node reads too slowly")??)
    }

    async fn send_json(
        &self,
        request: hyper::http::request::Builder,
        json: String,
        within: Duration,
    ) -> Result<(StatusCode, String)> {
        let mut connection = self.json.lock().await;
        let answered = async {
            let node = self.endpoints.first().context("no node")?;
            let mut sender = match connection.take().filter(|known| !known.is_closed()) {
                Some(known) => known,
                None => {
                    let stream = self.access.connect(node).await.map_err(NoConnection)?;
                    let (sender, driver) = handshake(TokioIo::new(stream)).await?;
                    tokio::spawn(driver);
                    sender
                }
            };
            let mut request = request.header(HOST, node);
            if let Some(token) = self.access.token() {
                request = request.header(AUTHORIZATION, token);
            }
            sender.ready().await?;
            let answer = sender.send_request(request.body(Full::from(json))?).await?;
            let (status, body) = (answer.status(), Limited::new(answer.into_body(), ANSWER_BYTES_MAX));
            let bytes = body.collect().await.map_err(|error| anyhow::anyhow!("the answer of {node}: {error}"))?;
            *connection = Some(sender);
            Ok((status, String::from_utf8(bytes.to_bytes().to_vec())?))
        };
        tokio::time::timeout(within, answered).await.context("no answer in time")?
    }
}
