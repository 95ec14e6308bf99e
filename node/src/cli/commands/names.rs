//! Names for the completion scripts of shells: what kind of object the word at the cursor names, and which of that kind
//! the cluster has. A script asks at each press of a key, so the answer is bounded, and a failure is no names.

use std::time::Duration;

use clap::{Arg, Args, Command};
use reveille_proto::Listing;
use reveille_proto::admin::v1::{
    ListCampaignsRequest, ListPoolsRequest, ListRelaysRequest, ListSchedulesRequest, ListTemplatesRequest,
    ListTenantsRequest,
};
use serde_json::json;
use tokio::time::timeout;

use super::{Answer, Client, CommandContext, Failure, Global, Kind, Own, Stop};
use crate::cli::contexts::Contexts;
use crate::cli::early::value_of;
use crate::cli::endpoint::Endpoint;

/// Time for all of it.
const NAMES_WITHIN: Duration = Duration::from_secs(1);
/// Maximum number of names.
const NAMES_MAX: usize = 200;
/// Maximum number of pages that are read to find them, and rows of each.
const PAGES_MAX: usize = 5;
const ROWS: i32 = 1_000;
/// Characters at which bash splits words (COMP_WORDBREAKS), and which no word of a command is.
const BREAKS: [&str; 2] = ["=", ":"];
/// Verbs whose name is a new one.
const VERBS_OF_NEW: [&str; 2] = ["create", "add"];
/// The word for names of contexts, which are no objects of a cluster.
const CONTEXT: &str = "context";

/// What a completion script asks.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  reveille complete-names schedule show mor")]
pub struct NamesArgs {
    /// Words of the command line after the program, up to the cursor
    pub words: Vec<String>,
}

/// What the word at the cursor names.
#[derive(Debug, PartialEq, Eq)]
struct Cursor<'w> {
    /// Word of the kind, as in `reveille KIND list`.
    kind: String,
    /// What is typed of the name.
    prefix: &'w str,
}

/// Prints the names that the last word may become, one a line.
pub async fn run(context: &CommandContext<'_>, args: NamesArgs, tree: Command) -> Result<(), Stop> {
    let words = joined(args.words);
    let names = match timeout(NAMES_WITHIN, names(context, &words, tree)).await {
        Ok(Some(names)) if !names.is_empty() => names,
        _ => return Ok(()),
    };
    let lines = names.join("\n");
    context.terminal.show(&Answer::new(&Own(json!(names)), lines.clone(), lines))
}

/// Puts words together that bash has split.
fn joined(words: Vec<String>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    let mut is_split = false;
    for word in words {
        let is_break = BREAKS.contains(&word.as_str());
        match joined.last_mut() {
            Some(last) if is_break || is_split => last.push_str(&word),
            _ => joined.push(word),
        }
        is_split = is_break;
    }
    joined
}

async fn names(context: &CommandContext<'_>, words: &[String], tree: Command) -> Option<Vec<String>> {
    let Cursor { kind, prefix } = cursor(words, tree)?;
    let fits = |name: &String| name.starts_with(prefix);
    if kind == CONTEXT {
        return Some(Contexts::read().ok()?.all.into_keys().filter(fits).take(NAMES_MAX).collect());
    }
    // The words are those of another command, whose flags choose the cluster.
    let mut global: Global = context.global.clone();
    if let Some(name) = value_of(words, &["--context"]) {
        global.context = Some(name.to_owned());
    }
    if let Some(addresses) = value_of(words, &["--endpoint"]) {
        global.endpoint = addresses.split(',').map(Endpoint::parse).collect::<Result<_, _>>().ok()?;
    }
    let client = CommandContext::new(&global, context.terminal).client;
    let tenant = value_of(words, &["--tenant"]).unwrap_or_default().to_owned();
    let list = Names { client: &client, prefix };
    let names = match Kind::of(&kind)? {
        Kind::Schedule => list.of(ListSchedulesRequest { tenant, ..Default::default() }, |one| one.name).await,
        Kind::Campaign => list.of(ListCampaignsRequest { tenant, ..Default::default() }, |one| one.name).await,
        Kind::Template => list.of(ListTemplatesRequest { tenant, ..Default::default() }, |one| one.name).await,
        Kind::Relay => list.of(ListRelaysRequest::default(), |one| one.name).await,
        Kind::Pool => list.of(ListPoolsRequest::default(), |one| one.name).await,
        Kind::Tenant => list.of(ListTenantsRequest::default(), |one| one.name).await,
    };
    names.ok()
}

/// Reads lists for names that begin with a text.
struct Names<'a> {
    client: &'a Client,
    prefix: &'a str,
}

impl Names<'_> {
    /// Reads the first names that fit, from the state of any node.
    async fn of<Q: Listing>(&self, request: Q, name: impl Fn(Q::Item) -> String) -> Result<Vec<String>, Failure> {
        let (mut names, mut token) = (Vec::new(), String::new());
        for _ in 0..PAGES_MAX {
            let page = self.client.page(request.clone(), true, ROWS, token).await?;
            names.extend(page.rows.into_iter().map(&name).filter(|name| name.starts_with(self.prefix)));
            token = page.next;
            if token.is_empty() || names.len() >= NAMES_MAX {
                break;
            }
        }
        names.truncate(NAMES_MAX);
        Ok(names)
    }
}

/// Returns what the last word names, by the tree of commands. `None`: no existing object.
fn cursor(words: &[String], mut tree: Command) -> Option<Cursor<'_>> {
    tree.build();
    let (last, before) = words.split_last()?;
    let (mut command, mut path, mut given) = (&tree, Vec::new(), Vec::new());
    let mut flag: Option<&Arg> = None;
    for word in before {
        if flag.take().is_some() {
            continue;
        }
        let mut valued = command.get_arguments().filter(|arg| arg.get_action().takes_values());
        if let Some(long) = word.strip_prefix("--") {
            flag = valued.find(|arg| arg.get_long() == Some(long));
        } else if let Some(short) = word.strip_prefix('-') {
            // `-ojson` has its value.
            flag = short.parse::<char>().ok().and_then(|short| valued.find(|arg| arg.get_short() == Some(short)));
        } else if let Some(below) = command.find_subcommand(word) {
            command = below;
            path.push(word.as_str());
        } else {
            given.push(word.as_str());
        }
    }
    let (kind, prefix) = match (flag, last.strip_prefix("--")) {
        (Some(flag), _) => (flag.get_long()?, last.as_str()),
        (None, Some(flag)) => flag.split_once('=')?,
        (None, None) => {
            let is_name = command.get_positionals().nth(given.len())?.get_id() == "name";
            let kind = match path.as_slice() {
                ["edit"] => given.first()?,
                [noun, verb] if is_name && !VERBS_OF_NEW.contains(verb) => noun,
                _ => return None,
            };
            (*kind, last.as_str())
        }
    };
    let is_known = kind == CONTEXT || Kind::of(kind).is_some();
    is_known.then(|| Cursor { kind: kind.to_owned(), prefix })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::command_tree::Cli;

    fn words(line: &str) -> Vec<String> {
        joined(line.split(' ').map(str::to_owned).collect())
    }

    #[test]
    fn word_at_the_cursor_is_known_by_the_tree_of_commands() {
        for (line, kind, prefix) in [
            ("schedule show mor", "schedule", "mor"),
            ("schedule show ", "schedule", ""),
            ("-o json --endpoint 127.0.0.1 : 7600 schedule --tenant acme pause -q mor", "schedule", "mor"),
            ("schedule trigger --tenant=acme m", "schedule", "m"),
            ("run list --schedule m", "schedule", "m"),
            ("run list --schedule=m", "schedule", "m"),
            ("run list --schedule = m", "schedule", "m"),
            ("schedule list --tenant a", "tenant", "a"),
            ("--context p", "context", "p"),
            ("context use p", "context", "p"),
            ("relay remove ", "relay", ""),
            ("template show w", "template", "w"),
            ("schedule create new --template w", "template", "w"),
            ("campaign launch s", "campaign", "s"),
            ("edit relay m", "relay", "m"),
        ] {
            let words = words(line);
            assert_eq!(cursor(&words, Cli::command()), Some(Cursor { kind: kind.to_owned(), prefix }), "{line}");
        }
        for line in [
            "",
            "sched",
            "schedule ",
            "schedule create m",
            "relay add m",
            "schedule show morning ",
            "schedule show --man",
            "schedule list --selector a",
            "run show r",
            "edit ",
            "nothing show m",
        ] {
            assert_eq!(cursor(&words(line), Cli::command()), None, "{line}");
        }
    }

    #[test]
    fn words_that_bash_splits_are_put_together() {
        assert_eq!(words("--endpoint a : 1 --at = 09 : 00 x"), ["--endpoint", "a:1", "--at=09:00", "x"]);
        assert_eq!(words("--schedule ="), ["--schedule="]);
    }
}
