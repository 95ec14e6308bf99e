//! Templates that the cluster stores: `reveille template put`, `show`, `list`, `delete` and `preview`.

use reveille_proto::admin::v1::{
    DeleteTemplateRequest, GetTemplateRequest, ListTemplatesRequest, PreviewTemplateRequest, PutTemplateRequest,
};

use super::schedule::body;
use super::{CommandContext, Seen, apply};
use crate::cli::args::{Paging, PutTemplateArgs, Watch};
use crate::cli::client::RetrySafety;
use crate::cli::failure::Stop;

/// Stores a version.
pub async fn put(context: &CommandContext<'_>, tenant: String, args: PutTemplateArgs) -> Result<(), Stop> {
    let PutTemplateArgs { name, etag, dry_run, content } = args;
    let content = Some(body::changed_content(content)?);
    let etag = etag.unwrap_or_default();
    let request = PutTemplateRequest { tenant, name, content, etag, validate_only: dry_run };
    let answer = context.change(request).await?;
    if dry_run {
        context.checked(dry_run);
        return Ok(());
    }
    context.terminal.say(&match answer.created {
        true => format!("version {} stored", answer.version),
        false => format!("version {} has this content already; nothing was changed", answer.version),
    });
    context.terminal.answer(&answer, answer.template.as_ref())
}

/// Shows a template with one version.
pub async fn show(context: &CommandContext<'_>, tenant: &str, name: &str, watch: Watch) -> Result<(), Stop> {
    let (name, version) = apply::template_version(name)?;
    let fetch = async || {
        let request =
            GetTemplateRequest { tenant: tenant.to_owned(), name: name.clone(), version, stale: context.stale };
        let mut answer = context.client.ask(RetrySafety::Read, request).await?;
        let freshness = answer.freshness.take();
        Ok(Seen::of(answer, freshness))
    };
    context.one(watch, fetch).await
}

/// Lists the templates of a tenant.
pub async fn list(context: &CommandContext<'_>, tenant: String, paging: Paging) -> Result<(), Stop> {
    context.list_of(paging, ListTemplatesRequest { tenant, ..ListTemplatesRequest::default() }).await
}

/// Deletes a template.
pub async fn delete(context: &CommandContext<'_>, tenant: String, name: String, dry_run: bool) -> Result<(), Stop> {
    if !dry_run {
        context.terminal.confirm(&format!("Delete template {name} with all its versions?"))?;
    }
    let request = DeleteTemplateRequest { tenant, name: name.clone(), validate_only: dry_run };
    let answer = context.client.ask(RetrySafety::Repeatable, request).await?;
    context.removed(&answer, &name, answer.index, dry_run)
}

/// Renders a stored template for one recipient.
pub async fn preview(
    context: &CommandContext<'_>,
    tenant: String,
    name: &str,
    (to, values): (Option<String>, Vec<(String, String)>),
) -> Result<(), Stop> {
    let (name, version) = apply::template_version(name)?;
    let (recipient, values) = (to.unwrap_or_default(), values.into_iter().collect());
    let request = PreviewTemplateRequest { tenant, name, version, recipient, values, content: None };
    let answer = context.client.ask(RetrySafety::Read, request).await?;
    context.terminal.show(&answer)
}
