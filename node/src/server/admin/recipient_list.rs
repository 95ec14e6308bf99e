//! Lists of recipients that wait for a decision: dead letters and recipients in doubt.
//!
//! Both lists take the same parameters (a tenant, optionally one run, a page) and share the code for a page. Each list
//! has its own way to read the state.

use reveille_ledger::Ledger;
use reveille_ledger::ids::RunId;
use reveille_proto::admin::v1::Freshness;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::blobs::Blobs;
use super::lookup::check_schedule;
use super::paging::Paging;
use super::{Admin, ApiResult, Call, validate};

/// Name of all runs, where a run is a part of the path of a request (AIP-159).
const ALL_RUNS: &str = "-";

/// The parameters after the check.
pub struct PageRequest<'q, K> {
    pub tenant: &'q str,
    /// `None` for all runs.
    pub only: Option<RunId>,
    pub paging: &'q Paging<K>,
}

/// The rows and data of a page, collected while the state is read.
pub struct RecipientPage<R, K> {
    pub rows: Vec<R>,
    /// Contents and audiences that the rows need.
    pub blobs: Blobs,
    pub examined: usize,
    /// The last key that was read.
    pub last: Option<K>,
    /// True if there are more rows after `last`.
    pub more: bool,
}

impl<R, K> Default for RecipientPage<R, K> {
    fn default() -> RecipientPage<R, K> {
        RecipientPage { rows: Vec::new(), blobs: Blobs::default(), examined: 0, last: None, more: false }
    }
}

/// A complete page, with the token of the next page and the freshness of the read.
pub struct RecipientRows<R> {
    pub rows: Vec<R>,
    pub blobs: Blobs,
    pub next_page_token: String,
    pub freshness: Option<Freshness>,
}

impl Admin {
    /// Checks the parameters of a request, and returns the page that `collect` fills from the ledger. `list` names the
    /// list, for its page tokens. An empty run or [`ALL_RUNS`], and an empty schedule, mean all. The schedule must
    /// exist or have existed.
    pub(crate) async fn list<R, K: Serialize + DeserializeOwned + Clone>(
        &self,
        (list, tenant, run, schedule): (&'static str, &str, &str, &str),
        (stale, page_size, page_token): (bool, i32, &str),
        call: &Call,
        collect: impl FnOnce(&mut RecipientPage<R, K>, &Ledger, &PageRequest<'_, K>),
    ) -> ApiResult<RecipientRows<R>> {
        let tenant = validate::tenant(tenant)?;
        let paging = Paging::new(list, page_size, page_token)?;
        let only = match run {
            "" | ALL_RUNS => None,
            run => Some(self.find_run((&tenant, run), stale, call).await?.0),
        };
        let mut page = RecipientPage::default();
        let query = self.try_read(stale, call, |ledger| {
            check_schedule(ledger, &tenant, schedule)?;
            collect(&mut page, ledger, &PageRequest { tenant: &tenant, only, paging: &paging });
            Ok(())
        });
        let ((), freshness) = query.await?;
        let next_page_token = paging.token(page.last.filter(|_| page.more).as_ref());
        Ok(RecipientRows { rows: page.rows, blobs: page.blobs, next_page_token, freshness })
    }
}
