//! The HTTP pages of a node: health, leadership, metrics. Each needs only a plain GET.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::header::{AUTHORIZATION, HOST};
use hyper_util::rt::TokioIo;

use crate::access::ClientAccess;

/// Timeout of a request.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Maximum bytes that are read of a page. No page of a node is nearly as long.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// Where a node answers plain requests. They are encrypted, unless the address is of loopback.
#[derive(Clone, Debug, derive_more::Display)]
#[display("{address}")]
pub struct HttpAddress {
    address: SocketAddr,
    access: ClientAccess,
}

impl HttpAddress {
    /// Creates it. On loopback the listener needs no access.
    pub fn new(address: SocketAddr, access: &ClientAccess) -> HttpAddress {
        let access = if address.ip().is_loopback() { ClientAccess::default() } else { access.clone() };
        HttpAddress { address, access }
    }
}

/// Returns true if the process answers.
pub async fn is_alive(http: &HttpAddress) -> bool {
    get(http, "/livez").await.is_some()
}

/// Returns true if the node is ready: it follows or leads.
pub async fn is_ready(http: &HttpAddress) -> bool {
    get(http, "/readyz").await.is_some_and(|page| page.status == 200)
}

/// Returns the epoch in which this node reports to lead. `None`: it does not lead, or does not answer.
pub async fn epoch_led(http: &HttpAddress) -> Option<u64> {
    let page = get(http, "/leaderz").await.filter(|page| page.status == 200)?;
    page.body.trim().rsplit(' ').next()?.parse().ok()
}

/// Returns a counter of the node, summed over its labels, and zero if the node has no such counter. `None`: the node
/// does not answer.
pub async fn counter(http: &HttpAddress, name: &str) -> Option<u64> {
    metric(http, name).await.map(|value| value as u64)
}

/// As [`counter`], for a metric of any kind. `name` may have all its labels.
pub async fn metric(http: &HttpAddress, name: &str) -> Option<f64> {
    metrics(http, [name]).await.map(|[value]| value)
}

/// As [`metric`], for several of one page.
pub async fn metrics<const N: usize>(http: &HttpAddress, names: [&str; N]) -> Option<[f64; N]> {
    let page = get(http, "/metrics").await.filter(|page| page.status == 200)?;
    Some(names.map(|name| sum(&page.body, name)))
}

struct Page {
    status: u16,
    body: String,
}

async fn get(http: &HttpAddress, path: &str) -> Option<Page> {
    let asked = async {
        let stream = http.access.connect(&http.to_string()).await.ok()?;
        let (mut sender, driver) = handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(driver);
        let mut request = Request::get(path).header(HOST, http.to_string());
        // Metrics need it, unless the address is of loopback.
        if let Some(token) = http.access.token() {
            request = request.header(AUTHORIZATION, token);
        }
        let answer = sender.send_request(request.body(Empty::<Bytes>::new()).ok()?).await.ok()?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), PAGE_BYTES_MAX).collect().await.ok()?.to_bytes();
        Some(Page { status, body: String::from_utf8_lossy(&body).into_owned() })
    };
    tokio::time::timeout(ANSWER_WITHIN, asked).await.ok().flatten()
}

/// Sums a counter in Prometheus' text format: `name{label="…"} 17`.
fn sum(metrics: &str, name: &str) -> f64 {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = match rest.strip_prefix('{') {
            Some(labelled) => labelled.rsplit_once("} ")?.1,
            None => rest.strip_prefix(' ')?,
        };
        value.trim().parse::<f64>().ok()
    });
    // The sum of no values is -0.
    values.fold(0.0, |sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_is_summed_over_its_labels() {
        let metrics = "# TYPE reveille_wal_syncs_total counter\nreveille_wal_syncs_total 41\n\
                       reveille_wal_syncs_total_of_others 7\nwal_gates{why=\"a } b\"} 2\nwal_gates{why=\"c\"} 3\n";
        assert_eq!(sum(metrics, "reveille_wal_syncs_total"), 41.0);
        assert_eq!(sum(metrics, "wal_gates"), 5.0);
        assert_eq!(sum(metrics, "wal_gates{why=\"c\"}"), 3.0, "or of one label alone");
        assert_eq!(sum(metrics, "unknown"), 0.0);
    }
}
