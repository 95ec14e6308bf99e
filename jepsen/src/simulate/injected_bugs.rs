//! `simulate --inject`: injects a bug, and looks for the first seed that finds it. A judge that cannot find a bug
//! proves nothing when it finds none.

use std::str::FromStr;
use std::time::Instant;

use anyhow::{Result, bail};
use reveille_harness::Report;
use reveille_simulation::injected_bugs::{Bug, COMPILED};
use serde_json::json;

use super::{Args, RunningSeeds};

/// The bugs to inject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bugs(Vec<Bug>);

impl FromStr for Bugs {
    type Err = String;

    fn from_str(text: &str) -> Result<Bugs, String> {
        if text == "all" {
            // The simulation has no restore and no TLS, and its process is one release. Fault runs with `loss` and
            // `upgrade` find the first two of these bugs, and a tap between real nodes the third.
            let is_simulated =
                |bug: &Bug| !matches!(bug, Bug::PendingAfterRestore | Bug::IgnoreLevel | Bug::PlaintextPeers);
            return Ok(Bugs(Bug::ALL.into_iter().filter(is_simulated).collect()));
        }
        let names = || Bug::ALL.map(Bug::name).join(", ");
        text.parse::<Bug>().map(|bug| Bugs(vec![bug])).map_err(|error| format!("{error}; there are all, {}", names()))
    }
}

/// Looks for all bugs, one after the other. The result is valid if each bug was found.
pub async fn run(args: &Args, bugs: &Bugs) -> Result<Report> {
    if !COMPILED {
        bail!("this binary has no bugs to inject: build it with --features injected-bugs");
    }
    let mut found_bugs = Vec::new();
    for bug in &bugs.0 {
        let begun = Instant::now();
        let (seeds, found) = look_for(args, *bug).await?;
        let seconds = begun.elapsed().as_secs_f64();
        match &found {
            Some((seed, violation)) => eprintln!("{bug}: seed {seed} after {seconds:.1} s: {violation}"),
            None => eprintln!("{bug}: NOT FOUND by {seeds} seeds in {seconds:.1} s"),
        }
        let (seed, violation) = found.unzip();
        found_bugs.push(json!({"bug": bug.name(), "seed": seed, "violation": violation, "seconds": seconds}));
    }
    let valid = found_bugs.iter().all(|found| !found["seed"].is_null());
    Report::new(&json!({"valid": valid, "found_bugs": found_bugs}), valid)
}

/// Returns the number of seeds that ran, and the first seed that ended with a violation, with that violation.
async fn look_for(args: &Args, bug: Bug) -> Result<(u64, Option<(u64, String)>)> {
    let mut running = RunningSeeds::new(args, args.jobs_of_seeds().collect());
    running.bug = Some(bug.name().to_owned());
    let mut seeds = 0;
    while let Some((job, report)) = running.next().await? {
        seeds += 1;
        match report {
            Ok(report) => {
                if let Some(violation) = report.violations.into_iter().next() {
                    return Ok((seeds, Some((job.seed, violation))));
                }
            }
            // A simulation that does not reach its end says nothing about the bug.
            Err(error) => eprintln!("{bug}: seed {} gave no verdict: {error:#}", job.seed),
        }
    }
    Ok((seeds, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bugs_are_named_or_all() {
        assert_eq!("send-again".parse(), Ok(Bugs(vec![Bug::SendAgain])));
        assert_eq!("all".parse::<Bugs>().map(|bugs| bugs.0.len()), Ok(Bug::ALL.len() - 3));
        assert!("none".parse::<Bugs>().is_err());
    }
}
