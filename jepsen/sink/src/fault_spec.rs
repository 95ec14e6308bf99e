//! Parses fault plans, whose grammar is documented at [`FaultPlan`]. An error names the wrong item.

use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize as _;
use serde::de::value::{Error as ValueError, StrDeserializer};

use crate::faults::{Amount, FaultKind, FaultPlan, FaultRule, FaultStage};

/// Error of a fault plan: the wrong item between two commas.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no item of a fault plan, or its kind does not fit its stage")]
pub struct FaultSpecError(String);

impl FromStr for FaultPlan {
    type Err = FaultSpecError;

    fn from_str(spec: &str) -> Result<Self, Self::Err> {
        let mut plan = Self::default();
        for item in spec.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            read_item(item, &mut plan).ok_or_else(|| FaultSpecError(item.to_owned()))?;
        }
        Ok(plan)
    }
}

fn read_item(item: &str, plan: &mut FaultPlan) -> Option<()> {
    if let Some(seed) = item.strip_prefix("seed=") {
        plan.seed = seed.parse().ok()?;
        return Some(());
    }
    let (stage, rest) = item.split_once(':')?;
    let stage = FaultStage::deserialize(StrDeserializer::<ValueError>::new(stage)).ok()?;
    let (kind, amount) = read_amount(rest)?;
    let kind = read_kind(kind).filter(|kind| stage.fits(kind))?;
    plan.rules.push(FaultRule { stage, kind, amount });
    Some(())
}

fn read_amount(rest: &str) -> Option<(&str, Amount)> {
    let Some(mark) = rest.rfind(['@', '#']) else { return Some((rest, Amount::Rate(1.0))) };
    let (kind, amount) = rest.split_at(mark);
    let amount = match amount.split_at(1) {
        ("@", rate) => Amount::Rate(rate.parse().ok().filter(|rate| (0.0..=1.0).contains(rate))?),
        (_, count) => Amount::Next(count.parse().ok().filter(|count| *count > 0)?),
    };
    Some((kind, amount))
}

fn read_kind(text: &str) -> Option<FaultKind> {
    let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
    let kind = match (name, value) {
        ("close", None) => FaultKind::Close,
        ("reset", None) => FaultKind::Reset,
        ("bare", None) => FaultKind::Bare,
        ("stall", None) => FaultKind::Stall(None),
        ("stall", Some(text)) => FaultKind::Stall(Some(duration(text)?)),
        ("huge", None) => FaultKind::Huge { bytes: FaultKind::HUGE_BYTES },
        ("huge", Some(text)) => {
            let bytes = text.parse().ok().filter(|bytes| (1..=FaultKind::MAX_HUGE_BYTES).contains(bytes))?;
            FaultKind::Huge { bytes }
        }
        ("close-after", Some(text)) => {
            FaultKind::CloseAfter { emails: text.parse().ok().filter(|emails| *emails > 0)? }
        }
        _ => {
            let code = name.parse().ok().filter(|code| (400..=599).contains(code))?;
            let text = value.map(str::to_owned);
            text.as_deref().is_none_or(is_reply_text).then_some(FaultKind::Refuse { code, text })?
        }
    };
    Some(kind)
}

/// Returns true if a reply line and a plan can contain this text.
fn is_reply_text(text: &str) -> bool {
    (1..=FaultKind::MAX_TEXT_BYTES).contains(&text.len())
        && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
        && !text.contains(['@', '#'])
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
    fn wrong_item_is_named() {
        for wrong in [
            "mall:450",
            "rcpt:250",
            "rcpt:450@1.5",
            "rcpt:450@nan",
            "rcpt:450#0",
            "rcpt",
            "seed=x",
            "after-commit:450",
            "mail:huge",
            "data:stall=5",
            "between:close-after=0",
            "rcpt:550=a@b@1",
        ] {
            let error = format!("rcpt:450,{wrong}").parse::<FaultPlan>().unwrap_err();
            assert_eq!(error, FaultSpecError(wrong.to_owned()));
        }
    }
}
