//! Transcripts: commands to the ledger, and its recorded reaction under each command.
//!
//! The files in `tests/scripts` are the specification, one family of rules in each. The output of a script is the
//! reply, the effects, and each visible change of the state. The invariants are checked after each entry, and each
//! entry is encoded and decoded. `UPDATE_GOLDENFILES=1 cargo test -p reveille-ledger --test ledger transcripts` records
//! them again; read the difference before you keep it.

mod arguments;
mod entries;
mod reaction;
mod recipients;
mod show;
mod test_ledger;

use test_ledger::TestLedger;

macro_rules! scripts {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            let path = concat!("tests/scripts/", stringify!($name), ".txt");
            goldenscript::run(&mut TestLedger::new(), path).expect(path);
        })*

        #[test]
        fn every_script_is_run() {
            let listed = [$(concat!(stringify!($name), ".txt")),*];
            for file in std::fs::read_dir("tests/scripts").expect("tests/scripts") {
                let name = file.expect("a file").file_name().into_string().expect("a plain name");
                assert!(listed.contains(&name.as_str()), "{name} is run by no test");
            }
        }
    };
}

scripts! {
    accounting_p1
    again_p20
    attachments_p20
    audience_p20
    backfill_p7
    barrier_state_p15
    bounce_breaker_p6
    campaign_p7
    canary_p6
    catch_up_p16
    claim_p4
    create_several
    dead_letters
    crashes_p12
    decisions
    deferrals_p6
    edit_p8
    epochs_p13
    erase_p15 erase_content_p15
    etags
    evidence_p14
    explain
    fire_p8
    forecast_p16
    incarnations_p10
    jitter
    labels
    late_p16
    ledger_time_p18
    level_p23
    remove_p22
    restore_p21
    authority_p22
    shares_p25
    min_gap_p17
    names_p7
    opt_out_taken_back_p15
    overlap_again_p16
    overlap_p16
    pages
    unattributed_refusals_p6
    archive_p24 archive_details_p24 archive_chain_p24 archive_loss_p24 archive_shared_p24 archive_claims_p24
    quarantine
    real_time_p19
    requests
    requeue_elsewhere
    retries_p6
    scope_of_answers_p6
    send_test_p3
    messages_p17
    sole_clock_p18
    suspects_p12
    templates
    tenants_p12
    tenant_pools_p25
    test_clock_p19
    trigger_p17
    warm_up_p25
}
