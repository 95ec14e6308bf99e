//! Sentences about messages of the API, for people: the command line prints them. Programs read the fields.

mod explained;
mod instant;
mod letter_reason;

use prost_types::Timestamp as WireTimestamp;
use reveille_proto::admin::v1::{
    BlockCause, Campaign, CampaignMiss, MissedCause, MissingFile, MissingFileKind, Pause, PauseCause, RelayCause,
    RelayStage, RelayTrouble, Run, RunCanary, RunState, ScheduleBlock, Shortage,
};

pub use explained::{CRASHED_COMPOSING, CRASHED_OR_DEADLINE, DEADLINE, NO_SMTPUTF8, explained};
pub use instant::instant_remarks;
pub use letter_reason::{reason_of_words, reason_words};

use crate::api_json::word;
use crate::cli::instant::text;

const MIB: u64 = 1024 * 1024;

/// Returns a relay's answer: its code, which is 0 if no relay replied, its enhanced status code, and its text.
pub fn answer(code: u32, enhanced: &str, text: &str) -> String {
    let code = if code > 0 { code.to_string() } else { String::new() };
    let parts = [&code, enhanced, text];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns why a run is paused. Empty if an operator gave no reason.
pub fn pause(pause: &Pause) -> String {
    let Pause { text, count, code, enhanced, decided, canary, .. } = pause;
    match pause.cause() {
        PauseCause::Operator | PauseCause::Quarantined | PauseCause::Unspecified => text.clone(),
        PauseCause::UnattributedRefusals => {
            let answer = answer(*code, enhanced, text);
            format!("{count} refusals in a row do not name a mailbox, the last one: {answer}")
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

/// Returns why a schedule is blocked.
pub fn block(block: &ScheduleBlock) -> String {
    match (block.cause(), &block.refusal) {
        (BlockCause::FireRefused, Some(refusal)) => format!("its fire was refused twice: {}", refusal.message),
        _ => block.text.clone(),
    }
}

/// Returns why a schedule, or a campaign that has not opened, does not fire. Empty if it does, or if an operator gave no
/// reason for its pause.
pub fn stopped(paused: Option<&Pause>, blocked: Option<&ScheduleBlock>) -> String {
    blocked.map(block).or(paused.map(pause)).unwrap_or_default()
}

/// Returns why a campaign was missed.
pub fn missed(campaign: &Campaign, miss: &CampaignMiss) -> String {
    let due = at(campaign.send_time.as_ref());
    match miss.cause() {
        MissedCause::TooLate => format!(
            "it could not open before {}, later than its instant {due} by more than start_within: nothing was sent",
            at(miss.ready_time.as_ref())
        ),
        MissedCause::Unfit => format!("its content does not fit its audience: {}", miss.text),
        MissedCause::NotSealed => format!("its audience '{}' was not sealed at {due}", campaign.audience),
        MissedCause::Restored => {
            format!("the former cluster may have sent it at {due}: launch it again if it did not")
        }
        MissedCause::Refused => miss.refusal.clone().unwrap_or_default().message,
        MissedCause::Unspecified => "this version does not know why".to_owned(),
    }
}

/// Returns why a relay gets no email, or only few.
pub fn relay_cause(cause: &RelayCause) -> String {
    let RelayCause { code, text, .. } = cause;
    let what = match cause.trouble() {
        RelayTrouble::Answer => format!("{code} {text}"),
        RelayTrouble::NoConnection => format!("no connection: {text}"),
        RelayTrouble::Closed => "the relay closed the connection".to_owned(),
        RelayTrouble::ConnectionFailed => format!("the connection failed: {text}"),
        RelayTrouble::TimedOut => "no answer in time".to_owned(),
        RelayTrouble::Protocol => format!("what it says is no answer to what it was asked: {text}"),
        RelayTrouble::Opening => "a session has been opening for as long as an email can wait".to_owned(),
        RelayTrouble::Tls | RelayTrouble::Credentials | RelayTrouble::GivenUp | RelayTrouble::Unspecified => {
            text.clone()
        }
    };
    match cause.stage() {
        RelayStage::Unspecified => what,
        stage => format!("{}: {what}", word(stage.as_str_name())),
    }
}

/// Says how much space a volume has, and how much new work needs.
pub fn shortage(Shortage { folder, free_bytes, needed_bytes }: &Shortage) -> String {
    let (free, needed) = (free_bytes / MIB, needed_bytes.div_ceil(MIB));
    format!("{free} MiB are free in {folder}, and new work needs {needed}")
}

/// Returns an instant in UTC.
fn at(time: Option<&WireTimestamp>) -> String {
    text(time).unwrap_or_default()
}

/// Returns the counts of a canary whose verdict has fallen.
fn canary_counts(canary: &RunCanary) -> String {
    let RunCanary { recipients, undecided, bad, bad_max, .. } = canary;
    format!("of {recipients} recipients {bad} were dead or in doubt and {bad_max} may be; {undecided} were undecided")
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
    let since = text(missing.missing_time.as_ref()).map(|since| format!(", since {since}")).unwrap_or_default();
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
        let refusals = Pause {
            cause: PauseCause::UnattributedRefusals.into(),
            count: 2,
            code: 553,
            enhanced: "5.1.8".into(),
            text: "no such sender".into(),
            ..Pause::default()
        };
        let two = "2 refusals in a row do not name a mailbox, the last one: 553 5.1.8 no such sender";
        assert_eq!(pause(&refusals), two);
    }
}
