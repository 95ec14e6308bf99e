//! The store on disk: sled 0.34, one tree, nothing trusted.
//!
//! What is known of sled 0.34.7 and built in here:
//! * its batches are atomic per tree only: so one tree, with the meta cell inside;
//! * its `flush` is not an fsync: after a power cut the last writes, or all, may be gone. That is why this is a mirror;
//! * memory that a write frees is reclaimed by *later calls*, some 500 objects for every 128 calls: a batch is one
//!   call, so a store that only ever applies batches grows for ever (measured: 16 MB a batch of 5,000). Reading each
//!   cell before it is overwritten, which the totals need anyhow, is what keeps memory flat;
//! * a batch holds its garbage until it ends, some 7 KB a cell: hence [`BATCH_CELLS`].
//!
//! Measured (release, two busy cores, 100,000 rows of 400 bytes, 5,000 of them changed at random a write;
//! `examples/store_writes.rs` repeats it): 0.2 s of CPU a write, 40 us a row, of which sled takes 35; 7 MB written for 2 MB of values;
//! resident memory flat at 135 MB. Opening and loading takes 0.6 s. Rows are not gathered into pages of neighbours:
//! with changes at random, pages of 4 and 8 KiB wrote 32 and 44 MB for half of the CPU. So the
//! ledger groups small rows that change together into pages of its own.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::cell::{self, CellTotals, META_KEY, MetaCell, RowAssembly};
use super::sled_guard::{from_sled, guarded};
use super::{Changes, Contents, Row, StateStore, StoreError, quarantine};

/// sled's page cache. The state is in memory already, so the disk copy needs little.
const CACHE_BYTES: u64 = 16 << 20;

/// Cells in one batch, at most: bounds the memory that sled holds during a batch to some 60 MB. A larger write goes
/// in several batches, and is marked as unfinished until its last.
const BATCH_CELLS: usize = 8_192;

/// How long `open` waits for a lock that is still held: sled's threads let go of it a moment after its last handle.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// A [`StateStore`] in a folder of its own.
///
/// Beside the folder `state` lie `state.filled` (an empty file: rows were written, so an empty store is damage) and
/// `state.damaged-<n>` (what was set aside).
pub struct SledStore {
    path: PathBuf,
    /// `None` after an error, until `replace`.
    tree: Option<Tree>,
    /// The last error was damage: `replace` keeps the files for analysis.
    damaged: Option<StoreError>,
}

/// Opens the store at `path` and loads all of it. One that does not open, is unexpectedly empty or fails a check is
/// moved to `<path>.damaged-<n>` with a log line, and the answer is a new store that is `Empty`: the caller rebuilds
/// it from snapshot and log. Errors: `Busy`, `Full`, `Io`, never `Damaged` unless a new store is damaged too.
pub fn open_or_quarantine(path: &Path) -> Result<(SledStore, Contents), StoreError> {
    let load = || {
        let mut store = SledStore::open(path)?;
        let contents = store.load()?;
        Ok((store, contents))
    };
    match load() {
        Err(why @ StoreError::Damaged { .. }) => {
            quarantine::quarantine(path, &why)?;
            load()
        }
        other => other,
    }
}

impl SledStore {
    /// Opens the store at `path`; creates it when there is none.
    pub(super) fn open(path: &Path) -> Result<SledStore, StoreError> {
        let tree = Tree::open(path)?;
        Ok(SledStore { path: path.to_path_buf(), tree: Some(tree), damaged: None })
    }

    /// Runs `call` on the tree; after an error the tree is let go of.
    fn with_tree<T>(
        &mut self,
        doing: &'static str,
        call: impl FnOnce(&mut Tree, &Path) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let Some(tree) = &mut self.tree else {
            return Err(StoreError::damaged("an earlier error left the store unusable until it is replaced"));
        };
        let result = guarded(doing, || call(tree, &self.path));
        if let Err(error) = &result {
            if let StoreError::Damaged { why } = error {
                self.damaged = Some(StoreError::damaged(why.clone()));
            }
            self.let_go();
        }
        result
    }

    /// Drops the tree and ignores errors: these files are only read again to check them.
    fn let_go(&mut self) {
        let tree = self.tree.take();
        let _ = guarded("close the state store", || {
            drop(tree);
            Ok(())
        });
    }
}

impl StateStore for SledStore {
    fn load(&mut self) -> Result<Contents, StoreError> {
        self.with_tree("load the state store", Tree::load)
    }

    fn write(&mut self, changes: &Changes, meta: &[u8]) -> Result<(), StoreError> {
        self.with_tree("write the state store", |tree, path| {
            quarantine::expect_rows(path)?;
            let mut writing = CellWriter::new(tree);
            for (key, value) in changes {
                writing.put(key, value.as_deref())?;
            }
            writing.finish(meta)
        })
    }

    fn replace(&mut self, rows: &mut dyn Iterator<Item = Row>, meta: &[u8]) -> Result<(), StoreError> {
        self.let_go();
        match self.damaged.take() {
            Some(why) => quarantine::quarantine(&self.path, &why)?,
            None => quarantine::remove(&self.path)?,
        }
        self.tree = Some(Tree::open(&self.path)?);
        self.with_tree("fill the state store", |tree, path| {
            quarantine::expect_rows(path)?;
            let mut writing = CellWriter::new(tree);
            writing.unfinished()?;
            for (key, value) in rows {
                writing.put(&key, Some(&value))?;
            }
            writing.finish(meta)
        })
    }

    fn close(mut self: Box<Self>) -> Result<(), StoreError> {
        let Some(tree) = self.tree.take() else { return Ok(()) };
        guarded("close the state store", || tree.flush())
    }
}

/// The open tree and the totals of the cells in it (`None`: it holds no state).
struct Tree {
    db: sled::Db,
    totals: Option<CellTotals>,
}

impl Tree {
    fn open(path: &Path) -> Result<Tree, StoreError> {
        let patient_until = Instant::now() + LOCK_PATIENCE;
        let db = loop {
            match guarded("open the state store", || open_sled(path)) {
                Err(StoreError::Busy) if Instant::now() < patient_until => sleep(Duration::from_millis(20)),
                other => break other?,
            }
        };
        guarded("read the meta row", || {
            let mut tree = Tree { db, totals: None };
            tree.totals = tree.meta()?.map(|(totals, _)| totals);
            Ok(tree)
        })
    }

    fn meta(&self) -> Result<Option<(CellTotals, Vec<u8>)>, StoreError> {
        match self.get(META_KEY)? {
            None => Ok(None),
            Some(value) => match MetaCell::from_value(&value)? {
                MetaCell::Unfinished => Err(StoreError::damaged("a large write did not end")),
                MetaCell::Whole { totals, blob } => Ok(Some((totals, blob))),
            },
        }
    }

    fn load(&mut self, path: &Path) -> Result<Contents, StoreError> {
        let Some((totals, meta)) = self.meta()? else {
            return match self.db.iter().next() {
                None if quarantine::rows_expected(path) => Err(StoreError::damaged("it is unexpectedly empty")),
                None => Ok(Contents::Empty),
                Some(_) => Err(StoreError::damaged("the meta row is missing")),
            };
        };
        let mut assembly = RowAssembly::default();
        for cell in self.db.iter() {
            let (key, value) = cell.map_err(|error| from_sled("read a row", error))?;
            if key != META_KEY {
                assembly.push(&key, &value)?;
            }
        }
        Ok(Contents::State { meta, rows: assembly.finish(totals)? })
    }

    fn get(&self, key: &[u8]) -> Result<Option<sled::IVec>, StoreError> {
        self.db.get(key).map_err(|error| from_sled("read a row", error))
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.db.flush().map(drop).map_err(|error| from_sled("flush the state store", error))
    }
}

fn open_sled(path: &Path) -> Result<sled::Db, StoreError> {
    sled::Config::new()
        .path(path)
        .cache_capacity(CACHE_BYTES)
        // The mirror decides when to write; sled's own thread would add a second rhythm and another place to fail.
        .flush_every_ms(None)
        .mode(sled::Mode::LowSpace)
        .open()
        .map_err(|error| from_sled("open the state store", error))
}

/// One write: gathers cells into batches and keeps the totals.
struct CellWriter<'a> {
    tree: &'a mut Tree,
    totals: CellTotals,
    batch: sled::Batch,
    cells: usize,
}

impl CellWriter<'_> {
    fn new(tree: &mut Tree) -> CellWriter<'_> {
        let totals = tree.totals.unwrap_or_default();
        CellWriter { tree, totals, batch: sled::Batch::default(), cells: 0 }
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), StoreError> {
        let former = self.forget(key)?;
        let mut count = 0;
        for cell in value.into_iter().flat_map(|value| cell::cells(key, value)) {
            self.totals.add(cell.hash);
            self.batch.insert(cell.key, cell.value);
            count += 1;
        }
        for part in count..former {
            self.batch.remove(cell::cell_key(key, part));
        }
        self.cells += count.max(former) as usize;
        if self.cells >= BATCH_CELLS {
            self.unfinished()?;
        }
        Ok(())
    }

    /// Takes the cells that the row `key` has now out of the totals; answers how many there are.
    fn forget(&mut self, key: &[u8]) -> Result<u32, StoreError> {
        let mut count = 0;
        let mut part = 0;
        while part == 0 || part < count {
            let cell_key = cell::cell_key(key, part);
            let Some(value) = self.tree.get(&cell_key)? else {
                return if part == 0 { Ok(0) } else { Err(StoreError::damaged("a part of a row is missing")) };
            };
            let (hash, said) = cell::inspect(&cell_key, &value)?;
            if part == 0 {
                count = said;
            }
            self.totals.subtract(hash);
            part += 1;
        }
        Ok(count)
    }

    /// Writes what has gathered and says in the same batch that more will come.
    fn unfinished(&mut self) -> Result<(), StoreError> {
        self.apply(&MetaCell::Unfinished)
    }

    fn finish(mut self, meta: &[u8]) -> Result<(), StoreError> {
        self.apply(&MetaCell::Whole { totals: self.totals, blob: meta.to_vec() })?;
        self.tree.totals = Some(self.totals);
        self.tree.flush()
    }

    fn apply(&mut self, meta: &MetaCell) -> Result<(), StoreError> {
        let mut batch = std::mem::take(&mut self.batch);
        self.cells = 0;
        batch.insert(META_KEY, meta.to_value()?);
        self.tree.db.apply_batch(batch).map_err(|error| from_sled("write a batch", error))
    }
}
