//! Erases a person: the opt-out and its barrier first, then the rows in lists, files and the archive (P15).
//!
//! A list may get another name between its reading and the entry, by an edit or by the erasure of another person. Then
//! the entry changes nothing. So the search starts again until a whole pass finds nothing to erase.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use reveille_cluster::file_store;
use reveille_cluster::process::peer_messages::PeerFile;
use reveille_ledger::command::{
    Command, ERASED_AUDIENCES_MAX, ERASED_BYTES_MAX, ErasedAudience, ErasedBlock, ErasedPart, RecipientErase,
};
use reveille_ledger::ids::Hash;
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::storage::{block_with_list, block_without};
use reveille_ledger::{ArchivePartKey, Ledger};
use reveille_proto::admin::v1::{EraseRecipientRequest, EraseRecipientResponse};
use reveille_raft::ArchiveError;
use serde::{Deserialize, Serialize};

use super::PAGE_WITHIN;
use super::search::{FoundPerson, PersonCursor, PersonInPart, PersonSearch, PersonUse};
use crate::server::admin::paging::Paging;
use crate::server::admin::writes::WriteError;
use crate::server::admin::{Admin, ApiResult, Call, error_texts, validate};

/// Pause before a person who was claimed is erased again: a handoff mostly ends within it.
const CLAIMED_PAUSE: Duration = Duration::from_millis(250);
/// Maximum number of passes. Each erasure of another person of the same list at the same time may cost one.
const PASSES_MAX: u32 = 100;

/// Where an erasure goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Progress {
    cursor: PersonCursor,
    /// True if this pass has found something to erase, so that another one must follow.
    found: bool,
    /// Number of passes before this one.
    passes: u32,
}

impl Admin {
    pub(super) async fn erase_recipient(
        &self,
        request: EraseRecipientRequest,
        call: &Call,
    ) -> ApiResult<EraseRecipientResponse> {
        let (tenant, key) =
            (validate::tenant(&request.tenant)?, validate::address_key("recipient", &request.recipient)?);
        let paging = Paging::<Progress>::within("places to erase", &(&tenant, &key), 0, &request.page_token)?;
        let mut done = EraseRecipientResponse::default();
        if paging.after.is_none() {
            // From here on nothing is sent to the person, whatever remains to be erased.
            done.barrier = Some(self.opt_out(&tenant, BTreeSet::from([key.clone()]), call).await?.barrier);
        }
        let Progress { mut cursor, found, mut passes } = paging.after.clone().unwrap_or_default();
        let search = PersonSearch::new(self, &tenant, &key);
        let ends = call.deadline.min(Instant::now() + PAGE_WITHIN);
        let mut work =
            Erasing { admin: self, call, search, found, is_claimed: false, ends, tenant: &tenant, key: &key };
        while Instant::now() < ends {
            let next = match &cursor {
                PersonCursor::Parts(after, _) => match work.search.part_after(*after) {
                    Some(part) => {
                        work.erase_archived(part, &mut done).await?;
                        Some(PersonCursor::Parts(Some(part), 0))
                    }
                    None => None,
                },
                in_state => {
                    let (found, next) = work.search.slice(in_state).await?;
                    work.erase_found(found, &mut done).await?;
                    next
                }
            };
            if work.is_claimed {
                // The next call begins here again.
                break;
            }
            cursor = match next {
                Some(next) => next,
                None if std::mem::take(&mut work.found) => {
                    passes += 1;
                    if passes >= PASSES_MAX {
                        return Err(error_texts::not_erased(done.index, PASSES_MAX));
                    }
                    // The lists that were read have changed.
                    work.search = PersonSearch::new(self, &tenant, &key);
                    PersonCursor::default()
                }
                None => {
                    // The last entry removes the address from the opt-out, if no entry did.
                    work.propose(Vec::new(), Vec::new(), &mut done).await?;
                    done.lost_parts = work.search.lost_parts();
                    return Ok(done);
                }
            };
        }
        done.lost_parts = work.search.lost_parts();
        done.next_page_token = paging.token(Some(&Progress { cursor, found: work.found, passes }));
        Ok(done)
    }
}

/// One call of an erasure.
struct Erasing<'a> {
    admin: &'a Admin,
    call: &'a Call,
    search: PersonSearch<'a>,
    /// True if this pass has found something to erase.
    found: bool,
    /// True if the person was still claimed at the end of the call, so that not everything that was found is erased.
    is_claimed: bool,
    /// When the call ends.
    ends: Instant,
    tenant: &'a str,
    key: &'a str,
}

impl Erasing<'_> {
    /// Erases the person from lists of the state.
    async fn erase_found(&mut self, found: Vec<FoundPerson>, done: &mut EraseRecipientResponse) -> ApiResult<()> {
        let mut changes: BTreeMap<Hash, ErasedAudience> = BTreeMap::new();
        for FoundPerson { place, audience, person, .. } in found {
            let change = changes.entry(audience).or_insert_with(|| ErasedAudience {
                audience,
                number: person.number,
                ..ErasedAudience::default()
            });
            match place {
                // The entry finds its name by the seal.
                PersonUse::Audience(_) => {}
                PersonUse::Schedule(id, _) => change.schedules.push(id),
                PersonUse::Run(id) => change.runs.push(id),
            }
        }
        let mut changes: Vec<ErasedAudience> = changes.into_values().collect();
        for change in &mut changes {
            change.part = self.erase_from_part(change).await?;
        }
        for changes in changes.chunks(ERASED_AUDIENCES_MAX) {
            self.propose(changes.to_vec(), Vec::new(), done).await?;
        }
        Ok(())
    }

    /// Writes the part of a sealed audience without the person, and brings it to a majority. `None`: it is no sealed
    /// audience.
    async fn erase_from_part(&self, change: &ErasedAudience) -> ApiResult<Option<ErasedPart>> {
        let Some(seal) = self.admin.context.replica.read(|ledger| ledger.seal(&change.audience)) else {
            return Ok(None);
        };
        let Some((former, position)) = seal.locate(change.number) else { return Ok(None) };
        let written = self.admin.blocking(move |node| node.files.store_without(former, position)).await?;
        let erased =
            written.map_err(|error| error_texts::file_unreadable(format!("a part was not written: {error}")))?;
        self.admin.spread_part(erased, "the part without the person").await?;
        Ok(Some(ErasedPart { former, erased }))
    }

    /// Erases the person from a part of the archive, and from lists and contents of the state that only archived runs
    /// use.
    async fn erase_archived(&mut self, part: ArchivePartKey, done: &mut EraseRecipientResponse) -> ApiResult<()> {
        let PersonInPart { found, contents, state_contents } = self.search.archived(part).await?;
        if found.is_empty() && contents.is_empty() && state_contents.is_empty() {
            return Ok(());
        }
        let lists: BTreeSet<Hash> = found.iter().map(|found| found.audience).collect();
        let of_others: BTreeSet<Hash> = {
            let in_state = found.iter().filter(|found| !found.is_in_part).map(|found| found.audience);
            let is_used =
                |ledger: &Ledger, list: &Hash| ledger.blobs().get(list).is_some_and(|stored| stored.references > 0);
            self.admin.context.replica.read(|ledger| in_state.filter(|list| is_used(ledger, list)).collect())
        };
        let of_state = found.into_iter().filter(|found| !found.is_in_part && !of_others.contains(&found.audience));
        // No run of the state uses them, so none is named.
        let of_state =
            of_state.map(|found| FoundPerson { place: PersonUse::Audience(String::new()), ..found }).collect();
        self.erase_found(of_state, done).await?;
        let unused = |content| ErasedAudience { audience: content, ..ErasedAudience::default() };
        let unused: Vec<ErasedAudience> = state_contents.into_iter().map(unused).collect();
        for unused in unused.chunks(ERASED_AUDIENCES_MAX) {
            self.propose(unused.to_vec(), Vec::new(), done).await?;
        }
        let mut waiting: Vec<ErasedBlock> = Vec::new();
        for former in self.details_of(part) {
            let Some(block) = self.read_block(part, former).await? else {
                // Another entry has replaced it.
                self.found = true;
                continue;
            };
            let (key, lists, contents) = (self.key.to_owned(), lists.clone(), contents.clone());
            let bytes = self.admin.blocking(move |_| block_without(&block, &key, (&lists, &contents))).await?;
            let bytes = bytes.map_err(error_texts::block_unreadable)?;
            let Some(bytes) = bytes else { continue };
            let size: usize = waiting.iter().map(|block| block.bytes.len()).sum();
            if size + bytes.len() > ERASED_BYTES_MAX && !waiting.is_empty() {
                self.propose(Vec::new(), std::mem::take(&mut waiting), done).await?;
            }
            waiting.push(ErasedBlock { part, former, bytes });
        }
        if !waiting.is_empty() {
            self.propose(Vec::new(), waiting, done).await?;
        }
        for list in of_others {
            self.separate_list(part, list, done).await?;
        }
        Ok(())
    }

    /// Gives a part its own list without the person, because another tenant uses the same list.
    async fn separate_list(
        &mut self,
        part: ArchivePartKey,
        list: Hash,
        done: &mut EraseRecipientResponse,
    ) -> ApiResult<()> {
        // The last block has the lists of the part, if it has any.
        let Some(former) = self.details_of(part).pop() else { return Ok(()) };
        let stored = self.admin.context.replica.read(|ledger| ledger.blobs().get(&list).map(|one| one.bytes.clone()));
        let Some((block, stored)) = self.read_block(part, former).await?.zip(stored) else {
            self.found = true;
            return Ok(());
        };
        let key = self.key.to_owned();
        let bytes = self.admin.blocking(move |_| block_with_list(&block, &key, (list, &stored))).await?;
        let bytes = bytes.map_err(error_texts::block_unreadable)?;
        match bytes {
            Some(bytes) => self.propose(Vec::new(), vec![ErasedBlock { part, former, bytes }], done).await,
            None => Ok(()),
        }
    }

    /// Returns the blocks with details that a part names.
    fn details_of(&self, part: ArchivePartKey) -> Vec<Hash> {
        self.admin.context.replica.read(|ledger| {
            let part = ledger.parts().get(&part);
            part.map(|part| part.details.iter().map(|block| block.hash).collect()).unwrap_or_default()
        })
    }

    /// Reads a block of a part; another node sends it if this one cannot read it. `None`: the part does not name it any
    /// more.
    async fn read_block(&self, part: ArchivePartKey, hash: Hash) -> ApiResult<Option<Vec<u8>>> {
        let read = || self.admin.blocking(move |node| node.replica.block(hash));
        let mut block = read().await?;
        if block.is_none() && file_store::fetch(&self.admin.context, PeerFile::ArchiveBlock(hash)).await {
            block = read().await?;
        }
        if block.is_none() && self.details_of(part).contains(&hash) {
            let what = format!("block {hash} is missing, and may have the person");
            return Err(error_texts::archive_unreadable(&ArchiveError::Damaged { part, what }));
        }
        Ok(block)
    }

    /// Proposes one entry. While the person is claimed, it waits until the end of the call: the email may be on its way.
    async fn propose(
        &mut self,
        audiences: Vec<ErasedAudience>,
        blocks: Vec<ErasedBlock>,
        done: &mut EraseRecipientResponse,
    ) -> ApiResult<()> {
        self.found |= !audiences.is_empty() || !blocks.is_empty();
        let of_lists = !audiences.is_empty();
        let (tenant, key) = (self.tenant.to_owned(), self.key.to_owned());
        let erase = Command::RecipientErase(Box::new(RecipientErase { tenant, key, audiences, blocks }));
        loop {
            match self.admin.try_write(erase.clone(), self.call).await {
                Ok(reply) => {
                    done.index = reply.index;
                    // An entry has either lists or blocks.
                    if let CommandOutcome::Changed(changed) = reply.outcome {
                        let sum = if of_lists { &mut done.lists } else { &mut done.blocks };
                        *sum += changed as u32;
                    }
                    return Ok(());
                }
                Err(WriteError::Refused(CommandRefusal::RecipientClaimed(_))) => {
                    if Instant::now() + CLAIMED_PAUSE >= self.ends {
                        self.is_claimed = true;
                        return Ok(());
                    }
                    tokio::time::sleep(CLAIMED_PAUSE).await;
                }
                Err(error) => return Err(error.worded(error_texts::refused)),
            }
        }
    }
}
