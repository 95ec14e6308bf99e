//! Closed claims, packed: claims in which nothing is claimed or in doubt any more (P4, P14).
//!
//! They are most of what a large run leaves behind. They are read when late evidence arrives, for `explain`, and when a
//! node settles the claims of its earlier incarnation. A block has claims of one chunk, ordered by fence, in about two
//! kilobytes. A read unpacks only the requested claim. A claim of 256 takes about 31 bytes, 0.12 of a byte a recipient,
//! plus ten bytes and the text for each refusal or release (`raft/ledger/tests/ledger/size.rs`).
//!
//! The block of a claim follows from the order in which claims closed, which is the order of the log. So it is equal on
//! every replica (P2). A change of [`Packed`], or of a type in it ([`ClaimHistory`]), is a new form of the row (P23).

use serde::{Deserialize, Serialize, Serializer};

use crate::model::{Bitmap, ChunkKey, Claim, ClaimHistory, ClaimOwner, Epoch, Fence, Ledger, PageId, RunId, Time};

/// Lower bound of all fences: key of the first block of a chunk.
const FIRST: Fence = Fence { group: 0, epoch: Epoch(0), index: 0, place: 0 };
/// Upper bound of all fences.
const LAST: Fence = Fence { group: u32::MAX, epoch: Epoch(u64::MAX), index: u64::MAX, place: u32::MAX };

/// Key of a block: its chunk, and a lower bound of the fences in it.
pub type ClosedClaimKey = (ChunkKey, Fence);

/// Closed claims of one chunk, packed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct ClosedClaimBlock {
    /// Owners of its claims, each once.
    owners: Vec<ClaimOwner>,
    /// Time of the claim that was put first; the others are stored relative to it.
    since: Time,
    /// The claims, each after its length.
    #[serde(serialize_with = "as_bytes")]
    packed: Vec<u8>,
}

/// Writes the bytes at once. The format is that of a sequence of numbers.
pub(crate) fn as_bytes<S: Serializer>(packed: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(packed)
}

#[derive(Deserialize)]
struct Stored {
    owners: Vec<ClaimOwner>,
    since: Time,
    packed: Vec<u8>,
}

/// A closed claim without what its block has for all claims. The page is in the key.
#[derive(Serialize, Deserialize)]
struct Packed {
    fence: PackedFence,
    owner: u32,
    claimed_at: i64,
    granted: Bitmap,
    sent: Subset,
    assumed: Subset,
    history: ClaimHistory,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct PackedFence {
    group: u32,
    epoch: i64,
    index: i64,
    place: u32,
}

/// A subset of the granted slots.
#[derive(Serialize, Deserialize)]
enum Subset {
    None,
    All,
    Some(Bitmap),
}

impl Subset {
    fn of(granted: &Bitmap, subset: &Bitmap) -> Subset {
        if subset.is_empty() {
            Subset::None
        } else if subset == granted {
            Subset::All
        } else {
            Subset::Some(subset.clone())
        }
    }

    fn slots(self, granted: &Bitmap) -> Bitmap {
        match self {
            Subset::None => Bitmap::new(),
            Subset::All => granted.clone(),
            Subset::Some(slots) => slots,
        }
    }
}

/// Distances wrap on overflow, and unpacking restores them, so every number can be packed.
impl PackedFence {
    fn of(page: PageId, fence: Fence) -> PackedFence {
        let distance = |index: u64| index.wrapping_sub(page.0.index) as i64;
        let Fence { group, epoch, index, place } = fence;
        PackedFence { group, epoch: distance(epoch.0), index: distance(index), place }
    }

    fn fence(self, page: PageId) -> Fence {
        let index = |distance: i64| page.0.index.wrapping_add(distance as u64);
        Fence { group: self.group, epoch: Epoch(index(self.epoch)), index: index(self.index), place: self.place }
    }
}

impl TryFrom<Stored> for ClosedClaimBlock {
    type Error = &'static str;

    /// Accepts only blocks that can be read later: each claim is complete, and its owner is in the list.
    fn try_from(stored: Stored) -> Result<ClosedClaimBlock, &'static str> {
        let Stored { owners, since, packed } = stored;
        let block = ClosedClaimBlock { owners, since, packed };
        let chunk = PageId(RunId { index: 0, place: 0 }).chunk(0);
        let whole = block.spans(chunk.page).last().is_some_and(|last| last.end == block.packed.len());
        match whole && block.claims(chunk).count() == block.spans(chunk.page).count() {
            true => Ok(block),
            false => Err("bytes that are no closed claims"),
        }
    }
}

/// A claim in a block: from its length to its end. `owner` is a position in the block's list of owners.
struct Span {
    fence: Fence,
    owner: u32,
    start: usize,
    end: usize,
}

impl ClosedClaimBlock {
    fn of(claims: &[(Fence, Claim)]) -> ClosedClaimBlock {
        let mut block = ClosedClaimBlock::default();
        for (fence, claim) in claims {
            block.put(*fence, claim);
        }
        block
    }

    /// Iterates over its claims, in the order of their fences.
    pub fn claims(&self, key: ChunkKey) -> impl Iterator<Item = (Fence, Claim)> + '_ {
        self.spans(key.page).filter_map(move |span| Some((span.fence, self.unpack(key, &span)?)))
    }

    /// Iterates over the claims of one owner. Claims of other owners are not unpacked.
    fn claims_by(&self, key: ChunkKey, owner: ClaimOwner) -> impl Iterator<Item = (Fence, Claim)> + '_ {
        let number = self.owners.iter().position(|known| *known == owner);
        let spans = number
            .into_iter()
            .flat_map(move |number| self.spans(key.page).filter(move |span| usize::try_from(span.owner) == Ok(number)));
        spans.filter_map(move |span| Some((span.fence, self.unpack(key, &span)?)))
    }

    fn get(&self, key: ChunkKey, fence: Fence) -> Option<Claim> {
        let span = self.spans(key.page).find(|span| span.fence == fence)?;
        self.unpack(key, &span)
    }

    /// Iterates over the positions of its claims. Stops at an invalid claim; a block that was made or read here has
    /// none.
    fn spans(&self, page: PageId) -> impl Iterator<Item = Span> + '_ {
        let mut start = 0;
        std::iter::from_fn(move || {
            let left = self.packed.get(start..)?;
            let (length, claims) = postcard::take_from_bytes::<u32>(left).ok()?;
            let claim = claims.get(..length as usize)?;
            let ((fence, owner), _) = postcard::take_from_bytes::<(PackedFence, u32)>(claim).ok()?;
            let end = start + left.len() - claims.len() + claim.len();
            let span = Span { fence: fence.fence(page), owner, start, end };
            start = end;
            Some(span)
        })
    }

    fn unpack(&self, chunk: ChunkKey, span: &Span) -> Option<Claim> {
        let (_, claim) = postcard::take_from_bytes::<u32>(self.packed.get(span.start..span.end)?).ok()?;
        let Ok((packed, [])) = postcard::take_from_bytes::<Packed>(claim) else { return None };
        let claimed_at = Time(self.since.0.wrapping_add(packed.claimed_at));
        Some(Claim {
            chunk,
            owner: *self.owners.get(packed.owner as usize)?,
            claimed_at,
            claimed: Bitmap::new(),
            in_doubt: Bitmap::new(),
            sent: packed.sent.slots(&packed.granted),
            assumed: packed.assumed.slots(&packed.granted),
            history: packed.history.moved_by(span.fence.index, claimed_at.0),
            granted: packed.granted,
        })
    }

    /// Adds a claim, or replaces the one with the same fence.
    fn put(&mut self, fence: Fence, claim: &Claim) {
        if self.packed.is_empty() {
            self.since = claim.claimed_at;
        }
        let known = self.owners.iter().position(|owner| *owner == claim.owner);
        let owner = known.unwrap_or_else(|| {
            self.owners.push(claim.owner);
            self.owners.len() - 1
        });
        let packed = Packed {
            fence: PackedFence::of(claim.chunk.page, fence),
            owner: owner as u32,
            claimed_at: claim.claimed_at.0.wrapping_sub(self.since.0),
            granted: claim.granted.clone(),
            sent: Subset::of(&claim.granted, &claim.sent),
            assumed: Subset::of(&claim.granted, &claim.assumed),
            history: claim.history.moved_by(fence.index.wrapping_neg(), claim.claimed_at.0.wrapping_neg()),
        };
        let bytes = postcard::to_stdvec(&packed).expect("plain data in memory can be encoded");
        let end = self.packed.len();
        let next = self.spans(claim.chunk.page).find(|span| span.fence >= fence);
        let (from, to) = next.map_or((end, end), |span| match span.fence == fence {
            true => (span.start, span.end),
            false => (span.start, span.start),
        });
        let length = postcard::to_stdvec(&(bytes.len() as u32)).expect("a number can be encoded");
        self.packed.reserve_exact(length.len() + bytes.len());
        self.packed.splice(from..to, length.into_iter().chain(bytes));
    }
}

impl Ledger {
    /// Iterates over all closed claims. Unpacks each of them, so it is expensive.
    pub fn closed_claims(&self) -> impl Iterator<Item = (Fence, Claim)> + '_ {
        self.closed_claim_blocks.iter().flat_map(|((chunk, _), block)| block.claims(*chunk))
    }

    /// Iterates over the closed claims of one chunk, in the order of their fences.
    pub fn closed_claims_of(&self, key: ChunkKey) -> impl Iterator<Item = (Fence, Claim)> + '_ {
        self.closed_claim_blocks_of(key).flat_map(move |block| block.claims(key))
    }

    /// Iterates over closed claims of one chunk and one owner in which a recipient is assumed, in the order of their
    /// fences. Unpacks one claim at a time, and none of another owner.
    pub fn assumed_claims_by(&self, owner: ClaimOwner, key: ChunkKey) -> impl Iterator<Item = (Fence, Claim)> + '_ {
        let claims = self.closed_claim_blocks_of(key).flat_map(move |block| block.claims_by(key, owner));
        claims.filter(|(_, claim)| !claim.assumed.is_empty())
    }

    /// Iterates over the blocks of one chunk, in the order of their fences.
    pub(crate) fn closed_claim_blocks_of(&self, chunk: ChunkKey) -> impl Iterator<Item = &ClosedClaimBlock> {
        self.closed_claim_blocks.range((chunk, FIRST)..=(chunk, LAST)).map(|(_, block)| block)
    }

    /// Returns the closed claim with this fence.
    pub fn closed_claim(&self, key: ChunkKey, fence: Fence) -> Option<Claim> {
        self.closed_claim_blocks.get(&self.block_key_of(key, fence))?.get(key, fence)
    }

    /// Returns the key of the block that has a claim, or to which it would be added.
    fn block_key_of(&self, chunk: ChunkKey, fence: Fence) -> ClosedClaimKey {
        let before = self.closed_claim_blocks.range((chunk, FIRST)..=(chunk, fence)).next_back();
        before.map_or((chunk, FIRST), |(key, _)| *key)
    }

    /// Adds a claim to the closed ones, or replaces it. A block that is too long is split until no block is, unless it
    /// has only one claim.
    pub(crate) fn put_closed_claim(&mut self, fence: Fence, claim: &Claim) {
        let most = self.limits().claim_block_bytes_max;
        let key = claim.chunk;
        let block_key = self.block_key_of(key, fence);
        let mut block = self.closed_claim_blocks.remove(&block_key).unwrap_or_default();
        block.put(fence, claim);
        if block.packed.len() <= most || block.spans(claim.chunk.page).nth(1).is_none() {
            self.closed_claim_blocks.put(block_key, block);
            return;
        }
        // Claims close roughly in the order in which they were granted. So the lower block stays nearly full, with room
        // for late ones, and the upper block has room to grow. A long claim may leave either of them too long.
        let mut claims: Vec<(Fence, Claim)> = block.claims(key).collect();
        let upper = claims.split_off(claims.len() - claims.len().div_ceil(8));
        let (mut block_key, mut left) = (block_key, vec![upper, claims]);
        while let Some(mut claims) = left.pop() {
            let block = ClosedClaimBlock::of(&claims);
            if block.packed.len() > most && claims.len() > 1 {
                left.push(claims.split_off(claims.len() / 2));
                left.push(claims);
                continue;
            }
            self.closed_claim_blocks.put(block_key, block);
            if let Some((first, _)) = left.last().and_then(|next| next.first()) {
                block_key = (key, *first);
            }
        }
    }

    /// Removes the closed claims of a page.
    pub(crate) fn remove_closed_claims(&mut self, page: PageId) {
        self.closed_claim_blocks.remove_range((page.chunk(0), FIRST)..=(page.chunk(u32::MAX), LAST));
    }
}

#[cfg(test)]
mod tests;
