//! `runs`: adds up a file of last lines, as `--append` of `run`, `crash-points` and `simulate` writes it.
//!
//! Valid and invalid lines are added up apart, since what an invalid run saw proves nothing; and so are the policies for
//! emails in doubt, since duplicates under `resend` are by choice.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use reveille_harness::Report;
use serde_json::{Map, Value, json};

/// Options of `runs`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// What `--append` wrote: one JSON object a line
    pub file: PathBuf,
}

/// The fields that are added up. Of an object each number in it is.
const FIELDS: [&str; 14] = [
    "accepted",
    "cpu_seconds",
    "duplicates",
    "duplicates_decided",
    "ends",
    "fault_seconds",
    "faults",
    "figures",
    "in_doubt",
    "in_doubt_arrived",
    "lost",
    "points",
    "seeds",
    "virtual_hours",
];

/// Reads the file. The result is valid if every line is.
pub fn run(args: &Args) -> Result<Report> {
    let name = args.file.display();
    let text = std::fs::read_to_string(&args.file).with_context(|| name.to_string())?;
    let lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| serde_json::from_str(line).with_context(|| format!("{name}, line {}", index + 1)));
    let lines: Vec<Value> = lines.collect::<Result<_>>()?;
    Report::new(&sums(&lines), !lines.is_empty() && lines.iter().all(|line| line["valid"] == true))
}

/// The sums by validity and policy.
fn sums(lines: &[Value]) -> BTreeMap<String, Map<String, Value>> {
    let mut sums: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for line in lines {
        let policy = line["in_doubt_policy"].as_str().unwrap_or("any policy");
        let sum = sums.entry(format!("{policy}, {}", if line["valid"] == true { "valid" } else { "not valid" }));
        let sum = sum.or_default();
        add(sum.entry("lines").or_insert(0.into()), &1.into());
        for field in FIELDS.into_iter().filter(|field| !line[*field].is_null()) {
            add(sum.entry(field).or_insert(json!(null)), &line[field]);
        }
    }
    sums
}

fn add(to: &mut Value, more: &Value) {
    match more {
        Value::Object(more) => {
            if !to.is_object() {
                *to = json!({});
            }
            more.iter().for_each(|(name, value)| add(&mut to[name], value));
        }
        _ => match (to.as_u64().or(to.is_null().then_some(0)), more.as_u64()) {
            (Some(sum), Some(more)) => *to = (sum + more).into(),
            _ => *to = (to.as_f64().unwrap_or(0.0) + more.as_f64().unwrap_or(0.0)).into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_invalid_lines_and_policies_apart() {
        let line = |valid: bool, policy: &str, lost: u64| {
            json!({"seed": 7, "valid": valid, "in_doubt_policy": policy, "lost": lost, "virtual_hours": 0.5,
                   "faults": {"kill": {"installed": 4, "note": "words"}}})
        };
        let sums =
            sums(&[line(true, "hold", 0), line(true, "hold", 0), line(false, "hold", 1), line(true, "resend", 0)]);
        let all: Vec<(&str, &Value)> = sums.iter().map(|(name, sum)| (name.as_str(), &sum["lost"])).collect();
        let zero = json!(0);
        assert_eq!(all, [("hold, not valid", &json!(1)), ("hold, valid", &zero), ("resend, valid", &zero)]);
        let hold = &sums["hold, valid"];
        assert_eq!((&hold["lines"], &hold["virtual_hours"]), (&json!(2), &json!(1.0)));
        assert_eq!((&hold["faults"]["kill"]["installed"], hold.get("seed")), (&json!(8), None));
    }

    #[test]
    fn recorded_lines_can_be_added_up() {
        for name in ["runs", "crash-points", "simulations"] {
            let file = format!("{}/../docs/reliability/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
            assert!(run(&Args { file: file.into() }).unwrap().line.contains("duplicates"), "{name}");
        }
    }
}
