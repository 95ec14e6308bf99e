//! One function a command: the question it asks, and what it prints of the answer.

pub mod apply;
mod backfill;
pub mod clock;
pub mod cluster;
pub mod completion;
pub mod config;
mod create;
pub mod dead_letter;
pub mod doctor;
pub mod doubt;
pub mod import;
pub mod opt_out;
mod preview;
pub mod relay;
pub mod run;
pub mod schedule;
pub mod template;
mod update;
pub mod version;
mod watch;

use std::future::Future;
use std::time::Duration;

use reveille_proto::admin::v1::Freshness;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::args::{Global, Paging, Picked};
use super::client::{Client, Nature};
use super::failure::{Exit, Failure, Stop};
use super::human;
use super::instant::duration_ms;
use super::terminal::Terminal;
use super::view::Row;
use super::view::moved::MovedView;

/// How long a command takes at most, unless `--timeout` says otherwise.
const WITHIN: Duration = Duration::from_secs(30);
/// Rows that one answer of a list brings.
const PAGE_SIZE: u32 = 500;

/// What every command has at hand.
pub struct Desk<'a> {
    /// The way to the cluster.
    pub client: Client,
    /// The way to whoever typed it.
    pub terminal: &'a Terminal,
    /// May reads be answered from local state?
    pub stale: bool,
    global: &'a Global,
}

/// One page of a list, as the API gives it.
struct Page<R> {
    rows: Vec<R>,
    next: String,
    freshness: Option<Freshness>,
}

impl<'a> Desk<'a> {
    /// By the global flags.
    pub fn new(global: &'a Global, terminal: &'a Terminal) -> Desk<'a> {
        let request_id = global.request_id.clone().unwrap_or_else(|| Uuid::now_v7().to_string());
        let client = Client::new(global.endpoint.clone(), Some(global.timeout.unwrap_or(WITHIN)), request_id);
        Desk { client, terminal, stale: global.stale, global }
    }

    /// A client for a command that goes on until it is interrupted, unless `--timeout` was given.
    fn patient_client(&self) -> Client {
        Client::new(self.global.endpoint.clone(), self.global.timeout, self.client.request_id().to_owned())
    }

    /// A change that may be asked for twice; says its request id with `-v`.
    async fn change<Q, A, F, Fut>(&self, question: Q, call: F) -> Result<A, Failure>
    where
        Q: Clone,
        F: Fn(Channel, Request<Q>) -> Fut,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        self.terminal.detail(&format!("request id {}", self.client.request_id()));
        self.client.ask(Nature::Repeatable, question, call).await
    }

    /// Reads pages until there are enough rows, or no more, and prints them.
    async fn list<R, F, Fut>(&self, paging: Paging, page: F) -> Result<(), Stop>
    where
        R: Row,
        F: Fn(i32, String) -> Fut,
        Fut: Future<Output = Result<Page<R>, Failure>>,
    {
        let limit = paging.limit as usize;
        let mut rows: Vec<R> = Vec::new();
        let mut token = String::new();
        loop {
            let wanted = u32::try_from(limit - rows.len()).unwrap_or(PAGE_SIZE).min(PAGE_SIZE);
            let answer = page(i32::try_from(wanted).unwrap_or_default(), token).await?;
            if rows.is_empty() {
                self.note(answer.freshness.as_ref());
            }
            let came = answer.rows.len();
            rows.extend(answer.rows.into_iter().take(limit - rows.len()));
            token = answer.next;
            // A page without rows and with a token would go on for ever.
            if token.is_empty() || came == 0 || rows.len() >= limit {
                break;
            }
        }
        self.terminal.list(&rows)?;
        if !token.is_empty() {
            self.terminal.say(&format!("there are more: --limit above {limit} shows them"));
        }
        Ok(())
    }

    /// Says on stderr that an answer came from local state.
    fn note(&self, freshness: Option<&Freshness>) {
        let Some(freshness) = freshness else { return };
        let age = freshness.age.as_ref().map(|age| format!(", {} old", human::duration(duration_ms(age))));
        let words = format!("log index {}{}", freshness.index, age.unwrap_or_default());
        match freshness.stale {
            true => self.terminal.say(&format!("stale: from the node's local state at {words}")),
            false => self.terminal.detail(&words),
        }
    }

    /// Prints how many recipients a decision moved; fewer than were named is partly done.
    fn moved(&self, picked: &Picked, view: &MovedView) -> Result<(), Stop> {
        self.terminal.show(view)?;
        let named = picked.recipients.len() as u64;
        if view.moved >= named {
            return Ok(());
        }
        Err(Failure {
            exit: Exit::Partly,
            reason: "PARTLY_DONE".into(),
            message: format!("{} of {} were {}: the others are in another state", view.moved, named, view.verb),
            next: Some(format!("reveille explain {} RECIPIENT", picked.run)),
            ..Failure::default()
        }
        .into())
    }
}

/// Whom a decision concerns, in words; refused where nobody is named.
fn whom(picked: &Picked) -> Result<String, Failure> {
    Ok(match picked.recipients.as_slice() {
        [] if picked.all => format!("all of run {}", picked.run),
        [] => {
            let message = format!("whose of run {}? nobody is named", picked.run);
            return Err(Failure::usage("RECIPIENT", message, "name recipients, or take all of the run with --all"));
        }
        [one] => format!("{one} of run {}", picked.run),
        more => format!("{} of run {}", human::counted(more.len() as u64, "recipient"), picked.run),
    })
}
