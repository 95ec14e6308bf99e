//! Templates: put and delete, and the content of schedules and campaigns, given or by a template.
//!
//! A command names the version of a template and the hash of its content, as the proposer read them, and never has the
//! content itself. So what was checked before the proposal is what is sent.

use std::collections::BTreeSet;

use super::Context;
use super::bounds::{bounded, content_bounded, refuse_if};
use crate::command::{TemplateDelete, TemplatePut};
use crate::model::{
    CommandOutcome, CommandRefusal, ContentChoice, EtagKind, Hash, Ledger, LimitedQuantity, TEMPLATE_USERS_NAMED,
    Template, TemplateUse, TemplateVersion,
};

impl Ledger {
    /// Returns a version of a template, or the newest one if no number is given.
    ///
    /// # Errors
    /// If there is no such template, or the version does not exist or was removed.
    pub fn template_version(
        &self,
        tenant: &str,
        name: &str,
        version: Option<u32>,
    ) -> Result<&TemplateVersion, CommandRefusal> {
        let template = self.templates.get(&(tenant.to_owned(), name.to_owned()));
        let missing = || CommandRefusal::NoSuchTemplate { name: name.to_owned(), version };
        template.and_then(|template| template.version(version)).ok_or_else(missing)
    }

    /// Checks that a schedule, a campaign or a message of this tenant may have this content.
    pub(super) fn check_content(&self, tenant: &str, content: &ContentChoice) -> Result<(), CommandRefusal> {
        match content {
            ContentChoice::Given(content) => content_bounded(content, self.limits()),
            ContentChoice::Template(named) => {
                let version = Some(named.version);
                let known = self.template_version(tenant, &named.name, version)?;
                let name = named.name.clone();
                refuse_if(known.content != named.content, CommandRefusal::NoSuchTemplate { name, version })
            }
        }
    }

    /// Adds the reference of a schedule or a campaign to its content. Returns the hash under which it is stored.
    pub(super) fn retain_content(&mut self, tenant: &str, content: &ContentChoice) -> Hash {
        match content {
            ContentChoice::Given(content) => self.store_blob(content.blob()),
            ContentChoice::Template(named) => {
                self.retain_blob(&named.content);
                if let Some(version) = self.version_for_change(tenant, &named.name, named.version) {
                    version.users += 1;
                }
                named.content
            }
        }
    }

    /// Removes the reference of a schedule or a campaign to its content.
    pub(super) fn release_content(&mut self, tenant: &str, content: &Hash, template: Option<&TemplateUse>) {
        self.release_blob(content);
        if let Some(TemplateUse { name, version }) = template
            && let Some(version) = self.version_for_change(tenant, name, *version)
        {
            version.users = version.users.saturating_sub(1);
        }
    }

    fn version_for_change(&mut self, tenant: &str, name: &str, version: u32) -> Option<&mut TemplateVersion> {
        self.templates.edit(&(tenant.to_owned(), name.to_owned()))?.version_mut(version)
    }

    pub(super) fn check_template_put(&self, put: &TemplatePut) -> Result<(), CommandRefusal> {
        let limits = self.limits();
        let key = (put.tenant.clone(), put.name.clone());
        let known = self.templates.get(&key);
        let newest = known.and_then(Template::newest);
        // A repeat is answered like the first request, whose `expected` the first request has made wrong.
        if newest.is_some_and(|newest| newest.content == put.content.blob().hash) {
            return Ok(());
        }
        check_newest(put.expected, &put.name, newest)?;
        content_bounded(&put.content, limits)?;
        bounded(LimitedQuantity::TemplateNameBytes, put.name.len(), limits.template_name_bytes_max)?;
        match known {
            Some(template) if template.oldest_unused().is_some() => Ok(()),
            Some(template) => {
                bounded(LimitedQuantity::TemplateVersions, template.versions.len() + 1, limits.template_versions_max)
            }
            None => {
                let from = self.templates.range((put.tenant.clone(), String::new())..);
                let count = from.take_while(|((tenant, _), _)| *tenant == put.tenant).count();
                bounded(LimitedQuantity::Templates, count + 1, limits.tenant_templates_max)
            }
        }
    }

    /// Stores another version of a template, unless the newest one has this content. If there are too many, the oldest
    /// version without users is removed.
    pub(super) fn template_put(
        &mut self,
        context: &mut Context,
        put: &TemplatePut,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let key = (put.tenant.clone(), put.name.clone());
        let mut template = self.templates.get(&key).cloned().unwrap_or_default();
        let blob = put.content.blob();
        if let Some(newest) = template.newest().filter(|newest| newest.content == blob.hash) {
            context.repeats = Some(newest.index);
            return Ok(CommandOutcome::Template(newest.version));
        }
        let version = template.newest().map_or(0, |newest| newest.version).saturating_add(1);
        if template.versions.len() >= self.limits().template_versions_max
            && let Some(oldest) = template.oldest_unused()
        {
            let removed = template.versions.remove(oldest);
            self.release_blob(&removed.content);
        }
        let (content, index, at) = (self.store_blob(blob), context.index, context.now);
        template.versions.push(TemplateVersion { version, content, index, at, users: 0 });
        self.templates.put(key, template);
        Ok(CommandOutcome::Template(version))
    }

    /// Refuses the delete if the caller has read another newest version, or if a schedule or campaign uses a version.
    /// Only in the second case it reads the tenant's schedules, to name them.
    pub(super) fn check_template_delete(&self, delete: &TemplateDelete) -> Result<(), CommandRefusal> {
        let TemplateDelete { tenant, name, expected } = delete;
        let template = self.templates.get(&(tenant.clone(), name.clone()));
        let missing = || CommandRefusal::NoSuchTemplate { name: name.clone(), version: None };
        let template = template.ok_or_else(missing)?;
        check_newest(*expected, name, template.newest())?;
        if template.versions.iter().all(|version| version.users == 0) {
            return Ok(());
        }
        let is_user = |template: Option<&TemplateUse>| template.is_some_and(|template| template.name == *name);
        let of_tenant = self.derived.names.get(tenant.as_str()).into_iter().flatten();
        let schedules = of_tenant.filter_map(|(_, id)| self.schedules.get(id));
        let schedules = schedules.filter(|schedule| is_user(schedule.settings.template.as_ref()));
        let campaigns = self.campaigns_of(tenant).filter(|(_, campaign)| is_user(campaign.template.as_ref()));
        // The schedule of a campaign has its name.
        let mut users: BTreeSet<&str> = schedules.map(|schedule| &*schedule.name).collect();
        users.extend(campaigns.map(|(name, _)| name));
        let more = users.len().saturating_sub(TEMPLATE_USERS_NAMED) as u32;
        let users = users.into_iter().take(TEMPLATE_USERS_NAMED).map(str::to_owned).collect();
        Err(CommandRefusal::TemplateUsed { name: name.clone(), users, more })
    }

    pub(super) fn template_delete(&mut self, delete: &TemplateDelete) -> CommandOutcome {
        if let Some(removed) = self.templates.remove(&(delete.tenant.clone(), delete.name.clone())) {
            removed.versions.iter().for_each(|version| self.release_blob(&version.content));
        }
        CommandOutcome::Done
    }
}

/// Refuses a change if the caller has read another newest version. 0: that there is none.
fn check_newest(expected: Option<u64>, name: &str, newest: Option<&TemplateVersion>) -> Result<(), CommandRefusal> {
    let is_other = expected.is_some_and(|expected| expected != newest.map_or(0, |newest| newest.index));
    refuse_if(is_other, CommandRefusal::Changed { kind: EtagKind::Template, name: name.to_owned() })
}
