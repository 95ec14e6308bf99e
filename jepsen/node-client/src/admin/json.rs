//! The API in its other form: JSON over HTTP/2, on the same connections.

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Full, Limited};
use tonic::body::Body;
use tonic::codegen::{Service, http};

use super::{ANSWER_WITHIN, AdminClient};

/// Maximum bytes of an answer. No answer to a write is nearly as long.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

impl AdminClient {
    /// Posts JSON to the first node, with an idempotency key. Returns the JSON of the answer.
    ///
    /// # Errors
    /// Fails unless the node answers in time with a status of success.
    pub async fn post_json(&self, path: &str, key: &str, json: String) -> Result<String> {
        let mut channel = self.channel(0).context("no node")?;
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .header("idempotency-key", key)
            .body(Body::new(Full::from(json)))?;
        let answered = async {
            std::future::poll_fn(|context| channel.poll_ready(context)).await?;
            let answer = channel.call(request).await?;
            let (status, body) = (answer.status(), Limited::new(answer.into_body(), ANSWER_BYTES_MAX));
            let bytes = body.collect().await.map_err(|error| anyhow::anyhow!("the answer to {path}: {error}"))?;
            let text = String::from_utf8(bytes.to_bytes().to_vec())?;
            ensure!(status.is_success(), "{path}: {status}: {text}");
            Ok(text)
        };
        tokio::time::timeout(ANSWER_WITHIN, answered).await.context("no answer in time")?
    }
}
