//! Searches a person in audiences, schedules, runs and the archive, slice by slice.
//!
//! The order matters for an erasure: a run that opens meanwhile is after its schedule, so the search meets it, or it
//! has the list without the person already.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use reveille_cluster::process::context::NodeContext;
use reveille_ledger::content::{Content, Recipient, Recipients};
use reveille_ledger::ids::{Hash, PageId, RunId, ScheduleId};
use reveille_ledger::{ArchivePartKey, Ledger};
use serde::{Deserialize, Serialize};

use crate::server::admin::{Admin, ApiResult, error_texts};

/// Maximum number of rows that a slice reads, and bytes of lists that it copies.
const ROWS_MAX: usize = 2_000;
const BYTES_MAX: usize = 8 * 1024 * 1024;

/// Where a search goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PersonCursor {
    /// With the sealed audience after this name.
    Audiences(String),
    /// With this schedule.
    Schedules(ScheduleId),
    /// With this page of runs, and in it with the run after this one.
    Runs(PageId, Option<RunId>),
    /// With the part of the archive after this one, without so many of its first places.
    Parts(Option<ArchivePartKey>, usize),
}

impl Default for PersonCursor {
    fn default() -> PersonCursor {
        PersonCursor::Audiences(String::new())
    }
}

/// What uses a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PersonUse {
    /// The sealed audience of this name.
    Audience(String),
    /// A schedule, and its name.
    Schedule(ScheduleId, String),
    /// A run.
    Run(RunId),
}

/// A person in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonRow {
    /// Number in the list.
    pub number: u32,
    /// The row.
    pub recipient: Recipient,
    /// Columns of the list.
    pub columns: Vec<String>,
}

/// A place with the person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPerson {
    pub place: PersonUse,
    /// Hash of the list.
    pub audience: Hash,
    /// True if a part of the archive has the run.
    pub archived: bool,
    /// True if the part also has the list. Else the state has it, because others use it or used it.
    pub is_in_part: bool,
    /// The row of the person.
    pub person: PersonRow,
    /// True if the list has no other person.
    pub has_no_other_person: bool,
    /// Where a search goes on after this place.
    pub next: PersonCursor,
}

/// What a part of the archive has of the person.
#[derive(Default)]
pub struct PersonInPart {
    pub found: Vec<FoundPerson>,
    /// Contents in the part whose runs go to no other person, and that are not erased.
    pub contents: BTreeSet<Hash>,
    /// Such contents in the state. Only archived runs have them.
    pub state_contents: BTreeSet<Hash>,
}

/// A list, and the part of the archive that has it; `None`: the state. Lists of equal hash may differ by persons who
/// were erased: a list that cannot be renamed keeps its hash.
type StoredList = (Option<ArchivePartKey>, Hash);

/// What a list has of the person.
#[derive(Default)]
struct KnownList {
    person: Option<PersonRow>,
    /// True if all others are erased, or there are none.
    has_no_other_person: bool,
}

/// What a slice has read under the lock.
#[derive(Default)]
struct Rows {
    /// What uses a list, the list, and where a search goes on after it.
    users: Vec<(PersonUse, StoredList, PersonCursor)>,
    lists: BTreeMap<StoredList, Vec<u8>>,
    bytes: usize,
    /// True if a list is a seal, whose parts are files.
    has_seal: bool,
}

impl Rows {
    fn add(
        &mut self,
        (part, ledger): (Option<ArchivePartKey>, &Ledger),
        known: &BTreeMap<StoredList, KnownList>,
        (place, audience, next): (PersonUse, Hash, PersonCursor),
    ) {
        let stored = (part, audience);
        if !known.contains_key(&stored) && !self.lists.contains_key(&stored) {
            let list = ledger.blob(&audience).map(<[u8]>::to_vec).unwrap_or_default();
            self.bytes += list.len();
            self.has_seal |= Recipients::seal_from_blob(&list).is_some();
            self.lists.insert(stored, list);
        }
        self.users.push((place, stored, next));
    }

    fn is_full(&self) -> bool {
        self.users.len() >= ROWS_MAX || self.bytes >= BYTES_MAX || self.has_seal
    }
}

/// A search.
pub struct PersonSearch<'a> {
    admin: &'a Admin,
    tenant: &'a str,
    key: &'a str,
    /// Lists as they were when they were read.
    known: BTreeMap<StoredList, KnownList>,
    /// Parts of lists that were not searched, because they are lost.
    lost_parts: BTreeSet<Hash>,
}

impl<'a> PersonSearch<'a> {
    pub fn new(admin: &'a Admin, tenant: &'a str, key: &'a str) -> PersonSearch<'a> {
        PersonSearch { admin, tenant, key, known: BTreeMap::new(), lost_parts: BTreeSet::new() }
    }

    /// Reads one slice. Returns the places with the person, and where to go on; `None`: this was the last slice.
    pub async fn slice(&mut self, cursor: &PersonCursor) -> ApiResult<(Vec<FoundPerson>, Option<PersonCursor>)> {
        if let PersonCursor::Parts(after, returned) = *cursor {
            let Some(key) = self.part_after(after) else { return Ok((Vec::new(), None)) };
            let found = (1..).zip(self.archived(key).await?.found).skip(returned);
            let found =
                found.map(|(count, found)| FoundPerson { next: PersonCursor::Parts(after, count), ..found }).collect();
            return Ok((found, Some(PersonCursor::Parts(Some(key), 0))));
        }
        let mut rows = Rows::default();
        let next = self.admin.context.replica.read(|ledger| self.read_rows(ledger, cursor, &mut rows));
        Ok((self.found(rows, false).await?, Some(next)))
    }

    fn read_rows(&self, ledger: &Ledger, cursor: &PersonCursor, rows: &mut Rows) -> PersonCursor {
        let mut examined = 0;
        match cursor {
            PersonCursor::Audiences(after) => {
                let from = (self.tenant.to_owned(), format!("{after}\0"));
                let all = ledger.audiences().range(from..).take_while(|((tenant, _), _)| tenant == self.tenant);
                for ((_, name), row) in all {
                    let (place, next) = (PersonUse::Audience(name.clone()), PersonCursor::Audiences(name.clone()));
                    rows.add((None, ledger), &self.known, (place, row.seal, next));
                    if rows.is_full() {
                        return PersonCursor::Audiences(name.clone());
                    }
                }
                PersonCursor::Schedules(ScheduleId(0))
            }
            PersonCursor::Schedules(from) => {
                for (id, schedule) in ledger.schedules().range(*from..) {
                    if rows.is_full() || examined >= ROWS_MAX {
                        return PersonCursor::Schedules(*id);
                    }
                    examined += 1;
                    if &*schedule.settings.tenant == self.tenant {
                        let place = PersonUse::Schedule(*id, schedule.name.to_string());
                        let next = PersonCursor::Schedules(ScheduleId(id.0.saturating_add(1)));
                        rows.add((None, ledger), &self.known, (place, schedule.audience, next));
                    }
                }
                PersonCursor::Runs(PageId(RunId { index: 0, place: 0 }), None)
            }
            PersonCursor::Runs(from, after) => {
                for (id, page) in ledger.pages().range(*from..) {
                    if rows.is_full() || examined >= ROWS_MAX {
                        return PersonCursor::Runs(*id, None);
                    }
                    examined += page.runs.len();
                    let after = after.filter(|_| id == from);
                    if &*page.tenant == self.tenant {
                        for run in page.runs.iter().filter(|run| Some(id.run_id(run)) > after) {
                            let (place, next) = (id.run_id(run), PersonCursor::Runs(*id, Some(id.run_id(run))));
                            rows.add((None, ledger), &self.known, (PersonUse::Run(place), run.audience, next));
                        }
                    }
                }
                PersonCursor::Parts(None, 0)
            }
            PersonCursor::Parts(..) => cursor.clone(),
        }
    }

    /// Returns the hashes of the parts of lists that were not searched, because every voter lacks them.
    pub fn lost_parts(&self) -> Vec<String> {
        self.lost_parts.iter().map(Hash::to_string).collect()
    }

    /// Returns the part of the archive after this one that has details of runs, and may have some of the tenant.
    pub fn part_after(&self, after: Option<ArchivePartKey>) -> Option<ArchivePartKey> {
        self.admin.context.replica.read(|ledger| {
            let after = after.map_or(Bound::Unbounded, Bound::Excluded);
            let mut parts = ledger.parts().range((after, Bound::Unbounded));
            parts.find(|(_, part)| part.may_have(self.tenant) && !part.details.is_empty()).map(|(key, _)| *key)
        })
    }

    /// Returns the runs of a part in which the person is, and the contents that go to no other person.
    pub async fn archived(&mut self, key: ArchivePartKey) -> ApiResult<PersonInPart> {
        let Some(part) = self.admin.open_part(key).await? else { return Ok(PersonInPart::default()) };
        let mut rows = Rows::default();
        self.admin.context.replica.read(|state| {
            for (id, _, run) in part.runs().filter(|(_, page, _)| &*page.tenant == self.tenant) {
                let own = part.blob(&run.audience).is_some();
                let list = if own { (Some(key), &*part) } else { (None, state) };
                // `slice` says where it goes on.
                rows.add(list, &self.known, (PersonUse::Run(id), run.audience, PersonCursor::default()));
            }
        });
        let found = self.found(rows, true).await?;
        let is_of_no_other_person = |audience: Hash| {
            let list = (part.blob(&audience).is_some().then_some(key), audience);
            self.known.get(&list).is_some_and(|known| known.has_no_other_person)
        };
        let runs =
            part.runs().filter(|(_, page, run)| &*page.tenant == self.tenant && is_of_no_other_person(run.audience));
        let (mut contents, mut state_contents): (BTreeSet<Hash>, BTreeSet<Hash>) =
            runs.map(|(_, _, run)| run.content).partition(|content| part.blob(content).is_some());
        let is_left = |bytes: &[u8]| Content::erased_bytes(bytes).is_some();
        contents.retain(|content| part.blob(content).is_some_and(is_left));
        self.admin.context.replica.read(|state| {
            let unused = |content: &Hash| state.blobs().get(content).filter(|stored| stored.references == 0);
            state_contents.retain(|content| unused(content).is_some_and(|stored| is_left(&stored.bytes)));
        });
        Ok(PersonInPart { found, contents, state_contents })
    }

    async fn found(&mut self, rows: Rows, archived: bool) -> ApiResult<Vec<FoundPerson>> {
        for (stored, list) in rows.lists {
            let known = self.known_list(&list).await?;
            self.known.insert(stored, known);
        }
        let found = rows.users.into_iter().filter_map(|(place, stored, next)| {
            let known = self.known.get(&stored)?;
            let (person, has_no_other_person, (part, audience)) =
                (known.person.clone()?, known.has_no_other_person, stored);
            Some(FoundPerson {
                place,
                audience,
                archived,
                is_in_part: part.is_some(),
                person,
                has_no_other_person,
                next,
            })
        });
        Ok(found.collect())
    }

    /// Reads a list.
    async fn known_list(&mut self, list: &[u8]) -> ApiResult<KnownList> {
        if let Some(seal) = Recipients::seal_from_blob(list) {
            let key = BTreeSet::from([self.key.to_owned()]);
            let mut lost = self.admin.context.files.lost();
            lost.retain(|part| seal.parts.contains(part));
            self.lost_parts.extend(&lost);
            let find = move |node: &NodeContext| node.files.find_row(&seal, &key, &lost).map(|row| (row, seal.columns));
            let (row, columns) = self.admin.blocking(find).await?.map_err(error_texts::file_unreadable)?;
            let person = row.map(|(number, recipient)| PersonRow { number, recipient, columns });
            return Ok(KnownList { person, has_no_other_person: false });
        }
        // A list without any address may have only erased persons.
        if list.contains(&b'@') && !list.windows(self.key.len()).any(|bytes| bytes == self.key.as_bytes()) {
            return Ok(KnownList::default());
        }
        let Some(Recipients::Inline(audience)) = Recipients::from_blob(list) else { return Ok(KnownList::default()) };
        let has_no_other_person = audience.has_no_other_person(self.key);
        let mut rows = (0..).zip(audience.recipients);
        let row = rows.find(|(_, recipient)| recipient.key == self.key);
        let person = row.map(|(number, recipient)| PersonRow { number, recipient, columns: audience.columns });
        Ok(KnownList { person, has_no_other_person })
    }
}
