//! Reads: fresh on any node, or stale if the caller asks for it.

use std::sync::Arc;

use reveille_cluster::process::context::NodeContext;
use reveille_ledger::Ledger;
use reveille_ledger::ids::Time;
use reveille_ledger::limits::LedgerLimits;
use reveille_proto::admin::v1::Freshness;
use reveille_raft::{Member, ReadError};

use super::error_texts::CallKind;
use super::views::duration;
use super::{Admin, ApiResult, Call, error_texts};

impl Admin {
    /// Reads a state that includes every write that was answered before this call.
    pub(crate) async fn read_latest<T>(&self, call: &Call, query: impl FnOnce(&Ledger) -> T) -> ApiResult<T> {
        Ok(self.read(false, call, query).await?.0)
    }

    /// Like [`Admin::read_latest`]. With `stale`, it reads what this node has applied, without a request to another
    /// node.
    ///
    /// The age of a stale answer is the time since the ledger time of the last applied entry. An idle leader commits an
    /// entry every ten seconds (P18).
    pub(crate) async fn read<T>(
        &self,
        stale: bool,
        call: &Call,
        query: impl FnOnce(&Ledger) -> T,
    ) -> ApiResult<(T, Option<Freshness>)> {
        self.record_step("read");
        if !stale {
            match self.context.replica.linearizable_while_led(call.deadline).await {
                Ok(_) => {}
                Err(ReadError::NoLeader) => return Err(self.no_leader(CallKind::Read, call).await),
                Err(error) => return Err(error_texts::not_read(error, self.leader().as_ref())),
            }
        }
        let (value, index, stamped) = self.context.replica.read(|ledger| {
            let head = ledger.head();
            // A token that was revoked before this state reads nothing of it.
            call.check(ledger).map(|()| (query(ledger), head.applied, head.real_now()))
        })?;
        let age_ms = self.context.clock.wall().since_ms(stamped).max(0);
        let age = (stale && index > 0).then(|| duration(age_ms));
        Ok((value, Some(Freshness { index, stale, age })))
    }

    /// Like [`Admin::read`], for a query that may fail.
    pub(crate) async fn try_read<T>(
        &self,
        stale: bool,
        call: &Call,
        query: impl FnOnce(&Ledger) -> ApiResult<T>,
    ) -> ApiResult<(T, Option<Freshness>)> {
        let (found, freshness) = self.read(stale, call, query).await?;
        Ok((found?, freshness))
    }

    /// Returns the current ledger time. `applied` is the time of the last applied entry.
    pub(crate) fn now(&self, applied: Time) -> Time {
        self.context.ledger_time(applied)
    }

    /// Returns the limits by which a command that is proposed now is applied.
    pub(crate) fn limits(&self) -> &'static LedgerLimits {
        self.context.replica.read(|ledger| ledger.limits())
    }

    /// Runs what takes long, such as computing a calendar or reading files, on a blocking thread.
    ///
    /// # Errors
    /// If it panics.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&NodeContext) -> T + Send + 'static,
    ) -> ApiResult<T> {
        self.record_step("compute");
        let context = Arc::clone(&self.context);
        let done = tokio::task::spawn_blocking(move || work(&context)).await;
        done.map_err(|error| error_texts::broken(format!("a computation failed: {error}")))
    }

    /// Returns the leader, or `None` if this node knows none.
    pub(crate) fn leader(&self) -> Option<Member> {
        let mut status = self.context.replica.status();
        status.members.remove(&status.leader?).map(|known| known.member)
    }
}
