//! Dead letters: listed, sent again, or taken off the list.

use std::ops::Bound;

use reveille_ledger::command::{self, Command};
use reveille_ledger::ids::{Hash, RunId};
use reveille_ledger::{DeadLetter, Ledger};
use reveille_proto::admin::v1::dead_letter_service_server::DeadLetterService;
use reveille_proto::admin::v1::{
    DiscardDeadLettersRequest, DiscardDeadLettersResponse, ListDeadLettersRequest, ListDeadLettersResponse,
    RequeueDeadLettersRequest, RequeueDeadLettersResponse,
};
use tonic::{Request, Response, Status};

use super::blobs::Audiences;
use super::listing::{Page, Question, Wanted};
use super::paging::LOOK_MAX;
use super::writes::moved;
use super::{Admin, deadline, views};

/// Run and number of a dead letter.
type Key = (RunId, u32);

/// A dead letter and the audience of its run.
type Letter = (Key, Hash, DeadLetter);

impl Page<Letter, Key> {
    /// Looks at all runs, latest first, from the one after which the former page ended.
    fn look(&mut self, ledger: &Ledger, wanted: &Wanted<'_, Key>) {
        let &Wanted { tenant, only, paging } = wanted;
        let mut before = match (only, paging.after) {
            (Some(run), _) | (None, Some((run, _))) => Bound::Included((run, u32::MAX)),
            (None, None) => Bound::Unbounded,
        };
        while let Some((&(run, _), _)) = ledger.dead().range((Bound::Unbounded, before)).next_back() {
            if only.is_some_and(|only| only != run) {
                return;
            }
            let from = match paging.after {
                Some((of, number)) if of == run => Bound::Excluded((run, number)),
                _ => Bound::Included((run, 0)),
            };
            self.looked += 1;
            if ledger.page_of(run).is_some_and(|(_, page, _)| page.tenant == tenant) {
                self.look_at_run(ledger, run, from, paging.size);
            } else {
                self.last = Some((run, u32::MAX));
                self.more = self.looked >= LOOK_MAX;
            }
            if self.more || only.is_some() {
                return;
            }
            before = Bound::Excluded((run, 0));
        }
    }

    fn look_at_run(&mut self, ledger: &Ledger, run: RunId, from: Bound<Key>, size: usize) {
        let Some(audience) = ledger.run(run).map(|run| run.audience) else { return };
        for (key, letter) in ledger.dead().range((from, Bound::Included((run, u32::MAX)))) {
            if self.rows.len() >= size || self.looked >= LOOK_MAX || self.blobs.is_full() {
                self.more = true;
                return;
            }
            self.looked += 1;
            self.last = Some(*key);
            if !letter.discarded {
                self.blobs.take(ledger, audience);
                self.rows.push((*key, audience, letter.clone()));
            }
        }
    }
}

#[tonic::async_trait]
impl DeadLetterService for Admin {
    async fn list_dead_letters(
        &self,
        request: Request<ListDeadLettersRequest>,
    ) -> Result<Response<ListDeadLettersResponse>, Status> {
        let deadline = deadline::of(&request);
        let request = request.into_inner();
        let question = Question {
            list: "dead-letters",
            tenant: &request.tenant,
            run: &request.run,
            stale: request.stale,
            page_size: request.page_size,
            page_token: &request.page_token,
        };
        let listed = self.list(question, deadline, Page::look).await?;
        let mut audiences = Audiences::new(&listed.blobs);
        let dead_letters = listed.rows.iter().map(|((run, number), audience, letter)| {
            views::dead_letter(*run, *number, audiences.address(*audience, *number), letter)
        });
        Ok(Response::new(ListDeadLettersResponse {
            dead_letters: dead_letters.collect(),
            next_page_token: listed.next_page_token,
            freshness: listed.freshness,
        }))
    }

    async fn requeue_dead_letters(
        &self,
        request: Request<RequeueDeadLettersRequest>,
    ) -> Result<Response<RequeueDeadLettersResponse>, Status> {
        let deadline = deadline::of(&request);
        let RequeueDeadLettersRequest { tenant, run, recipients, all } = request.into_inner();
        let picked = self.pick((&tenant, &run), (&recipients, all), deadline).await?;
        let command = Command::Requeue(command::Picked { run: picked.run, recipients: picked.numbers });
        let reply = self.write(command, "", deadline).await?;
        Ok(Response::new(RequeueDeadLettersResponse { requeued: moved(&reply), index: reply.index }))
    }

    async fn discard_dead_letters(
        &self,
        request: Request<DiscardDeadLettersRequest>,
    ) -> Result<Response<DiscardDeadLettersResponse>, Status> {
        let deadline = deadline::of(&request);
        let DiscardDeadLettersRequest { tenant, run, recipients, all } = request.into_inner();
        let picked = self.pick((&tenant, &run), (&recipients, all), deadline).await?;
        let command = Command::Discard(command::Picked { run: picked.run, recipients: picked.numbers });
        let reply = self.write(command, "", deadline).await?;
        Ok(Response::new(DiscardDeadLettersResponse { discarded: moved(&reply), index: reply.index }))
    }
}
