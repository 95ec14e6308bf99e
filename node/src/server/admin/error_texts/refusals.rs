//! Turns refusals of the ledger into errors of the API.

use reveille_ledger::ids::RunId;
use reveille_ledger::impossible::Impossible;
use reveille_ledger::refusal::CommandRefusal;
use reveille_proto::admin::v1::ErrorReason;
use tonic::Code;

use super::{
    absent, changed_meanwhile, no_audience, no_campaign, no_relay, no_run, no_template, no_token, not_opted_out,
    not_permitted, not_possible, not_reachable, of_campaign, precondition, stale_etag, stale_run, taken,
    token_not_valid,
};
use crate::server::admin::error::ApiError;

const CHANGED: &str = "the schedule has changed meanwhile";

/// Turns the ledger's refusal of a change of this schedule into an error.
pub fn refused_of(schedule: &str, refusal: &CommandRefusal) -> ApiError {
    match refusal {
        CommandRefusal::StalePlan => stale_etag(schedule, CHANGED),
        refusal => refused(refusal),
    }
}

/// Turns the ledger's refusal of a change of this run into an error.
pub fn refused_of_run(run: RunId, refusal: &CommandRefusal) -> ApiError {
    match refusal {
        CommandRefusal::StalePlan => stale_run(run),
        refusal => refused(refusal),
    }
}

/// Turns the ledger's refusal of a campaign command into an error that names the campaign.
pub fn refused_of_campaign(name: &str, refusal: &CommandRefusal) -> ApiError {
    match refusal {
        CommandRefusal::StalePlan => {
            let message = "the campaign has changed meanwhile";
            ApiError::new(Code::Aborted, ErrorReason::EtagMismatch, message).about("campaign", name)
        }
        CommandRefusal::CampaignIs(stage) => {
            of_campaign(ErrorReason::CampaignState, name, format!("campaign {name} is {} already", stage.word()))
        }
        CommandRefusal::NotPossible(_)
        | CommandRefusal::NotActive(_)
        | CommandRefusal::NoSuchRun(_)
        | CommandRefusal::NoSuchSchedule(_) => {
            let reason = match refused(refusal).reason() {
                ErrorReason::RunState
                | ErrorReason::ScheduleNotActive
                | ErrorReason::RunNotFound
                | ErrorReason::ScheduleNotFound => ErrorReason::CampaignState,
                reason => reason,
            };
            of_campaign(reason, name, format!("campaign {name}: {refusal}"))
        }
        refusal => refused(refusal),
    }
}

/// Turns a refusal of the ledger into an error. A refusal is certain, and the same on every node.
pub fn refused(refusal: &CommandRefusal) -> ApiError {
    let message = refusal.to_string();
    match refusal {
        CommandRefusal::NoSuchSchedule(_) => absent(ErrorReason::ScheduleNotFound, message),
        CommandRefusal::NoSuchRun(run) => no_run(run),
        CommandRefusal::NoSuchRelay(name) => no_relay(name),
        CommandRefusal::NameTaken(name) => taken(message, "schedule", name),
        CommandRefusal::RelayNameTaken(name) => taken(message, "relay", name),
        CommandRefusal::RequestReused(_) => ApiError::new(Code::AlreadyExists, ErrorReason::RequestIdReused, message),
        // The name is added by `refused_of`, whose caller knows it.
        CommandRefusal::StalePlan => ApiError::new(Code::Aborted, ErrorReason::EtagMismatch, CHANGED),
        CommandRefusal::TooLarge { .. } => ApiError::new(Code::InvalidArgument, ErrorReason::TooLarge, message),
        CommandRefusal::InsideGap { run, .. } => precondition(ErrorReason::InsideGap, message).about("run", run),
        CommandRefusal::NoSuchAudience(name) => no_audience(name),
        CommandRefusal::AudienceNameTaken(name) => taken(message, "audience", name),
        CommandRefusal::AudienceUsed { schedule, .. } => {
            precondition(ErrorReason::InUse, message).about("schedule", schedule)
        }
        CommandRefusal::AudienceOfCampaign { campaigns, .. } => {
            let first = campaigns.first().map(String::as_str).unwrap_or_default();
            precondition(ErrorReason::InUse, message).about("campaign", first)
        }
        CommandRefusal::NoSuchTemplate { name, version } => no_template(name, *version),
        CommandRefusal::Changed { kind, name } => {
            ApiError::new(Code::Aborted, ErrorReason::EtagMismatch, message).about(kind.word(), name)
        }
        CommandRefusal::TemplateUsed { name, users, .. } => {
            let first = users.first().map(String::as_str).unwrap_or_default();
            precondition(ErrorReason::InUse, message).about("schedule", first).about("template", name)
        }
        CommandRefusal::CampaignNameTaken(name) => taken(message, "campaign", name),
        CommandRefusal::NoSuchCampaign(name) => no_campaign(name),
        CommandRefusal::OfCampaign(name) => of_campaign(ErrorReason::OfCampaign, name, message),
        CommandRefusal::LaunchedBefore { campaign, .. } => {
            precondition(ErrorReason::AlreadySent, message).about("campaign", campaign)
        }
        CommandRefusal::SentBefore { run, .. } => precondition(ErrorReason::AlreadySent, message).about("run", run),
        CommandRefusal::CanaryHeld(_) => precondition(ErrorReason::CanaryHeld, message),
        CommandRefusal::RunOpen(run) | CommandRefusal::RecipientClaimed(run) => {
            precondition(ErrorReason::RunOpen, message).about("run", run)
        }
        CommandRefusal::WrongEpoch { .. } | CommandRefusal::TimeWentBack { .. } | CommandRefusal::TimeLeaps { .. } => {
            not_reachable(format!("leadership changes: {refusal}"), None)
        }
        CommandRefusal::TokenNotValid => token_not_valid(),
        CommandRefusal::NotPermitted => not_permitted(),
        CommandRefusal::NoSuchToken(id) => no_token(id),
        CommandRefusal::TokenIdTaken(_) => ApiError::new(Code::Aborted, ErrorReason::NameTaken, message),
        CommandRefusal::RestoreNotAccepted => precondition(ErrorReason::RestoreNotAccepted, message),
        CommandRefusal::ClocksDisagree => precondition(ErrorReason::ClocksDisagree, message),
        CommandRefusal::NotActive(_) => precondition(ErrorReason::ScheduleNotActive, message),
        CommandRefusal::NotPossible(why) => impossible(why, message),
        CommandRefusal::CampaignIs(_) => precondition(ErrorReason::CampaignState, message),
        CommandRefusal::NotDue(_) | CommandRefusal::FiredThrough => changed_meanwhile(message),
        CommandRefusal::OldIncarnation { .. }
        | CommandRefusal::MaybeSent(_)
        | CommandRefusal::OwnerGone
        | CommandRefusal::NothingPending
        | CommandRefusal::AtConcurrency { .. }
        | CommandRefusal::CapUsedUp { .. } => not_possible(message),
    }
}

/// Groups requests that the state does not allow by what the caller can do. `message`: the text of the refusal.
fn impossible(why: &Impossible, message: String) -> ApiError {
    let reason = match why {
        Impossible::RunIs(_) => ErrorReason::RunState,
        Impossible::NoCanary => ErrorReason::NoCanaryHeld,
        Impossible::PoolWithoutRelay(pool) => return precondition(ErrorReason::NoRelay, message).about("pool", pool),
        Impossible::RunsUsedUp => ErrorReason::ScheduleNotActive,
        Impossible::PastDeadline
        | Impossible::MessageTooLate(_)
        | Impossible::InstantOver(_)
        | Impossible::ClockGoesForward { .. } => ErrorReason::InstantPassed,
        Impossible::CampaignNotOver | Impossible::CampaignStillClaimed => ErrorReason::CampaignState,
        Impossible::InUse | Impossible::RealTime => ErrorReason::NoTestClock,
        Impossible::NotOptedOut(key) => return not_opted_out(key),
        Impossible::LevelTooLow { .. } | Impossible::LevelNotAnnounced { .. } => ErrorReason::UpgradeNotFinished,
        Impossible::NodeRemoved(_) | Impossible::NodeUnknown(_) => return absent(ErrorReason::MemberNotFound, message),
        Impossible::NodeHasClaims { .. } => ErrorReason::MemberWaits,
        Impossible::NotRestored | Impossible::NothingLost => ErrorReason::NothingToDo,
        Impossible::BackfillAhead
        | Impossible::RangeBeginsWithRun
        | Impossible::MoreIsDue
        | Impossible::DueUnexplained
        | Impossible::NothingMissed
        | Impossible::OptedOutAgain(_)
        | Impossible::AuthorityChanged
        | Impossible::OtherRotation => return changed_meanwhile(message),
        Impossible::Labels(_)
        | Impossible::GapAboveRetention
        | Impossible::GapOfSealed
        | Impossible::NoRuns
        | Impossible::NoRecipients
        | Impossible::Seal(_)
        | Impossible::NoName
        | Impossible::NoShare
        | Impossible::DayWithoutCap
        | Impossible::WarmUpBegin
        | Impossible::NoReason
        | Impossible::TooManySchedules
        | Impossible::TokenEnded => {
            return ApiError::new(Code::InvalidArgument, ErrorReason::InvalidField, message);
        }
        // Entries that no node proposes, and states that only their text describes.
        Impossible::OutsideWindow
        | Impossible::EmptyFire
        | Impossible::Unordered
        | Impossible::SeveralOpenings
        | Impossible::CalendarWithoutPlan
        | Impossible::FiresElse
        | Impossible::DueBefore { .. }
        | Impossible::RelayElsewhere { .. }
        | Impossible::LevelRaised { .. }
        | Impossible::NodeDrains(_)
        | Impossible::RestoreOfRunningCluster
        | Impossible::EvidenceOfPolicy
        | Impossible::AuthorityUsed => ErrorReason::NotPossible,
    };
    precondition(reason, message)
}
