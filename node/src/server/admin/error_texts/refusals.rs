//! Turns refusals of the ledger into errors of the API.

use reveille_ledger::ids::RunId;
use reveille_ledger::impossible::Impossible;
use reveille_ledger::refusal::CommandRefusal;
use reveille_proto::admin::v1::ErrorReason;
use tonic::Code;

use super::{
    absent, no_audience, no_campaign, no_relay, no_run, no_template, no_token, not_permitted, not_possible,
    not_reachable, precondition, stale_etag, stale_run, taken, token_not_valid,
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
            not_possible(format!("campaign {name} is {} already", stage.word())).about("campaign", name)
        }
        CommandRefusal::NotPossible(_)
        | CommandRefusal::NotActive(_)
        | CommandRefusal::NoSuchRun(_)
        | CommandRefusal::NoSuchSchedule(_) => {
            not_possible(format!("campaign {name}: {refusal}")).about("campaign", name)
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
        CommandRefusal::OfCampaign(name) => not_possible(message).about("campaign", name),
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
        CommandRefusal::NotPossible(Impossible::RunIs(_)) => precondition(ErrorReason::RunState, message),
        CommandRefusal::OldIncarnation { .. }
        | CommandRefusal::MaybeSent(_)
        | CommandRefusal::NotDue(_)
        | CommandRefusal::FiredThrough
        | CommandRefusal::OwnerGone
        | CommandRefusal::NothingPending
        | CommandRefusal::CampaignIs(_)
        | CommandRefusal::AtConcurrency { .. }
        | CommandRefusal::CapUsedUp { .. }
        | CommandRefusal::NotPossible(_) => not_possible(message),
    }
}
