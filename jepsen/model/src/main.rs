//! `cargo run --release -p reveille-model -- --recipients 2`: a search larger than the tests'.
//!
//! Prints the number of states and every property's verdict, and the steps of each counterexample.
//! Ends with 1 if a property falls, with 2 if the clock cut the search: unknown is not a pass. A place
//! that was not reached is named, because a search that does not get there says nothing about it;
//! small sizes do not get everywhere.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use reveille_model::run::{InDoubt, Policies};
use reveille_model::{Broken, Protocol, Replay, Sizes};
use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};

/// Searches every state of the sending protocol, up to the given sizes.
#[derive(Parser)]
struct Arguments {
    /// Recipients of the run, 1 to 8
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    recipients: u8,
    /// Claim rows
    #[arg(long, default_value_t = 1)]
    claims: u8,
    /// Elections after the opening one
    #[arg(long, default_value_t = 1)]
    elections: u8,
    /// Kills of a process (the journal survives)
    #[arg(long, default_value_t = 1)]
    kills: u8,
    /// Power cuts of a node (the journal is gone)
    #[arg(long, default_value_t = 0)]
    power_cuts: u8,
    /// Definite refusals by the relay
    #[arg(long, default_value_t = 0)]
    refusals: u8,
    /// Opt-out entries, repeats included
    #[arg(long, default_value_t = 1)]
    opt_outs: u8,
    /// Pauses of the run
    #[arg(long, default_value_t = 0)]
    pauses: u8,
    /// Resumes of it
    #[arg(long, default_value_t = 0)]
    resumes: u8,
    /// Cancels of it, repeats included
    #[arg(long, default_value_t = 0)]
    cancels: u8,
    /// Decisions of operators about a recipient in doubt
    #[arg(long, default_value_t = 0)]
    decisions: u8,
    /// Dead recipients that operators send again
    #[arg(long, default_value_t = 0)]
    requeues: u8,
    /// The latest instant of ledger time; 0: it stands still
    #[arg(long, default_value_t = 0)]
    until: u8,
    /// The run's deadline, counted from its opening, and again from when it is opened again
    #[arg(long, default_value_t = Policies::DEFAULT.finish_by)]
    finish_by: u8,
    /// Attempts about the mailbox before a recipient is dead
    #[arg(long, default_value_t = Policies::DEFAULT.max_attempts, value_parser = clap::value_parser!(u8).range(1..))]
    max_attempts: u8,
    /// The policy for who is in doubt
    #[arg(long, default_value = "hold", value_parser = in_doubt)]
    in_doubt: InDoubt,
    /// A new life applies every entry again, instead of starting from what is committed
    #[arg(long)]
    replay: bool,
    /// A rule to leave out, by its name in the code (`LeaseFromApply`)
    #[arg(long, value_parser = |name: &str| Broken::named(name).ok_or("no rule of that name"))]
    without: Option<Broken>,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Stop after so many seconds; what was not reached by then is unknown
    #[arg(long)]
    seconds: Option<u64>,
}

fn in_doubt(word: &str) -> Result<InDoubt, &'static str> {
    match word {
        "hold" => Ok(InDoubt::Hold),
        "resend" => Ok(InDoubt::Resend),
        "assume_sent" => Ok(InDoubt::AssumeSent),
        _ => Err("hold, resend or assume_sent"),
    }
}

impl Arguments {
    fn protocol(&self) -> Protocol {
        let sizes = Sizes {
            recipients: self.recipients,
            claims: self.claims,
            elections: self.elections,
            kills: self.kills,
            power_cuts: self.power_cuts,
            refusals: self.refusals,
            opt_outs: self.opt_outs,
            pauses: self.pauses,
            resumes: self.resumes,
            cancels: self.cancels,
            decisions: self.decisions,
            requeues: self.requeues,
            until: self.until,
            policies: Policies { in_doubt: self.in_doubt, max_attempts: self.max_attempts, finish_by: self.finish_by },
            replay: if self.replay { Replay::Everything } else { Replay::Nothing },
        };
        self.without.map_or(Protocol::sound(sizes), |broken| Protocol::without(broken, sizes))
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let protocol = arguments.protocol();
    let started = Instant::now();
    let mut builder = protocol.checker().threads(arguments.threads).finish_when(HasDiscoveries::AnyFailures);
    if let Some(seconds) = arguments.seconds {
        builder = builder.timeout(Duration::from_secs(seconds));
    }
    let checker = builder.spawn_bfs().join();
    let elapsed = started.elapsed();
    println!("{:?}", protocol.sizes);
    println!(
        "{} states, {} steps, depth {}, {:.1} s",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        elapsed.as_secs_f64()
    );
    let was_cut = arguments.seconds.is_some_and(|seconds| elapsed >= Duration::from_secs(seconds));
    report(&protocol, &checker, was_cut)
}

/// Prints a verdict for each property. After a fall, or when the clock cut the search, the rest is
/// unknown: not all states were seen.
fn report(protocol: &Protocol, checker: &impl Checker<Protocol>, was_cut: bool) -> ExitCode {
    let discoveries = checker.discoveries();
    let (always, places): (Vec<_>, Vec<_>) =
        protocol.properties().into_iter().partition(|property| property.expectation == Expectation::Always);
    let falls = always.iter().any(|property| discoveries.contains_key(property.name));
    let otherwise = if falls || was_cut { "unknown" } else { "holds" };
    for property in always {
        let path = discoveries.get(property.name);
        println!("{:>11}  {}", path.map_or(otherwise, |_| "FALLS"), property.name);
        for action in path.cloned().map(Path::into_actions).unwrap_or_default() {
            println!("{:15}{action:?}", "");
        }
    }
    for place in places {
        let verdict = if discoveries.contains_key(place.name) { "reached" } else { "not reached" };
        println!("{verdict:>11}  {}", place.name);
    }
    match (falls, was_cut) {
        (true, _) => ExitCode::from(1),
        (false, true) => ExitCode::from(2),
        (false, false) => ExitCode::SUCCESS,
    }
}
