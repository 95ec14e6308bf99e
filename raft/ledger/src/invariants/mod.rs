//! All invariants of the state in one function. All kinds of tests and the auditor use it.
//!
//! Derived values are computed again from the rows. Only the check of `min_gap` uses an index (`mailed`), which is
//! itself compared with the rows.

mod claims;

use std::collections::{BTreeMap, BTreeSet};

use crate::index::recipient_mapping;
use crate::model::{
    Bitmap, CHUNK, Chunk, Day, Hash, InstantOutcome, Ledger, Page, PageId, RecipientCounts, RecipientId,
    RecipientState, Run, RunId, RunState, Time,
};
use crate::storage::ROW_BYTES_MAX;

pub use claims::CheckedState;

/// A rule that the state breaks. It is a bug of the ledger, never an error of a user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule}: {what}")]
pub struct InvariantViolation {
    /// Number of the rule.
    pub rule: &'static str,
    /// Description of the violation and its place.
    pub what: String,
}

/// Returns the rules that the state breaks; empty for a sound state. Reads the whole state.
pub fn violations(ledger: &Ledger) -> Vec<InvariantViolation> {
    violations_again(ledger, &mut CheckedState::default())
}

/// Like [`violations`], for repeated checks, also of several replicas. Closed claims are most of a state and rarely
/// change, so unchanged ones are read only once.
pub fn violations_again(ledger: &Ledger, seen: &mut CheckedState) -> Vec<InvariantViolation> {
    let mut found = Vec::new();
    seen.read(ledger);
    for (id, page) in ledger.pages().iter() {
        check_page(ledger, *id, page, &mut found);
    }
    check_names(ledger, &mut found);
    check_dead_letters(ledger, &mut found);
    claims::check_accepts(ledger, seen, &mut found);
    claims::check_open(ledger, &mut found);
    claims::check_closed(ledger, seen, &mut found);
    check_indexes(ledger, &mut found);
    check_distances(ledger, &mut found);
    check_blobs(ledger, &mut found);
    check_audiences(ledger, &mut found);
    check_campaigns(ledger, &mut found);
    check_templates(ledger, &mut found);
    check_tenants(ledger, &mut found);
    check_pools(ledger, &mut found);
    check_summaries(ledger, &mut found);
    check_opt_outs(ledger, &mut found);
    check_removed_nodes(ledger, &mut found);
    check_audit(ledger, &mut found);
    check_events(ledger, &mut found);
    let bytes = ledger.largest_row();
    report(&mut found, "P24", bytes <= ROW_BYTES_MAX, || format!("a row has {bytes} bytes"));
    found
}

/// An opt-out is either in force or taken back (P15).
fn check_opt_outs(ledger: &Ledger, found: &mut Vec<InvariantViolation>) {
    for (key, _) in ledger.taken_back().iter() {
        report(found, "P15", ledger.opt_out_of(key).is_none(), || format!("{key:?} has opted out, and has not"));
    }
}

/// A node that was removed is no node any more, and has nothing claimed (P22).
fn check_removed_nodes(ledger: &Ledger, found: &mut Vec<InvariantViolation>) {
    for (id, _) in ledger.removed_nodes().iter() {
        let is_gone = !ledger.nodes().contains(id) && ledger.claimed_by(*id) == 0;
        report(found, "P22", is_gone, || format!("node {id} was removed, and is a node or has claims"));
    }
}

/// The audit records that are in no part yet are a chain up to the head, and they are fewer than a part has (P24).
fn check_audit(ledger: &Ledger, found: &mut Vec<InvariantViolation>) {
    let mut previous = None;
    for (index, record) in ledger.audit().iter() {
        let follows = record.index == *index && previous.is_none_or(|previous| previous == record.previous);
        report(found, "P24", follows, || format!("audit record {index} does not follow the one before it"));
        previous = Some(record.hash());
    }
    let is_head = previous.is_none_or(|last| last == ledger.head().audit);
    report(found, "P24", is_head, || "the head is not the last audit record".to_owned());
    let (open, most) = (ledger.audit().len(), ledger.limits().audit_part_records);
    report(found, "P24", open < most, || format!("{open} audit records are in no part"));
}

/// The events that are in no part yet are readable, follow each other, and are fewer than a part has (P24).
fn check_events(ledger: &Ledger, found: &mut Vec<InvariantViolation>) {
    let (mut next, mut bytes) = ((0, 0), 0);
    for ((index, place), row) in ledger.events().iter() {
        let follows = (*index, *place) == next || *index > next.0 && *place == 0;
        report(found, "P24", follows, || format!("event {place} of entry {index} does not follow the one before it"));
        next = (*index, place + row.count);
        bytes += row.packed_len();
        let events = row.groups().map(|groups| groups.iter().map(|group| group.events.len()).sum::<usize>());
        report(found, "P24", events == Ok(row.count as usize), || format!("events of entry {index}: {events:?}"));
    }
    let limits = ledger.limits();
    let is_open = ledger.events().len() < limits.event_part_rows && bytes < limits.event_part_bytes;
    report(found, "P24", is_open, || format!("{} rows of events are in no part", ledger.events().len()));
}

fn report(found: &mut Vec<InvariantViolation>, rule: &'static str, holds: bool, what: impl FnOnce() -> String) {
    if !holds {
        found.push(InvariantViolation { rule, what: what() });
    }
}

/// The states of a run's recipients are disjoint, cover its audience, and are counted correctly (P1).
fn check_page(ledger: &Ledger, id: PageId, page: &Page, found: &mut Vec<InvariantViolation>) {
    let (mut end, mut place) = (0, id.0.place);
    for run in &page.runs {
        let in_order = run.first >= end && run.place >= place;
        report(found, "P1", in_order, || format!("page {id}: run {} is out of order", run.place));
        (end, place) = (run.first + run.count, run.place + 1);
    }
    report(found, "P1", end <= page.slots, || format!("page {id}: {end} slots in runs, {} in all", page.slots));
    report(found, "P24", !page.runs.is_empty(), || format!("page {id} has no run"));
    let mut counts = vec![RecipientCounts::default(); page.runs.len()];
    for number in 0..page.slots.div_ceil(CHUNK) {
        let slots = page.slots_of_chunk(number);
        let Some(chunk) = ledger.chunks().get(&id.chunk(number)) else {
            report(found, "P1", slots.is_empty(), || format!("page {id}: chunk {number} is missing"));
            continue;
        };
        report(found, "P24", !slots.is_empty(), || format!("page {id}: chunk {number} has no run"));
        check_chunk(id, number, chunk, (&slots, &page.pool), found);
        for (run, counts) in page.runs.iter().zip(&mut counts) {
            let slots = run.slots_in(number);
            for state in RecipientState::ALL {
                counts.set(state, counts.get(state) + chunk.set(state).and(&slots).len());
            }
        }
    }
    let late = page.runs.iter().filter(|run| run.cause.is_late()).count();
    report(found, "P16", late == 0 || late == page.runs.len(), || format!("page {id}: {late} of its runs are late"));
    for (run, counts) in page.runs.iter().zip(counts) {
        let name = || format!("run of {} on page {id}: counts {:?}, sets {counts:?}", run.name, run.counts);
        report(found, "P1", run.counts == counts, name);
        report(found, "P1", counts.total() == u64::from(run.count), name);
        report(found, "P1", counts.is_finished() == run.finished_index.is_some(), name);
        report(found, "P24", run.finished_at.is_some() == run.finished_index.is_some(), name);
        let state_fits = match run.state {
            RunState::Open => !counts.is_finished(),
            RunState::Finished => counts.is_finished(),
            RunState::Cancelled { .. } | RunState::Expired { .. } => counts.get(RecipientState::Pending) == 0,
            RunState::Paused { .. } => true,
        };
        check_canary(ledger, id, run, found);
        let decided = counts.get(RecipientState::Sent) + counts.get(RecipientState::Dead);
        let breaker_fits =
            run.bounce_breaker.dead <= counts.get(RecipientState::Dead) && run.bounce_breaker.decided <= decided;
        report(found, "P6", breaker_fits, || format!("{}: {:?}", name(), run.bounce_breaker));
        report(found, "P20", run.blocked.is_none() || !counts.is_finished(), || {
            format!("{}: over, and blocked", name())
        });
        report(found, "P1", state_fits, || format!("run of {} on page {id}: {:?}, {counts:?}", run.name, run.state));
    }
}

/// While a canary is undecided, its counts are correct, and no other recipient was claimed (P6).
fn check_canary(ledger: &Ledger, id: PageId, run: &Run, found: &mut Vec<InvariantViolation>) {
    let Some(canary) = run.canary.filter(|_| run.waits_for_canary()) else { return };
    let (mut undecided, mut bad, mut others) = (0, 0, 0);
    for number in run.first / CHUNK..(run.first + run.count).div_ceil(CHUNK) {
        let Some(chunk) = ledger.chunks().get(&id.chunk(number)) else { continue };
        let behind = run.slots_behind_canary(number);
        let first = run.slots_in(number).and_not(&behind);
        let count_in = |slots: &Bitmap, state| chunk.set(state).and(slots).len();
        undecided += count_in(&first, RecipientState::Pending) + count_in(&first, RecipientState::Claimed);
        bad += count_in(&first, RecipientState::Dead) + count_in(&first, RecipientState::InDoubt);
        let taken = [
            RecipientState::Claimed,
            RecipientState::Sent,
            RecipientState::Dead,
            RecipientState::InDoubt,
            RecipientState::Assumed,
        ];
        others += taken.into_iter().map(|state| count_in(&behind, state)).sum::<u32>();
        let named = |slot: &u16| run.is_of_canary(number * CHUNK + u32::from(*slot) - run.first);
        let agree = first.iter().all(|slot| named(&slot)) && !behind.iter().any(|slot| named(&slot));
        report(found, "P6", agree, || format!("run of {}: its canary in chunk {number} is ambiguous", run.name));
    }
    let counted = (undecided, bad) == (canary.undecided, canary.bad);
    report(found, "P6", counted, || format!("run of {}: {canary:?}, {undecided} undecided, {bad} bad", run.name));
    report(found, "P6", others == 0, || format!("run of {}: {others} were taken before its canary", run.name));
}

fn check_chunk(
    id: PageId,
    number: u32,
    chunk: &Chunk,
    (whole, own): (&Bitmap, &str),
    found: &mut Vec<InvariantViolation>,
) {
    let mut all = Bitmap::new();
    let mut total = 0;
    for state in RecipientState::ALL {
        all.add(chunk.set(state));
        total += chunk.set(state).len();
    }
    report(found, "P1", all == *whole, || format!("chunk {number} of {id}: a slot has no state"));
    report(found, "P1", total == whole.len(), || format!("chunk {number} of {id}: a slot has two states"));
    let mut waiting = Bitmap::new();
    for wave in chunk.waves.values() {
        report(found, "P1", waiting.and(wave).is_empty(), || format!("chunk {number} of {id}: a slot in two waves"));
        waiting.add(wave);
    }
    let mut deferred = Bitmap::new();
    for (_, slots) in chunk.deferrals.iter() {
        let is_apart = !slots.is_empty() && deferred.and(slots).is_empty() && slots.and_not(whole).is_empty();
        report(found, "P6", is_apart, || format!("chunk {number} of {id}: {slots:?} are deferred twice"));
        deferred.add(slots);
    }
    for state in [RecipientState::Pending, RecipientState::Claimed, RecipientState::InDoubt, RecipientState::Expired] {
        deferred.remove(chunk.set(state));
    }
    report(found, "P6", deferred.is_empty(), || {
        format!("chunk {number} of {id}: {deferred:?} are deferred and closed")
    });
    let stray = waiting.and_not(chunk.set(RecipientState::Pending));
    report(found, "P1", stray.is_empty(), || format!("chunk {number} of {id}: {stray:?} wait but are not pending"));
    let near = chunk.suppressed_by_gap.and_not(chunk.set(RecipientState::Suppressed));
    report(found, "P17", near.is_empty(), || format!("chunk {number} of {id}: {near:?} are not suppressed"));
    let mut open = chunk.crash_suspects.clone();
    for state in [RecipientState::Pending, RecipientState::Claimed, RecipientState::InDoubt] {
        open.remove(chunk.set(state));
    }
    let mut moved = Bitmap::new();
    for (pool, slots) in &chunk.pool_overrides {
        let sound = !slots.is_empty() && slots.and_not(whole).is_empty() && moved.and(slots).is_empty() && pool != own;
        report(found, "P4", sound, || format!("chunk {number} of {id}: {slots:?} go by pool {pool}"));
        moved.add(slots);
    }
    report(found, "P12", open.is_empty(), || format!("chunk {number} of {id}: {open:?} are closed, and suspects"));
}

/// Each run is in the history under its name, so no name has opened twice (P7).
fn check_names(ledger: &Ledger, found: &mut Vec<InvariantViolation>) {
    for (id, _, run) in ledger.runs() {
        let known = ledger.history().get(&(run.schedule, run.occurrence.clone()));
        let named = known.and_then(InstantOutcome::run) == Some(id);
        report(found, "P7", named, || format!("{id} of {}, {}: the history says {known:?}", run.name, run.occurrence));
    }
}

/// Each dead recipient has a dead letter, and no other recipient has one (P1).
fn check_dead_letters(ledger: &Ledger, found: &mut Vec<InvariantViolation>) {
    let mut dead: BTreeMap<RunId, u32> = BTreeMap::new();
    for (RecipientId { run, number }, _) in ledger.dead().iter() {
        *dead.entry(*run).or_default() += 1;
        let state = ledger.state(*run, *number);
        report(found, "P1", state == Some(RecipientState::Dead), || {
            format!("{run}#{number} has a dead letter: {state:?}")
        });
    }
    for (id, _, run) in ledger.runs() {
        let (letters, counted) = (dead.get(&id).copied().unwrap_or(0), run.counts.get(RecipientState::Dead));
        report(found, "P1", letters == counted, || format!("{id}: {counted} dead, {letters} letters"));
    }
}

/// No recipient is claimed in two runs within the gap of both (P17). A plan opens within its window (P8), and keeps
/// facts about a blocking run only for its next instant (P16).
fn check_distances(ledger: &Ledger, found: &mut Vec<InvariantViolation>) {
    for (one, other) in ledger.runs_claimed_within_gap() {
        report(found, "P17", false, || format!("a recipient is claimed in {one} and in {other}, inside the min_gap"));
    }
    for (id, schedule) in ledger.schedules().iter() {
        let within = schedule.plan.next.iter().all(|next| next.is_within(schedule.settings.policies.jitter_ms));
        report(found, "P8", within, || format!("schedule {id} opens outside its window: {:?}", schedule.plan.next));
        let mut plan = schedule.plan.clone();
        plan.forget_what_is_past();
        report(found, "P16", plan == schedule.plan, || format!("schedule {id} keeps what is past: {plan:?}"));
    }
}

/// The indexes agree with the rows (P8 and others).
fn check_indexes(ledger: &Ledger, found: &mut Vec<InvariantViolation>) {
    let (kept, derived) = (&ledger.derived, ledger.derive());
    let indexes = [
        ("P1", kept.open_pages == derived.open_pages, "open pages"),
        ("P1", kept.unfinished == derived.unfinished, "unfinished runs"),
        ("P1", kept.exempt_from_overlap == derived.exempt_from_overlap, "unfinished runs exempt from overlap"),
        ("P8", kept.due == derived.due, "due schedules"),
        ("P8", kept.names == derived.names, "names"),
        ("P12", kept.claimed == derived.claimed, "claimed recipients by tenant"),
        ("P12", kept.claimed_by_pool == derived.claimed_by_pool, "claimed recipients by pool"),
        ("P16", kept.blocking == derived.blocking, "runs that may block the next instant"),
        ("P17", kept.mailed == derived.mailed, "runs that sent an email"),
        ("P17", kept.answers_by_index == derived.answers_by_index, "stored answers"),
        ("P17", kept.answers_of_tenant == derived.answers_of_tenant, "stored answers by tenant"),
        ("P20", kept.seals == derived.seals, "seals"),
        ("P20", kept.attached == derived.attached, "contents with attachments"),
        ("P20", kept.to_seals == derived.to_seals, "runs to sealed audiences"),
        ("P24", kept.audit_parts == derived.audit_parts, "parts with audit records"),
        ("P24", kept.event_parts == derived.event_parts, "parts with events"),
        ("P24", kept.event_bytes == derived.event_bytes, "bytes of events"),
    ];
    for (rule, same, name) in indexes {
        report(found, rule, same, || format!("the index of {name} differs from the rows"));
    }
    for (own, other, mapping) in kept.mappings.iter() {
        let lists = (ledger.blob(&own), ledger.blob(&other));
        let is_kept = lists.0.is_some() && lists.1.is_some();
        let numbers = recipient_mapping::numbers_of(lists.0);
        let is_true = is_kept && recipient_mapping::map_recipients(&numbers, lists.1) == *mapping;
        report(found, "P17", is_true, || format!("the mapping from {own} to {other} is wrong"));
    }
}

/// The content and audience of a schedule, run, audience, campaign or template are stored, with the right reference
/// counts (P20).
fn check_blobs(ledger: &Ledger, found: &mut Vec<InvariantViolation>) {
    let mut references: BTreeMap<Hash, u64> = BTreeMap::new();
    let schedules = ledger.schedules().iter().map(|(_, schedule)| (schedule.content, schedule.audience));
    for (content, audience) in schedules.chain(ledger.runs().map(|(_, _, run)| (run.content, run.audience))) {
        *references.entry(content).or_default() += 1;
        *references.entry(audience).or_default() += 1;
    }
    for (_, audience) in ledger.audiences().iter() {
        *references.entry(audience.seal).or_default() += 1;
    }
    for (_, campaign) in ledger.campaigns().iter() {
        *references.entry(campaign.content).or_default() += 1;
    }
    for version in ledger.templates().iter().flat_map(|(_, template)| &template.versions) {
        *references.entry(version.content).or_default() += 1;
    }
    let used = ledger.blobs.iter().filter(|(_, blob)| blob.references > 0);
    let stored: BTreeMap<Hash, u64> = used.map(|(hash, blob)| (*hash, blob.references)).collect();
    for (hash, blob) in ledger.blobs.iter().filter(|(_, blob)| blob.references == 0) {
        report(found, "P24", blob.kept_until > Time::default(), || format!("nothing refers to blob {hash}"));
    }
    report(found, "P20", references == stored, || "blobs and their references disagree".to_owned());
}

/// A seal is valid, is stored under its own name, and its users have the same number of recipients (P20).
fn check_audiences(ledger: &Ledger, found: &mut Vec<InvariantViolation>) {
    for ((_, name), audience) in ledger.audiences().iter() {
        let seal = ledger.seal(&audience.seal);
        let same = seal.as_ref().is_some_and(|seal| seal.name == *name && seal.rows == audience.rows);
        report(found, "P20", same, || format!("audience '{name}' stands for {seal:?}"));
    }
    for seal in ledger.seals() {
        let wrong = seal.wrong(ledger.limits());
        report(found, "P20", wrong.is_none(), || format!("the seal of '{}': {wrong:?}", seal.name));
    }
    let schedules = ledger.schedules().iter().map(|(_, one)| (&one.name, one.audience, one.recipients));
    for (name, audience, count) in
        schedules.chain(ledger.runs().map(|(_, _, run)| (&run.name, run.audience, run.count)))
    {
        let rows = ledger.seal(&audience).map(|seal| seal.rows);
        report(found, "P20", rows.is_none_or(|rows| rows == count), || {
            format!("{name}: {count} of {rows:?} recipients")
        });
    }
}

/// A campaign opens at most once, and its schedule exists as long as the campaign (P7).
fn check_campaigns(ledger: &Ledger, found: &mut Vec<InvariantViolation>) {
    for ((tenant, name), campaign) in ledger.campaigns().iter() {
        let Some(id) = campaign.stage.schedule() else { continue };
        let schedule = ledger.schedules().get(&id);
        let fits = schedule.is_some_and(|one| {
            (&*one.settings.tenant, &*one.name, one.content) == (tenant.as_str(), name.as_str(), campaign.content)
                && one.plan.opened <= 1
        });
        report(found, "P7", fits, || format!("campaign {name} and its schedule {schedule:?}"));
        let opened = ledger.history_of(id).filter(|known| known.run().is_some()).count();
        report(found, "P7", opened <= 1, || format!("campaign {name} has opened {opened} times"));
    }
}

/// Versions of a template only grow, are few enough, and count the schedules and campaigns that were made of them. Each
/// of these has the content of its version.
fn check_templates(ledger: &Ledger, found: &mut Vec<InvariantViolation>) {
    let mut users: BTreeMap<(&str, &str, u32), Vec<Hash>> = BTreeMap::new();
    for (_, schedule) in ledger.schedules().iter() {
        if let Some(template) = &schedule.settings.template {
            let key = (&*schedule.settings.tenant, template.name.as_str(), template.version);
            users.entry(key).or_default().push(schedule.content);
        }
    }
    for ((tenant, _), campaign) in ledger.campaigns().iter() {
        if let Some(template) = &campaign.template {
            let key = (tenant.as_str(), template.name.as_str(), template.version);
            users.entry(key).or_default().push(campaign.content);
        }
    }
    for ((tenant, name), template) in ledger.templates().iter() {
        let count = template.versions.len();
        let is_sound = (1..=ledger.limits().template_versions_max).contains(&count)
            && template.versions.is_sorted_by(|one, other| one.version < other.version);
        report(found, "P20", is_sound, || format!("template '{name}': {template:?}"));
        for version in &template.versions {
            let used = users.remove(&(tenant.as_str(), name.as_str(), version.version)).unwrap_or_default();
            let fits = used.len() as u64 == version.users && used.iter().all(|content| *content == version.content);
            report(found, "P20", fits, || format!("template '{name}', {version:?}: {} users", used.len()));
        }
    }
    report(found, "P20", users.is_empty(), || format!("templates with users are gone: {users:?}"));
}

/// A tenant with limits has a share (P12).
fn check_tenants(ledger: &Ledger, found: &mut Vec<InvariantViolation>) {
    for (name, tenant) in ledger.tenants().iter() {
        let sound = (1..=ledger.limits().tenant_share_max).contains(&tenant.share) && tenant.index > 0;
        report(found, "P12", sound, || format!("tenant {name}: {tenant:?}"));
    }
}

/// A warm-up has a cap above 0 for each of its days, and no count for a later day (P25).
fn check_pools(ledger: &Ledger, found: &mut Vec<InvariantViolation>) {
    let today = Day::of(ledger.head().now);
    for (pool, warm_up) in ledger.pools().iter() {
        let is_sound = !warm_up.caps.contains(&0) && warm_up.day <= today;
        report(found, "P25", is_sound, || format!("pool {pool}: {warm_up:?}"));
    }
}

/// A run exists, or its summary, and the name stays for both. Nothing else remains of a run that left (P24).
fn check_summaries(ledger: &Ledger, found: &mut Vec<InvariantViolation>) {
    for (id, summary) in ledger.summaries().iter() {
        report(found, "P24", ledger.run(*id).is_none(), || format!("{id} is there, and a summary of it"));
        let known = ledger.history().get(&(summary.schedule, summary.occurrence.clone()));
        report(found, "P7", known.and_then(InstantOutcome::run) == Some(*id), || format!("{id}, gone: {known:?}"));
        let finished = summary.counts.is_finished();
        report(found, "P24", finished, || format!("{id} left while it was open: {:?}", summary.counts));
    }
    let orphan = |page: &PageId| ledger.pages().get(page).is_none();
    let claims = ledger
        .claims()
        .iter()
        .map(|(_, claim)| claim.chunk.page)
        .chain(ledger.closed_claim_blocks().iter().map(|((chunk, _), _)| chunk.page));
    let mut run_events: BTreeMap<RunId, BTreeSet<u64>> = BTreeMap::new();
    for ((run, index, _), _) in ledger.run_events().iter() {
        run_events.entry(*run).or_default().insert(*index);
    }
    for (run, count) in run_events.into_iter().map(|(run, entries)| (run, entries.len())) {
        report(found, "P24", ledger.run(run).is_some(), || {
            format!("{count} run events of {run} are left, and not the run")
        });
        report(found, "P24", count <= ledger.limits().run_event_entries_max, || {
            format!("{count} entries with run events of {run} are kept")
        });
    }
    for page in claims.chain(ledger.chunks().iter().map(|(key, _)| key.page)) {
        report(found, "P24", !orphan(&page), || format!("something of page {page} is left, and not the page"));
    }
}
