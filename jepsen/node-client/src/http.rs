//! The HTTP pages of a node: health, leadership, metrics. Each needs only a plain GET.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::access::ClientAccess;

/// Timeout of a request.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Maximum bytes that are read of a page. No page of a node is nearly as long.
const PAGE_BYTES_MAX: u64 = 16 << 20;

/// Where a node answers plain requests. They are encrypted, unless the address is of loopback.
#[derive(Clone, Debug)]
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

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)
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
    let page = get(http, "/metrics").await.filter(|page| page.status == 200)?;
    Some(sum(&page.body, name))
}

struct Page {
    status: u16,
    body: String,
}

async fn get(http: &HttpAddress, path: &str) -> Option<Page> {
    let asked = async {
        let mut stream = http.access.connect(&http.to_string()).await.ok()?;
        // Metrics need it, unless the address is of loopback.
        let token = http.access.token().map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {http}\r\n{token}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.take(PAGE_BYTES_MAX).read_to_end(&mut answer).await.ok()?;
        page(&String::from_utf8_lossy(&answer))
    };
    tokio::time::timeout(ANSWER_WITHIN, asked).await.ok().flatten()
}

fn page(answer: &str) -> Option<Page> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Page { status, body: body.to_owned() })
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

    #[test]
    fn answer_is_split_into_status_and_body() {
        let answer = page("HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\nleads epoch 8\n").unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (200, "leads epoch 8\n"));
        assert!(page("HTTP/1.1 200 OK\r\n").is_none());
    }
}
