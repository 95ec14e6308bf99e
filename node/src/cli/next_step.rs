//! The command to try next after an error of the API. The server names only facts: a reason, and the objects that the
//! error concerns.

use std::collections::HashMap;

use tonic_types::FieldViolation;

/// Returns the next step after an error with this reason. `facts` is the metadata of the error, as `errors.proto` lists
/// it.
pub fn of(reason: &str, facts: &HashMap<String, String>, violations: &[FieldViolation]) -> Option<String> {
    let fact = |key: &str| facts.get(key).map(String::as_str);
    of_object(reason, &fact).or_else(|| of_reason(reason, &fact, violations))
}

/// Returns the next step if the error names an object that the reason has a command for.
fn of_object<'f>(reason: &str, fact: &impl Fn(&str) -> Option<&'f str>) -> Option<String> {
    let show = shown(fact);
    Some(match (reason, fact("campaign"), fact("schedule")) {
        ("ALREADY_SENT", ..) => format!("{}; --again, if it is meant", show?),
        ("IN_USE", _, Some(name)) if fact("template").is_some() => {
            format!("reveille schedule update {name} --template OTHER, or delete it")
        }
        ("IN_USE", _, Some(name)) => format!("reveille schedule delete {name}"),
        ("IN_USE", Some(name), _) => {
            format!("reveille campaign delete {name}, a draft or once it is over or cancelled")
        }
        ("NO_CANARY_HELD", Some(name), _) => format!("reveille campaign resume {name}, without --without-canary"),
        ("CAMPAIGN_BLOCKED", Some(name), _) => format!("reveille campaign resume {name}"),
        ("NOT_LAUNCHED", Some(name), _) => format!("reveille campaign launch {name}"),
        ("INSTANT_PASSED", Some(name), _) => format!("reveille campaign launch {name} --at INSTANT"),
        ("RUN_OPEN", ..) => format!("reveille run watch {}", fact("run")?),
        ("LATER_DOUBT", ..) => format!("look again: reveille in-doubt list --run {}", fact("run")?),
        ("NO_RELAY", ..) => add_relay(fact("pool")?),
        ("MEMBER_SILENT", ..) => {
            format!("start it; or, if it never comes back: reveille cluster member remove {} --dead", fact("member")?)
        }
        ("MEMBER_RUNS", ..) => {
            format!("stop it, or drain it first: reveille cluster member remove {}", fact("member")?)
        }
        ("MEMBER_WAITS" | "OUTCOME_UNKNOWN", ..) => return None,
        _ => show?,
    })
}

/// Returns the command that shows the object that an error names.
fn shown<'f>(fact: &impl Fn(&str) -> Option<&'f str>) -> Option<String> {
    if let (Some(run), Some(recipient)) = (fact("run"), fact("recipient")) {
        return Some(format!("reveille explain {run} '{recipient}'"));
    }
    let commands = [
        ("run", "run show"),
        ("campaign", "campaign status"),
        ("schedule", "schedule show"),
        ("audience", "audience show"),
        ("template", "template show"),
        ("relay", "relay show"),
    ];
    let object = commands.iter().find_map(|(kind, command)| Some(format!("reveille {command} {}", fact(kind)?)));
    object.or_else(|| fact("member").map(|_| "reveille cluster member list".to_owned()))
}

/// Returns the flag that names a tenant, after a space; nothing for the default tenant.
pub fn tenant_flag(tenant: &str) -> String {
    if matches!(tenant, "" | "default") { String::new() } else { format!(" --tenant {tenant}") }
}

/// Returns the command that adds a relay to a pool.
pub fn add_relay(pool: &str) -> String {
    format!("reveille relay add NAME --pool {pool} --host HOST --port PORT --tls starttls")
}

/// Returns the next step of a reason.
fn of_reason<'f>(
    reason: &str,
    fact: &impl Fn(&str) -> Option<&'f str>,
    violations: &[FieldViolation],
) -> Option<String> {
    let stale = if fact("staleHelps").is_some() { "; --stale reads what this node knows" } else { "" };
    Some(match reason {
        "NO_LEADER" | "NO_QUORUM" => match fact("silentVoters") {
            Some(names) => format!("start {names} (reveille cluster status shows which nodes answer){stale}"),
            None => "reveille cluster status".to_owned() + stale,
        },
        "BUSY" => format!("the same again in a moment{stale}"),
        "CURSOR_TOO_OLD" => {
            let oldest = fact("index").unwrap_or("CURSOR");
            format!("read the state anew, and continue with --after {oldest}")
        }
        // `--at` names a single instant, and that is over.
        "NEVER_FIRES" if violations.iter().any(|one| one.field == "schedule.timing.at") => {
            "the same with --at and an instant to come, such as 2030-12-01T09:00:00+01:00".to_owned()
        }
        reason => fixed(reason)?.to_owned(),
    })
}

/// Returns the next step of a reason without facts.
fn fixed(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "SCHEDULE_NOT_FOUND" => "reveille schedule list",
        "RUN_NOT_FOUND" | "MESSAGE_NOT_FOUND" => "reveille run list",
        "ARCHIVE_LOST" => "reveille cluster archive-loss",
        "RECIPIENT_NOT_FOUND" => "reveille run show RUN",
        "RELAY_NOT_FOUND" => "reveille relay list",
        "TENANT_NOT_FOUND" => "reveille tenant list",
        "AUDIENCE_NOT_FOUND" => "reveille audience list",
        "CAMPAIGN_NOT_FOUND" => "reveille campaign list",
        "POOL_NOT_FOUND" => "reveille pool list",
        "TEMPLATE_NOT_FOUND" => "reveille template list",
        "TOKEN_NOT_FOUND" => "reveille token list",
        "TOKEN_NOT_VALID" => {
            "reveille login https://HOST:PORT with a token of an admin (reveille token create); if all are lost, on a \
             node: reveille token reset"
        }
        "NOT_PERMITTED" => {
            "reveille token show prints its roles and tenants; an admin of the cluster can create another token: \
             reveille token create --help"
        }
        "MEMBER_NOT_FOUND" => "reveille cluster member list",
        "NAME_TAKEN" => "choose another name, or remove what has it",
        "REQUEST_ID_REUSED" => "leave --request-id out: a new one is drawn",
        "ETAG_MISMATCH" => "read it again, and decide again",
        "NOT_INITIALIZED" => "the same in a few seconds",
        "UNIMPLEMENTED" | "NO_SUCH_CALL" => {
            "reveille version: the node may be older than this command; or --endpoint names its peer port"
        }
        "UNKNOWN_ZONE" => "give an IANA name, such as Europe/Berlin",
        "NEVER_FIRES" => "reveille schedule preview --cron EXPR --zone ZONE shows what a pattern gives",
        "INVALID_FIELD" | "TOO_LARGE" | "UNSUPPORTED_ENCODING" => {
            "correct it, and give the command again; its --help says what may be given"
        }
        "BODY_TIMED_OUT" => "the same again in a moment",
        "ARCHIVE_UNREADABLE" => "the same again, by another node: --endpoint; reveille doctor names what is damaged",
        "INTERNAL" => "report it, with the log of the node",
        "TIMED_OUT" => "a longer --timeout, or reveille cluster status",
        "NO_ROOM" => "free space on the volume of the node's data folder, or ask another node: --endpoint a,b,c",
        "SHARE_USED" => "the same again when others of this token are done, or ask another node: --endpoint a,b,c",
        "STOPPING" => "ask another node: --endpoint a,b,c",
        "OUTCOME_UNKNOWN" => "the same command with the same --request-id: it happens once",
        "NO_RELAY" => "reveille relay add --help",
        "IN_USE" | "ALREADY_SENT" | "RUN_OPEN" => "look at what the message names (`show`)",
        "CANARY_HELD" => {
            "reveille dead-letter list names the failed recipients; then the same with --without-canary, or cancel it"
        }
        "NO_CANARY_HELD" => "the same without --without-canary",
        "CAMPAIGN_BLOCKED" | "NOT_LAUNCHED" => "reveille campaign list",
        "INSTANT_PASSED" => "give a later instant",
        "LATER_DOUBT" => "reveille in-doubt list",
        "RESTORE_NOT_ACCEPTED" => "reveille restore status, then reveille restore accept",
        "CLOCKS_DISAGREE" => "reveille cluster status",
        "NO_TEST_CLOCK" => "reveille dev --test-clock --data-dir DIR, or reveille cluster init --test-clock",
        "MEMBER_SILENT" => "start it; or, if it never comes back, remove it with --dead",
        "MEMBER_RUNS" => "stop it, or drain it first: the same without --dead",
        "MEMBER_WAITS" => "the same command again in a few seconds: it continues where it was",
        "NO_BACKUP" => "the same again; reveille backup verify says whether a former backup is whole",
        "INSIDE_GAP" => "the message says from when on; reveille run list names the runs that sent",
        "SCHEDULE_NOT_ACTIVE" => "reveille schedule show says why; reveille schedule resume ends a pause",
        "RUN_STATE" => "reveille run show",
        "CONCURRENT_CHANGE" => "the same again",
        "NOTHING_TO_DO" | "RECIPIENT_STATE" => "look at what the message names (`show`)",
        "CAMPAIGN_STATE" | "OF_CAMPAIGN" => "reveille campaign list",
        "TOO_FEW_MEMBERS" => "start a node, or admit another: reveille cluster member add",
        "UPGRADE_NOT_FINISHED" => "reveille cluster upgrade status names the nodes",
        "NO_AUTHORITY" => "reveille cluster init makes a cluster with certificates",
        "UNFIT_CONTENT" => "change the content or the audience: reveille campaign create --help",
        "PARTS_MISSING" => "the same import again: it sends what is missing",
        "FILE_UNREADABLE" => "the same again, by another node: --endpoint",
        "NOT_POSSIBLE" => "look at its state (`show`) or at the cluster's: reveille doctor",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(reason: &str, facts: &[(&str, &str)]) -> String {
        let facts = facts.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        of(reason, &facts, &[]).expect("a next step")
    }

    #[test]
    fn object_that_an_error_names_is_in_the_command() {
        let spring = [("campaign", "spring")];
        for (reason, facts, expected) in [
            ("NAME_TAKEN", &spring[..], "reveille campaign status spring"),
            ("SCHEDULE_NOT_FOUND", &spring, "reveille campaign status spring"),
            ("NOT_POSSIBLE", &spring, "reveille campaign status spring"),
            ("NOT_LAUNCHED", &spring, "reveille campaign launch spring"),
            ("CAMPAIGN_BLOCKED", &spring, "reveille campaign resume spring"),
            ("INSTANT_PASSED", &spring, "reveille campaign launch spring --at INSTANT"),
            ("ALREADY_SENT", &spring, "reveille campaign status spring; --again, if it is meant"),
            ("IN_USE", &spring, "reveille campaign delete spring, a draft or once it is over or cancelled"),
            ("IN_USE", &[("schedule", "daily")], "reveille schedule delete daily"),
            (
                "IN_USE",
                &[("schedule", "daily"), ("template", "welcome")],
                "reveille schedule update daily --template OTHER, or delete it",
            ),
            ("ETAG_MISMATCH", &[("schedule", "daily")], "reveille schedule show daily"),
            ("NOT_POSSIBLE", &[("run", "r1.0")], "reveille run show r1.0"),
            ("NOT_POSSIBLE", &[("run", "r1.0"), ("recipient", "#0")], "reveille explain r1.0 '#0'"),
            ("RUN_OPEN", &[("run", "r1.0")], "reveille run watch r1.0"),
            ("LATER_DOUBT", &[("run", "r1.0")], "look again: reveille in-doubt list --run r1.0"),
            ("MEMBER_WAITS", &[("member", "b")], "the same command again in a few seconds: it continues where it was"),
            (
                "NO_RELAY",
                &[("pool", "bulk")],
                "reveille relay add NAME --pool bulk --host HOST --port PORT --tls starttls",
            ),
            ("CURSOR_TOO_OLD", &[("index", "7")], "read the state anew, and continue with --after 7"),
        ] {
            assert_eq!(next(reason, facts), expected, "{reason}");
        }
    }

    #[test]
    fn silent_voters_are_to_be_started_and_only_a_read_suggests_stale() {
        let silent = ("silentVoters", "b, c");
        let start = "start b, c (reveille cluster status shows which nodes answer)";
        assert_eq!(next("NO_QUORUM", &[silent]), start);
        let stale = "; --stale reads what this node knows";
        assert_eq!(next("NO_QUORUM", &[silent, ("staleHelps", "true")]), format!("{start}{stale}"));
        assert_eq!(next("NO_LEADER", &[("staleHelps", "true")]), "reveille cluster status".to_owned() + stale);
        assert_eq!(next("NO_LEADER", &[]), "reveille cluster status");
    }
}
