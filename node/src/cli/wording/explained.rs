//! What happened to a recipient, and what it waits for: the events of `explain`.

use reveille_proto::admin::v1::{
    DeathReason, Decider, DoubtCause, ExplainedEvent, ExplainedEventKind as Kind, ExplainedOpening, ExplainedWait,
    RefusalEffect, ReleaseReason, RunCause, SuppressionReason, UnavailableRelay, WaitReason,
};

use super::{at, canary_counts, made_way, missing_file, pause, relay_cause, waited_for};
use crate::cli::instant::duration_ms;
use crate::format;

/// Returns the details of an event. Empty if its kind says all.
pub fn explained(event: &ExplainedEvent) -> String {
    let mut words = of_kind(event);
    if event.entries > 1 {
        words += &format!(" (or before: the last of {} entries that did so in its row)", event.entries);
    }
    words
}

fn of_kind(event: &ExplainedEvent) -> String {
    let ExplainedEvent { relay, text, code, .. } = event;
    match event.kind() {
        Kind::Opened => event.opening.as_ref().map(opening).unwrap_or_default(),
        Kind::Claimed => format!("incarnation {}", event.incarnation),
        Kind::Asked => format!("{relay} was asked to take it"),
        Kind::Sent if relay.is_empty() => "the relay answered 250 to the final dot".to_owned(),
        Kind::Sent => format!("{relay} answered {}", answer(event)),
        Kind::SentTwice => "the relay had taken it under this fence too: counted as a known duplicate".to_owned(),
        Kind::SentAfterAll => "the relay had taken it, though it was closed: counted as a contradiction".to_owned(),
        Kind::Refused if *code == 0 => format!("{}; {}", without_answer(text), concerns(event.effect())),
        Kind::Refused => format!("{}; {}", answer(event), concerns(event.effect())),
        Kind::GivenBack => released(event.release_reason(), text),
        Kind::Suppressed => suppressed(event),
        Kind::NotComposed if text.is_empty() => "its email cannot be composed".to_owned(),
        Kind::NotComposed | Kind::OptOutTakenBack => text.clone(),
        Kind::GivenUp => NO_SMTPUTF8.to_owned(),
        Kind::InDoubt => in_doubt(event.doubt_cause()).to_owned(),
        Kind::Assumed => format!("closed while in doubt, by {}; not counted as sent", decider(event.decider())),
        Kind::ToBeResent => format!("while in doubt, by {}: it may come twice", decider(event.decider())),
        Kind::Accepted => "by the log of the relay, which an operator gave".to_owned(),
        Kind::TakenOut => "the relay had taken it under another fence".to_owned(),
        Kind::Dead => dead(event),
        Kind::Expired => format!("not sent by {}{}", at(event.finish_by_time.as_ref()), last_answer(event)),
        Kind::Cancelled if event.cancelled_by.is_empty() => "the run was cancelled".to_owned(),
        Kind::Cancelled => made_way(&event.cancelled_by),
        Kind::RunPaused => event.pause.as_ref().map(pause).unwrap_or_default(),
        Kind::Requeued => {
            let by = match event.pool.as_str() {
                "" => String::new(),
                pool => format!("; by pool '{pool}' from now on"),
            };
            format!("by an operator: attempts are counted anew{by}")
        }
        Kind::Discarded => "by an operator: off the list of dead letters, and still dead".to_owned(),
        Kind::Revived => "so many refusals in a row do not name a mailbox that none of them is believed".to_owned(),
        Kind::CanaryPassed => event.canary.as_ref().map(canary_counts).unwrap_or_default(),
        Kind::OptedOut => "nothing of this tenant goes to this recipient any more".to_owned(),
        Kind::Waits => event.wait.as_ref().map(wait).unwrap_or_default(),
        Kind::RunResumed | Kind::Unspecified => String::new(),
    }
}

pub const NO_SMTPUTF8: &str = "an address in it is not ASCII, and no relay of its pool offers SMTPUTF8 with 8BITMIME";
pub const DEADLINE: &str = "the deadline passed before another attempt";
pub const CRASHED_COMPOSING: &str = "node crashed composing it";
pub const CRASHED_OR_DEADLINE: &str = "its node crashed composing it, or its deadline passed";

fn opening(opening: &ExplainedOpening) -> String {
    let ExplainedOpening { schedule, occurrence, waited_for: former, of_canary, .. } = opening;
    let why = match opening.cause() {
        RunCause::Due | RunCause::Unspecified => "due",
        RunCause::CatchUp => "missed and caught up; it was due",
        RunCause::Trigger => "triggered",
        RunCause::Backfill => "backfilled; it was due",
        RunCause::Test => "a test email of",
        RunCause::Message => "a message for",
    };
    let name = if schedule.is_empty() { String::new() } else { format!("{schedule} ") };
    let waited = if former.is_empty() { String::new() } else { format!("; {}", waited_for(former)) };
    let canary = if *of_canary { "; of its canary, which goes first" } else { "" };
    format!("{name}{occurrence}, {why} {}{waited}{canary}", at(opening.due_time.as_ref()))
}

/// Returns a relay's answer: code, enhanced code, text.
fn answer(event: &ExplainedEvent) -> String {
    super::answer(event.code, &event.enhanced, &event.text)
}

/// Returns where and why a dialogue broke. The text is empty if several entries are shown as one event.
fn without_answer(text: &str) -> &str {
    if text.is_empty() { "the dialogue broke" } else { text }
}

fn concerns(effect: RefusalEffect) -> &'static str {
    match effect {
        RefusalEffect::Dead => "about this mailbox: final",
        RefusalEffect::CountAttempt => "no cause is named: the attempt counts",
        RefusalEffect::BackOff => "deferred: no attempt is counted",
        RefusalEffect::NextWave => "about the relay: no attempt is counted",
        RefusalEffect::MayPauseRun => "about content or sender",
        RefusalEffect::Unspecified => "this version does not know what it is about",
    }
}

/// Returns the last answer of a relay, because it is the reason why the deadline passed. Empty if no relay answered.
fn last_answer(event: &ExplainedEvent) -> String {
    if event.code == 0 {
        return String::new();
    }
    let subject = match event.effect() {
        RefusalEffect::BackOff => "it deferred the recipient",
        RefusalEffect::NextWave => "about the relay or its rate",
        RefusalEffect::MayPauseRun => "about content or sender",
        RefusalEffect::Dead => "about the mailbox",
        RefusalEffect::CountAttempt | RefusalEffect::Unspecified => "without a named cause",
    };
    format!("; the last answer of a relay was {}, {subject}", answer(event))
}

fn released(why: ReleaseReason, text: &str) -> String {
    let words = match why {
        ReleaseReason::Unspecified => "it was not handed off",
        ReleaseReason::Busy => "not begun within ten seconds: the sessions of its relays were busy",
        ReleaseReason::RateLimited => "not begun within ten seconds: the rate of its relays allowed no more",
        ReleaseReason::SessionEnded => "the relay had closed the idle session that was to carry it",
        ReleaseReason::NotInClaim => "its gate was closed: the recipient had been taken from this node",
        ReleaseReason::RunPaused => "its gate was closed: the run was paused",
        ReleaseReason::RunEnded => "its gate was closed: the run had ended",
        ReleaseReason::PastDeadline => "its gate was closed: the run's deadline had passed",
        ReleaseReason::LeaseOver => "the lease of this node was over, and its gates were closed",
        ReleaseReason::JournalFailed => "the journal of this node could not be written, so its gates were closed",
        ReleaseReason::Stopping => "this node was stopping",
        ReleaseReason::OwnerCrashed => "this node crashed before the handoff began, as its journal proves",
        ReleaseReason::OwnerCrashedComposing => "this node crashed while it prepared the email, as its journal proves",
        ReleaseReason::Unavailable if text.is_empty() => "it could not be handed off",
        ReleaseReason::Unavailable => return format!("it could not be handed off: {text}"),
    };
    words.to_owned()
}

fn suppressed(event: &ExplainedEvent) -> String {
    match event.suppression_reason() {
        SuppressionReason::MinGap => {
            let gap = format::whole_units(event.min_gap.as_ref().map(duration_ms).unwrap_or_default());
            let of_run = match event.other_run.as_str() {
                "" => String::new(),
                run => format!(" of {run}"),
            };
            format!("min_gap: it got an email{of_run}, or may have, less than {gap} from this run's instant")
        }
        SuppressionReason::OptedOut | SuppressionReason::Unspecified => {
            "it had opted out before it was handed off".to_owned()
        }
    }
}

fn in_doubt(doubt: DoubtCause) -> &'static str {
    match doubt {
        DoubtCause::NoAnswer => "no answer came after the final dot",
        DoubtCause::OwnerLost => "owner lost: the lease of this node was over while it held the claim",
        DoubtCause::Begun => "this node came back: its journal says that the handoff began, and holds no answer",
        DoubtCause::NoJournal => "this node came back, and no journal proves what became of it",
        DoubtCause::Restored => "restored from a backup: the former cluster may have sent it since",
        DoubtCause::Unspecified => "this version does not know why",
    }
}

fn decider(by: Decider) -> &'static str {
    match by {
        Decider::Operator | Decider::Unspecified => "an operator",
        Decider::Policy => "the policy of the run",
    }
}

fn dead(event: &ExplainedEvent) -> String {
    let why = match event.death_reason() {
        DeathReason::Answer => answer(event),
        DeathReason::Broken => without_answer(&event.text).to_owned(),
        DeathReason::NotComposed => event.text.clone(),
        DeathReason::NoSmtputf8 => NO_SMTPUTF8.to_owned(),
        DeathReason::Deadline => format!("{DEADLINE}{}", last_answer(event)),
        DeathReason::CrashedComposing => CRASHED_COMPOSING.to_owned(),
        DeathReason::CrashedOrDeadline => CRASHED_OR_DEADLINE.to_owned(),
        DeathReason::Unspecified => String::new(),
    };
    match event.max_attempts {
        0 => why,
        most => format!("{why} ({} of {most} attempts)", event.attempts),
    }
}

fn wait(wait: &ExplainedWait) -> String {
    let ExplainedWait { node, file_hash, audience, pool, count, tenant, other_run, .. } = wait;
    let until = at(wait.until_time.as_ref());
    let file: String = file_hash.chars().take(8).collect();
    match wait.reason() {
        WaitReason::RunPaused => match wait.pause.as_ref().map(pause) {
            Some(reason) if !reason.is_empty() => format!("the run is paused: {reason}"),
            _ => "the run is paused".to_owned(),
        },
        WaitReason::SendTime => format!("for its send time, {until}"),
        WaitReason::Expires => format!("its deadline {until} has passed: it expires"),
        WaitReason::Canary => {
            let canary = wait.canary.unwrap_or_default();
            format!(
                "for the canary: of {} recipients {} are undecided, {} dead or in doubt and {} may be",
                canary.recipients, canary.undecided, canary.bad, canary.bad_max
            )
        }
        WaitReason::MinGap => {
            format!("min_gap: it is claimed in {other_run}, less than the gap away; tried again at {until}")
        }
        WaitReason::NextAttempt => {
            let also = for_a_relay(wait).map(|also| format!("; and {also}")).unwrap_or_default();
            format!("for the next attempt, not before {until}{also}")
        }
        WaitReason::NoRelay | WaitReason::Relays => for_a_relay(wait).unwrap_or_default(),
        WaitReason::MissingFile => wait.missing.as_ref().map(missing_file).unwrap_or_default(),
        WaitReason::Attachment => {
            format!("for a node that has its attachment: {node} lacks file {file} and fetches it")
        }
        WaitReason::AudiencePart => {
            format!("for a node that has its part of audience '{audience}': {node} lacks part {file} and fetches it")
        }
        WaitReason::CrashBackoff => {
            format!("for {node}, which crashed {count} times within ten minutes and gets no claims until {until}")
        }
        WaitReason::PoolCap => format!("for {until}: today's cap of pool '{pool}', which is warmed up, is used up"),
        WaitReason::TenantConcurrency => {
            format!("for others of tenant '{tenant}', which may have {count} under way at once")
        }
        WaitReason::TakenAlone => "for a node to take it alone: it was being composed when its node crashed".to_owned(),
        WaitReason::Late => {
            let rate = wait.pool_rate_per_second;
            let paced = paced(wait);
            format!(
                "for its turn: what is late goes after what is on time, in pool '{pool}' {rate} a second at most{paced}"
            )
        }
        WaitReason::Node => format!("for a node to take it{}", paced(wait)),
        WaitReason::Unspecified => "this version does not know for what".to_owned(),
    }
}

/// Says why no relay of the pool can take an email now. `None`: one can.
fn for_a_relay(wait: &ExplainedWait) -> Option<String> {
    let unavailable = |one: &UnavailableRelay| {
        use reveille_proto::admin::v1::RelayCondition::{Parked, Probing};
        let health = one.health.clone().unwrap_or_default();
        let what = match health.condition() {
            Parked => "takes no more today",
            Probing => "is being probed",
            _ => "fails",
        };
        let cause = health.cause.as_ref().map(relay_cause).unwrap_or_default();
        format!("relay {} {what}, {cause}", one.relay)
    };
    let node = wait.relays.first().and_then(|one| one.health.as_ref()).map(|health| health.node.as_str());
    match (node, wait.pool.as_str()) {
        (Some(node), _) => {
            let relays: Vec<String> = wait.relays.iter().map(unavailable).collect();
            Some(format!("for a relay, as {node} sees them: {}", relays.join("; ")))
        }
        (None, "") => None,
        (None, pool) => Some(format!("for a relay: pool '{pool}' has none")),
    }
}

/// Says which rate the tenant has.
fn paced(wait: &ExplainedWait) -> String {
    match wait.tenant_rate_per_second {
        rate if rate > 0.0 => format!("; tenant '{}' has {rate} a second at most", wait.tenant),
        _ => String::new(),
    }
}
