//! A judge that finds nothing proves something only if it can find something. Eleven of the injected bugs: the two that
//! a seed finds soonest, that of the archive, and those that only the invariants I16 to I19 find. All of them are
//! `reveille-jepsen simulate --inject all --seeds 0..20`.
//!
//! Only in a build that has them: `cargo test --workspace --features injected-bugs --test jepsen injected_bugs`.

use std::process::Command;

fn is_found(bug: &str) {
    is_found_in(bug, "0..6");
}

fn is_found_in(bug: &str, seeds: &str) {
    let arguments = ["simulate", "--inject", bug, "--seeds", seeds, "--minutes", "8"];
    let output = Command::new(env!("CARGO_BIN_EXE_reveille-jepsen")).args(arguments).output().expect("the binary runs");
    let said = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{bug} was not found: {said:?}");
}

#[test]
fn another_fence_is_found() {
    is_found("another-fence");
}

#[test]
fn journal_after_act_is_found() {
    is_found("journal-after-act");
}

#[test]
fn swapped_contents_are_found() {
    is_found("swap-contents");
}

#[test]
fn missing_election_is_found() {
    is_found("no-election");
}

#[test]
fn exceeded_budget_is_found() {
    is_found("whole-budget");
}

#[test]
fn missing_warm_up_cap_is_found() {
    is_found("no-warm-up-cap");
}

#[test]
fn missing_tenant_rate_is_found() {
    is_found("no-tenant-rate");
}

#[test]
fn missing_min_gap_is_found() {
    is_found("no-min-gap");
}

#[test]
fn missing_max_attempts_is_found() {
    is_found("no-max-attempts");
}

#[test]
fn claim_without_handoff_is_found() {
    is_found("idle-claim");
}

#[test]
fn archive_of_doubts_is_found() {
    // Few journals return with evidence about doubts that are older than the archive's window.
    is_found_in("early-archive", "10..11");
}
