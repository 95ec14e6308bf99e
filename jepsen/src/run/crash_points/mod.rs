//! Crash points: nodes crash at named points of their code, repeatedly, while emails are sent.
//!
//! It needs a binary with the feature `crash-points`, which no release has. Each process gets one crash point. It dies
//! there, or is stopped after a while and starts again with another point (`driver.rs`). `traffic.rs` is the workload.
//! At the end all nodes start without crash points.

mod driver;
mod traffic;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use self::driver::Driver;
pub use self::driver::SNAPSHOT_EVERY;
use self::traffic::Traffic;
use super::faults::Nemesis;
use super::options::Args;
use super::scenario::HarnessErrors;

/// Time within which the schedules fall due that are created before the first crash.
pub const FIRST_FOR: Duration = Duration::from_secs(20);

/// Lets nodes crash at these points, until processes crashed often enough at each or the fault phase is over. `binary`
/// imports lists. Returns the particulars for the last line, and true if every point was reached often enough.
pub async fn drive(
    nemesis: &mut Nemesis,
    points: Vec<String>,
    args: &Args,
    binary: &Path,
    errors: &mut HarnessErrors,
) -> Result<(Value, bool)> {
    let until = Instant::now() + Duration::from_secs(args.seconds);
    let (admin, workload) = (nemesis.operator.admin.clone(), nemesis.operator.workload.clone());
    let traffic = Traffic::start(&admin, &workload, binary, nemesis.processes.cluster.folder())?;
    let mut driver = Driver::new(nemesis, points, args.hits, &traffic, args.seed);
    errors.record(driver.drive(until).await);
    let hits = driver.into_hits();
    traffic.stop().await;
    let missed = hits.iter().filter(|(_, hits)| **hits < args.hits).map(|(point, _)| point.clone());
    let not_reached: Vec<String> = missed.collect();
    let all_reached = not_reached.is_empty();
    let particulars = json!({
        "crashes": hits.values().sum::<u32>(),
        // Number of crashes at each point.
        "points": hits,
        "wanted_hits": args.hits,
        // Points with fewer crashes.
        "not_reached": not_reached,
    });
    Ok((particulars, all_reached))
}

/// Beginnings of the names of points that only a change of the members reaches. `node/tests/node/membership.rs` does so;
/// here no node joins.
const MEMBERSHIP: [&str; 2] = ["join.", "membership."];

/// Returns those of the binary's crash points that are chosen: if there are no names, all that these runs reach.
pub fn chosen(points: Vec<String>, names: &[String]) -> Result<Vec<String>> {
    if points.is_empty() {
        bail!(
            "the binary of the nodes has no crash points: build one with `cargo build --workspace --bin reveille \
             --features reveille/crash-points` and name it with --reveille PATH"
        );
    }
    if let Some(unknown) = names.iter().find(|name| !points.contains(name)) {
        bail!("there is no crash point {unknown}; there are {}", points.join(", "));
    }
    if !names.is_empty() {
        return Ok(names.to_vec());
    }
    let of_members = |point: &String| MEMBERSHIP.iter().any(|beginning| point.starts_with(beginning));
    Ok(points.into_iter().filter(|point| !of_members(point)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_chosen_by_name() {
        let points = || ["a.b", "c.d"].map(str::to_owned).to_vec();
        assert_eq!(chosen([points(), vec!["join.x".to_owned()]].concat(), &[]).unwrap(), points());
        assert_eq!(chosen(points(), &["c.d".to_owned()]).unwrap(), ["c.d"]);
        assert!(chosen(points(), &["e.f".to_owned()]).unwrap_err().to_string().contains("a.b, c.d"));
        assert!(chosen(Vec::new(), &[]).unwrap_err().to_string().contains("--features reveille/crash-points"));
    }
}
