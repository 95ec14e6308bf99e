use super::*;
use crate::model::{Access, DAY_MS, MINUTE_MS, Relay, Tenant};

/// Ten o'clock on a day long after 1970.
const TEN: Time = Time(20_000 * DAY_MS + 10 * HOUR_MS);

/// Returns a ledger whose pool `bulk` has relays with these rates and late rates, in emails a second; 0 is no limit.
fn ledger(rates: &[(u64, u64)]) -> Ledger {
    let mut ledger = Ledger::default();
    for (number, (rate, late)) in rates.iter().enumerate() {
        let name = format!("relay-{number}");
        let relay = Relay {
            name: name.clone(),
            host: "127.0.0.1".into(),
            port: 25,
            access: Access::default(),
            pool: "bulk".into(),
            rate_milli: rate * 1_000,
            late_rate_milli: late * 1_000,
            max_sessions: 1,
            weight: 1,
        };
        ledger.relays.put(name, relay);
    }
    ledger
}

fn with_tenant(mut ledger: Ledger, rate: u64) -> Ledger {
    ledger.tenants.put("acme".into(), Tenant { rate_milli: rate * 1_000, ..Tenant::DEFAULT });
    ledger
}

/// Adds a warm-up that begins today, with `spent` emails sent today.
fn warmed(mut ledger: Ledger, caps: &[u32], spent: u32) -> Ledger {
    let today = Day::of(TEN);
    let warm_up = PoolRow { first: today, caps: caps.to_vec(), day: today, spent, reveille_headers: true, index: 1 };
    ledger.pools.put("bulk".into(), warm_up);
    ledger
}

fn task(rows: u32) -> ForecastRequest<'static> {
    ForecastRequest { tenant: "acme", pool: "bulk", rows, due: TEN }
}

/// Returns the limit that decides, and how long sending takes in milliseconds.
fn bound_and_ms(ledger: &Ledger, rows: u32, now: Time) -> (ForecastLimit, Option<i64>) {
    let Forecast { begins, bound, ends, .. } = ledger.forecast(&task(rows), now);
    (bound, ends.map(|ends| ends.since_ms(begins)))
}

#[test]
fn lowest_rate_decides() {
    let relays = ledger(&[(30, 0), (10, 0)]);
    assert_eq!(bound_and_ms(&relays, 400, TEN), (ForecastLimit::Relays, Some(10_000)), "relays add up");
    assert_eq!(bound_and_ms(&with_tenant(relays.clone(), 50), 400, TEN), (ForecastLimit::Relays, Some(10_000)));
    assert_eq!(bound_and_ms(&with_tenant(relays, 20), 400, TEN), (ForecastLimit::Tenant, Some(20_000)));
    let free = ledger(&[(30, 0), (0, 0)]);
    assert_eq!(bound_and_ms(&free, 400, TEN), (ForecastLimit::Nothing, None), "one of them has no bound");
    assert_eq!(bound_and_ms(&with_tenant(free, 20), 400, TEN), (ForecastLimit::Tenant, Some(20_000)));
}

#[test]
fn forecast_without_relay_sends_nothing() {
    assert_eq!(bound_and_ms(&with_tenant(ledger(&[]), 20), 400, TEN), (ForecastLimit::NoRelay, None));
    let elsewhere = ForecastRequest { pool: "other", ..task(400) };
    assert_eq!(ledger(&[(10, 0)]).forecast(&elsewhere, TEN).bound, ForecastLimit::NoRelay);
}

#[test]
fn late_rates_count_after_a_minute() {
    let relays = ledger(&[(30, 10), (10, 0)]);
    assert_eq!(bound_and_ms(&relays, 300, TEN.plus_ms(MINUTE_MS)), (ForecastLimit::Relays, Some(7_500)));
    assert_eq!(
        bound_and_ms(&relays, 300, TEN.plus_ms(MINUTE_MS + 1)),
        (ForecastLimit::LateRates, Some(20_000)),
        "10, and half of 10"
    );
}

#[test]
fn rest_above_daily_cap_goes_on_following_days() {
    let free = warmed(ledger(&[(0, 0)]), &[100, 200], 30);
    let fourteen_hours = 14 * HOUR_MS;
    assert_eq!(bound_and_ms(&free, 70, TEN), (ForecastLimit::Nothing, None), "today's cap is enough");
    assert_eq!(
        bound_and_ms(&free, 71, TEN),
        (ForecastLimit::WarmUp, Some(fourteen_hours)),
        "at midnight, since nothing else bounds it"
    );
    assert_eq!(
        bound_and_ms(&free, 271, TEN),
        (ForecastLimit::WarmUp, Some(fourteen_hours + DAY_MS)),
        "after the plan there is no cap"
    );
    assert_eq!(free.forecast(&task(71), TEN).first_day_remaining, Some(70));

    let paced = warmed(ledger(&[(1, 0)]), &[100, 200], 0);
    assert_eq!(bound_and_ms(&paced, 100, TEN), (ForecastLimit::Relays, Some(100_000)));
    assert_eq!(
        bound_and_ms(&paced, 150, TEN),
        (ForecastLimit::WarmUp, Some(fourteen_hours + 50_000)),
        "the rest at the relays' rate"
    );

    // In the last second before midnight the rate limits today's emails, and not the cap.
    let late = ForecastRequest { due: TEN.plus_ms(fourteen_hours - 1_000), ..task(100) };
    let forecast = paced.forecast(&late, TEN);
    assert_eq!(
        (forecast.bound, forecast.first_day_remaining, forecast.ends),
        (ForecastLimit::Relays, Some(100), Some(late.due.plus_ms(100_000)))
    );

    // A campaign for another day does not depend on what was sent today.
    let tomorrow = ForecastRequest { due: TEN.plus_ms(DAY_MS), ..task(200) };
    let forecast = warmed(ledger(&[(0, 0)]), &[100, 200], 100).forecast(&tomorrow, TEN);
    assert_eq!((forecast.bound, forecast.first_day_remaining), (ForecastLimit::Nothing, Some(200)));
}

#[test]
fn extremes_end() {
    let slow = warmed(ledger(&[(1, 0)]), &[1; 400], 0);
    let forecast = slow.forecast(&ForecastRequest { due: Time(i64::MAX), ..task(u32::MAX) }, TEN);
    assert_eq!((forecast.bound, forecast.ends), (ForecastLimit::Relays, Some(Time(i64::MAX))));
    let forecast = slow.forecast(&task(u32::MAX), TEN);
    assert_eq!(forecast.bound, ForecastLimit::WarmUp);
    assert!(forecast.ends > Some(TEN.plus_ms(399 * DAY_MS)));
}

#[test]
fn running_emails_end_within_daily_caps() {
    let free = ledger(&[(0, 0)]);
    assert_eq!(free.ends_within_caps("bulk", 71, 1_000, TEN), None, "it has none");
    let warm = warmed(free, &[100, 200], 30);
    let ends = |rows| warm.ends_within_caps("bulk", rows, 1_000, TEN).map(|ends| ends.since_ms(TEN));
    assert_eq!(ends(70), Some(70_000), "today's cap is enough");
    assert_eq!(ends(71), Some(14 * HOUR_MS + 1_000), "one waits for the next day");
    assert_eq!(ends(300), Some(14 * HOUR_MS + DAY_MS + 30_000));
}
