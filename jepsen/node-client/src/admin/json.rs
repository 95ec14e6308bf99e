//! The API in its other form: JSON over HTTP/1.1, on a connection that stays open, as the client libraries use it.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use tokio::sync::Mutex;

use super::{ANSWER_WITHIN, AdminClient};

/// Maximum bytes of an answer. No answer to a write is nearly as long.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// The connection to the first node, opened by the first request. `None`: there is none, or its last request failed.
pub(super) type JsonConnection = Arc<Mutex<Option<SendRequest<Full<Bytes>>>>>;

impl AdminClient {
    /// Posts JSON to the first node, with an idempotency key. Returns the JSON of the answer. Clones of an
    /// administrator share one connection, and wait for each other.
    ///
    /// # Errors
    /// Fails unless the node answers in time with a status of success.
    pub async fn post_json(&self, path: &str, key: &str, json: String) -> Result<String> {
        let mut connection = self.json.lock().await;
        let answered = async {
            let node = self.endpoints.first().context("no node")?;
            let mut sender = match connection.take().filter(|known| !known.is_closed()) {
                Some(known) => known,
                None => {
                    let (sender, driver) = handshake(TokioIo::new(self.access.connect(node).await?)).await?;
                    tokio::spawn(driver);
                    sender
                }
            };
            let mut request = hyper::Request::post(path).header(HOST, node).header(CONTENT_TYPE, "application/json");
            request = request.header("idempotency-key", key);
            if let Some(token) = self.access.token() {
                request = request.header(AUTHORIZATION, token);
            }
            sender.ready().await?;
            let answer = sender.send_request(request.body(Full::from(json))?).await?;
            let (status, body) = (answer.status(), Limited::new(answer.into_body(), ANSWER_BYTES_MAX));
            let bytes = body.collect().await.map_err(|error| anyhow::anyhow!("the answer to {path}: {error}"))?;
            *connection = Some(sender);
            let text = String::from_utf8(bytes.to_bytes().to_vec())?;
            ensure!(status.is_success(), "{path}: {status}: {text}");
            Ok(text)
        };
        tokio::time::timeout(ANSWER_WITHIN, answered).await.context("no answer in time")?
    }
}
