//! Parses fault plans; the grammar is documented at [`FaultPlan`]. An error names the part that is wrong.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::faults::{Amount, FaultKind, FaultPlan, FaultRule, FaultStage};

/// Every stage with its name, in the order of a dialogue.
const STAGES: [(FaultStage, &str); 11] = [
    (FaultStage::Connect, "connect"),
    (FaultStage::Banner, "banner"),
    (FaultStage::Ehlo, "ehlo"),
    (FaultStage::Mail, "mail"),
    (FaultStage::Rcpt, "rcpt"),
    (FaultStage::Data, "data"),
    (FaultStage::Body, "body"),
    (FaultStage::BeforeCommit, "before-commit"),
    (FaultStage::AfterCommit, "after-commit"),
    (FaultStage::Answer, "answer"),
    (FaultStage::Between, "between"),
];

/// Error of a fault plan: the wrong item between two commas, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("fault plan, in `{part}`: {reason}")]
pub struct FaultSpecError {
    part: String,
    reason: String,
}

impl FromStr for FaultPlan {
    type Err = FaultSpecError;

    fn from_str(spec: &str) -> Result<Self, Self::Err> {
        let mut plan = Self::default();
        for part in spec.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            read_part(part, &mut plan).map_err(|reason| FaultSpecError { part: part.to_owned(), reason })?;
        }
        Ok(plan)
    }
}

fn read_part(part: &str, plan: &mut FaultPlan) -> Result<(), String> {
    if let Some(seed) = part.strip_prefix("seed=") {
        plan.seed = seed.parse().map_err(|_| format!("`{seed}` is no seed: a whole number below 2^64 is"))?;
        return Ok(());
    }
    let (stage, rest) =
        part.split_once(':').ok_or("expected `seed=N` or `STAGE:KIND`, with `@RATE` or `#COUNT` behind it")?;
    let stage: FaultStage = stage.parse()?;
    let (kind, amount) = read_amount(rest)?;
    let parsed: FaultKind = kind.parse()?;
    if !stage.fits(&parsed) {
        return Err(format!("`{kind}` cannot strike at `{stage}`"));
    }
    plan.rules.push(FaultRule { stage, kind: parsed, amount });
    Ok(())
}

fn read_amount(rest: &str) -> Result<(&str, Amount), String> {
    let Some(mark) = rest.rfind(['@', '#']) else {
        return Ok((rest, Amount::Rate(1.0)));
    };
    let (kind, amount) = rest.split_at(mark);
    if let Some(rate) = amount.strip_prefix('@') {
        let wrong = || format!("`{rate}` is no rate: a number from 0 to 1 is");
        let share: f64 = rate.parse().map_err(|_| wrong())?;
        return if (0.0..=1.0).contains(&share) { Ok((kind, Amount::Rate(share))) } else { Err(wrong()) };
    }
    let count = amount.trim_start_matches('#');
    match count.parse() {
        Ok(next) if next > 0 => Ok((kind, Amount::Next(next))),
        _ => Err(format!("`{count}` is no count: a whole number from 1 to 4294967295 is")),
    }
}

impl FromStr for FaultStage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let stage = STAGES.into_iter().find(|(_, name)| *name == text);
        let names = || STAGES.map(|(_, name)| name).join(", ");
        stage.map(|(stage, _)| stage).ok_or_else(|| format!("`{text}` is no stage: {} are", names()))
    }
}

impl FromStr for FaultKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let wrong = || format!("`{}` is no value for this kind", value.unwrap_or_default());
        match (name, value) {
            ("close", None) => Ok(Self::Close),
            ("reset", None) => Ok(Self::Reset),
            ("bare", None) => Ok(Self::Bare),
            ("stall", None) => Ok(Self::Stall(None)),
            ("stall", Some(text)) => duration(text).map(|length| Self::Stall(Some(length))).ok_or_else(wrong),
            ("huge", None) => Ok(Self::Huge { bytes: Self::HUGE_BYTES }),
            ("huge", Some(text)) => match text.parse() {
                Ok(bytes @ 1..=Self::MAX_HUGE_BYTES) => Ok(Self::Huge { bytes }),
                _ => Err(wrong()),
            },
            ("close-after", Some(text)) => match text.parse() {
                Ok(emails @ 1..) => Ok(Self::CloseAfter { emails }),
                _ => Err(wrong()),
            },
            _ => match name.parse() {
                Ok(code @ 400..=599) => reply_text(value).map(|text| Self::Refuse { code, text }).ok_or_else(wrong),
                _ => Err(format!(
                    "`{text}` is no kind: a code from 400 to 599, close, reset, stall, huge, bare, close-after are"
                )),
            },
        }
    }
}

/// Returns the text of a refusal. The outer `None` means that a reply line or a plan cannot contain it.
fn reply_text(value: Option<&str>) -> Option<Option<String>> {
    let Some(text) = value else { return Some(None) };
    let fine = (1..=FaultKind::MAX_TEXT_BYTES).contains(&text.len())
        && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
        && !text.contains(['@', '#']);
    fine.then(|| Some(text.to_owned()))
}

fn duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|character: char| !character.is_ascii_digit())?;
    let (digits, unit) = text.split_at(unit_at);
    let count: u32 = digits.parse().ok()?;
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    Some(Duration::from_millis(u64::from(count) * unit_ms))
}

impl fmt::Display for FaultStage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = STAGES.iter().find(|(stage, _)| stage == self);
        formatter.write_str(named.map_or("", |(_, name)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_is_read_from_text() {
        let spec = "seed=7,rcpt:450@0.05,mail:454=4.7.0 too fast: Daily quota@0.2,after-commit:close#3,\
                    answer:bare,banner:huge=4096,between:close-after=20,body:stall=2m,data:stall,connect:reset";
        let plan: FaultPlan = spec.parse().unwrap();
        assert_eq!(plan.seed, 7);
        assert_eq!(plan.rules.len(), 9);
        assert_eq!(
            plan.rules[2],
            FaultRule { stage: FaultStage::AfterCommit, kind: FaultKind::Close, amount: Amount::Next(3) }
        );
        assert_eq!(plan.rules[6].kind, FaultKind::Stall(Some(Duration::from_secs(120))));
        assert_eq!("".parse::<FaultPlan>().unwrap(), FaultPlan::default());
    }

    #[test]
    fn error_names_part_and_reason() {
        let error = |spec: &str| spec.parse::<FaultPlan>().unwrap_err().to_string();
        for (spec, expected) in [
            ("rcpt:450,mall:450", "fault plan, in `mall:450`: `mall` is no stage"),
            ("rcpt:250", "`250` is no kind"),
            ("rcpt:450@1.5", "in `rcpt:450@1.5`: `1.5` is no rate"),
            ("rcpt:450@nan", "`nan` is no rate"),
            ("rcpt:450#0", "`0` is no count"),
            ("rcpt", "expected `seed=N` or `STAGE:KIND`"),
            ("seed=x", "`x` is no seed"),
            ("after-commit:450", "`450` cannot strike at `after-commit`"),
            ("mail:huge", "`huge` cannot strike at `mail`"),
            ("data:stall=5", "`5` is no value for this kind"),
            ("between:close-after=0", "`0` is no value"),
            ("rcpt:550=a@b@1", "`a@b` is no value"),
        ] {
            assert!(error(spec).contains(expected), "{spec}: {}", error(spec));
        }
    }
}
