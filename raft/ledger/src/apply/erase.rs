//! Erases a person: empties the rows of lists, and leaves an opt-out without the address (P15).
//!
//! A list keeps its order, so numbers stay valid. Schedules and runs in the state then refer to a new list. The former
//! hash keeps the new bytes for a while: workers and archived runs refer to it. A schedule or run whose recipients are
//! all erased gets the empty content: its own may have the name of the last one. Blocks of the archive come whole in the
//! entry, because `apply` reads no disk; they are durable like those of a new part (P24).

use super::Context;
use crate::command::{ErasedAudience, ErasedBlock, RecipientErase};
use crate::model::{
    Blob, CHUNK, CommandOutcome, CommandRefusal, Content, Hash, Ledger, OptedOut, RecipientState, Recipients, Schedule,
    StoredBlob,
};
use crate::storage::{BlockEntry, unpack_block};

impl Ledger {
    /// Erases the person from what the entry names. Refused while the person is claimed: then an email may be on its
    /// way, and its result belongs to the row.
    pub(super) fn recipient_erase(
        &mut self,
        context: &mut Context,
        erase: &RecipientErase,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let erased: Vec<(&ErasedAudience, u32, Blob)> = erase
            .audiences
            .iter()
            .filter_map(|named| self.without_person(named, &erase.key).map(|(number, blob)| (named, number, blob)))
            .collect();
        for (named, number, _) in &erased {
            let is_claimed = |run| self.state(run, *number) == Some(RecipientState::Claimed);
            if let Some(run) = named.runs.iter().find(|run| is_claimed(**run)) {
                return Err(CommandRefusal::RecipientClaimed(*run));
            }
        }
        let mut changed = 0;
        for (named, _, blob) in erased {
            changed += u64::from(self.replace_audience(context, erase, named, blob));
        }
        // `erase.audiences` may also hold the hash of a content that only archived runs use; its `schedules` and `runs`
        // are then empty.
        changed += erase.audiences.iter().filter(|named| self.empty_unused_content(&named.audience)).count() as u64;
        changed += erase.blocks.iter().filter(|block| self.replace_block(block)).count() as u64;
        self.erase_opt_out(context, &erase.tenant, &erase.key);
        self.head.erased_index = context.index;
        Ok(CommandOutcome::Changed(changed))
    }

    /// Returns the audience without the person, and the number of the person. `None`: the audience has not the person,
    /// or has changed since the entry was proposed.
    fn without_person(&self, named: &ErasedAudience, key: &str) -> Option<(u32, Blob)> {
        match Recipients::from_blob(self.blob(&named.audience)?)? {
            Recipients::Inline(mut audience) => {
                let number = audience.erase(key)?;
                Some((number, audience.blob()))
            }
            Recipients::Sealed(mut seal) => {
                let changed = named.part?;
                let part = seal.parts.get_mut((named.number / CHUNK) as usize)?;
                if *part != changed.former {
                    return None;
                }
                *part = changed.erased;
                Some((named.number, seal.blob()))
            }
        }
    }

    /// Lets schedules, runs, audiences and campaigns of the tenant refer to the new audience. Returns false if nothing
    /// has changed.
    fn replace_audience(
        &mut self,
        context: &Context,
        RecipientErase { tenant, key, .. }: &RecipientErase,
        named: &ErasedAudience,
        new: Blob,
    ) -> bool {
        let (former, hash, mut moved) = (named.audience, new.hash, 0);
        let empty = Recipients::has_no_other_person(key, &new.bytes).then(|| Content::default().blob().hash);
        let mut former_contents = Vec::new();
        for id in &named.schedules {
            let uses = |one: &Schedule| *one.settings.tenant == **tenant && one.audience == former;
            if !self.schedules.get(id).is_some_and(uses) {
                continue;
            }
            if let Some(schedule) = self.schedules.edit(id) {
                schedule.audience = hash;
                // The content of a template stays: it is not of the person.
                if let Some(empty) = empty.filter(|_| schedule.settings.template.is_none()) {
                    former_contents.push(std::mem::replace(&mut schedule.content, empty));
                }
                // An edit that read the former list must read again.
                schedule.plan.version += 1;
                schedule.index = context.index;
                moved += 1;
            }
        }
        for id in &named.runs {
            let Some((page_id, page, position)) = self.page_of(*id) else { continue };
            let uses = *page.tenant == **tenant && page.runs.get(position).is_some_and(|run| run.audience == former);
            if uses && let Some(run) = self.pages.edit(&page_id).and_then(|page| page.runs.get_mut(position)) {
                run.audience = hash;
                self.derived.mailed.erase((run.schedule, run.due, *id), key);
                former_contents.extend(empty.map(|empty| std::mem::replace(&mut run.content, empty)));
                moved += 1;
            }
        }
        for content in former_contents {
            self.store_blob(Content::default().blob());
            self.release_blob(&content);
            self.empty_unused_content(&content);
        }
        let sealed = (Recipients::seal_from_blob(&new.bytes), self.seal(&former));
        if let (Some(seal), Some(former_seal)) = sealed {
            moved += self.rename_seal(tenant, (former, former_seal.recipients_hash()), (hash, seal.recipients_hash()));
            if moved > 0 {
                self.derived.seals.insert(hash);
            }
        }
        self.move_references(context, former, new, moved)
    }

    /// Lets the rows of the tenant that name a seal name another one. Returns the number of references.
    fn rename_seal(
        &mut self,
        tenant: &str,
        (former, former_recipients): (Hash, Hash),
        (new, new_recipients): (Hash, Hash),
    ) -> u64 {
        let of_tenant = (tenant.to_owned(), String::new())..;
        let names = self.audiences.range(of_tenant.clone()).take_while(|((of, _), _)| of == tenant);
        let names: Vec<_> = names.filter(|(_, row)| row.seal == former).map(|(name, _)| name.clone()).collect();
        for name in &names {
            if let Some(row) = self.audiences.edit(name) {
                row.seal = new;
            }
        }
        let campaigns = self.campaigns.range(of_tenant).take_while(|((of, _), _)| of == tenant);
        let armed = campaigns.filter(|(_, row)| row.stage.armed().is_some_and(|armed| armed.audience == former));
        let armed: Vec<_> = armed.map(|(name, _)| name.clone()).collect();
        for name in &armed {
            if let Some(armed) = self.campaigns.edit(name).and_then(|row| row.stage.armed_mut()) {
                armed.audience = new;
            }
        }
        let is_same = |recipients: Hash| recipients == former_recipients;
        let summaries = self.summaries.iter().filter(|(_, summary)| *summary.tenant == *tenant);
        let summaries = summaries.filter(|(_, row)| row.mailing.as_ref().is_some_and(|one| is_same(one.recipients)));
        let summaries: Vec<_> = summaries.map(|(run, _)| *run).collect();
        for run in &summaries {
            if let Some(mailing) = self.summaries.edit(run).and_then(|row| row.mailing.as_mut()) {
                mailing.recipients = new_recipients;
            }
        }
        names.len() as u64
    }

    /// Moves `moved` references from the former audience to the new one. If nothing refers to the former hash any more,
    /// the new bytes are stored under it too, so that the erased person is in no stored audience. Returns false if
    /// nothing has changed.
    fn move_references(&mut self, context: &Context, former: Hash, new: Blob, moved: u64) -> bool {
        let bytes: Box<[u8]> = new.bytes.as_slice().into();
        if moved > 0 {
            self.store_blob(new.clone());
            if let Some(stored) = self.blobs.edit(&new.hash) {
                stored.references += moved - 1;
            }
        }
        let until = context.now.plus_ms(self.limits().erased_list_kept_ms);
        let Some(stored) = self.blobs.edit(&former) else { return false };
        stored.references = stored.references.saturating_sub(moved);
        if stored.references > 0 {
            return moved > 0;
        }
        let kept_until = stored.kept_until.max(until);
        *stored = StoredBlob { bytes, references: 0, kept_until };
        self.derived.mappings.forget(&former);
        self.derived.seals.remove(&former);
        true
    }

    /// Empties a content to which only archived runs refer. Returns false if nothing has changed.
    fn empty_unused_content(&mut self, hash: &Hash) -> bool {
        let unused = self.blobs.get(hash).filter(|stored| stored.references == 0);
        let Some(bytes) = unused.and_then(|stored| Content::erased_bytes(&stored.bytes)) else { return false };
        self.blobs.edit(hash).map(|stored| stored.bytes = bytes).is_some()
    }

    /// Replaces a block of the archive. Returns false if its part does not name it any more, or the new one is damaged.
    fn replace_block(&mut self, erased: &ErasedBlock) -> bool {
        let Ok(rows) = unpack_block(&erased.bytes) else { return false };
        let bytes = erased.bytes.len() as u64;
        let new = BlockEntry { hash: Hash::of(&erased.bytes), bytes, rows: rows.len() as u32 };
        let is_former = |block: &BlockEntry| block.hash == erased.former;
        let Some(place) = self.parts.get(&erased.part).and_then(|part| part.details.iter().position(is_former)) else {
            return false;
        };
        let Some(part) = self.parts.edit(&erased.part) else { return false };
        part.details[place] = new;
        self.derived.unsaved.insert(new.hash, erased.bytes.as_slice().into());
        true
    }

    /// Leaves an opt-out without the address.
    fn erase_opt_out(&mut self, context: &Context, tenant: &str, key: &str) {
        let clear = (tenant.to_owned(), key.to_owned());
        let erased = Ledger::erased_opt_out_key(tenant, key);
        self.taken_back.remove(&clear);
        let known = self.opted_out.remove(&clear).or_else(|| self.opted_out.get(&erased).copied());
        let now = || OptedOut { index: context.index, at: context.now, last: context.index };
        if known.is_none() {
            self.head.forbidden_index = context.index;
        }
        self.opted_out.put(erased, known.unwrap_or_else(now));
    }
}
