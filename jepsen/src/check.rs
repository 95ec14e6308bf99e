//! `check`: judges a recorded history. docs/reliability.md explains the verdicts.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use reveille_check::{History, Judgement};
use reveille_harness::Report;

/// Options of `check`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The recorded history, as JSON lines
    #[arg(value_name = "HISTORY")]
    pub history: PathBuf,
}

/// Runs the command `check`. The result is valid if every requested invariant holds and the run exercised the system.
pub fn run(args: &Args) -> Result<Report> {
    let judgement = judge(&args.history)?;
    Ok(Report { line: judgement.json().context("the judgement")?, valid: judgement.valid })
}

/// Judges a history file, and prints the table of verdicts.
pub fn judge(history: &Path) -> Result<Judgement> {
    let path = history.display();
    let file = File::open(history).with_context(|| format!("the history {path} cannot be opened"))?;
    let history =
        History::read(BufReader::with_capacity(1 << 20, file)).with_context(|| format!("the history {path}"))?;
    eprintln!("{} at {}", history.header.command, history.header.commit);
    let judgement = history.judge();
    eprintln!("{}", judgement.table());
    Ok(judgement)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use reveille_check::events::{
        Answered, Claim, Ended, Event, FORMAT, Fence, FinalState, Handoff, Header, RecipientState, Writer,
    };
    use reveille_check::names::Name;

    use super::*;

    fn header() -> Header {
        Header {
            format: FORMAT,
            seed: 7,
            nodes: vec!["n1".to_owned()],
            sessions: 8,
            drain_within_ms: 1_000,
            ..Header::default()
        }
    }

    /// Returns a history with one recipient, one claim and `accepts`.
    fn written(folder: &Path, accepts: u64) -> Args {
        let (run, recipient) = (Name::from("r1.0"), Name::from("ann@example.net"));
        let fence = Fence { group: 1, epoch: 1, index: 2, place: 0 };
        let (node, incarnation) = ("n1".into(), 1);
        let (committed_ns, proposed_ns, ledger_unix_ms) = (None, None, None);
        let claim = Claim { fence, node, incarnation, run, recipient, committed_ns, proposed_ns, ledger_unix_ms };
        let mut events = vec![Event::Claim(claim)];
        events.extend((0..accepts).map(|number| {
            Event::Handoff(Handoff {
                data_ns: number,
                at_ns: number,
                run,
                recipient,
                fence: Some(fence),
                node: "n1".into(),
                answer: Answered::Accepted,
                message_id: Some("<1@example.net>".into()),
                body: None,
                content: None,
                repeated_headers: Vec::new(),
            })
        }));
        events.push(Event::FinalState(FinalState { run, recipient, number: None, state: RecipientState::Sent }));
        let history = folder.join("history.jsonl");
        let mut writer = Writer::begin(fs::File::create(&history).unwrap(), &header()).unwrap();
        events.iter().for_each(|event| writer.event(event).unwrap());
        writer.end(&Ended { at_ns: 10, missing: vec![] }).unwrap();
        Args { history }
    }

    #[test]
    fn duplicate_accept_makes_history_invalid() {
        let folder = tempfile::tempdir().unwrap();
        let once = run(&written(folder.path(), 1)).unwrap();
        assert!(once.valid, "{}", once.line);
        assert!(once.line.contains(r#""accepted":1,"duplicates":0"#), "{}", once.line);
        let twice = run(&written(folder.path(), 2)).unwrap();
        assert!(!twice.valid && twice.line.contains(r#""duplicates":1"#), "{}", twice.line);
    }

    #[test]
    fn error_names_damaged_history() {
        let folder = tempfile::tempdir().unwrap();
        let history = folder.path().join("none.jsonl");
        let error = |history: &Path| format!("{:#}", run(&Args { history: history.to_owned() }).err().unwrap());
        assert!(error(&history).contains("none.jsonl cannot be opened"));
        fs::write(&history, "{}\n").unwrap();
        assert!(error(&history).contains("line 1 of the history is damaged"), "{}", error(&history));
    }
}
