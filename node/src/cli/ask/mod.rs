//! One function a command: the question it asks, and what it prints of the answer.

pub mod apply;
pub mod audience;
mod backfill;
pub mod campaign;
pub mod clock;
pub mod cluster;
pub mod completion;
pub mod config;
mod create;
pub mod dead_letter;
pub mod doctor;
pub mod doubt;
pub mod export;
mod follow;
pub mod import;
mod imported;
pub mod opt_out;
pub mod pool;
mod preview;
pub mod relay;
pub mod run;
pub mod schedule;
mod schedule_reads;
mod screen;
mod send_test;
mod several;
mod speed;
mod suppress;
pub mod template;
pub mod tenant;
mod update;
mod upload;
pub mod version;
mod watch;

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use reveille_proto::admin::v1::Freshness;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::args::{Global, Paging, Picked, Watch};
use super::client::{Client, Nature};
use super::failure::{Exit, Failure, Stop};
use super::format;
use super::instant::duration_ms;
use super::terminal::Terminal;
use super::view::moved::MovedView;
use super::view::relay::RemovedView;
use super::view::{Row, View};
use screen::Scene;

/// How long a command takes at most, unless `--timeout` says otherwise.
const WITHIN: Duration = Duration::from_secs(30);
/// Said after a `--dry-run`.
const CHECKED: &str = "checked; nothing was changed";
/// Rows that one answer of a list brings.
const PAGE_SIZE: u32 = 500;

/// What every command has at hand.
pub struct Desk<'a> {
    /// The way to the cluster.
    pub client: Client,
    /// Output to the user's terminal.
    pub terminal: &'a Terminal,
    /// May reads be answered from local state?
    pub stale: bool,
    /// Is something followed, and was some of it shown?
    watching: Cell<bool>,
    global: &'a Global,
}

/// What one look at the cluster gave.
struct Seen<V> {
    view: V,
    freshness: Option<Freshness>,
    /// What is to be said of it.
    remarks: Vec<String>,
}

impl<V> Seen<V> {
    fn of(view: V, freshness: Option<Freshness>) -> Seen<V> {
        Seen { view, freshness, remarks: Vec::new() }
    }
}

/// Pages of a list, as one.
struct Pages<R> {
    rows: Vec<R>,
    /// Is there more than was wanted?
    more: bool,
    freshness: Option<Freshness>,
}

/// One page of a list, as the API gives it.
struct Page<R> {
    rows: Vec<R>,
    next: String,
    freshness: Option<Freshness>,
}

impl<R> Page<R> {
    /// The same rows, shown in another way.
    fn map<T>(self, show: impl Fn(R) -> T) -> Page<T> {
        Page { rows: self.rows.into_iter().map(show).collect(), next: self.next, freshness: self.freshness }
    }
}

impl<'a> Desk<'a> {
    /// By the global flags.
    pub fn new(global: &'a Global, terminal: &'a Terminal) -> Desk<'a> {
        let request_id = global.request_id.clone().unwrap_or_else(|| Uuid::now_v7().to_string());
        let client = Client::new(global.endpoint.clone(), Some(global.timeout.unwrap_or(WITHIN)), request_id);
        Desk { client, terminal, stale: global.stale, watching: Cell::new(false), global }
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

    /// Shows what a look at the cluster gives: once, or with `--watch` whenever it changed.
    async fn one<V: View>(&self, watch: Watch, look: impl AsyncFn() -> Result<Seen<V>, Failure>) -> Result<(), Stop> {
        if !watch.watch {
            let seen = look().await?;
            self.note(seen.freshness.as_ref());
            self.terminal.show(&seen.view)?;
            seen.remarks.iter().for_each(|remark| self.terminal.say(remark));
            return Ok(());
        }
        let first = Cell::new(true);
        let scene = async || {
            let seen = look().await?;
            self.note_first(&first, seen.freshness.as_ref());
            Ok(Scene::of_one(self.terminal, &seen.view, &seen.remarks))
        };
        Box::pin(follow::look_again(self, scene)).await
    }

    /// The same for a list: reads pages until there are enough rows, or no more.
    async fn list<R, F, Fut>(&self, paging: Paging, page: F) -> Result<(), Stop>
    where
        R: Row,
        F: Fn(i32, String) -> Fut,
        Fut: Future<Output = Result<Page<R>, Failure>>,
    {
        let more = format!("there are more: --limit above {} shows them", paging.limit);
        if !paging.watch.watch {
            let seen = self.pages(paging.limit, &page).await?;
            self.note(seen.freshness.as_ref());
            self.terminal.list(&seen.rows)?;
            if seen.more {
                self.terminal.say(&more);
            }
            return Ok(());
        }
        let first = Cell::new(true);
        let scene = async || {
            let seen = self.pages(paging.limit, &page).await?;
            self.note_first(&first, seen.freshness.as_ref());
            let remarks = if seen.more { std::slice::from_ref(&more) } else { &[] };
            Ok(Scene::of_list(self.terminal, &seen.rows, remarks))
        };
        Box::pin(follow::look_again(self, scene)).await
    }

    /// Pages until there are enough rows, or no more.
    async fn pages<R, F, Fut>(&self, limit: u32, page: &F) -> Result<Pages<R>, Failure>
    where
        F: Fn(i32, String) -> Fut,
        Fut: Future<Output = Result<Page<R>, Failure>>,
    {
        let limit = limit as usize;
        let mut pages = Pages { rows: Vec::new(), more: false, freshness: None };
        let mut token = String::new();
        loop {
            let wanted = u32::try_from(limit - pages.rows.len()).unwrap_or(PAGE_SIZE).min(PAGE_SIZE);
            let answer = page(i32::try_from(wanted).unwrap_or_default(), token.clone()).await?;
            pages.freshness = pages.freshness.or(answer.freshness);
            pages.rows.extend(answer.rows.into_iter().take(limit - pages.rows.len()));
            // A page may be empty where a filter lets little through; one that leads to itself has no end.
            let is_over = answer.next.is_empty() || answer.next == token;
            pages.more = !answer.next.is_empty();
            token = answer.next;
            if is_over || pages.rows.len() >= limit {
                return Ok(pages);
            }
        }
    }

    /// While a command polls, only the first answer reports how fresh it is.
    fn note_first(&self, first: &Cell<bool>, freshness: Option<&Freshness>) {
        if first.replace(false) {
            self.note(freshness);
        }
    }

    /// Ctrl-C came.
    pub fn interrupted(&self) -> Stop {
        if self.watching.get() { Stop::Left } else { self.client.interrupted().into() }
    }

    /// Says on stderr that an answer came from local state.
    fn note(&self, freshness: Option<&Freshness>) {
        let Some(freshness) = freshness else { return };
        let age = freshness.age.as_ref().map(|age| format!(", {} old", format::duration(duration_ms(age))));
        let words = format!("log index {}{}", freshness.index, age.unwrap_or_default());
        match freshness.stale {
            true => self.terminal.say(&format!("stale: from the node's local state at {words}")),
            false => self.terminal.detail(&words),
        }
    }

    /// Says that nothing was done, where that was asked for.
    fn checked(&self, dry_run: bool) {
        if dry_run {
            self.terminal.say(CHECKED);
        }
    }

    /// Prints what was removed, or would be.
    fn removed(&self, view: RemovedView) -> Result<(), Stop> {
        self.terminal.show(&view)?;
        self.checked(view.dry_run);
        Ok(())
    }

    /// Prints how many recipients a decision moved; fewer than were named is partly done.
    fn moved(&self, recipients: &[String], view: &MovedView) -> Result<(), Stop> {
        self.terminal.show(view)?;
        let named = recipients.len() as u64;
        if view.moved >= named {
            return Ok(());
        }
        let would = if view.dry_run { "would be" } else { "were" };
        Err(Failure {
            exit: Exit::Partly,
            reason: "PARTLY_DONE".into(),
            message: format!("{} of {} {} {}: the others are in another state", view.moved, named, would, view.verb),
            next: view.run.as_ref().map(|run| format!("reveille explain {run} RECIPIENT")),
            ..Failure::default()
        }
        .into())
    }
}

/// Which recipients a decision concerns, in words; refused where none are named.
fn selection(picked: &Picked) -> Result<String, Failure> {
    Ok(match picked.recipients.as_slice() {
        [] if picked.all => format!("all of run {}", picked.run),
        [] => {
            let message = format!("which recipients of run {}? none is named", picked.run);
            return Err(Failure::usage("RECIPIENT", message, "name recipients, or take all of the run with --all"));
        }
        [one] => format!("{one} of run {}", picked.run),
        more => format!("{} of run {}", format::counted(more.len() as u64, "recipient"), picked.run),
    })
}
