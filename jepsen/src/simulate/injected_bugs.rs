//! `simulate --inject`: a judge that cannot find a bug proves nothing by finding none. Injects one, and looks for the
//! first seed that finds it.

use std::str::FromStr;
use std::time::Instant;

use anyhow::{Result, bail};
use reveille_harness::Report;
use reveille_simulation::injected_bugs::{Bug, COMPILED};
use serde::Serialize;

use super::{Args, Several};

/// The bugs to inject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bugs(Vec<Bug>);

impl FromStr for Bugs {
    type Err = String;

    fn from_str(text: &str) -> Result<Bugs, String> {
        if text == "all" {
            return Ok(Bugs(Bug::ALL.to_vec()));
        }
        let names = || Bug::ALL.map(Bug::name).join(", ");
        text.parse::<Bug>().map(|bug| Bugs(vec![bug])).map_err(|error| format!("{error}; there are all, {}", names()))
    }
}

/// What came of one.
#[derive(Debug, Serialize)]
struct Found {
    bug: &'static str,
    /// The first seed, in the order in which they ended, that found it; null: none did.
    seed: Option<u64>,
    /// What that seed said first.
    said: Option<String>,
    /// Seeds that ran until then, and their virtual time together.
    seeds: u64,
    /// Of them, those that came to no end of their own: they say nothing.
    without_verdict: u64,
    virtual_minutes: f64,
    /// Real time until then.
    seconds: f64,
}

/// The last line.
#[derive(Debug, Serialize)]
struct Summary {
    /// Each was found.
    valid: bool,
    found_bugs: Vec<Found>,
}

/// One after the other.
pub async fn run(args: &Args, bugs: &Bugs) -> Result<Report> {
    if !COMPILED {
        bail!("this binary has no bugs to inject: build it with --features injected-bugs");
    }
    let mut found_bugs = Vec::new();
    for bug in &bugs.0 {
        let found = look_for(args, *bug).await?;
        match (&found.seed, &found.said) {
            (Some(seed), Some(said)) => eprintln!("{bug}: seed {seed} after {:.1} s: {said}", found.seconds),
            _ => eprintln!("{bug}: NOT FOUND by {} seeds in {:.1} s", found.seeds, found.seconds),
        }
        found_bugs.push(found);
    }
    let summary = Summary { valid: found_bugs.iter().all(|found| found.seed.is_some()), found_bugs };
    Report::new(&summary, summary.valid)
}

async fn look_for(args: &Args, bug: Bug) -> Result<Found> {
    let begun = Instant::now();
    let mut several = Several::new(args, args.jobs_of_seeds().collect());
    several.bug = Some(bug.name().to_owned());
    let mut found = Found {
        bug: bug.name(),
        seed: None,
        said: None,
        seeds: 0,
        without_verdict: 0,
        virtual_minutes: 0.0,
        seconds: 0.0,
    };
    while let Some((job, line, _)) = several.next().await? {
        found.seeds += 1;
        let line = match line {
            Ok(line) => line,
            // It says nothing about the bug: whatever ends the simulation finds anything.
            Err(error) => {
                eprintln!("{bug}: seed {} gave no verdict: {error:#}", job.seed);
                found.without_verdict += 1;
                continue;
            }
        };
        found.virtual_minutes += line.virtual_seconds / 60.0;
        if let Some(said) = line.violations.into_iter().next() {
            (found.seed, found.said) = (Some(job.seed), Some(said));
            break;
        }
    }
    found.seconds = begun.elapsed().as_secs_f64();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bugs_are_named_or_all() {
        assert_eq!("send-again".parse(), Ok(Bugs(vec![Bug::SendAgain])));
        assert_eq!("all".parse::<Bugs>().map(|bugs| bugs.0.len()), Ok(Bug::ALL.len()));
        assert!("none".parse::<Bugs>().is_err());
    }
}
