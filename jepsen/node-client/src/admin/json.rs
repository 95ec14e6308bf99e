//! The API in its other form: JSON over HTTP/1.1, on a connection that stays open, as the client libraries use it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::Mutex;

use super::{ANSWER_WITHIN, AdminClient, CallResult};

/// Maximum bytes of an answer. A page of events is the longest one.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

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
        let request = hyper::Request::post(path).header("idempotency-key", key);
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

    /// Posts JSON to one node after the other, each once, with an idempotency key, until one answers. Returns the JSON
    /// of the answer. A refusal after an unanswered try counts as unknown, as with [`AdminClient::change`].
    pub async fn change_json(&self, path: &str, key: &str, json: &str) -> CallResult<String> {
        let mut may_be_done = false;
        for number in 0..self.endpoints.len() {
            let Ok(node) = self.another(number) else { continue };
            let request = hyper::Request::post(path).header("idempotency-key", key);
            match node.send_json(request, json.to_owned(), ANSWER_WITHIN).await {
                Ok((status, text)) if status.is_success() => return CallResult::Done(text),
                Ok((status, text)) if status.is_client_error() && !may_be_done => {
                    return CallResult::Refused(format!("{status}: {text}"));
                }
                Ok((status, _)) if status.is_client_error() => return CallResult::Unknown,
                Err(error) if error.is::<NoConnection>() => {}
                _ => may_be_done = true,
            }
        }
        CallResult::Unknown
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
            let mut request = request.header(HOST, node).header(CONTENT_TYPE, "application/json");
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
