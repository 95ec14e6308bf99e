//! Limits of the workload, which are judged under faults (I18, I19). The rate of the campaign's relay and the attempts
//! of each recipient are always limited. The seed decides on a rate of the campaign's tenant, a pool that is warmed up,
//! and a schedule with a `min_gap`.
//!
//! Recipients beyond the warm-up's cap would wait until midnight, so the warm-up is removed after healing.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use reveille_check::events::{Bound, Event, Limit};
use reveille_harness::AdminClient;
use reveille_harness::measure::unix_us;

use super::item::{
    BULK_TENANT, CAMPAIGN, GAP_MS, GAPPED_PERIOD_MS, ItemKind, MAX_ATTEMPTS, TENANT, TENANTS, WARMING, WorkloadItem,
};
use crate::run::SESSIONS;
use crate::run::observe::Recorder;

/// Number of sessions of each node with the campaign's relay, and with the pool that is warmed up.
const CAMPAIGN_SESSIONS: u32 = 4;
const WARMING_SESSIONS: u32 = 2;
/// Name of the schedule with a `min_gap`.
const GAPPED: &str = "gapped";
const GAPPED_RECIPIENTS: u32 = 3;
/// The campaign would take one part in this number of the fault phase at the relay's rate. It takes most of the phase,
/// because in most cases one node works on it, with at most a third of the rate (P25), and its bucket is empty after
/// each crash.
const RELAY_RATE_FACTOR: u64 = 8;
/// The campaign takes four fifths of the phase at the tenant's rate.
const TENANT_RATE_PERCENT: u64 = 125;
const DAY_MS: i64 = 86_400_000;

/// The limits of a run. Without a campaign there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadLimits {
    /// Emails per second of the campaign's relay.
    relay_rate: Option<u64>,
    /// Emails per second of the campaign's tenant.
    tenant_rate: Option<u64>,
    /// Maximum number of emails on each day of the warm-up.
    warm_up: Option<u32>,
    has_gap: bool,
    /// The warm-up. `None`: it is not in force.
    warming: Option<Limit>,
}

impl WorkloadLimits {
    /// Returns the limits of this seed, for `campaign` recipients and `seconds` of the fault phase.
    pub fn draw(seed: u64, campaign: u32, seconds: u64) -> WorkloadLimits {
        if campaign == 0 {
            return WorkloadLimits::default();
        }
        // A stream of its own, so that it changes no other draw.
        let mut random = StdRng::seed_from_u64(seed.wrapping_mul(0xA076_1D64_78BD_642F));
        let [of_tenant, warms_up, has_gap] = [0; 3].map(|_: u8| random.random_bool(0.5));
        let campaign = u64::from(campaign);
        WorkloadLimits {
            relay_rate: Some((campaign * RELAY_RATE_FACTOR).div_ceil(seconds)),
            tenant_rate: of_tenant.then(|| (campaign * TENANT_RATE_PERCENT).div_ceil(seconds * 100)),
            warm_up: warms_up.then_some((seconds / 2).max(1) as u32),
            has_gap,
            warming: None,
        }
    }

    /// Returns true if there is a budget to exceed.
    pub fn has_budgets(&self) -> bool {
        self.relay_rate.is_some()
    }

    /// Returns the schedules under these limits.
    pub fn items(&self, first: SystemTime, phase: Duration) -> Vec<WorkloadItem> {
        let at_ms = |after: Duration| unix_us(first + after) / 1_000_000 * 1_000;
        let warming = self.warm_up.map(|cap| WorkloadItem {
            name: WARMING.to_owned(),
            due_ms: at_ms(phase / 4) as u64,
            recipients: 2 * cap,
            kind: ItemKind::Warming,
        });
        let count = (phase.as_millis() as i64 / GAPPED_PERIOD_MS).max(1);
        let instants_ms = (0..count).map(|index| at_ms(Duration::ZERO) + index * GAPPED_PERIOD_MS).collect();
        let gapped = self.has_gap.then(|| WorkloadItem {
            name: GAPPED.to_owned(),
            due_ms: 0,
            recipients: GAPPED_RECIPIENTS,
            kind: ItemKind::Gapped(instants_ms),
        });
        warming.into_iter().chain(gapped).collect()
    }

    /// Creates relays and pools, and sets all limits.
    pub async fn set(&mut self, admin: &AdminClient, recorder: &Recorder, sink: SocketAddr) -> Result<()> {
        let always = |tenants: &[&str], schedules: &[&str], bound| {
            let [tenants, schedules] =
                [tenants, schedules].map(|names| names.iter().map(|&name| name.into()).collect());
            recorder.event(&Event::Limit(Limit { tenants, schedules, from_ns: 0, until_ns: None, bound }));
        };
        always(&TENANTS, &[], Bound::MaxAttempts { attempts: MAX_ATTEMPTS });
        if let Some(rate) = self.relay_rate {
            admin.add_relay_of((CAMPAIGN, CAMPAIGN), sink, (CAMPAIGN_SESSIONS, rate as f64)).await?;
            let bound = Bound::RelayRate { per_second_milli: rate * 1_000, sessions: CAMPAIGN_SESSIONS };
            always(&[BULK_TENANT], &[CAMPAIGN], bound);
        }
        if let Some(rate) = self.tenant_rate {
            admin.set_tenant_rate(BULK_TENANT, rate as f64).await?;
            always(&[BULK_TENANT], &[], Bound::TenantRate { per_second_milli: rate * 1_000 });
        }
        if self.has_gap {
            always(&[TENANT], &[GAPPED], Bound::MinGap { gap_ms: GAP_MS });
        }
        if let Some(cap) = self.warm_up {
            admin.add_relay_of((WARMING, WARMING), sink, (WARMING_SESSIONS, 0.0)).await?;
            let limit = warm_up(recorder.now_ns(), unix_us(SystemTime::now()) / 1_000 / DAY_MS, cap);
            admin.warm_up(WARMING, vec![cap; 2]).await?;
            recorder.event(&Event::Limit(limit.clone()));
            self.warming = Some(limit);
        }
        Ok(())
    }

    /// Removes the warm-up, so that the recipients beyond its cap get their emails.
    pub async fn lift(&mut self, admin: &AdminClient, recorder: &Recorder) -> Result<()> {
        let Some(limit) = self.warming.take() else { return Ok(()) };
        recorder.event(&Event::Limit(Limit { until_ns: Some(recorder.now_ns()), ..limit }));
        admin.remove_pool(WARMING).await
    }
}

fn warm_up(from_ns: u64, first_day: i64, cap: u32) -> Limit {
    let (tenants, schedules) = (vec![TENANT.to_owned()], vec![WARMING.to_owned()]);
    Limit { tenants, schedules, from_ns, until_ns: None, bound: Bound::WarmUp { first_day, caps: vec![cap; 2] } }
}

/// Returns the number of sessions of each node with the sink, over all relays.
pub fn sessions(limits: &WorkloadLimits) -> u32 {
    let more = |is: bool, sessions| if is { sessions } else { 0 };
    SESSIONS + more(limits.relay_rate.is_some(), CAMPAIGN_SESSIONS) + more(limits.warm_up.is_some(), WARMING_SESSIONS)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn each_limit_is_drawn_by_some_seeds() {
        let drawn: Vec<WorkloadLimits> = (0..20).map(|seed| WorkloadLimits::draw(seed, 480, 60)).collect();
        assert_eq!(drawn, (0..20).map(|seed| WorkloadLimits::draw(seed, 480, 60)).collect::<Vec<_>>());
        assert!(drawn.iter().all(|limits| limits.relay_rate == Some(64)));
        for picks in [
            |limits: &WorkloadLimits| limits.tenant_rate == Some(10),
            |limits: &WorkloadLimits| limits.warm_up == Some(30),
            |limits: &WorkloadLimits| limits.has_gap,
        ] {
            let with = drawn.iter().filter(|limits| picks(limits)).count();
            assert!((3..=17).contains(&with), "{with}");
        }
        assert_eq!(WorkloadLimits::draw(1, 0, 60), WorkloadLimits::default());
    }

    #[test]
    fn gapped_schedule_has_instants_within_phase() {
        let limits = WorkloadLimits { has_gap: true, warm_up: Some(5), ..WorkloadLimits::default() };
        let items = limits.items(UNIX_EPOCH + Duration::from_secs(1_000), Duration::from_secs(20));
        assert_eq!(items.iter().map(|item| item.recipients).collect::<Vec<_>>(), [10, 3]);
        assert_eq!(items[1].instants_ms(), [1_000_000, 1_004_000, 1_008_000, 1_012_000, 1_016_000]);
    }
}
