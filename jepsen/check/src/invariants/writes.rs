//! I7: acknowledged writes of administrators remain, and deleted objects do not come back. Repeated calls with one
//! request id have one answer. Versions of templates and sealed audiences never change, and clients wrote each version.
//!
//! Each object is a register (`registers.rs`). Its final value must be that of a write that was, or may have been, done
//! and that no later write replaced. A read must return the value of a write that was done or in progress, and never a
//! value that an earlier read showed as replaced.

use std::collections::HashMap;

use super::registers::{Key, Read, ReadError, Register, registers};
use crate::events::{Answer, Call, ObjectKind, Operation};
use crate::history::History;
use crate::verdict::Findings;

/// I7: acknowledged writes remain.
pub fn survive(history: &History, findings: &mut Findings) {
    report_different_answers(history, findings);
    report_changed_constants(history, findings);
    if !history.is_whole() {
        return;
    }
    let found = history.found.iter();
    let found = found.map(|found| ((found.kind, found.tenant.as_str(), found.name.as_str()), found.value.as_str()));
    let found: HashMap<Key, &str> = found.collect();
    let registers = registers(history);
    let is_unwritten = |key: &Key| key.0 == ObjectKind::TemplateVersion && !registers.contains_key(key);
    for ((_, tenant, name), value) in found.iter().filter(|(key, _)| is_unwritten(key)) {
        findings
            .violation(|| format!("a template of {tenant} has the version {name} ('{value}'), which no client wrote"));
    }
    for (key, register) in registers {
        for (read, wrong) in register.wrong_reads() {
            findings.violation(|| describe_read(key, &read, wrong));
        }
        report_wrong_end(key, &register, found.get(&key).copied(), findings);
    }
}

fn report_wrong_end((kind, tenant, name): Key, register: &Register, held: Option<&str>, findings: &mut Findings) {
    if register.is_written() && !register.may_hold(held) {
        let (held, last) = (quoted(held), quoted(register.last_answered()));
        findings.violation(|| format!("{kind:?} {tenant}/{name} holds {held}; the last answered write: {last}"));
    }
}

fn describe_read((kind, tenant, name): Key, read: &Read, wrong: ReadError) -> String {
    let (client, value, at_s) = (read.client, quoted(read.value), read.invoked_ns as f64 / 1e9);
    let why = match wrong {
        ReadError::NeverWritten => "no client had written that value",
        ReadError::Stale => "another value replaced it before the read began",
        ReadError::WentBack => "a later read returned the earlier value again",
    };
    format!("{client} read at {at_s:.3} s that {kind:?} {tenant}/{name} holds {value}, but {why}")
}

fn quoted(value: Option<&str>) -> String {
    value.map_or("nothing".to_owned(), |value| format!("'{value}'"))
}

/// Calls with one request id must have equal answers, and the same body.
fn report_different_answers(history: &History, findings: &mut Findings) {
    let mut first: HashMap<&str, &Call> = HashMap::new();
    for call in history.calls.iter().filter(|call| matches!(call.answer, Answer::Ok { .. })) {
        let Some(id) = call.request_id.as_deref() else { continue };
        let before = *first.entry(id).or_insert(call);
        if before.operation != call.operation {
            findings.violation(|| format!("request {id} was answered to two different bodies"));
        } else if !is_same(&before.answer, &call.answer) {
            findings.violation(|| format!("request {id} was answered twice, and differently"));
        }
    }
}

/// Reports objects that never change, and were written with two values.
fn report_changed_constants(history: &History, findings: &mut Findings) {
    let mut first: HashMap<Key, &str> = HashMap::new();
    for call in history.calls.iter().filter(|call| matches!(call.answer, Answer::Ok { .. })) {
        let Operation::Write { kind, tenant, name, value: Some(value) } = &call.operation else { continue };
        let before = *first.entry((*kind, tenant, name)).or_insert(value);
        if matches!(kind, ObjectKind::TemplateVersion | ObjectKind::Audience) && before != value {
            findings.violation(|| format!("{kind:?} {tenant}/{name} was written as '{before}' and as '{value}'"));
        }
    }
}

fn is_same(left: &Answer, right: &Answer) -> bool {
    match (left, right) {
        (Answer::Ok { index, run, .. }, Answer::Ok { index: other_index, run: other_run, .. }) => {
            (index, run) == (other_index, other_run)
        }
        _ => false,
    }
}
