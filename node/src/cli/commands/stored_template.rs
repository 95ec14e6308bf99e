//! Templates that the cluster stores: `reveille template put`, `show`, `delete` and `preview`.

use reveille_proto::admin::v1::{
    DeleteTemplateRequest, GetTemplateRequest, PreviewTemplateRequest, PutTemplateRequest,
};

use super::schedule::body;
use super::{CommandContext, Kind, PutTemplateArgs, ShowArgs, Stop, apply};

/// Stores a version.
pub async fn put(context: &CommandContext<'_>, tenant: String, args: PutTemplateArgs) -> Result<(), Stop> {
    let PutTemplateArgs { name, etag, dry_run, content } = args;
    let content = Some(body::changed_content(content)?);
    let request = PutTemplateRequest { tenant, name, content, etag: etag.to_wire(), validate_only: dry_run };
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

/// Shows a template with one version, or as a document.
pub async fn show(context: &CommandContext<'_>, tenant: String, args: ShowArgs) -> Result<(), Stop> {
    if args.manifest {
        return apply::manifest(context, Kind::Template, &tenant, &args.name).await;
    }
    let (name, version) = apply::template_version(&args.name)?;
    let request = GetTemplateRequest { tenant, name, version, stale: context.stale };
    context.show(args.watch, request, |mut answer| (answer.freshness.take(), Some(answer))).await
}

/// Deletes a template.
pub async fn delete(context: &CommandContext<'_>, request: DeleteTemplateRequest) -> Result<(), Stop> {
    let (name, dry_run) = (request.name.clone(), request.validate_only);
    let question = format!("Delete template {name} with all its versions?");
    context.remove((&question, &name), request, dry_run, |answer| answer.index).await.map(drop)
}

/// Renders a stored template for one recipient.
pub async fn preview(
    context: &CommandContext<'_>,
    tenant: String,
    name: &str,
    (recipient, values): (Option<String>, Vec<(String, String)>),
) -> Result<(), Stop> {
    let (name, version) = apply::template_version(name)?;
    let (recipient, values) = (recipient.unwrap_or_default(), values.into_iter().collect());
    let request = PreviewTemplateRequest { tenant, name, version, recipient, values, content: None };
    context.terminal.show(&context.read(request).await?)
}
