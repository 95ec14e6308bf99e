//! Compares the emails that the mailbox recorded with the expected ones and with the ledger's counts. The mailbox's
//! record is the truth.

use std::collections::{BTreeMap, BTreeSet};

use reveille_sink::Emails;

use super::client::address_of;

/// Result of the demo.
pub struct Judgement {
    expected: u32,
    accepted_once: u32,
    duplicates: u32,
    lost: u32,
    in_doubt: u32,
    in_doubt_arrived: u32,
    sent_not_arrived: u32,
    sent: u32,
    failovers_ms: Vec<u64>,
}

impl Judgement {
    /// Compares the mailbox's record with the ledger. `doubts`: addresses that the ledger holds in doubt.
    pub fn new(
        expected: u32,
        run: &str,
        emails: &Emails,
        sent: u32,
        doubts: &BTreeSet<String>,
        failovers_ms: Vec<u64>,
    ) -> Judgement {
        let mut arrived: BTreeMap<&str, u32> = BTreeMap::new();
        for (_, mail) in emails.iter() {
            if mail.headers.get("x-reveille-run").is_some_and(|of| of == run) {
                *arrived.entry(mail.recipient.as_str()).or_default() += 1;
            }
        }
        let mut judgement = Judgement {
            expected,
            accepted_once: 0,
            duplicates: 0,
            lost: 0,
            in_doubt: doubts.len() as u32,
            in_doubt_arrived: 0,
            sent_not_arrived: 0,
            sent,
            failovers_ms,
        };
        for number in 0..expected {
            let address = address_of(number);
            let in_doubt = doubts.contains(&address);
            match arrived.get(address.as_str()).copied().unwrap_or(0) {
                0 if in_doubt => {}
                0 => judgement.lost += 1,
                1 => judgement.accepted_once += 1,
                more => {
                    judgement.accepted_once += 1;
                    judgement.duplicates += more - 1;
                }
            }
            judgement.in_doubt_arrived += u32::from(in_doubt && arrived.contains_key(address.as_str()));
        }
        // I9: each recipient that the ledger calls sent has arrived.
        let arrived_and_known = judgement.accepted_once - judgement.in_doubt_arrived;
        judgement.sent_not_arrived = sent.saturating_sub(arrived_and_known);
        judgement
    }

    /// True if nothing was lost or came twice, and each recipient that the ledger calls sent got its email.
    pub fn is_valid(&self) -> bool {
        self.duplicates == 0 && self.lost == 0 && self.sent_not_arrived == 0
    }

    /// Returns the table for a terminal.
    pub fn table(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::UTF8_BORDERS_ONLY);
        let mut row = |what: &str, number: String, remark: &str| {
            table.add_row([what.to_owned(), number, remark.to_owned()]);
        };
        row("expected", self.expected.to_string(), "");
        row("accepted once", self.accepted_once.to_string(), "by what the mailbox recorded");
        row("duplicates", self.duplicates.to_string(), "");
        row("lost", self.lost.to_string(), "neither arrived nor in doubt");
        let arrived = format!("{} of them had arrived", self.in_doubt_arrived);
        row("in doubt", self.in_doubt.to_string(), if self.in_doubt == 0 { "" } else { &arrived });
        row("sent, says the ledger", self.sent.to_string(), "");
        for (place, failover) in self.failovers_ms.iter().enumerate() {
            row(&format!("fail-over {}", place + 1), format!("{failover} ms"), "kill to first claim of the next epoch");
        }
        row("verdict", if self.is_valid() { "valid" } else { "NOT VALID" }.to_owned(), "");
        table.to_string()
    }

    /// Returns the line for programs.
    pub fn json(&self) -> String {
        let mut sorted = self.failovers_ms.clone();
        sorted.sort_unstable();
        serde_json::json!({
            "valid": self.is_valid(),
            "expected": self.expected,
            "accepted_once": self.accepted_once,
            "duplicates": self.duplicates,
            "lost": self.lost,
            "in_doubt": self.in_doubt,
            "in_doubt_arrived": self.in_doubt_arrived,
            "failover_ms": { "p50": sorted.get(sorted.len() / 2), "max": sorted.last() },
        })
        .to_string()
    }
}
