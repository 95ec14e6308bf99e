//! Sentences about messages of the API, for people: the command line prints them, and the details of `Explain` have
//! them. Programs read the fields.

use jiff::Timestamp;
use reveille_proto::admin::v1::{MissingFile, MissingFileKind, Pause, PauseCause, Run, RunState};

/// Returns why a run is paused. Empty if an operator gave no reason.
pub fn pause(pause: &Pause) -> String {
    let Pause { text, count, code, enhanced, decided, canary, .. } = pause;
    match pause.cause() {
        PauseCause::Operator | PauseCause::Quarantined | PauseCause::Unspecified => text.clone(),
        PauseCause::UnattributedRefusals => {
            let answer = [code.to_string(), enhanced.clone(), text.clone()];
            let answer: Vec<String> = answer.into_iter().filter(|part| !part.is_empty()).collect();
            match count {
                1 => format!("a refusal does not name a mailbox: {}", answer.join(" ")),
                _ => format!("{count} refusals in a row do not name a mailbox, the last one: {}", answer.join(" ")),
            }
        }
        PauseCause::Canary => {
            let canary = canary.unwrap_or_default();
            format!(
                "canary: of {} recipients {} are dead or in doubt and {} may be; {} were undecided",
                canary.recipients, canary.bad, canary.bad_max, canary.undecided
            )
        }
        PauseCause::BounceBreaker => format!(
            "{count} of the last {decided} recipients are dead: read the dead letters, then resume or cancel, and \
             requeue them if the cause was not theirs"
        ),
    }
}

/// Returns why a run is paused, has expired or was cancelled. Empty if the state says all.
pub fn why(run: &Run) -> String {
    let paused = run.pause.as_ref().map(pause);
    match (run.state(), paused) {
        (RunState::Expired, None) => EXPIRED.to_owned(),
        // A pause stays until it is revoked (P15).
        (RunState::Expired, Some(reason)) => {
            let reason = if reason.is_empty() { reason } else { format!(" ({reason})") };
            format!("{EXPIRED}; it was paused{reason}, and is paused again when recipients of it are requeued")
        }
        (RunState::Unspecified, _) if run.lost => "what it was is lost with a part of the archive".to_owned(),
        (RunState::Cancelled, _) if !run.cancelled_by.is_empty() => made_way(&run.cancelled_by),
        (_, paused) => paused.unwrap_or_default(),
    }
}

const EXPIRED: &str = "finish_by: what was not sent by then expired";

/// Says that another run of the schedule cancelled this one.
pub fn made_way(run: &str) -> String {
    format!("overlap: {run} opened, and overlap is cancel_other")
}

/// Says that a run waited until an earlier one was finished.
pub fn waited_for(former: &str) -> String {
    format!("overlap: waited for {former}")
}

/// Says which file no live node has, and how to provide it (P20).
pub fn missing_file(missing: &MissingFile) -> String {
    let since = missing.missing_time.and_then(|time| Timestamp::new(time.seconds, time.nanos).ok());
    let since = since.map(|since| format!(", since {since}")).unwrap_or_default();
    let (file, again) = match missing.kind() {
        MissingFileKind::Attachment => {
            ("an attachment of its content".to_owned(), "send the same file with another message or template")
        }
        MissingFileKind::AudiencePart | MissingFileKind::Unspecified => {
            (format!("part {} of its audience", missing.part), "import the same list again")
        }
    };
    format!("no live node has {file}{since}: start one that has it, or {again}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_that_expired_in_a_pause_says_that_the_pause_is_not_over() {
        let expired = |paused: Option<&str>| {
            let operator =
                |text: &str| Pause { cause: PauseCause::Operator.into(), text: text.to_owned(), ..Pause::default() };
            why(&Run { state: RunState::Expired.into(), pause: paused.map(operator), ..Run::default() })
        };
        assert_eq!(expired(None), EXPIRED);
        let again = "and is paused again when recipients of it are requeued";
        assert_eq!(expired(Some("wrong price")), format!("{EXPIRED}; it was paused (wrong price), {again}"));
        assert_eq!(expired(Some("")), format!("{EXPIRED}; it was paused, {again}"));
    }

    #[test]
    fn pause_by_refusals_has_the_last_answer() {
        let refusals = |count| Pause {
            cause: PauseCause::UnattributedRefusals.into(),
            count,
            code: 553,
            enhanced: "5.1.8".into(),
            text: "no such sender".into(),
            ..Pause::default()
        };
        assert_eq!(pause(&refusals(1)), "a refusal does not name a mailbox: 553 5.1.8 no such sender");
        let two = "2 refusals in a row do not name a mailbox, the last one: 553 5.1.8 no such sender";
        assert_eq!(pause(&refusals(2)), two);
    }
}
