//! `bench campaign --compare-tls`: what TLS between the nodes costs a campaign.
//!
//! Three clusters send the same campaign: with TLS, in plaintext, with TLS. So a drift of the machine shows as a
//! difference between the first and the last, and a steady one cancels out. Only nodes with an injected bug talk in
//! plaintext. TLS of clients is the same in all three.

use anyhow::Result;
use reveille_harness::measure::rounded;
use reveille_harness::{Report, StartArgs};
use serde_json::{Value, json};

use crate::campaign::{self, Args};

/// The bug of nodes that talk to each other in plaintext.
const PLAINTEXT: &str = "plaintext-peers";

/// Measures a campaign with TLS, in plaintext and with TLS.
pub(crate) async fn run(start: &StartArgs, args: &Args) -> Result<Report> {
    let (mut measured, mut is_valid) = (Vec::new(), true);
    for (name, bug) in [("tls", None), ("plaintext", Some(PLAINTEXT)), ("tls-again", None)] {
        let keep = start.keep.as_ref().map(|folder| folder.join(name));
        let (figures, _, valid) = campaign::measure(&StartArgs { keep, ..start.clone() }, args, bug).await?;
        let [rate, cpu_us] = ["rate", "cpu_us_an_email"].map(|figure| &figures[figure]);
        eprintln!("{name}: {rate} emails a second, {cpu_us} us of processor time each");
        is_valid &= valid;
        measured.push(figures);
    }
    let compared = compared(&measured);
    is_valid &= !compared["tls_ratio"].is_null();
    Report::new(&json!({"compared": compared, "runs": measured, "valid": is_valid}), is_valid)
}

/// Compares the figures of three campaigns. Null: a campaign was too short for a rate.
fn compared(measured: &[Value]) -> Value {
    let figure = |place: usize, name: &str| measured.get(place).and_then(|figures| figures[name].as_f64());
    let pair = |name: &str| {
        let (first, last) = (figure(0, name)?, figure(2, name)?);
        Some((f64::midpoint(first, last), figure(1, name)?, last / first))
    };
    let (rates, processor) = (pair("rate"), pair("cpu_us_an_email"));
    json!({
        // The mean rate with TLS, relative to the rate in plaintext.
        "tls_ratio": rates.map(|(tls, plaintext, _)| (tls / plaintext * 1_000.0).round() / 1_000.0),
        // The rate of the last campaign relative to that of the first, both with TLS.
        "drift": rates.map(|(.., drift)| rounded(drift)),
        // Processor time of all nodes for an email, in microseconds.
        "cpu_us_an_email": processor.map(|(tls, plaintext, _)| json!({"tls": rounded(tls), "plaintext": plaintext})),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_drift_cancels_out_and_shows() {
        let run = |rate: f64, cpu: f64| json!({"rate": rate, "cpu_us_an_email": cpu});
        let figures = compared(&[run(1_200.0, 20.0), run(1_000.0, 21.0), run(600.0, 26.0)]);
        let cpu = json!({"tls": 23.0, "plaintext": 21.0});
        assert_eq!(figures, json!({"tls_ratio": 0.9, "drift": 0.5, "cpu_us_an_email": cpu}));
        let short = compared(&[json!({"rate": null}), run(1.0, 1.0), run(1.0, 1.0)]);
        assert!(short["tls_ratio"].is_null() && short["drift"].is_null());
    }
}
