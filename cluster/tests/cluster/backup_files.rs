//! Files at a target of backups without a cluster: opt-outs between backups, what a restore makes of them, and pruning.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reveille_cluster::backup::opt_outs::{self, OptOutChange, OptOutKind};
use reveille_cluster::backup::{
    BackupError, BackupId, BackupManifest, BackupTarget, FolderTarget, OptOutStream, OptOutTables, PrunedBackups,
    apply_opt_outs, list, prune,
};
use reveille_ledger::Ledger;
use reveille_ledger::command::{Actor, Command, Entry, EpochStart, OptOut, OptOutTakeBack, RecipientErase, VoterClock};
use reveille_ledger::ids::{ClaimOwner, Hash, Incarnation, NodeId, Time, TokenId};
use reveille_ledger::invariants::violations;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::restore::Restore;
use reveille_ledger::storage::BlockEntry;
use reveille_ledger::token::{Rights, TenantScope, TokenGrant};
use reveille_raft::ClusterId;

const CLUSTER: ClusterId = ClusterId(7);
const TENANT: &str = "default";

fn ann() -> (String, String) {
    (TENANT.to_owned(), "ann@example.com".to_owned())
}

fn put(ledger: &mut Ledger, ahead: u64, command: Command) {
    let (index, epoch) = (ledger.head().applied + ahead, ledger.head().current_epoch().unwrap_or_default());
    let reply = ledger.apply(index, &Entry { epoch, now: Time(0), actor: Actor::System, command }).reply;
    assert!(!matches!(reply.outcome, CommandOutcome::Refused(_)), "{:?}", reply.outcome);
}

fn former() -> Ledger {
    let mut ledger = Ledger::new();
    let owner = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };
    let readings = vec![VoterClock { node: NodeId(1), wall: Time(0) }];
    put(&mut ledger, 1, Command::EpochStart(EpochStart::new(owner, 1, readings)));
    ledger
}

fn opt_out(ledger: &mut Ledger) {
    let (tenant, key) = ann();
    put(ledger, 1, Command::OptOut(OptOut { tenant, keys: vec![key] }));
}

fn take_back(ledger: &mut Ledger) {
    let (tenant, key) = ann();
    let last = ledger.opt_out_of(&ann()).expect("an opt-out").last;
    put(ledger, 1, Command::OptOutTakeBack(OptOutTakeBack { tenant, key, last, reason: "a letter".to_owned() }));
}

fn erase(ledger: &mut Ledger) {
    let (tenant, key) = ann();
    let erase = RecipientErase { tenant, key, audiences: Vec::new(), blocks: Vec::new() };
    put(ledger, 1, Command::RecipientErase(Box::new(erase)));
}

/// Changes a cluster after its backup, within one tick of the stream, and restores the backup.
fn restored(backup: &Ledger, change: impl FnOnce(&mut Ledger)) -> Ledger {
    let folder = tempfile::tempdir().expect("a folder");
    let target = FolderTarget::new(folder.path());
    let id = BackupId { cluster: CLUSTER, index: backup.head().applied };
    target.put(&id.manifest(), b"").expect("its name counts");
    let mut lost = backup.clone();
    change(&mut lost);
    let mut stream = OptOutStream::new(Arc::new(target.clone()), CLUSTER);
    stream.write(OptOutTables::of(&lost), Time(0)).expect("it is written");
    let streamed = opt_outs::read(&target, CLUSTER, id.index).expect("there is no gap");
    let mut ledger = backup.clone();
    restore(&mut ledger);
    apply_opt_outs(&mut ledger, &streamed.changes);
    assert_eq!(violations(&ledger), []);
    ledger
}

fn restore(ledger: &mut Ledger) {
    let (rights, tenants) = (Rights(1), TenantScope::All);
    let grant = TokenGrant { name: "first".to_owned(), hash: Hash([1; 32]), rights, tenants, expires_at: None };
    let ahead = ledger.limits().restore_ahead;
    put(ledger, ahead, Command::Restore(Box::new(Restore { former_cluster: 7, token: TokenId(1), grant })));
}

#[test]
fn opt_out_of_person_erased_after_backup_holds_after_restore() {
    let opt_out_and_erase = |ledger: &mut Ledger| {
        opt_out(ledger);
        erase(ledger);
    };
    let mut ledger = restored(&former(), opt_out_and_erase);
    assert!(ledger.opt_out_of(&ann()).is_some(), "opted out");
    take_back(&mut ledger);
    assert!(ledger.opt_out_of(&ann()).is_none(), "taken back");

    let taken_back = restored(&former(), |ledger| {
        opt_out_and_erase(ledger);
        take_back(ledger);
    });
    assert!(taken_back.opt_out_of(&ann()).is_none(), "taken back before the loss");
}

/// The restored state then has two opt-outs of one person: with the address, and without.
#[test]
fn opt_out_in_backup_and_of_erased_person_after_it_are_taken_back_together() {
    let mut backup = former();
    opt_out(&mut backup);
    let mut ledger = restored(&backup, |ledger| {
        take_back(ledger);
        opt_out(ledger);
        erase(ledger);
    });
    assert!(ledger.opt_out_of(&ann()).is_some(), "opted out");
    take_back(&mut ledger);
    assert!(ledger.opt_out_of(&ann()).is_none(), "taken back");
    assert_eq!(violations(&ledger), []);
}

#[test]
fn taking_back_before_last_opt_out_of_survivor_changes_nothing() {
    let mut ledger = former();
    opt_out(&mut ledger);
    let last = ledger.head().applied;
    restore(&mut ledger);
    let (tenant, recipient) = ann();
    let taken_back = |index| OptOutChange {
        index,
        tenant: tenant.clone(),
        recipient: recipient.clone(),
        kind: OptOutKind::TakenBack,
    };
    assert_eq!(apply_opt_outs(&mut ledger, &[taken_back(last - 1)]), 0);
    assert!(ledger.opt_out_of(&ann()).is_some(), "opted out");
    assert_eq!(apply_opt_outs(&mut ledger, &[taken_back(last + 1)]), 1);
}

#[test]
fn each_backup_can_be_restored_after_leader_died_before_its_first_write() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = FolderTarget::new(folder.path());
    for index in [100, 200] {
        target.put(&BackupId { cluster: CLUSTER, index }.manifest(), b"").expect("its name counts");
    }
    let mut ledger = former();
    // The former leader died within a tick of the first one, and nothing was opted out before.
    for index in [195, 250] {
        let (ahead, keys) = (index - ledger.head().applied, vec![format!("r{index}@example.com")]);
        put(&mut ledger, ahead, Command::OptOut(OptOut { tenant: TENANT.to_owned(), keys }));
    }
    let mut stream = OptOutStream::new(Arc::new(target.clone()), CLUSTER);
    stream.write(OptOutTables::of(&ledger), Time(0)).expect("it is written");
    let indexes = |backup| {
        let found = opt_outs::read(&target, CLUSTER, backup).expect("there is no gap");
        found.changes.into_iter().map(|change| change.index).collect::<Vec<u64>>()
    };
    assert_eq!((indexes(100), indexes(200)), (vec![195, 250], vec![250]));
}

fn block_name(byte: u8) -> String {
    format!("blocks/{}", Hash([byte; 32]))
}

/// Writes a verified backup with these blocks of the state.
fn write_backup(target: &FolderTarget, id: BackupId, blocks: &[u8]) {
    let block = |byte: &u8| BlockEntry { hash: Hash([*byte; 32]), bytes: 1, rows: 1 };
    let manifest = BackupManifest {
        id,
        incarnation: 1,
        node: "n1".to_owned(),
        version: "0.1.0".to_owned(),
        ledger_time: Time(0),
        written: Time(0),
        level: 1,
        audit_head: Hash([0; 32]),
        state: blocks.iter().map(block).collect(),
        archive: Vec::new(),
        parts: Vec::new(),
        lost: Vec::new(),
    };
    blocks.iter().for_each(|byte| target.put(&block_name(*byte), b"x").expect("written"));
    target.put(&id.manifest(), &manifest.to_bytes()).expect("written");
    target.put(&id.manifest().replace(".manifest", ".verified"), b"x").expect("written");
}

#[test]
fn all_backups_of_a_former_cluster_go_and_shared_files_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = FolderTarget::new(folder.path());
    let (own, former) = (ClusterId(7), ClusterId(8));
    let id = |cluster, index| BackupId { cluster, index };
    write_backup(&target, id(former, 1), &[1, 2]);
    write_backup(&target, id(former, 2), &[2, 3]);
    write_backup(&target, id(own, 9), &[3, 4]);
    let in_two_days = SystemTime::now() + Duration::from_secs(2 * 86_400);
    let pruned = prune(&target, former, 0, in_two_days).expect("it prunes");
    assert_eq!(pruned, PrunedBackups { backups: 2, files: 2, bytes: 2 });
    let left: Vec<_> = list(&target).expect("a list").iter().map(|listed| listed.id).collect();
    assert_eq!(left, [id(own, 9)]);
    let has = |byte: u8| target.stat(&block_name(byte)).expect("it answers").is_some();
    assert_eq!([1, 2, 3, 4].map(has), [false, false, true, true]);
}

#[test]
fn damaged_manifest_of_another_cluster_keeps_its_files_and_lets_own_ones_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = FolderTarget::new(folder.path());
    let (own, other) = (ClusterId(7), ClusterId(8));
    let id = |cluster, index| BackupId { cluster, index };
    write_backup(&target, id(own, 1), &[1, 2]);
    write_backup(&target, id(own, 2), &[2, 3]);
    write_backup(&target, id(other, 1), &[3, 4]);
    target.put(&id(other, 1).manifest(), b"damaged").expect("written");
    let in_two_days = SystemTime::now() + Duration::from_secs(2 * 86_400);
    let pruned = prune(&target, own, 1, in_two_days).expect("it prunes its own");
    assert_eq!(pruned, PrunedBackups { backups: 1, files: 1, bytes: 1 });
    let has = |byte: u8| target.stat(&block_name(byte)).expect("it answers").is_some();
    assert_eq!([1, 2, 3, 4].map(has), [false, true, true, true]);

    target.put(&id(own, 2).manifest(), b"damaged").expect("written");
    let error = prune(&target, own, 1, in_two_days).expect_err("what it needs is not known");
    assert!(matches!(error, BackupError::Damaged(_)), "{error}");
}
