//! Jitter: the delay of an occurrence within its window. It is a hash, so every leader computes the same delay, also
//! after a fail-over. The seed spreads the schedules of a tenant evenly.

use std::time::Duration;

use jiff::Timestamp;

use super::firing::{CalendarName, Firing};

/// Key derivation context: separates these hashes from other uses of the same seed.
const CONTEXT: &str = "reveille 2026 calendar spread v1";

/// Delay of a firing after its instant, in whole milliseconds. It is less than `window` and less than the time to
/// `next`, so it never reaches the next nominal instant.
///
/// `seed` names the schedule. The hash uses the firing's name and not its instant, so new rules of a zone do not change
/// the delay.
pub fn spread(seed: &[u8], firing: &Firing, next: Option<Timestamp>, window: Duration) -> Duration {
    let room = next.map(|next| Duration::try_from(next.duration_since(firing.instant)));
    let room = room.map_or(window, |room| room.unwrap_or_default().min(window));
    let room_ms = u64::try_from(room.as_millis()).unwrap_or(u64::MAX);
    let delay_ms = (u128::from(draw(seed, &firing.occurrence)) * u128::from(room_ms)) >> 64;
    Duration::from_millis(u64::try_from(delay_ms).unwrap_or(u64::MAX))
}

/// Returns a hash that is uniform over all u64.
fn draw(seed: &[u8], occurrence: &CalendarName) -> u64 {
    let (kind, number) = match occurrence {
        CalendarName::Civil { fold, .. } => (fold.number(), occurrence.civil_ms().unwrap_or_default()),
        CalendarName::Instant(instant) => (2, instant.as_millisecond()),
    };
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    hasher.update(&[kind]).update(&number.to_be_bytes()).update(seed);
    let mut bytes = [0; 8];
    hasher.finalize_xof().fill(&mut bytes);
    u64::from_be_bytes(bytes)
}
