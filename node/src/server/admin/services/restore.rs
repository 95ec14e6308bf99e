//! A cluster that was restored from a backup (P21): how it stands, and its acceptance.

use reveille_cluster::process::zones::Zones;
use reveille_ledger::Ledger;
use reveille_ledger::command::Command;
use reveille_ledger::ids::Time;
use reveille_ledger::restore::Restored;
use reveille_proto::admin::v1::{
    AcceptRestoreRequest, AcceptRestoreResponse, GetRestoreRequest, GetRestoreResponse, Restore, UpcomingInstant,
};

use crate::server::admin::views::{self, ReadTime};
use crate::server::admin::{Admin, ApiError, ApiResult, Call};

/// Maximum number of schedules whose next instant is computed. It holds the state's read lock for some milliseconds.
const SCHEDULES_MAX: usize = 1_000;
/// Maximum number of instants in an answer.
const INSTANTS_MAX: usize = 20;

/// Returns how the restored cluster stands.
pub async fn get(admin: &Admin, request: GetRestoreRequest, call: &Call) -> ApiResult<GetRestoreResponse> {
    let zones = &admin.context.zones;
    let state = |ledger: &Ledger| state_of(ledger, zones, admin.now(ledger.head().now));
    let (answer, freshness) = admin.read(request.stale, call, state).await?;
    Ok(GetRestoreResponse { freshness, ..answer })
}

/// Accepts the restore.
pub async fn accept(admin: &Admin, request: AcceptRestoreRequest, call: &Call) -> ApiResult<AcceptRestoreResponse> {
    if !request.former_cluster_is_dead {
        let wrong = "must be true: stop the former cluster for good first, or both clusters send";
        return Err(ApiError::of_field("former_cluster_is_dead", wrong));
    }
    let index = admin.write(Command::RestoreAccept, call).await?.index;
    let restore = admin.context.replica.read(|ledger| ledger.head().restored).map(message);
    Ok(AcceptRestoreResponse { restore, index })
}

/// Builds the message.
pub fn message(restored: Restored) -> Restore {
    Restore {
        backup_time: Some(views::timestamp(restored.backup_at)),
        restore_time: Some(views::timestamp(restored.at)),
        accept_time: restored.accepted_at.map(views::timestamp),
    }
}

fn state_of(ledger: &Ledger, zones: &Zones, now: Time) -> GetRestoreResponse {
    let older = ledger.claims().iter().filter(|(fence, _)| ledger.only_operator_decides(**fence));
    GetRestoreResponse {
        restore: ledger.head().restored.map(message),
        in_doubt: older.map(|(_, claim)| u64::from(claim.in_doubt.len())).sum(),
        active_schedules: ledger.due().count() as u64,
        upcoming: upcoming(ledger, zones, now),
        freshness: None,
    }
}

/// Returns the next instant of each schedule, as the schedule itself shows it. Instants up to now are explained when
/// the restore is accepted.
fn upcoming(ledger: &Ledger, zones: &Zones, now: Time) -> Vec<UpcomingInstant> {
    let (first, at) = (ledger.due().take(SCHEDULES_MAX), ReadTime::new(now, ledger.head().restored));
    let mut found: Vec<UpcomingInstant> = first
        .filter_map(|(_, id)| {
            let schedule = ledger.schedules().get(&id)?;
            Some(UpcomingInstant {
                tenant: schedule.settings.tenant.to_string(),
                schedule: schedule.name.to_string(),
                due_time: Some(views::next_instants(schedule, zones, at, 1).first()?.time?),
            })
        })
        .collect();
    let order = |one: &UpcomingInstant| one.due_time.map(|due| (due.seconds, due.nanos));
    found.sort_by(|one, other| (order(one), &one.schedule).cmp(&(order(other), &other.schedule)));
    found.truncate(INSTANTS_MAX);
    found
}

#[cfg(test)]
mod tests {
    use reveille_ledger::command::{Actor, Entry, EpochStart, Trigger, VoterClock};
    use reveille_ledger::ids::{ClaimOwner, Hash, Incarnation, NodeId, TokenId};
    use reveille_ledger::token::{Rights, TenantScope, TokenGrant};
    use reveille_proto::admin::v1;

    use super::*;
    use crate::server::admin::lookup::tests::create;
    use crate::server::admin::services::schedule::ScheduleNotes;

    #[test]
    fn restored_ledger_shows_its_doubts_and_what_fires_next() {
        let (zones, mut ledger) = (Zones::bundled("x"), Ledger::new());
        let at = |text: &str| Time::from(text.parse::<jiff::Timestamp>().expect("an instant"));
        let (backup, restored) = (at("2026-03-02T12:00:00Z"), at("2026-03-04T12:00:00Z"));
        let play = |ledger: &mut Ledger, now: Time, ahead: u64, command: Command| {
            let head = ledger.head();
            let epoch = head.current_epoch().unwrap_or_default();
            let index = head.applied + ahead;
            ledger.apply(index, &Entry { epoch, now, actor: Actor::System, command });
        };
        let leader = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };
        let readings = vec![VoterClock { node: leader.node, wall: backup }];
        play(&mut ledger, backup, 1, Command::EpochStart(EpochStart::new(leader, 1, readings)));
        let body = create("0 9 * * *", &zones, backup);
        play(&mut ledger, backup, 1, Command::ScheduleCreate(Box::new(body)));
        let schedule = reveille_ledger::ids::ScheduleId::new(2, 0);
        play(&mut ledger, backup, 1, Command::Trigger(Trigger::new(schedule, "now")));
        let (rights, tenants) = (Rights(1), TenantScope::All);
        let grant = TokenGrant { name: "admin".to_owned(), hash: Hash::of(b"x"), rights, tenants, expires_at: None };
        let restore = reveille_ledger::restore::Restore { former_cluster: 7, token: TokenId(1), grant };
        play(&mut ledger, restored, 10_000_000_000, Command::Restore(Box::new(restore)));
        let seen = state_of(&ledger, &zones, restored);
        let times = seen.restore.expect("restored");
        assert_eq!(times.backup_time, Some(views::timestamp(backup)));
        assert_eq!((times.restore_time, times.accept_time), (Some(views::timestamp(restored)), None));
        assert_eq!((seen.in_doubt, seen.active_schedules), (1, 1));
        let next = Some(views::timestamp(at("2026-03-04T14:00:00Z")));
        assert_eq!(seen.upcoming.iter().map(|one| one.due_time).collect::<Vec<_>>(), [next], "nine in New York");

        // The schedule itself shows the same, and that it is held. Its planned instant is one of before the restore.
        let shown = |ledger: &Ledger, now: Time| {
            let (notes, known) = (ScheduleNotes::of(ledger, schedule), ledger.schedules().get(&schedule));
            let known = known.expect("a schedule");
            assert!(known.plan.next.as_ref().is_some_and(|next| next.due < restored));
            let shown = notes.apply_to(views::schedule(schedule, known, &zones, notes.read_time(now), 1));
            let [first] = shown.next_instants.as_slice() else { panic!("{shown:?}") };
            (first.time, first.remarks.iter().map(v1::InstantRemark::kind).collect::<Vec<_>>())
        };
        assert_eq!(shown(&ledger, restored), (next, vec![v1::InstantRemarkKind::RestoreNotAccepted]));
        let later = at("2026-03-04T15:00:00Z");
        let day_after = Some(views::timestamp(at("2026-03-05T14:00:00Z")));
        assert_eq!(shown(&ledger, later).0, day_after, "what passes while it is held never opens by itself");
        assert_eq!(state_of(&ledger, &zones, later).upcoming[0].due_time, day_after);
        let readings = [leader.node, NodeId(2)].map(|node| VoterClock { node, wall: later }).into();
        play(&mut ledger, later, 1, Command::EpochStart(EpochStart::new(leader, 2, readings)));
        play(&mut ledger, later, 1, Command::RestoreAccept);
        assert_eq!(shown(&ledger, later), (day_after, vec![]));
    }
}
