//! The lists of recipients that wait for a decision: dead letters and doubts.
//!
//! Both are asked for in the same words (a tenant, perhaps one run, a page) and collect a page in the same
//! way; how the state is walked through is each list's own.

use std::time::Instant;

use reveille_ledger::Ledger;
use reveille_ledger::ids::RunId;
use reveille_proto::admin::v1::Freshness;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::blobs::Blobs;
use super::lookup::{RunArgument, check_schedule};
use super::paging::Paging;
use super::{Admin, ApiError, validate};

/// What is asked, as the request says it.
pub struct RecipientQuery<'q> {
    /// The list's name, for its tokens.
    pub list: &'static str,
    pub tenant: &'q str,
    /// Empty for all runs.
    pub run: &'q str,
    /// A schedule that has to be there, or to have been; empty for all.
    pub schedule: &'q str,
    pub stale: bool,
    pub page_size: i32,
    pub page_token: &'q str,
}

/// What is wanted, checked.
pub struct PageRequest<'q, K> {
    pub tenant: &'q str,
    /// None: all runs.
    pub only: Option<RunId>,
    pub paging: &'q Paging<K>,
}

/// What a page collects while it looks at the state.
pub struct RecipientPage<R, K> {
    pub rows: Vec<R>,
    /// Contents and audiences of the rows.
    pub blobs: Blobs,
    pub looked: usize,
    /// The last key that was read.
    pub last: Option<K>,
    /// Is there more after it?
    pub more: bool,
}

impl<R, K> Default for RecipientPage<R, K> {
    fn default() -> RecipientPage<R, K> {
        RecipientPage { rows: Vec::new(), blobs: Blobs::default(), looked: 0, last: None, more: false }
    }
}

/// A page that was collected, and what the answer says beside its rows.
pub struct RecipientRows<R> {
    pub rows: Vec<R>,
    pub blobs: Blobs,
    pub next_page_token: String,
    pub freshness: Option<Freshness>,
}

impl Admin {
    /// Answers the question with what `look` collects.
    pub(crate) async fn list<R, K: Serialize + DeserializeOwned>(
        &self,
        question: RecipientQuery<'_>,
        deadline: Instant,
        look: impl FnOnce(&mut RecipientPage<R, K>, &Ledger, &PageRequest<'_, K>),
    ) -> Result<RecipientRows<R>, ApiError> {
        let tenant = validate::tenant(question.tenant)?;
        let run = Some(question.run).filter(|run| !run.is_empty()).map(RunArgument::parse).transpose()?;
        let paging = Paging::new(question.list, question.page_size, question.page_token)?;
        let mut page = RecipientPage::default();
        let (found, freshness) = self
            .read(question.stale, deadline, |ledger| {
                check_schedule(ledger, &tenant, question.schedule)?;
                let only = run.map(|run| run.find(ledger, &self.context.zones, &tenant)).transpose()?;
                look(&mut page, ledger, &PageRequest { tenant: &tenant, only, paging: &paging });
                Ok::<_, ApiError>(())
            })
            .await?;
        found?;
        let next_page_token = paging.token(page.last.filter(|_| page.more).as_ref());
        Ok(RecipientRows { rows: page.rows, blobs: page.blobs, next_page_token, freshness })
    }
}
