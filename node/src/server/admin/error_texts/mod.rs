//! Turns errors of the lower layers into errors of the API. Only here they get their gRPC codes.

mod http;
mod refusals;

pub use http::{body_timed_out, encoded, no_such_call, not_answered, of_web_page, too_many_values};
pub use refusals::{refused, refused_of, refused_of_campaign, refused_of_run};
use reveille_cluster::leader::barrier::BarrierError;
use reveille_cluster::leader::transfer::TransferError;
use reveille_cluster::monitoring::disk_reserve::Shortage;
use reveille_cluster::process::peer_messages::{MemberChange, MemberRefusal, MemberWait};
use reveille_ledger::RunSummary;
use reveille_ledger::ids::{Fence, RunId};
use reveille_ledger::refusal::CommandRefusal;
use reveille_proto::admin::v1::ErrorReason;
use reveille_raft::{ArchiveError, Member, ProposeError, ReadError};
use tonic::Code;

use super::error::ApiError;

const SMALLER: &str = "link to large parts instead of carrying them, or split the audience";

/// Kind of a call. A read without a leader can be repeated with `stale`; a write cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    Read,
    Write,
}

/// This node knew no leader by the deadline. An election may be running.
pub fn no_leader(kind: CallKind, leader: Option<&Member>) -> ApiError {
    of_call(kind, not_reachable(ReadError::NoLeader, leader)).leader(leader)
}

/// Says of an error of a read that the same read would be answered with `stale`.
pub fn of_call(kind: CallKind, error: ApiError) -> ApiError {
    if kind == CallKind::Read { error.stale_helps() } else { error }
}

fn not_reachable(error: impl ToString, leader: Option<&Member>) -> ApiError {
    let reason = if leader.is_some() { ErrorReason::NoQuorum } else { ErrorReason::NoLeader };
    ApiError::new(Code::Unavailable, reason, format!("{}; nothing happened", error.to_string()))
}

/// This node is being stopped.
pub fn stopping(message: impl Into<String>) -> ApiError {
    ApiError::new(Code::Unavailable, ErrorReason::Stopping, message)
}

fn absent(reason: ErrorReason, message: String) -> ApiError {
    ApiError::new(Code::NotFound, reason, message)
}

/// An object of this kind with this name exists.
fn taken(message: String, kind: &'static str, name: &str) -> ApiError {
    ApiError::new(Code::AlreadyExists, ErrorReason::NameTaken, message).about(kind, name)
}

/// The state of an object does not allow the operation, for a reason of its own.
pub fn precondition(reason: ErrorReason, message: impl Into<String>) -> ApiError {
    ApiError::new(Code::FailedPrecondition, reason, message)
}

/// The volume of this node has no space for new work.
pub fn no_room(node: &str, why: &Shortage) -> ApiError {
    let message = format!("{node} takes no new work: {why}; nothing happened; free space there, or ask another node");
    ApiError::new(Code::ResourceExhausted, ErrorReason::NoRoom, message)
}

/// The request was larger than the limit, and was not read.
pub fn request_too_large(said: &str, most: usize) -> ApiError {
    let message = format!("the request has more than {most} bytes ({said}); nothing happened; {SMALLER}");
    ApiError::new(Code::InvalidArgument, ErrorReason::TooLarge, message)
}

/// The command was not committed, or its outcome is unknown. `leader`: the leader that this node knows.
pub fn not_proposed(error: &ProposeError, leader: Option<&Member>) -> ApiError {
    let fault = match error {
        ProposeError::NoLeader | ProposeError::NotReady | ProposeError::EpochOver => not_reachable(error, leader),
        ProposeError::TooLarge { .. } => {
            ApiError::new(Code::InvalidArgument, ErrorReason::TooLarge, format!("{error}; {SMALLER}"))
        }
        ProposeError::Busy => ApiError::new(Code::Unavailable, ErrorReason::Busy, format!("{error}; nothing happened")),
        ProposeError::Unknown => ApiError::new(Code::DeadlineExceeded, ErrorReason::OutcomeUnknown, error.to_string()),
        ProposeError::AboveLevel { .. } => {
            precondition(ErrorReason::UpgradeNotFinished, format!("{error}; nothing happened"))
        }
        ProposeError::Stopped => stopping(format!("{error}; nothing happened")),
    };
    fault.leader(leader)
}

/// A fresh read was not possible. `leader`: the leader that this node knows.
pub fn not_read(error: ReadError, leader: Option<&Member>) -> ApiError {
    let fault = match error {
        ReadError::NoLeader => return no_leader(CallKind::Read, leader),
        ReadError::Behind(index) => {
            let behind = ApiError::new(Code::Unavailable, ErrorReason::Busy, error.to_string());
            behind.stale_helps().index(index)
        }
        ReadError::Stopped => stopping(format!("{error}; nothing happened")),
    };
    fault.leader(leader)
}

/// The command is committed, but this node has not applied it by the deadline.
pub fn not_seen(index: u64) -> ApiError {
    let message = format!("it was done as entry {index}, which this node has not applied yet");
    ApiError::new(Code::DeadlineExceeded, ErrorReason::OutcomeUnknown, message).index(index)
}

/// The call has committed an entry, and then a further step of it failed.
pub fn not_finished(index: u64) -> ApiError {
    let message = format!("entry {index} of this call is in force, but a further step found no leader; repeat it");
    ApiError::new(Code::DeadlineExceeded, ErrorReason::OutcomeUnknown, message).index(index)
}

/// The person is opted out, and was found in each pass of an erasure. `index`: the last entry of the erasure.
pub fn not_erased(index: u64, passes: u32) -> ApiError {
    let message = format!(
        "the address is opted out, but not erased: it was found in each of {passes} passes, because lists get it again or \
         change meanwhile; end that, and erase again"
    );
    ApiError::new(Code::DeadlineExceeded, ErrorReason::OutcomeUnknown, message).index(index)
}

/// A call was ended at the longest time of a call. The command of a write may be committed.
pub fn timed_out(kind: CallKind) -> ApiError {
    let (reason, message) = match kind {
        CallKind::Write => (ErrorReason::OutcomeUnknown, "the call took too long: it may have happened"),
        CallKind::Read => (ErrorReason::TimedOut, "the call took too long"),
    };
    ApiError::new(Code::DeadlineExceeded, reason, message)
}

/// The entry is in force, but it could not be confirmed that every gate knows it.
pub fn not_held(index: u64, error: BarrierError) -> ApiError {
    let message = format!(
        "entry {index} is in force, but whether every gate knows it was not found out: {error}; a repeat asks every node anew"
    );
    ApiError::new(Code::DeadlineExceeded, ErrorReason::OutcomeUnknown, message).index(index)
}

/// Leadership was not handed over.
pub fn not_handed_over(error: &TransferError) -> ApiError {
    match error {
        TransferError::NoLeader => not_reachable(error, None),
        TransferError::Refused(why) => not_possible(format!("leadership was not handed over: {why}")),
    }
}

/// The member was not changed, or the outcome is unknown.
pub fn member_not_changed(name: &str, change: MemberChange, refusal: &MemberRefusal) -> ApiError {
    let done = match change {
        MemberChange::Drain => "drained",
        MemberChange::Undrain => "taken back from draining",
        MemberChange::Remove | MemberChange::RemoveDead => "removed",
    };
    let quoted = quoted(name);
    let help = match refusal {
        MemberRefusal::NoLeader => return not_reachable(refusal, None),
        MemberRefusal::NotLeader | MemberRefusal::Unknown(_) => {
            let message = format!("whether {quoted} was {done} is not known: {refusal}; {CONTINUES}");
            return ApiError::new(Code::DeadlineExceeded, ErrorReason::OutcomeUnknown, message).about("member", name);
        }
        MemberRefusal::Ledger(refusal) => return refused(refusal),
        MemberRefusal::NotAMember => {
            let message = format!("{quoted} was not {done}: {refusal}");
            return absent(ErrorReason::MemberNotFound, message).about("member", name);
        }
        MemberRefusal::LastVoter => "; admit another node first, and wait until it votes",
        MemberRefusal::StillRuns => "; stop it first, or remove it as one that runs: then it is drained before",
        MemberRefusal::DoesNotAnswer => "; start it; or, if it never comes back, remove it as dead",
        MemberRefusal::NoOtherSends => "; let a node that drains get emails again, or start another",
        MemberRefusal::TooFewRun { .. } => "; start a node that is down: a removal now would stop the cluster",
        MemberRefusal::Waits(wait) => {
            let is_short = change == MemberChange::RemoveDead
                || matches!(wait, MemberWait::Another | MemberWait::Membership | MemberWait::Steady);
            let drains = if is_short { "" } else { " yet" };
            let also = if is_short { "" } else { "; it drains, and gets no more emails" };
            let message = format!("{quoted} was not {done}{drains}: {refusal}{also}; {CONTINUES}");
            return precondition(ErrorReason::MemberWaits, message).about("member", name);
        }
    };
    let reason = match refusal {
        MemberRefusal::StillRuns => ErrorReason::MemberRuns,
        MemberRefusal::DoesNotAnswer => ErrorReason::MemberSilent,
        _ => ErrorReason::TooFewMembers,
    };
    precondition(reason, format!("{quoted} was not {done}: {refusal}{help}")).about("member", name)
}

/// A change of a member has steps, and a repeat begins with the first one that is not done.
const CONTINUES: &str = "the same request continues where it was";

/// Quotes a name from a request on one line. Control characters are escaped.
fn quoted(name: &str) -> String {
    let one = |one: char| if one.is_control() { one.escape_default().to_string() } else { one.to_string() };
    format!("'{}'", name.chars().map(one).collect::<String>())
}

/// There is no schedule of that name.
pub fn no_schedule(name: &str) -> ApiError {
    absent(ErrorReason::ScheduleNotFound, format!("no schedule named {}", quoted(name)))
}

/// There is no schedule of that name, but a campaign that has not been launched.
pub fn no_schedule_but_campaign(name: &str) -> ApiError {
    let message = format!("no schedule named {0}: {0} is a campaign", quoted(name));
    absent(ErrorReason::ScheduleNotFound, message).about("campaign", name)
}

/// There is no such run.
pub fn no_run(run: impl ToString) -> ApiError {
    absent(ErrorReason::RunNotFound, format!("no run {}", run.to_string()))
}

/// No message of the tenant has this key, or its run was archived too long ago.
pub fn no_message(key: &str) -> ApiError {
    ApiError::new(Code::NotFound, ErrorReason::MessageNotFound, format!("no message has the key '{key}'"))
}

/// The key has sent a message, and no stored version of the template makes the same one.
pub fn other_message(key: &str, template: &str) -> ApiError {
    let message = format!(
        "the key '{key}' has sent a message already, and template '{template}' does not make the same one: the content, \
         the recipients or the time differ, or that version is gone; read the message, or choose KEY_RULE_FIRST_WINS"
    );
    ApiError::new(Code::AlreadyExists, ErrorReason::RequestIdReused, message)
}

/// The details of the run are removed after their retention, or lost, and only its summary is left (P24).
pub fn details_removed(run: RunId, summary: &RunSummary) -> ApiError {
    let kept = "its counts are kept, its recipients are not";
    let message =
        format!("run {run} of {} is older than its retention, or its details were lost: {kept}", summary.label());
    absent(ErrorReason::RunNotFound, message).about("run", run)
}

/// The run has left the replicated state, so nothing changes it any more (P24).
pub fn archived(run: RunId, name: &str) -> ApiError {
    let message = format!("run {run} of {name} is finished and in the archive: its results cannot change");
    precondition(ErrorReason::RunState, message).about("run", run)
}

/// This node cannot read a part of the archive. An answer without that part would be wrong, so there is none.
pub fn archive_unreadable(error: &ArchiveError) -> ApiError {
    let (code, help) = match error {
        ArchiveError::Lost { .. } => {
            let message = format!("{error}; what it had is not known any more");
            return ApiError::new(Code::NotFound, ErrorReason::ArchiveLost, message);
        }
        ArchiveError::Damaged { .. } => {
            (Code::DataLoss, "; start the nodes that are down: a block that one of them has is fetched")
        }
        // A client with several addresses asks the next node.
        ArchiveError::Disk { .. } | ArchiveError::Panicked => (Code::Unavailable, ""),
    };
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    let message = format!("{error}{cause}; finished runs are in it, so nothing is shown{help}");
    tracing::error!(message, "the archive is not readable");
    ApiError::new(code, ErrorReason::ArchiveUnreadable, message)
}

/// The named occurrence is not among the last archived runs of its schedule, and no more are searched.
pub fn not_searched_further(searched: usize) -> ApiError {
    let message = format!(
        "no such run among the last {searched} archived ones of the schedule; older ones were not searched: name it by \
         the id that the history of the schedule has"
    );
    absent(ErrorReason::RunNotFound, message)
}

/// The run has no such recipient.
pub fn no_recipient(recipient: &str, run: RunId) -> ApiError {
    let message = format!("no recipient {recipient} in run {run}");
    absent(ErrorReason::RecipientNotFound, message).about("run", run)
}

/// The run has the recipient, but it is not in doubt.
pub fn not_in_doubt(address: &str, run: RunId) -> ApiError {
    let message = format!("{address} is not in doubt in run {run}");
    absent(ErrorReason::RecipientNotFound, message).about("run", run).about("recipient", address)
}

/// None of the named recipients is `what`, such as `in doubt in` a run. `states`: their states as text.
pub fn none_is(what: &str, named: &[String], run: RunId, states: &str) -> ApiError {
    let message = match named {
        [one] => format!("{one} is not {what} run {run}: it is {states}"),
        more => format!("none of these {} is {what} run {run}: {states}", more.len()),
    };
    let one = named.first().map_or("", String::as_str);
    precondition(ErrorReason::RecipientState, message).about("run", run).about("recipient", one)
}

/// This node already holds the maximum number of request bytes in memory.
pub fn out_of_memory() -> ApiError {
    let message = "this node works on too many large requests; nothing happened";
    ApiError::new(Code::Unavailable, ErrorReason::Busy, message)
}

/// The recipients are in doubt for a later handoff than the decision names.
pub fn later_doubt(run: RunId, later: Fence) -> ApiError {
    let message = format!("in doubt for a later handoff, {later}, than the one that the decision names");
    precondition(ErrorReason::LaterDoubt, message).about("run", run)
}

/// There is no relay of that name.
pub fn no_relay(name: &str) -> ApiError {
    absent(ErrorReason::RelayNotFound, format!("no relay named {}", quoted(name)))
}

/// There is no member of that name.
pub fn no_member(name: &str) -> ApiError {
    absent(ErrorReason::MemberNotFound, format!("no member named {}", quoted(name)))
}

/// Something else changed while the request was processed, and nothing happened.
pub fn changed_meanwhile(message: impl Into<String>) -> ApiError {
    ApiError::new(Code::Aborted, ErrorReason::ConcurrentChange, message)
}

/// A block of the archive cannot be decoded.
pub fn block_unreadable(error: impl ToString) -> ApiError {
    ApiError::new(Code::DataLoss, ErrorReason::ArchiveUnreadable, error.to_string())
}

/// This node cannot read a file of an audience.
pub fn file_unreadable(error: impl ToString) -> ApiError {
    ApiError::new(Code::Unavailable, ErrorReason::FileUnreadable, error.to_string())
}

/// The current state does not allow the operation, and only the message says why.
fn not_possible(message: impl Into<String>) -> ApiError {
    precondition(ErrorReason::NotPossible, message)
}

/// No relay is in the pool, so that nothing of `what` would be sent.
pub fn no_relay_in(pool: &str, what: &str) -> ApiError {
    precondition(ErrorReason::NoRelay, format!("no relay is in pool {pool}: {what}")).about("pool", pool)
}

/// The state of the campaign does not allow the operation.
pub fn of_campaign(reason: ErrorReason, name: &str, message: impl Into<String>) -> ApiError {
    precondition(reason, message).about("campaign", name)
}

/// The cluster was made without certificates, so it admits no node.
pub fn no_authority() -> ApiError {
    let message = "this cluster has no certificate authority: it was made for tests on one machine";
    precondition(ErrorReason::NoAuthority, message)
}

/// The cluster keeps real time, so its clock cannot be moved.
pub fn no_test_clock() -> ApiError {
    let message = "this cluster keeps real time: a test clock is chosen when a cluster is made, and for good";
    precondition(ErrorReason::NoTestClock, message)
}

/// Another client changed the schedule after this client had read it.
pub fn stale_etag(name: &str, message: impl Into<String>) -> ApiError {
    ApiError::new(Code::Aborted, ErrorReason::EtagMismatch, message).about("schedule", name)
}

/// The recipient opted out again after the caller had read its opt-out.
pub fn stale_opt_out(key: &str) -> ApiError {
    let message = format!("{key} has opted out again since it was read");
    ApiError::new(Code::Aborted, ErrorReason::EtagMismatch, message).about("recipient", key)
}

/// Another change of the run came first.
pub fn stale_run(run: RunId) -> ApiError {
    let message = format!("run {run} was changed since it was read");
    ApiError::new(Code::Aborted, ErrorReason::EtagMismatch, message).about("run", run)
}

/// A defect of Reveille. It is also logged.
pub fn broken(message: impl Into<String>) -> ApiError {
    let message = message.into();
    tracing::error!(message, "a defect; please report it");
    ApiError::new(Code::Internal, ErrorReason::Internal, message)
}

/// There is no sealed audience of that name.
pub fn no_audience(name: &str) -> ApiError {
    absent(ErrorReason::AudienceNotFound, format!("no sealed audience is named {name:?}"))
}

/// There is no template of that name, or not in that version.
pub fn no_template(name: &str, version: Option<u32>) -> ApiError {
    let refusal = CommandRefusal::NoSuchTemplate { name: name.to_owned(), version };
    absent(ErrorReason::TemplateNotFound, refusal.to_string())
}

/// The recipient has not opted out.
pub fn not_opted_out(key: &str) -> ApiError {
    absent(ErrorReason::RecipientNotFound, format!("{key} has not opted out"))
}

/// There is no campaign of that name.
pub fn no_campaign(name: &str) -> ApiError {
    absent(ErrorReason::CampaignNotFound, format!("no campaign is named {name:?}"))
}

/// There is no tenant of that name: it has no objects and no limits.
pub fn no_tenant(name: &str) -> ApiError {
    absent(ErrorReason::TenantNotFound, format!("no tenant is named {name:?}"))
}

/// There is no pool of that name: it has no relay and no settings.
pub fn no_pool(name: &str) -> ApiError {
    absent(ErrorReason::PoolNotFound, format!("no pool is named {name:?}"))
}

/// The call has no token, or one that is unknown, revoked or expired. The answer is the same in all these cases.
pub fn token_not_valid() -> ApiError {
    let message = "the call needs a valid token: there is none, or it is unknown, revoked or expired; nothing happened";
    ApiError::new(Code::Unauthenticated, ErrorReason::TokenNotValid, message)
}

/// The token does not permit the call. The answer is the same whatever exists.
pub fn not_permitted() -> ApiError {
    let message = "the token does not permit this call; nothing happened";
    ApiError::new(Code::PermissionDenied, ErrorReason::NotPermitted, message)
}

/// The state of this node has no tokens: it is joining its cluster, or its cluster is being made.
pub fn no_tokens_yet() -> ApiError {
    let message = "this node knows no tokens yet: it has just been made or is joining; nothing happened";
    ApiError::new(Code::Unavailable, ErrorReason::NotInitialized, message)
}

/// There is no token with this id.
pub fn no_token(id: impl ToString) -> ApiError {
    absent(ErrorReason::TokenNotFound, format!("no token has the id {:?}", id.to_string()))
}

#[cfg(test)]
mod tests;
