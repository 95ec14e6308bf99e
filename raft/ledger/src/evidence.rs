//! Closed rows: what is left of claims of which nothing is claimed or in doubt any more (P4, P14).
//!
//! They are most of what a large run leaves behind, and are looked at seldom: when late evidence comes, when a
//! recipient's story is told, and when a life of a node settles what an earlier one left. So they lie packed, in
//! sheets of some two kilobytes; a sheet is of one chunk, and its rows are in the order of their fences. To find a
//! row is to find its sheet and to pass over the rows before it, by their lengths; only the row itself is unpacked.
//!
//! A row in a sheet, in bytes: length 1; fence 8 (group 1, epoch and index 3 each as distance from the page's
//! index, place 1); holder 1 (its number in the sheet's list); claimed at 3 (as distance from the sheet's first);
//! granted 7 where it is one run; sent 1 where it is what was granted; assumed 1 where it is nothing; moments 9
//! where all were accepted (index and time as distances from those of the claim). That is 31: 0.12 of a byte a
//! recipient for rows of 256, 0.52 for rows of 60. In memory a sheet costs some 300 bytes beside its rows (key,
//! list, and a tree whose leaves may be half empty): 0.02 to 0.07 of a byte a recipient.
//! What was refused, put off or released in a row is told on top of that, at some ten bytes and its text each, and
//! a row of slots far from each other at two bytes a slot.
//!
//! On which sheet a row lies is decided by the order in which rows were closed. That is the log's, so it is the same on
//! every replica, and a snapshot holds the sheets as they are (P2). Each sheet carries the version of its layout (P23):
//! sheets are cut by their length in bytes, so `apply` has to know in which layout a row is packed.

use serde::{Deserialize, Serialize, Serializer};

use crate::bitmap::Bitmap;
use crate::ids::{Epoch, Fence, Holder, RunId, Time};
use crate::moments::Moments;
use crate::state::{Ledger, Row};
use crate::table::Table;

/// Below every fence: the first sheet of a chunk begins here.
const FIRST: Fence = Fence { group: 0, epoch: Epoch(0), index: 0, place: 0 };

/// The layout in which rows are packed. A change of [`Packed`], or of a type that is packed in it ([`Moments`]), is a new
/// one (decision 0025).
const LAYOUT: u8 = 1;

/// Where a sheet lies: page, chunk, and a fence that is not above its rows' and not below those of the sheet
/// before it.
pub type SheetKey = (RunId, u32, Fence);

/// Closed rows of one chunk, packed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct Sheet {
    /// The layout of its rows: [`LAYOUT`].
    layout: u8,
    /// Who worked its rows.
    holders: Vec<Holder>,
    /// When the first of them came.
    since: Time,
    /// Each row after its length.
    #[serde(serialize_with = "as_bytes")]
    packed: Vec<u8>,
}

impl Default for Sheet {
    fn default() -> Sheet {
        Sheet { layout: LAYOUT, holders: Vec::new(), since: Time::default(), packed: Vec::new() }
    }
}

/// The same bytes as a sequence of numbers, written at once.
fn as_bytes<S: Serializer>(packed: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(packed)
}

#[derive(Deserialize)]
struct Stored {
    layout: u8,
    holders: Vec<Holder>,
    since: Time,
    packed: Vec<u8>,
}

/// Of a closed row what its sheet does not say of all of them. The page is in the key.
#[derive(Serialize, Deserialize)]
struct Packed {
    fence: PackedFence,
    holder: u32,
    claimed_at: i64,
    granted: Bitmap,
    sent: Part,
    assumed: Part,
    moments: Moments,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct PackedFence {
    group: u32,
    epoch: i64,
    index: i64,
    place: u32,
}

/// Some of what was granted.
#[derive(Serialize, Deserialize)]
enum Part {
    None,
    All,
    Some(Bitmap),
}

impl Part {
    fn of(granted: &Bitmap, part: &Bitmap) -> Part {
        match () {
            () if part.is_empty() => Part::None,
            () if part == granted => Part::All,
            () => Part::Some(part.clone()),
        }
    }

    fn slots(self, granted: &Bitmap) -> Bitmap {
        match self {
            Part::None => Bitmap::new(),
            Part::All => granted.clone(),
            Part::Some(slots) => slots,
        }
    }
}

/// What wraps around comes back when it is unpacked: no number is refused.
impl PackedFence {
    fn of(page: RunId, fence: Fence) -> PackedFence {
        let distance = |index: u64| index.wrapping_sub(page.index) as i64;
        let Fence { group, epoch, index, place } = fence;
        PackedFence { group, epoch: distance(epoch.0), index: distance(index), place }
    }

    fn fence(self, page: RunId) -> Fence {
        let index = |distance: i64| page.index.wrapping_add(distance as u64);
        Fence { group: self.group, epoch: Epoch(index(self.epoch)), index: index(self.index), place: self.place }
    }
}

impl TryFrom<Stored> for Sheet {
    type Error = &'static str;

    /// Only what can be read later, too: each row whole, and of a known holder.
    fn try_from(stored: Stored) -> Result<Sheet, &'static str> {
        let Stored { layout, holders, since, packed } = stored;
        if layout != LAYOUT {
            return Err("closed rows in a layout that this build does not know");
        }
        let sheet = Sheet { layout, holders, since, packed };
        let page = RunId { index: 0, place: 0 };
        let whole = sheet.spans(page).last().is_some_and(|last| last.end == sheet.packed.len());
        match whole && sheet.rows((page, 0)).count() == sheet.spans(page).count() {
            true => Ok(sheet),
            false => Err("closed rows that are none"),
        }
    }
}

/// A row in a sheet: from its length to its end. Who worked it is a number in the sheet's list.
struct Span {
    fence: Fence,
    holder: u32,
    start: usize,
    end: usize,
}

impl Sheet {
    fn of(rows: &[(Fence, Row)]) -> Sheet {
        let mut sheet = Sheet::default();
        for (fence, row) in rows {
            sheet.put(*fence, row);
        }
        sheet
    }

    /// Its rows, in the order of their fences.
    pub fn rows(&self, place: (RunId, u32)) -> impl Iterator<Item = (Fence, Row)> + '_ {
        self.spans(place.0).filter_map(move |span| Some((span.fence, self.unpack(place, &span)?)))
    }

    /// Those that one holder worked; the others are passed over as they are.
    fn rows_by(&self, place: (RunId, u32), holder: Holder) -> impl Iterator<Item = (Fence, Row)> + '_ {
        let number = self.holders.iter().position(|known| *known == holder);
        let spans = number
            .into_iter()
            .flat_map(move |number| self.spans(place.0).filter(move |span| usize::try_from(span.holder) == Ok(number)));
        spans.filter_map(move |span| Some((span.fence, self.unpack(place, &span)?)))
    }

    /// The bytes that it points to.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.holders.capacity() * size_of::<Holder>() + self.packed.capacity()
    }

    fn get(&self, place: (RunId, u32), fence: Fence) -> Option<Row> {
        let span = self.spans(place.0).find(|span| span.fence == fence)?;
        self.unpack(place, &span)
    }

    /// Where its rows are. Ends at what is no row; there is none in a sheet that was made or read here.
    fn spans(&self, page: RunId) -> impl Iterator<Item = Span> + '_ {
        let mut start = 0;
        std::iter::from_fn(move || {
            let left = self.packed.get(start..)?;
            let (length, rows) = postcard::take_from_bytes::<u32>(left).ok()?;
            let row = rows.get(..length as usize)?;
            let ((fence, holder), _) = postcard::take_from_bytes::<(PackedFence, u32)>(row).ok()?;
            let end = start + left.len() - rows.len() + row.len();
            let span = Span { fence: fence.fence(page), holder, start, end };
            start = end;
            Some(span)
        })
    }

    fn unpack(&self, (page, chunk): (RunId, u32), span: &Span) -> Option<Row> {
        let (_, row) = postcard::take_from_bytes::<u32>(self.packed.get(span.start..span.end)?).ok()?;
        let packed: Packed = match postcard::take_from_bytes(row) {
            Ok((packed, [])) => packed,
            _ => return None,
        };
        let claimed_at = Time(self.since.0.wrapping_add(packed.claimed_at));
        Some(Row {
            page,
            chunk,
            holder: *self.holders.get(packed.holder as usize)?,
            claimed_at,
            claimed: Bitmap::new(),
            in_doubt: Bitmap::new(),
            sent: packed.sent.slots(&packed.granted),
            assumed: packed.assumed.slots(&packed.granted),
            moments: packed.moments.moved_by(span.fence.index, claimed_at.0),
            granted: packed.granted,
        })
    }

    /// Puts a row, in place of a former one of its fence.
    fn put(&mut self, fence: Fence, row: &Row) {
        if self.packed.is_empty() {
            self.since = row.claimed_at;
        }
        let known = self.holders.iter().position(|holder| *holder == row.holder);
        let holder = known.unwrap_or_else(|| {
            self.holders.push(row.holder);
            self.holders.len() - 1
        });
        let packed = Packed {
            fence: PackedFence::of(row.page, fence),
            holder: holder as u32,
            claimed_at: row.claimed_at.0.wrapping_sub(self.since.0),
            granted: row.granted.clone(),
            sent: Part::of(&row.granted, &row.sent),
            assumed: Part::of(&row.granted, &row.assumed),
            moments: row.moments.moved_by(fence.index.wrapping_neg(), row.claimed_at.0.wrapping_neg()),
        };
        // Plain data in memory: postcard has nothing to refuse there.
        let bytes = postcard::to_stdvec(&packed).unwrap_or_default();
        let end = self.packed.len();
        let next = self.spans(row.page).find(|span| span.fence >= fence);
        let (from, to) = next.map_or((end, end), |span| match span.fence == fence {
            true => (span.start, span.end),
            false => (span.start, span.start),
        });
        let length = postcard::to_stdvec(&(bytes.len() as u32)).unwrap_or_default();
        self.packed.reserve_exact(length.len() + bytes.len());
        self.packed.splice(from..to, length.into_iter().chain(bytes));
    }
}

impl Ledger {
    /// Rows of which only evidence is left, packed, by page, chunk and fence.
    pub fn evidence(&self) -> &Table<SheetKey, Sheet> {
        &self.closed
    }

    /// All rows of which only evidence is left. Costs a look at each.
    pub fn closed_rows(&self) -> impl Iterator<Item = (Fence, Row)> + '_ {
        self.closed.iter().flat_map(|((page, chunk, _), sheet)| sheet.rows((*page, *chunk)))
    }

    /// Those of one chunk, in the order of their fences.
    pub fn closed_rows_of(&self, place: (RunId, u32)) -> impl Iterator<Item = (Fence, Row)> + '_ {
        self.sheets_of(place).flat_map(move |sheet| sheet.rows(place))
    }

    /// Those of one chunk that this holder worked and in which somebody is assumed, in the order of their fences. One
    /// row at a time is unpacked, and none of another holder.
    pub fn assumed_rows_by(&self, holder: Holder, place: (RunId, u32)) -> impl Iterator<Item = (Fence, Row)> + '_ {
        let rows = self.sheets_of(place).flat_map(move |sheet| sheet.rows_by(place, holder));
        rows.filter(|(_, row)| !row.assumed.is_empty())
    }

    fn sheets_of(&self, (page, chunk): (RunId, u32)) -> impl Iterator<Item = &Sheet> {
        let sheets = self.closed.range((page, chunk, FIRST)..);
        sheets.take_while(move |((of, number, _), _)| (*of, *number) == (page, chunk)).map(|(_, sheet)| sheet)
    }

    /// One of them.
    pub fn closed_row(&self, place: (RunId, u32), fence: Fence) -> Option<Row> {
        self.closed.get(&self.sheet_of(place, fence))?.get(place, fence)
    }

    /// The sheet on which a row lies, or would.
    fn sheet_of(&self, (page, chunk): (RunId, u32), fence: Fence) -> SheetKey {
        let before = self.closed.range((page, chunk, FIRST)..=(page, chunk, fence)).next_back();
        before.map_or((page, chunk, FIRST), |(key, _)| *key)
    }

    /// Puts a row among the closed ones, in place of what it was there. A sheet that is too long is cut until none is,
    /// but for those of one row.
    pub(crate) fn put_closed(&mut self, fence: Fence, row: &Row) {
        let most = self.limits().sheet_bytes;
        let place = (row.page, row.chunk);
        let key = self.sheet_of(place, fence);
        let mut sheet = self.closed.remove(&key).unwrap_or_default();
        sheet.put(fence, row);
        if sheet.packed.len() <= most || sheet.spans(row.page).nth(1).is_none() {
            self.closed.put(key, sheet);
            return;
        }
        // Rows close much in the order in which they were granted: the lower sheet is left nearly full, with room for
        // those that come late, and the upper one is to fill. A long row may leave either of them too long still.
        let mut rows: Vec<(Fence, Row)> = sheet.rows(place).collect();
        let upper = rows.split_off(rows.len() - rows.len().div_ceil(8));
        let (mut key, mut left) = (key, vec![upper, rows]);
        while let Some(mut rows) = left.pop() {
            let sheet = Sheet::of(&rows);
            if sheet.packed.len() > most && rows.len() > 1 {
                left.push(rows.split_off(rows.len() / 2));
                left.push(rows);
                continue;
            }
            self.closed.put(key, sheet);
            if let Some((first, _)) = left.last().and_then(|next| next.first()) {
                key = (place.0, place.1, *first);
            }
        }
    }

    /// Forgets the closed rows of a page.
    pub(crate) fn prune_closed(&mut self, page: RunId) {
        let sheets = self.closed.range((page, 0, FIRST)..).take_while(|((of, _, _), _)| *of == page);
        let sheets: Vec<SheetKey> = sheets.map(|(key, _)| *key).collect();
        for key in &sheets {
            self.closed.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
