//! Templates that the cluster stores: `reveille template put`, `show`, `delete` and `preview`.

use clap::Args;
use reveille_proto::admin::v1::{
    Content, DeleteTemplateRequest, Field, GetTemplateRequest, GetTemplateResponse, PreviewTemplateRequest,
    PreviewTemplateResponse, PutTemplateRequest, Template,
};

use super::schedule::body;
use super::{CommandContext, ContentArgs, EtagArgs, Kind, ShowArgs, Stop, View, apply};
use crate::cli::view::layout::Cell;

/// `template put`.
#[derive(Debug, Args)]
pub struct PutTemplateArgs {
    /// Its name, unique in the tenant
    pub name: String,
    #[command(flatten)]
    pub etag: EtagArgs,
    /// Check everything, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub content: ContentArgs,
}

/// Stores a version.
pub async fn put(context: &CommandContext<'_>, tenant: String, args: PutTemplateArgs) -> Result<(), Stop> {
    let PutTemplateArgs { name, etag, dry_run, content } = args;
    let content = Some(body::content(content)?);
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

/// Returns subject, header fields and texts as lines.
pub fn lines_of(subject: &str, headers: &[Field], (text, html): (&Option<String>, &Option<String>)) -> Vec<String> {
    let mut lines = vec![format!("Subject: {subject}")];
    lines.extend(headers.iter().map(|header| format!("{}: {}", header.name, header.value)));
    let both = text.is_some() && html.is_some();
    for (part, media_type) in [(text, "text/plain"), (html, "text/html")] {
        let Some(part) = part else { continue };
        lines.push(String::new());
        lines.extend(both.then(|| format!("--- {media_type}")));
        lines.push(part.trim_end_matches('\n').to_owned());
    }
    lines
}

impl View for PreviewTemplateResponse {
    const NAME: &'static str = "subject";

    fn text(&self, _paint: bool) -> String {
        lines_of(&self.subject, &self.headers, (&self.text, &self.html)).join("\n")
    }
}

fn users(template: &Template) -> u64 {
    template.versions.iter().map(|version| version.users).sum()
}

impl View for Template {
    const NOUN: &'static str = "templates";
    const COLUMNS: &'static [&'static str] = &["NAME", "NEWEST", "VERSIONS", "USERS", "CHANGED"];

    fn cells(&self) -> Vec<Cell> {
        let newest = self.versions.last();
        vec![
            self.name.as_str().into(),
            Cell::number(newest.map(|newest| newest.version.into())),
            self.versions.len().to_string().into(),
            users(self).to_string().into(),
            Cell::at(newest.and_then(|newest| newest.create_time.as_ref())),
        ]
    }
}

impl View for GetTemplateResponse {
    fn name(&self) -> String {
        let name = self.template.as_ref().map(View::name).unwrap_or_default();
        format!("{name}@{}", self.version)
    }

    fn text(&self, _paint: bool) -> String {
        let Content { sender, subject, headers, text, html, .. } = self.content.clone().unwrap_or_default();
        let template = self.template.clone().unwrap_or_default();
        let mut lines = vec![
            format!("{}, of {} versions, {} users", self.name(), template.versions.len(), users(&template)),
            format!("From: {sender}"),
        ];
        lines.extend(lines_of(&subject, &headers, (&text, &html)));
        lines.join("\n")
    }
}
