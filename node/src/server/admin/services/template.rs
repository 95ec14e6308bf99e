//! Templates: put, show, list, delete, and preview.

use reveille_cluster::compose::{Compiled, ContentError, Preview, check_proposed};
use reveille_ledger::Ledger;
use reveille_ledger::address::Address;
use reveille_ledger::command::{Command, TemplateDelete, TemplatePut};
use reveille_ledger::content::{Content, Recipient};
use reveille_ledger::etag::ANY_ETAG;
use reveille_ledger::ids::RunId;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::template::{Template, TemplateVersion};
use reveille_proto::admin::v1::{
    self, DeleteTemplateRequest, DeleteTemplateResponse, ErrorReason, GetTemplateRequest, GetTemplateResponse,
    ListTemplatesRequest, ListTemplatesResponse, PreviewTemplateRequest, PreviewTemplateResponse, PutTemplateRequest,
    PutTemplateResponse,
};
use tonic::Code;

use crate::server::admin::lookup::template_named;
use crate::server::admin::paging::Paging;
use crate::server::admin::validate::{self, Fields, NAME_MAX};
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts, views};

/// Recipient of a preview that names none.
const RECIPIENT: &str = "recipient@example.com";
/// Run of a preview: no run opens at log index 0.
const RUN: RunId = RunId { index: 0, place: 0 };

serve! {
    template_service_server::TemplateService {
        tenant put_template(PutTemplateRequest) -> PutTemplateResponse;
        tenant get_template(GetTemplateRequest) -> GetTemplateResponse;
        tenant list_templates(ListTemplatesRequest) -> ListTemplatesResponse;
        tenant delete_template(DeleteTemplateRequest) -> DeleteTemplateResponse;
        tenant preview_template(PreviewTemplateRequest) -> PreviewTemplateResponse;
    }
}

/// Returns the error of a content, whose fields are in the field `content` of the request.
fn unfit(error: ContentError) -> ApiError {
    let field = match error.field.as_str() {
        "content" | "columns" | "recipient" => error.field.clone(),
        field => format!("content.{field}"),
    };
    let line = error.line.map(|line| format!("line {line}: ")).unwrap_or_default();
    ApiError::of_field(field, format!("{line}{}", error.message))
}

/// Returns the template as the API shows it.
fn shown(ledger: &Ledger, tenant: &str, name: &str) -> ApiResult<v1::Template> {
    Ok(template(tenant, name, template_named(ledger, tenant, name)?))
}

/// Returns the log index of the newest version of a template.
///
/// # Errors
/// The condition of the request fails if there is no such template.
fn newest_index(ledger: &Ledger, tenant: &str, name: &str) -> ApiResult<u64> {
    let newest = ledger.template_version(tenant, name, None);
    newest.map(|newest| newest.index).map_err(|refusal| mismatch(format!("{refusal}, so no etag of it matches")))
}

/// Returns the log index of the newest version that a condition names. `None`: any, or none is given.
///
/// # Errors
/// The condition of the request fails if it names no index.
fn expected_version(name: &str, etag: &str) -> ApiResult<Option<u64>> {
    match etag {
        "" | ANY_ETAG => Ok(None),
        etag => etag.parse().map(Some).map_err(|_| mismatch(format!("no version of template '{name}' has this etag"))),
    }
}

fn mismatch(message: String) -> ApiError {
    ApiError::new(Code::Aborted, ErrorReason::EtagMismatch, message)
}

/// Builds the message of a template. Its etag is the log index of the newest version.
fn template(tenant: &str, name: &str, known: &Template) -> v1::Template {
    let version = |known: &TemplateVersion| v1::TemplateVersion {
        version: known.version,
        content_hash: known.content.to_string(),
        create_time: Some(views::timestamp(known.at)),
        index: known.index,
        users: known.users,
    };
    v1::Template {
        tenant: tenant.to_owned(),
        name: name.to_owned(),
        etag: known.newest().map(|newest| newest.index.to_string()).unwrap_or_default(),
        versions: known.versions.iter().map(version).collect(),
    }
}

impl Admin {
    /// Returns a version of a template, or the newest one for 0, with its number.
    fn template_content(&self, tenant: &str, name: &str, version: u32) -> ApiResult<(u32, Content)> {
        let found = self.context.template(tenant, name, Some(version).filter(|version| *version > 0));
        let (named, content) = found.map_err(|refusal| error_texts::refused(&refusal))?;
        Ok((named.version, content))
    }

    async fn put_template(&self, request: PutTemplateRequest, call: &Call) -> ApiResult<PutTemplateResponse> {
        let PutTemplateRequest { tenant, name, mut content, etag, validate_only } = request;
        let mut fields = Fields::default();
        let tenant = fields.name_or("tenant", &tenant, reveille_ledger::DEFAULT_TENANT);
        let name = fields.name("name", &name, NAME_MAX);
        let files = self.take_files(&mut fields, ("content", content.as_mut()), (&tenant, &name), call).await?;
        let content = validate::content(&mut fields, "content", content);
        let content = fields.done(content)?;
        let expected = match etag.as_str() {
            ANY_ETAG => Some(self.read_latest(call, |ledger| newest_index(ledger, &tenant, &name)).await??),
            etag => expected_version(&name, etag)?,
        };
        let limits = self.limits();
        let checked = self.blocking({
            let content = content.clone();
            // Its variables are those of an audience that is not known yet.
            move |_| check_proposed(&content, &[], limits).and_then(|()| Compiled::for_any_audience(&content).map(drop))
        });
        checked.await?.map_err(unfit)?;
        if !validate_only {
            self.store_files(files, [&content]).await?;
        }
        let put = TemplatePut { tenant: tenant.clone(), name: name.clone(), content, expected };
        let reply = self.write_unless(validate_only, Command::TemplatePut(Box::new(put)), call).await;
        let reply = reply.map_err(|error| match (error.reason(), expected) {
            (ErrorReason::EtagMismatch, Some(0)) => mismatch(format!("template '{name}' exists already")),
            _ => error,
        })?;
        let template = self.context.replica.read(|ledger| shown(ledger, &tenant, &name));
        let Some(reply) = reply else {
            return Ok(PutTemplateResponse { template: template.ok(), version: 0, created: false });
        };
        let CommandOutcome::Template(version) = reply.outcome else {
            return Err(error_texts::broken(format!("a template was answered by {:?}", reply.outcome)));
        };
        Ok(PutTemplateResponse { template: Some(template?), version, created: !reply.is_repeat })
    }

    async fn get_template(&self, request: GetTemplateRequest, call: &Call) -> ApiResult<GetTemplateResponse> {
        let GetTemplateRequest { tenant, name, version, stale } = request;
        let tenant = validate::tenant(&tenant)?;
        let (template, freshness) = self.try_read(stale, call, |ledger| shown(ledger, &tenant, &name)).await?;
        let (version, content) = self.template_content(&tenant, &name, version)?;
        Ok(GetTemplateResponse { template: Some(template), content: Some(views::mail(&content)), version, freshness })
    }

    async fn list_templates(&self, request: ListTemplatesRequest, call: &Call) -> ApiResult<ListTemplatesResponse> {
        let tenant = validate::tenant(&request.tenant)?;
        let paging = Paging::new("templates", request.page_size, &request.page_token)?;
        let query = self.read(request.stale, call, |ledger| {
            let mine = paging.of_tenant(ledger.templates(), &tenant).take(paging.size + 1);
            mine.map(|(name, known)| template(&tenant, name, known)).collect::<Vec<_>>()
        });
        let (mut templates, freshness) = query.await?;
        let next_page_token = paging.cut_messages(&mut templates, |one| &one.name);
        Ok(ListTemplatesResponse { templates, next_page_token, freshness })
    }

    async fn delete_template(&self, request: DeleteTemplateRequest, call: &Call) -> ApiResult<DeleteTemplateResponse> {
        let DeleteTemplateRequest { tenant, name, validate_only, etag } = request;
        let mut fields = Fields::default();
        let tenant = fields.name_or("tenant", &tenant, reveille_ledger::DEFAULT_TENANT);
        let tenant = fields.done(Some(tenant))?;
        let expected = expected_version(&name, &etag)?;
        self.read_latest(call, |ledger| shown(ledger, &tenant, &name)).await??;
        let delete = Command::TemplateDelete(TemplateDelete { tenant, name, expected });
        let reply = self.write_unless(validate_only, delete, call).await?;
        Ok(DeleteTemplateResponse { index: reply.map_or(0, |reply| reply.index) })
    }

    async fn preview_template(
        &self,
        request: PreviewTemplateRequest,
        call: &Call,
    ) -> ApiResult<PreviewTemplateResponse> {
        let PreviewTemplateRequest { tenant, name, version, content, recipient, values } = request;
        let tenant = validate::tenant(&tenant)?;
        let recipient = if recipient.is_empty() { RECIPIENT } else { &recipient };
        let read = Address::parse(recipient).map_err(|error| ApiError::of_field("recipient", error.to_string()))?;
        let (version, content) = match content {
            Some(content) => {
                let mut fields = Fields::default();
                let content = validate::content(&mut fields, "content", Some(content));
                (0, fields.done(content)?)
            }
            None => {
                self.read_latest(call, |ledger| shown(ledger, &tenant, &name)).await??;
                self.template_content(&tenant, &name, version)?
            }
        };
        let (columns, values): (Vec<String>, Vec<String>) = values.into_iter().unzip();
        let recipient = Recipient { address: read.as_given().to_owned(), key: read.key(), values };
        let limits = self.limits();
        let rendered = self.blocking(move |_| {
            check_proposed(&content, &columns, limits)?;
            Compiled::new(&content, &columns)?.preview(&recipient, RUN)
        });
        // A stored content compiles, so what is wrong are the values.
        let wrong = |error: ContentError| match version {
            0 => unfit(error),
            _ => ApiError::of_field("values", error.to_string()),
        };
        let Preview { subject, headers, text, html } = rendered.await?.map_err(wrong)?;
        let headers = headers.into_iter().map(|(name, value)| v1::Field { name, value }).collect();
        Ok(PreviewTemplateResponse { subject, headers, text, html, version })
    }
}
