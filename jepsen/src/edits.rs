//! Schedules as their owners change and look at them: edits by etag, deletions, pauses, backfills, and single reads of
//! one node.

use std::time::{Duration, UNIX_EPOCH};

use reveille_proto::admin::v1::opt_out_service_client::OptOutServiceClient;
use reveille_proto::admin::v1::schedule_service_client::ScheduleServiceClient;
use reveille_proto::admin::v1::{
    BackfillScheduleRequest, BackfillScheduleResponse, CheckOptOutRequest, DeleteScheduleRequest, GetScheduleRequest,
    PauseScheduleRequest, ResumeScheduleRequest, Schedule, ScheduleBody, UpdateScheduleRequest,
};
use tonic::Code;

use crate::admin::Admin;
use crate::orders::Came;

/// A read of one node is given up after this.
const READ_WITHIN: Duration = Duration::from_secs(2);

impl Admin {
    /// A schedule as this node tells of it, asked once: none where it did not answer, and nothing where there is none of
    /// that name.
    pub async fn schedule_by(&self, node: usize, name: &str) -> Option<Option<Schedule>> {
        let request =
            GetScheduleRequest { tenant: self.tenant(), name: name.to_owned(), ..GetScheduleRequest::default() };
        let asked = self.ask_once(node, READ_WITHIN, |channel| async move {
            ScheduleServiceClient::new(channel).get_schedule(request).await
        });
        match asked.await? {
            Ok(answer) => answer.schedule.map(Some),
            Err(status) if status.code() == Code::NotFound => Some(None),
            Err(_) => None,
        }
    }

    /// Has somebody opted out, as this node tells? Asked once.
    pub async fn is_opted_out_by(&self, node: usize, recipient: &str) -> Option<bool> {
        let request = CheckOptOutRequest {
            tenant: self.tenant(),
            recipient: recipient.to_owned(),
            ..CheckOptOutRequest::default()
        };
        let asked = self.ask_once(node, READ_WITHIN, |channel| async move {
            OptOutServiceClient::new(channel).check_opt_out(request).await
        });
        asked.await?.ok().map(|answer| answer.opted_out)
    }

    /// A schedule as the first node tells of it that answers; each is asked twice at most.
    pub async fn schedule(&self, name: &str) -> Option<Option<Schedule>> {
        for node in 0..2 * self.endpoints().len() {
            if let Some(found) = self.schedule_by(node, name).await {
                return Some(found);
            }
        }
        None
    }

    /// Gives a schedule another timing, where its etag is still this one.
    pub async fn retime(&self, request_id: &str, etag: &str, body: &ScheduleBody) -> Came<()> {
        let request = UpdateScheduleRequest {
            schedule: Some(body.clone()),
            update_mask: Some(prost_types::FieldMask { paths: vec!["when".to_owned()] }),
            etag: etag.to_owned(),
            request_id: request_id.to_owned(),
            ..UpdateScheduleRequest::default()
        };
        let came = self.order(|channel| {
            let request = request.clone();
            async move { ScheduleServiceClient::new(channel).update_schedule(request).await }
        });
        came.await.map(|_| ())
    }

    /// Deletes a schedule; answers the log index of the entry.
    pub async fn delete_schedule(&self, name: &str) -> Came<u64> {
        let request =
            DeleteScheduleRequest { tenant: self.tenant(), name: name.to_owned(), ..DeleteScheduleRequest::default() };
        let came = self.order(|channel| {
            let request = request.clone();
            async move { ScheduleServiceClient::new(channel).delete_schedule(request).await }
        });
        came.await.map(|answer| answer.index)
    }

    /// Pauses a schedule; answers the log index of the entry.
    pub async fn pause_schedule(&self, name: &str) -> Came<u64> {
        let request =
            PauseScheduleRequest { tenant: self.tenant(), name: name.to_owned(), ..PauseScheduleRequest::default() };
        let came = self.order(|channel| {
            let request = request.clone();
            async move { ScheduleServiceClient::new(channel).pause_schedule(request).await }
        });
        came.await.map(|answer| answer.schedule.map_or(0, |schedule| schedule.index))
    }

    /// Lets a schedule go on; answers the log index of the entry.
    pub async fn resume_schedule(&self, name: &str) -> Came<u64> {
        let request =
            ResumeScheduleRequest { tenant: self.tenant(), name: name.to_owned(), ..ResumeScheduleRequest::default() };
        let came = self.order(|channel| {
            let request = request.clone();
            async move { ScheduleServiceClient::new(channel).resume_schedule(request).await }
        });
        came.await.map(|answer| answer.schedule.map_or(0, |schedule| schedule.index))
    }

    /// Opens what never opened of these instants, both ends included; milliseconds since 1970.
    pub async fn backfill(
        &self,
        request_id: &str,
        name: &str,
        (from_ms, until_ms): (u64, u64),
    ) -> Came<BackfillScheduleResponse> {
        let at = |ms| Some(prost_types::Timestamp::from(UNIX_EPOCH + Duration::from_millis(ms)));
        let request = BackfillScheduleRequest {
            tenant: self.tenant(),
            name: name.to_owned(),
            from: at(from_ms),
            to: at(until_ms),
            request_id: request_id.to_owned(),
            ..BackfillScheduleRequest::default()
        };
        self.order(|channel| {
            let request = request.clone();
            async move { ScheduleServiceClient::new(channel).backfill_schedule(request).await }
        })
        .await
    }
}
