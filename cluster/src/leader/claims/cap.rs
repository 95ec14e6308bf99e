//! Computes how far ahead of its relays a node may claim (P12): enough that they are never idle, and no more.
//!
//! The dispatcher calls it with the measurements in the node's last lease request. Pure: numbers in, a number out.
//!
//! By Little's law, the number in flight is throughput times duration. The throughput of a relay is its rate, or one
//! email for each session and dialogue duration if that is less. A claim is in flight while it is committed, sent and
//! settled. Each session has at least two claimed recipients. An unknown relay may be fast, so its sessions have four
//! until the first answers come.
//!
//! - Never more than can begin within half of [`SESSION_WITHIN`], and one dialogue: the rest would return and be
//!   claimed again in vain.
//! - At least one if a relay accepts anything; never above [`CLAIM_CAP_MAX`].

use std::time::Duration;

use reveille_ledger::injected_bugs::{self, Bug};

use crate::process::limits::SESSION_WITHIN;

/// Maximum number of claimed and unsettled recipients of a (tenant, pool, node), and of all tenants together (P12).
pub const CLAIM_CAP_MAX: u32 = 4_096;
/// Assumed duration of a dialogue with a relay that has not answered yet.
const UNKNOWN_DIALOGUE: Duration = Duration::from_secs(1);
/// Recipients for each session of such a relay. If it answers after three seconds, the last of four begins in time.
const UNKNOWN_PER_SESSION: f64 = 4.0;
/// Minimum number of recipients for each session: one in its dialogue, one that waits for it.
const PER_SESSION: f64 = 2.0;
/// Lower limit of a dialogue's duration. For faster dialogues the sessions do not limit the throughput.
const SHORTEST_DIALOGUE: Duration = Duration::from_millis(1);
/// Upper limit of the time for a claim and a settle together. A longer time means an outage, for which nothing is
/// claimed ahead.
const COMMIT_AND_SETTLE_MAX: Duration = Duration::from_secs(1);
/// Time within which claimed recipients should begin. It is half of the limit, because relays slow down at times.
const SHOULD_BEGIN_WITHIN: Duration = Duration::from_secs(SESSION_WITHIN.as_secs() / 2);

/// Capacity of one relay for one node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RelayCapacity {
    /// Number of dialogues at the same time.
    pub sessions: u32,
    /// Emails per second that the node may send through the relay now.
    pub rate_per_second: f64,
    /// Duration of a dialogue; `None` if it is not known.
    pub dialogue: Option<Duration>,
}

impl RelayCapacity {
    /// Returns true if the relay accepts email now. A relay that fails, or has used its allowance of the day, accepts
    /// nothing until the node may try it again. Recipients claimed for it could only be given back.
    pub fn lets_through(&self) -> bool {
        self.sessions > 0 && self.rate_per_second > 0.0
    }
}

/// Maximum number of recipients of a pool that a node may have claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimCap {
    /// Limit for one tenant.
    pub of_a_tenant: u32,
    /// Limit for all tenants together: the recipients that can begin in time.
    pub of_all: u32,
}

/// Computes the cap from the relays of a pool. `commit_and_settle` is the time that a commit of claims and a settle
/// take together.
pub(crate) fn claim_cap(relays: &[RelayCapacity], commit_and_settle: Duration) -> ClaimCap {
    if injected_bugs::is(Bug::NoClaimCap) {
        return ClaimCap { of_a_tenant: CLAIM_CAP_MAX, of_all: CLAIM_CAP_MAX };
    }
    let commit_and_settle = commit_and_settle.min(COMMIT_AND_SETTLE_MAX).as_secs_f64();
    let (mut wanted, mut in_time) = (0.0, 0.0);
    for relay in relays.iter().filter(|relay| relay.lets_through()) {
        let dialogue = relay.dialogue.unwrap_or(UNKNOWN_DIALOGUE).max(SHORTEST_DIALOGUE).as_secs_f64();
        let per_session = if relay.dialogue.is_some() { PER_SESSION } else { UNKNOWN_PER_SESSION };
        let sessions = f64::from(relay.sessions);
        let flow = relay.rate_per_second.min(sessions / dialogue);
        let begins = flow * (dialogue + SHOULD_BEGIN_WITHIN.as_secs_f64());
        wanted += (flow * (commit_and_settle + dialogue)).max(per_session * sessions).min(begins);
        in_time += begins;
    }
    let least = u32::from(relays.iter().any(RelayCapacity::lets_through));
    // The cast of a float saturates at the bounds of the integer.
    let cap = |recipients: f64| (recipients.round() as u32).clamp(least, CLAIM_CAP_MAX);
    ClaimCap { of_a_tenant: cap(wanted), of_all: cap(in_time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AROUND: Duration = Duration::from_millis(100);
    const UNBOUNDED: f64 = 1_000_000.0;

    fn relay(sessions: u32, rate_per_second: f64, dialogue_ms: u64) -> RelayCapacity {
        RelayCapacity { sessions, rate_per_second, dialogue: Some(Duration::from_millis(dialogue_ms)) }
    }

    fn of_a_tenant(relay: RelayCapacity) -> u32 {
        claim_cap(&[relay], AROUND).of_a_tenant
    }

    #[test]
    fn slow_relay_is_offered_two_recipients_per_session() {
        assert_eq!(of_a_tenant(relay(10, UNBOUNDED, 2_000)), 20);
        assert_eq!(of_a_tenant(relay(10, UNBOUNDED, 500)), 20);
    }

    #[test]
    fn fast_relay_is_offered_its_flow_during_claim_and_settle() {
        assert_eq!(of_a_tenant(relay(10, UNBOUNDED, 5)), 210, "2,000 a second, for 105 ms");
        assert_eq!(of_a_tenant(relay(10, 1_000.0, 5)), 105, "1,000 a second, for as long");
        assert_eq!(of_a_tenant(relay(10, 44.0, 5)), 20, "and two a session at least");
        assert_eq!(of_a_tenant(relay(100, UNBOUNDED, 0)), CLAIM_CAP_MAX);
    }

    #[test]
    fn unmeasured_relay_is_offered_four_recipients_per_session() {
        let unknown = |rate_per_second| RelayCapacity { sessions: 10, rate_per_second, dialogue: None };
        assert_eq!(of_a_tenant(unknown(UNBOUNDED)), 40);
        assert_eq!(of_a_tenant(unknown(1.0)), 6, "but no more than begin in time");
    }

    #[test]
    fn claims_are_limited_to_recipients_that_can_begin_in_time() {
        assert_eq!(of_a_tenant(relay(10, 0.5, 5)), 3, "one in two seconds: three begin in five");
        assert_eq!(of_a_tenant(relay(10, UNBOUNDED, 20_000)), 13, "ten are in their dialogues");
        assert_eq!(of_a_tenant(relay(10, UNBOUNDED, 600_000)), 10);
        let cap = claim_cap(&[relay(10, UNBOUNDED, 2_000)], AROUND);
        assert_eq!(cap.of_all, 35, "ten in their dialogues, and five a second for five seconds");
        for dialogue_ms in [1, 10, 100, 1_000, 10_000, 100_000] {
            for rate_per_second in [0.01, 1.0, 100.0, UNBOUNDED] {
                let cap = claim_cap(&[relay(10, rate_per_second, dialogue_ms)], AROUND);
                assert!(cap.of_a_tenant <= cap.of_all, "{dialogue_ms} ms, {rate_per_second}: {cap:?}");
            }
        }
    }

    #[test]
    fn relay_with_any_rate_has_cap_of_at_least_one() {
        assert_eq!(of_a_tenant(relay(1, 0.001, 5)), 1);
        assert_eq!(of_a_tenant(relay(1, 0.0, 5)), 0, "it is left alone");
        assert_eq!(of_a_tenant(relay(0, UNBOUNDED, 5)), 0);
        assert_eq!(claim_cap(&[], AROUND), ClaimCap::default());
    }

    #[test]
    fn cap_of_pool_is_the_sum_over_its_relays() {
        let both = [relay(10, UNBOUNDED, 2_000), relay(10, UNBOUNDED, 5)];
        assert_eq!(claim_cap(&both, AROUND).of_a_tenant, 20 + 210);
    }

    #[test]
    fn claims_stop_during_a_relay_outage() {
        let fast = [relay(10, 1_000.0, 5)];
        assert_eq!(claim_cap(&fast, Duration::from_secs(30)), claim_cap(&fast, COMMIT_AND_SETTLE_MAX));
    }
}
