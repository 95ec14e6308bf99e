//! The test clock (P19): show it and advance it.

use std::sync::Arc;

use reveille_cluster::process::test_clock::{AdvanceError, AdvanceProgress, advance};
use reveille_ledger::ids::Time;
use reveille_proto::admin::v1::{AdvanceClockRequest, AdvanceClockResponse, GetClockRequest, GetClockResponse};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::audience::WAITING_MAX;
use super::watch::Watched;
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts, validate, views};

impl Admin {
    /// Returns the state of the test clock.
    ///
    /// # Errors
    /// If the cluster keeps real time.
    async fn get_clock(&self, GetClockRequest { stale }: GetClockRequest, call: &Call) -> ApiResult<GetClockResponse> {
        let query = self.read(stale, call, |ledger| {
            let due = ledger.due().next().map(|(due, _)| due);
            (ledger.head().now, ledger.head().test_clock, due)
        });
        let ((applied, clock, due), freshness) = query.await?;
        let clock = clock.ok_or_else(error_texts::no_test_clock)?;
        Ok(GetClockResponse {
            current_time: Some(views::timestamp(self.now(applied))),
            offset: Some(views::duration(clock.offset_ms)),
            next_due_time: due.map(views::timestamp),
            freshness,
        })
    }
}

serve! {
    clock_service_server::ClockService {
        [type AdvanceClockStream = Watched<AdvanceClockResponse>]
        cluster get_clock(GetClockRequest) -> GetClockResponse;
        cluster advance_clock(AdvanceClockRequest) -> Watched<AdvanceClockResponse>;
    }
}

impl Admin {
    /// Advances the clock. The stream ends when the target is reached, the caller disconnects, or the node stops.
    async fn advance_clock(
        &self,
        request: AdvanceClockRequest,
        call: &Call,
    ) -> ApiResult<Watched<AdvanceClockResponse>> {
        self.get_clock(GetClockRequest { stale: false }, call).await?;
        let AdvanceClockRequest { target, jump } = request;
        let now = self.now(self.context.replica.read(|ledger| ledger.head().now));
        let to = validate::clock_target(target, now)?;
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let (context, stop) = (Arc::clone(&self.context), self.stop.clone());
        tokio::spawn(async move {
            let report = |progress: AdvanceProgress| {
                // A message that cannot be sent is dropped: a newer one follows.
                let _ = sender.try_send(Ok(response(to, &progress, false)));
            };
            let last = tokio::select! {
                advanced = advance(&context, to, jump, report) => {
                    advanced.map(|progress| response(to, &progress, true)).map_err(fault)
                }
                () = sender.closed() => return,
                () = stop.cancelled() => Err(error_texts::stopping("this node is stopping; the clock stays where it is")),
            };
            // The caller may have disconnected.
            let _ = sender.send(last.map_err(Status::from)).await;
        });
        Ok(ReceiverStream::new(receiver))
    }
}

fn response(to: Time, progress: &AdvanceProgress, done: bool) -> AdvanceClockResponse {
    AdvanceClockResponse {
        former_time: Some(views::timestamp(progress.from)),
        current_time: Some(views::timestamp(progress.now)),
        target_time: Some(views::timestamp(to)),
        steps: progress.steps,
        fired: progress.fired,
        done,
        due: progress.work.due,
        pending: progress.work.pending,
        claimed: progress.work.claimed,
        late: progress.work.late,
    }
}

fn fault(error: AdvanceError) -> ApiError {
    match error {
        AdvanceError::Refused(refusal) => error_texts::refused(&refusal),
        AdvanceError::NotProposed(error) => error_texts::not_proposed(&error, None),
        AdvanceError::NotRead(error) => error_texts::not_read(error, None),
    }
}
