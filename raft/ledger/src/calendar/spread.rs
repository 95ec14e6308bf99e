//! Jitter: where in its window an occurrence opens. A hash, not chance: every leader, now and after a
//! fail-over, computes the same place, and a seed spreads the schedules of a tenant evenly.

use std::time::Duration;

use jiff::Timestamp;

use super::firing::{CalendarName, Firing};

/// Separates these hashes from every other use of the same seed.
const CONTEXT: &str = "reveille 2026 calendar spread v1";

/// How long after its instant `firing` opens: whole milliseconds, at least zero, less than `window`
/// and less than the time to `next`, so that it never reaches the next nominal instant.
///
/// `seed` names the schedule. The place hangs on the firing's name, not on its instant, so new rules
/// of a zone do not move it.
pub fn spread(seed: &[u8], firing: &Firing, next: Option<Timestamp>, window: Duration) -> Duration {
    let room = next.map(|next| Duration::try_from(next.duration_since(firing.instant)));
    let room = room.map_or(window, |room| room.unwrap_or_default().min(window));
    let room_ms = u64::try_from(room.as_millis()).unwrap_or(u64::MAX);
    let place_ms = (u128::from(draw(seed, &firing.nominal)) * u128::from(room_ms)) >> 64;
    Duration::from_millis(u64::try_from(place_ms).unwrap_or(u64::MAX))
}

/// A number that is uniform over all u64.
fn draw(seed: &[u8], nominal: &CalendarName) -> u64 {
    let (kind, number) = match nominal {
        CalendarName::Civil { fold, .. } => (fold.number(), nominal.civil_ms().unwrap_or_default()),
        CalendarName::Instant(instant) => (2, instant.as_millisecond()),
    };
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    hasher.update(&[kind]).update(&number.to_be_bytes()).update(seed);
    let mut bytes = [0; 8];
    hasher.finalize_xof().fill(&mut bytes);
    u64::from_be_bytes(bytes)
}
