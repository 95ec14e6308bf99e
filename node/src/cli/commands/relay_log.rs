//! Reads the log of a Postfix relay: which emails it accepted.
//!
//! Postfix logs the Message-ID of an email before the email is stored. A later line of its queue manager with the same
//! queue id, "queue active", proves that it was. Other lines prove nothing, and neither does a line that is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead};

/// Number of hexadecimal digits before the `@` of a Message-ID of Reveille.
const DIGITS: usize = 40;

/// Returns the Message-IDs of accepted emails, without angle brackets: those that Reveille may have made.
///
/// # Errors
/// If the log cannot be read.
pub fn accepted(log: impl BufRead) -> io::Result<BTreeSet<String>> {
    let mut named: BTreeMap<String, String> = BTreeMap::new();
    let mut accepted = BTreeSet::new();
    // Addresses in a log need not be UTF-8.
    for line in log.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        let Some((program, queue_id, text)) = entry(&line) else { continue };
        match program {
            Program::Cleanup => {
                named.extend(message_id(text).map(|id| (queue_id.to_owned(), id.to_owned())));
            }
            Program::QueueManager if text.starts_with("from=<") && text.trim_end().ends_with("(queue active)") => {
                accepted.extend(named.remove(queue_id));
            }
            Program::QueueManager => {}
        }
    }
    Ok(accepted)
}

/// The program of Postfix that wrote a line.
enum Program {
    /// It receives an email, and names it.
    Cleanup,
    QueueManager,
}

/// Splits a line of cleanup or of the queue manager into program, queue id and text. The text may quote any line.
fn entry(line: &str) -> Option<(Program, &str, &str)> {
    let (head, rest) = line.split_once("]: ")?;
    let (name, pid) = head.split_once('[')?;
    let program = match name.rsplit_once('/')?.1 {
        "cleanup" => Program::Cleanup,
        "qmgr" => Program::QueueManager,
        _ => return None,
    };
    let (queue_id, text) = rest.split_once(": ")?;
    let is_entry = pid.bytes().all(|byte| byte.is_ascii_digit())
        && !queue_id.is_empty()
        && queue_id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_entry.then_some((program, queue_id, text))
}

fn message_id(text: &str) -> Option<&str> {
    let id = text.strip_prefix("message-id=<")?.trim_end().strip_suffix('>')?;
    let (local, _) = id.split_once('@')?;
    let is_ours = local.len() == DIGITS && local.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_ours.then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: char) -> String {
        format!("{}@example.com", digit.to_string().repeat(DIGITS))
    }

    #[test]
    fn only_an_email_in_the_active_queue_is_accepted() {
        let log = format!(
            "Nov 27 09:00:00 mx postfix/cleanup[101]: 4ABC1: message-id=<{a}>\n\
             Nov 27 09:00:00 mx postfix/cleanup[102]: 4ABC2: message-id=<{b}>\n\
             Nov 27 09:00:00 mx postfix/cleanup[102]: 4ABC2: milter-reject: END-OF-MESSAGE from x[::1]: 5.7.1 no; from=<a@b>\n\
             Nov 27 09:00:01 mx postfix/qmgr[7]: 4ABC1: from=<news@example.com>, size=512, nrcpt=1 (queue active)\n\
             Nov 27 09:00:01 mx postfix/qmgr[7]: 4ABC9: from=<news@example.com>, size=512, nrcpt=1 (queue active)\n\
             2026-11-27T09:00:02.1+01:00 mx postfix-out/cleanup[3]: 3xYz: message-id=<{c}>\n\
             2026-11-27T09:00:02.2+01:00 mx postfix-out/smtp[4]: 3xYz: to=<{c}>, status=sent (250 message-id=<{b}>)\n\
             2026-11-27T09:00:02.3+01:00 mx postfix-out/qmgr[4]: 3xYz: from=<>, size=1, nrcpt=1 (queue active)\n\
             Nov 27 09:00:03 mx postfix/cleanup[101]: 4ABC3: message-id=<other@example.com>\n\
             Nov 27 09:00:03 mx postfix/qmgr[7]: 4ABC3: from=<a@b>, size=1, nrcpt=1 (queue active)\n\
             Nov 27 09:00:04 mx postfix/cleanup[101]: 4ABC4: message-id=<{d}>\n\
             Nov 27 09:00:04 mx postfix/cleanup[101]: 4ABC4: from=<a@b>, size=1, nrcpt=1 (queue active)\n\
             Nov 27 09:00:05 mx postfix/smtp[4]: 5: to=<x>/qmgr[7]: 4ABC4: from=<a@b>, size=1 (queue active)\n",
            a = id('a'),
            b = id('b'),
            c = id('c'),
            d = id('d'),
        );
        assert_eq!(accepted(log.as_bytes()).expect("text"), BTreeSet::from([id('a'), id('c')]));
        assert_eq!(
            accepted(&b"\xff\xfe/qmgr[]: : \n/cleanup[1]: a: message-id=<>"[..]).expect("no text"),
            BTreeSet::new()
        );
    }

    mod fuzz {
        use proptest::prelude::*;
        use reveille_fuzz::{cases, text};

        use super::*;

        #[rustfmt::skip]
        const FRAGMENTS: &[&str] = &[
            "mx postfix/cleanup[1]: ", "mx postfix/qmgr[7]: ", "mx postfix/smtp[4]: ", "4ABC1: ", "4ABC2: ",
            "message-id=<aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa@example.com>",
            "message-id=<bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb@example.com>", "message-id=<other@example.com>",
            "from=<a@b>, size=1, nrcpt=1 (queue active)", "from=<", "(queue active)", "removed", "\n", "\n", "\n",
            "\r\n", " ", ": ",
        ];

        proptest! {
            #![proptest_config(cases(2_000))]

            /// An email counts as accepted only by two lines: its own, and a later one of the queue manager.
            #[test]
            fn accepted_email_is_named_before_its_queue_id_is_active(text in text(FRAGMENTS, 40)) {
                let lines: Vec<&str> = text.split('\n').collect();
                for id in accepted(text.as_bytes()).expect("memory") {
                    let name = format!("message-id=<{id}>");
                    let is_active = |line: &&str| line.trim_end().ends_with("(queue active)") && line.contains("/qmgr[");
                    let mut named = lines.iter().enumerate().filter(|(_, line)| line.contains(&name));
                    prop_assert!(named.any(|(at, _)| lines[at..].iter().any(is_active)), "{id}");
                }
            }
        }
    }
}
