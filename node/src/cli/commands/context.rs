//! Implements `reveille context …`. It makes no request.

use clap::Subcommand;
use serde::Serialize;
use serde_json::json;

use super::{Answer, CommandContext, Exit, Failure, Own, Stop, View};
use crate::cli::contexts::{Context, Contexts};
use crate::cli::view::layout::{Cell, card};
use crate::cli::view::own_objects;

#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// All contexts
    #[command(after_long_help = "Example:\n  reveille context list -o json")]
    List,
    /// Let commands address this cluster from now on
    #[command(after_long_help = "Example:\n  reveille context use staging\n\nFor one command: --context staging")]
    Use {
        /// Its name
        name: String,
    },
    /// One context, without its token; -o json has the authority's certificate, for other programs
    #[command(after_long_help = "\
Examples:
  reveille context show
  reveille context show staging -o json | jq -r .ca > ca.pem")]
    Show {
        /// Its name [default: the one in use]
        name: Option<String>,
    },
    /// Forget a cluster, and the token with it
    #[command(after_long_help = "Example:\n  reveille context remove staging")]
    Remove {
        /// Its name
        name: String,
    },
}

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, command: ContextCommand) -> Result<(), Stop> {
    let contexts = Contexts::read()?;
    match command {
        ContextCommand::List => {
            let views = contexts.all.iter().map(|(name, one)| view(&contexts, name, one));
            context.terminal.list(&views.collect::<Result<Vec<_>, _>>()?)
        }
        ContextCommand::Show { name } => {
            let name = name.as_deref().or(context.global.context.as_deref());
            let Some((name, one)) = contexts.chosen(name)? else {
                let next = "reveille login https://HOST:PORT, or reveille context use NAME";
                let message = "no context is in use".to_owned();
                return Err(Failure::new(Exit::NotFound, "CONTEXT_NOT_FOUND", message, next).into());
            };
            context.terminal.show(&view(&contexts, name, one)?)
        }
        ContextCommand::Use { name } => {
            let mut contexts = contexts;
            contexts.named(&name)?;
            contexts.current = Some(name.clone());
            contexts.write()?;
            let (name, one) = contexts.named(&name)?;
            context.terminal.show(&view(&contexts, name, one)?)
        }
        ContextCommand::Remove { name } => remove(context, contexts, name).await,
    }
}

async fn remove(context: &CommandContext<'_>, mut contexts: Contexts, name: String) -> Result<(), Stop> {
    contexts.named(&name)?;
    context.confirm(&format!("Forget context {name}, and the token in it?")).await?;
    contexts.remove(&name);
    contexts.write()?;
    let (own, words) = (Own(json!({ "name": name })), format!("context {name} is removed"));
    context.terminal.show(&Answer::new(&own, name, words))?;
    if contexts.current.is_none() && !contexts.all.is_empty() {
        context.terminal.say("no context is in use; next: reveille context use NAME");
    }
    Ok(())
}

/// Says which context the commands of this user have from now on, and how to go back to the `former` one.
pub fn say_in_use(command: &CommandContext<'_>, contexts: &Contexts, former: Option<&str>) {
    let Some(name) = &contexts.current else { return };
    let back = former.filter(|former| former != name);
    let back = back.map(|former| format!("; the one before: reveille context use {former}")).unwrap_or_default();
    let file = contexts.path().map(|path| format!(" ({})", path.display())).unwrap_or_default();
    command.terminal.say(&format!("context {name} is in use now{file}{back}"));
}

/// Returns what is shown of a context.
pub fn view(contexts: &Contexts, name: &str, context: &Context) -> Result<ContextView, Failure> {
    let fingerprint = context
        .fingerprint()
        .map_err(|why| Failure::general(format!("context '{name}': {why}"), "reveille login again"))?;
    Ok(ContextView {
        name: name.to_owned(),
        current: contexts.current.as_deref() == Some(name),
        endpoints: context.endpoints.clone(),
        fingerprint,
        has_token: context.token.is_some(),
        ca: context.ca.clone(),
    })
}

/// Number of digits of a fingerprint in a table.
const DIGITS: usize = 16;

/// A cluster that this user knows. The token is never shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContextView {
    /// Name of the context.
    pub name: String,
    /// True if commands use it.
    pub current: bool,
    /// Admin addresses.
    pub endpoints: Vec<String>,
    /// SHA-256 of the authority's certificate.
    pub fingerprint: String,
    /// True if there is a token.
    pub has_token: bool,
    /// The authority's certificate, as PEM.
    pub ca: String,
}

own_objects!(ContextView);

impl View for ContextView {
    const NOUN: &'static str = "contexts";
    const COLUMNS: &'static [&'static str] = &["NAME", "IN USE", "ENDPOINTS", "AUTHORITY", "TOKEN"];

    fn cells(&self) -> Vec<Cell> {
        let yes = |is: bool| Cell::or_dash(is.then_some("yes"));
        vec![
            self.name.as_str().into(),
            yes(self.current),
            self.endpoints.join(", ").into(),
            self.fingerprint.chars().take(DIGITS).collect::<String>().into(),
            yes(self.has_token),
        ]
    }

    fn text(&self, paint: bool) -> String {
        let yes = |is: bool| if is { "yes" } else { "no" };
        let pairs = vec![
            ("context", self.name.as_str().into()),
            ("in use", yes(self.current).into()),
            ("endpoints", self.endpoints.join(", ").into()),
            ("authority", self.fingerprint.as_str().into()),
            ("token", yes(self.has_token).into()),
        ];
        card(pairs, paint)
    }
}
