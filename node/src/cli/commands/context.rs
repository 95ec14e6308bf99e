//! Implements `reveille context …`. It makes no request.

use serde_json::json;

use super::{Answer, CommandContext, ContextCommand, Exit, Failure, Own, Stop};
use crate::cli::contexts::{Context, Contexts};
use crate::cli::view::context::ContextView;

/// Runs the subcommand.
pub fn run(context: &CommandContext<'_>, command: ContextCommand) -> Result<(), Stop> {
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
        ContextCommand::Remove { name } => remove(context, contexts, name),
    }
}

fn remove(context: &CommandContext<'_>, mut contexts: Contexts, name: String) -> Result<(), Stop> {
    contexts.named(&name)?;
    context.terminal.confirm(&format!("Forget context {name}, and the token in it?"))?;
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
