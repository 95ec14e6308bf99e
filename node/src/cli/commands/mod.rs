//! A file for each command: its arguments, the requests that it sends, and what it prints. The modules import what many of
//! them need from here.

pub mod apply;
pub mod audience;
pub mod audit;
pub mod backup;
mod bar;
pub mod campaign;
pub mod clock;
pub mod cluster;
pub mod completion;
pub mod config;
pub mod context;
pub mod dead_letter;
pub mod doctor;
pub mod doubt;
pub mod event;
pub mod export;
mod first_folder;
mod follow;
pub mod import;
mod imported;
pub mod login;
pub mod message;
pub mod names;
pub mod opt_out;
pub mod pool;
pub mod recipient;
pub mod recover;
pub mod relay;
mod relay_log;
pub mod restore;
mod restore_run;
pub mod run;
pub mod schedule;
mod screen;
mod send_test;
mod speed;
mod stored_template;
mod suppress;
pub mod template;
pub mod tenant;
pub mod token;
mod upload;
pub mod version;
mod watch;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use prost::Name;
use reveille_proto::admin::v1::{Campaign, Freshness, Warning};
use reveille_proto::{ListPage, Listing, Unary};
use tokio::time::Instant;
use uuid::Uuid;

use super::args::*;
use super::client::{Client, RetrySafety};
use super::failure::{BadRow, BadRows, Exit, Failure, Stop};
use super::instant::{duration_ms, duration_to_wire, from_wire, to_wire};
use super::manifest::kind::Kind;
use super::target::Target;
use super::terminal::Terminal;
use super::view::moved::MovedView;
use super::view::recipient::not_searched;
use super::view::{Answer, Json, Own, View, warning};
use super::{escape, format, input, lines};
use crate::api_json;
use screen::Frame;

/// Time limit of a command, unless `--timeout` sets another.
const WITHIN: Duration = Duration::from_secs(30);
/// Message after a `--dry-run`.
const CHECKED: &str = "checked; nothing was changed";
/// Remark below rows of which some are lost.
const INCOMPLETE: &str = "some may be missing here: a part of the archive is lost; reveille cluster archive-loss";
/// Rows requested per page.
const PAGE_SIZE: u32 = 500;

/// The context of a command: client, output and global flags.
pub struct CommandContext<'a> {
    /// Client for the cluster's admin API.
    pub client: Client,
    /// Output to the user's terminal.
    pub terminal: &'a Terminal,
    /// True if reads may be answered from a node's local state.
    pub stale: bool,
    target: Arc<Result<Target, Failure>>,
    /// True if the command watches an object and has shown it at least once.
    watching: Cell<bool>,
    /// True if the request id was printed.
    is_id_shown: Cell<bool>,
    /// End of `--timeout`, if it is given, for a command that watches.
    end: Option<Instant>,
    global: &'a Global,
}

/// Result of one read.
struct Seen<V> {
    view: V,
    freshness: Option<Freshness>,
    /// Remarks for the user, printed below the view.
    remarks: Vec<String>,
}

impl<V> Seen<V> {
    fn of(view: V, freshness: Option<Freshness>) -> Seen<V> {
        Seen { view, freshness, remarks: Vec::new() }
    }
}

/// Rows of several pages.
struct Pages<R> {
    rows: Vec<R>,
    /// True if the list has more rows than the limit.
    more: bool,
    freshness: Option<Freshness>,
    /// True if rows of these pages are lost.
    incomplete: bool,
    /// Parts of lists that were not searched, because they are lost.
    lost_parts: BTreeSet<String>,
}

impl<R> Pages<R> {
    /// Returns the remarks below a list with this limit.
    fn remarks(&self, limit: u32) -> Vec<String> {
        let more = self.more.then(|| format!("there are more: --limit above {limit} shows them"));
        let incomplete = self.incomplete.then(|| INCOMPLETE.to_owned());
        more.into_iter().chain(incomplete).chain(not_searched(self.lost_parts.len())).collect()
    }
}

impl<'a> CommandContext<'a> {
    /// Creates the context from the global flags.
    pub fn new(global: &'a Global, terminal: &'a Terminal) -> CommandContext<'a> {
        let request_id = global.request_id.clone().unwrap_or_else(|| Uuid::now_v7().to_string());
        let target = Arc::new(Target::of(global));
        let client = Client::new(Arc::clone(&target), Some(time_limit(global)), request_id);
        let (watching, is_id_shown) = (Cell::new(false), Cell::new(false));
        let end = global.timeout.map(|within| Instant::now() + within);
        CommandContext { client, terminal, stale: global.stale, target, watching, is_id_shown, end, global }
    }

    /// Takes the default time limit from this command. `--timeout` still applies.
    fn remove_default_limit(&self) {
        if self.global.timeout.is_none() {
            self.client.clear_deadline();
        }
    }

    /// Gives the next of several pages or changes the default time limit for itself. `--timeout` limits all of them
    /// together.
    fn restart_default_limit(&self) {
        if self.global.timeout.is_none() {
            self.client.set_timeout(WITHIN);
        }
    }

    /// Sends a change that may be repeated. With `-v`, the first one that has a request id prints the command's.
    async fn change<Q: Unary + Name>(&self, request: Q) -> Result<Q::Response, Failure> {
        let has_id = || api_json::of(&request)["requestId"].as_str().is_some_and(|id| !id.is_empty());
        if self.terminal.is_verbose() && !self.is_id_shown.get() && has_id() {
            self.is_id_shown.set(true);
            self.terminal.detail(&format!("request id {}", self.client.request_id()));
        }
        self.client.ask(RetrySafety::Repeatable, request).await
    }

    /// Sends a request that changes nothing.
    async fn read<Q: Unary>(&self, request: Q) -> Result<Q::Response, Failure> {
        self.client.ask(RetrySafety::Read, request).await
    }

    /// Shows the object that a read returns: once, or with `--watch` whenever it changes. `take` separates its
    /// freshness from it.
    async fn show<Q, V>(
        &self,
        watch: Watch,
        request: Q,
        take: impl Fn(Q::Response) -> (Option<Freshness>, Option<V>),
    ) -> Result<(), Stop>
    where
        Q: Unary + Clone,
        V: View + Default,
    {
        let fetch = async || {
            let (freshness, view) = take(self.read(request.clone()).await?);
            Ok(Seen::of(view.unwrap_or_default(), freshness))
        };
        self.one(watch, fetch).await
    }

    /// Shows an object by its name: as a document with `--manifest`, else like [`CommandContext::show`].
    async fn show_named<Q, V>(
        &self,
        (kind, tenant): (Kind, &str),
        ShowArgs { name, manifest, watch }: ShowArgs,
        request: impl FnOnce(String) -> Q,
        take: impl Fn(Q::Response) -> (Option<Freshness>, Option<V>),
    ) -> Result<(), Stop>
    where
        Q: Unary + Clone,
        V: View + Default,
    {
        match manifest {
            true => apply::manifest(self, kind, tenant, &name).await,
            false => self.show(watch, request(name), take).await,
        }
    }

    /// Removes an object after a confirmation, which a dry run does not need. Prints the log index at which it was
    /// removed.
    async fn remove<Q>(
        &self,
        (question, name): (&str, &str),
        request: Q,
        dry_run: bool,
        index: impl Fn(&Q::Response) -> u64,
    ) -> Result<Q::Response, Stop>
    where
        Q: Unary + Name,
        Q::Response: Json,
    {
        self.confirm_unless(dry_run, question).await?;
        let answer = self.change(request).await?;
        let words = match dry_run {
            true => format!("{name} would be removed"),
            false => format!("{name} removed, log index {}", index(&answer)),
        };
        self.terminal.show(&Answer::new(&answer, name, words))?;
        self.checked(dry_run);
        Ok(answer)
    }

    /// Asks for confirmation of an action that cannot be undone. The time that the user takes does not count.
    async fn confirm(&self, question: &str) -> Result<(), Stop> {
        let begun = Instant::now();
        self.terminal.confirm(question).await?;
        self.client.extend(begun.elapsed());
        Ok(())
    }

    /// Asks for confirmation of an action that cannot be undone, unless it is a dry run.
    async fn confirm_unless(&self, dry_run: bool, question: &str) -> Result<(), Stop> {
        if dry_run { Ok(()) } else { self.confirm(question).await }
    }

    /// Prints the answer to a change, and after a dry run that nothing was changed.
    fn answer<A, V>(&self, answer: &A, object: Option<&V>, dry_run: bool) -> Result<(), Stop>
    where
        A: Json,
        V: View + Clone + Default,
    {
        self.terminal.answer(answer, object)?;
        self.checked(dry_run);
        Ok(())
    }

    /// Shows the result of a read: once, or with `--watch` whenever it changes.
    async fn one<V: View>(&self, watch: Watch, fetch: impl AsyncFn() -> Result<Seen<V>, Failure>) -> Result<(), Stop> {
        if !watch.watch {
            let seen = fetch().await?;
            self.note(seen.freshness.as_ref());
            self.terminal.show(&seen.view)?;
            seen.remarks.iter().for_each(|remark| self.terminal.say(remark));
            return Ok(());
        }
        let first = Cell::new(true);
        let frame = async || {
            let seen = fetch().await?;
            self.note_first(&first, seen.freshness.as_ref());
            Ok(Frame::of_one(self.terminal, &seen.view, &seen.remarks))
        };
        Box::pin(follow::poll(self, frame)).await
    }

    /// Shows a list: once, or with `--watch` whenever it changes. Reads pages up to the limit.
    async fn list<R, F, Fut>(&self, paging: Paging, page: F) -> Result<(), Stop>
    where
        R: View,
        F: Fn(i32, String) -> Fut,
        Fut: Future<Output = Result<ListPage<R>, Failure>>,
    {
        if !paging.watch.watch {
            let page = |size, token| {
                self.restart_default_limit();
                page(size, token)
            };
            let seen = self.pages(paging.limit, &page).await?;
            self.note(seen.freshness.as_ref());
            self.terminal.list(&seen.rows)?;
            seen.remarks(paging.limit).iter().for_each(|remark| self.terminal.say(remark));
            return Ok(());
        }
        let first = Cell::new(true);
        let frame = async || {
            let seen = self.pages(paging.limit, &page).await?;
            self.note_first(&first, seen.freshness.as_ref());
            Frame::of_list(self.terminal, &seen.rows, &seen.remarks(paging.limit))
        };
        Box::pin(follow::poll(self, frame)).await
    }

    /// Shows the rows of a list that the request names.
    async fn list_of<Q: Listing>(&self, paging: Paging, request: Q) -> Result<(), Stop>
    where
        Q::Item: View,
    {
        self.list(paging, |size, token| self.client.page(request.clone(), self.stale, size, token)).await
    }

    /// Reads pages until the limit is reached or the list ends.
    async fn pages<R, F, Fut>(&self, limit: u32, page: &F) -> Result<Pages<R>, Failure>
    where
        F: Fn(i32, String) -> Fut,
        Fut: Future<Output = Result<ListPage<R>, Failure>>,
    {
        let limit = limit as usize;
        let mut pages =
            Pages { rows: Vec::new(), more: false, freshness: None, incomplete: false, lost_parts: BTreeSet::new() };
        let mut token = String::new();
        loop {
            let wanted = u32::try_from(limit - pages.rows.len()).unwrap_or(PAGE_SIZE).min(PAGE_SIZE);
            let answer = page(i32::try_from(wanted).unwrap_or_default(), token.clone()).await?;
            pages.freshness = pages.freshness.or(answer.freshness);
            pages.incomplete |= answer.incomplete;
            pages.lost_parts.extend(answer.lost_parts);
            pages.rows.extend(answer.rows.into_iter().take(limit - pages.rows.len()));
            // A filter may leave a page empty. A page token that points to its own page would loop for ever, so it ends
            // the list.
            let is_over = answer.next.is_empty() || answer.next == token;
            pages.more = !answer.next.is_empty();
            token = answer.next;
            if is_over || pages.rows.len() >= limit {
                return Ok(pages);
            }
        }
    }

    /// Prints a list. `-o name` prints only the names of rows for which `named` is true.
    fn list_names_of<R: View + Clone>(&self, rows: &[R], named: impl Fn(&R) -> bool) -> Result<(), Stop> {
        if self.terminal.format() != Format::Name {
            return self.terminal.list(rows);
        }
        self.terminal.list(&rows.iter().filter(|row| named(row)).cloned().collect::<Vec<_>>())
    }

    /// Reports the freshness of the first answer only, because a watch reads every second.
    fn note_first(&self, first: &Cell<bool>, freshness: Option<&Freshness>) {
        if first.replace(false) {
            self.note(freshness);
        }
    }

    /// Returns how the command ends after Ctrl-C.
    pub fn interrupted(&self) -> Stop {
        if self.watching.get() { Stop::Left } else { self.client.interrupted().into() }
    }

    /// Reports on stderr that an answer came from local state.
    fn note(&self, freshness: Option<&Freshness>) {
        let Some(freshness) = freshness else { return };
        let age = freshness.age.as_ref().map(|age| format!(", {} old", format::duration(duration_ms(age))));
        let words = format!("log index {}{}", freshness.index, age.unwrap_or_default());
        match freshness.stale {
            true => self.terminal.say(&format!("stale: from the node's local state at {words}")),
            false => self.terminal.detail(&words),
        }
    }

    /// Reports after a dry run that nothing was changed.
    fn checked(&self, dry_run: bool) {
        if dry_run {
            self.terminal.say(CHECKED);
        }
    }

    /// Prints the warnings of an answer. `campaign` is the one that the answer has, if it has one.
    fn warn(&self, warnings: &[Warning], campaign: Option<&Campaign>) {
        let sentences = warnings.iter().map(|warning| warning::sentence(warning, campaign));
        sentences.for_each(|sentence| self.terminal.say(&format!("warning: {sentence}")));
    }

    /// Prints how many recipients a decision moved. Fails with "partly done" if they are fewer than were named.
    fn moved(&self, recipients: &[String], view: &MovedView) -> Result<(), Stop> {
        self.terminal.show(view)?;
        let named = recipients.len() as u64;
        if view.moved >= named {
            return Ok(());
        }
        let would = if view.dry_run { "would be" } else { "were" };
        let message = format!("{} of {named} {would} {}: the others are in another state", view.moved, view.verb);
        let next = view.run.as_ref().map(|run| format!("reveille explain {run} RECIPIENT"));
        Err(Failure { next, ..Failure::partly(message, "") }.into())
    }
}

/// Returns the time limit of a command.
fn time_limit(global: &Global) -> Duration {
    global.timeout.unwrap_or(WITHIN)
}

/// Returns how many outcomes of each kind there are, such as `2 created, 1 failed`.
fn counts<O: Ord>(outcomes: impl Iterator<Item = O>, word: impl Fn(&O) -> &'static str) -> String {
    let mut counts: BTreeMap<O, usize> = BTreeMap::new();
    outcomes.for_each(|outcome| *counts.entry(outcome).or_default() += 1);
    counts.iter().map(|(outcome, count)| format!("{count} {}", word(outcome))).collect::<Vec<_>>().join(", ")
}

/// Adds to a failure in the middle how many of something, such as `recipient`, were done before it: `verb`.
fn after(done: u64, one: &str, verb: &str, failure: Failure) -> Failure {
    match done {
        0 => failure,
        done => {
            Failure { message: format!("after {} {verb}: {}", format::counted(done, one), failure.message), ..failure }
        }
    }
}

/// Returns the message with a line for each of the first problems, and the number of the others.
fn listed(message: String, problems: impl ExactSizeIterator<Item = String>, shown: usize) -> String {
    let more = problems.len().saturating_sub(shown);
    let mut lines = vec![message];
    lines.extend(problems.take(shown).map(|problem| format!("  {problem}")));
    lines.extend((more > 0).then(|| format!("  and {more} more")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command_tree::Cli;
    use clap::Parser as _;

    #[tokio::test(start_paused = true)]
    async fn default_limit_is_of_each_request_and_timeout_of_the_command() {
        for (limit, is_over) in [(&[][..], false), (&["--timeout", "30s"], true)] {
            let words = ["reveille", "version", "--yes"].iter().chain(limit);
            let cli = Cli::try_parse_from(words).expect("a command");
            let terminal = Terminal::new(&cli.global);
            let context = CommandContext::new(&cli.global, &terminal);
            tokio::time::advance(WITHIN + Duration::from_secs(1)).await;
            assert_eq!(context.confirm("Go on?").await, Ok(()));
            assert!(context.client.is_over(), "--yes takes no time");
            context.restart_default_limit();
            assert_eq!(context.client.is_over(), is_over);
            context.remove_default_limit();
            tokio::time::advance(WITHIN + Duration::from_secs(1)).await;
            assert_eq!(context.client.is_over(), is_over);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_of_the_user_does_not_count() {
        let cli = Cli::try_parse_from(["reveille", "version", "--timeout", "30s"]).expect("a command");
        let terminal = Terminal::new(&cli.global);
        let context = CommandContext::new(&cli.global, &terminal);
        tokio::time::advance(Duration::from_secs(80)).await;
        context.client.extend(Duration::from_secs(60));
        assert!(!context.client.is_over(), "10 s are left");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(context.client.is_over());
    }
}
