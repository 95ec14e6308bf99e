//! Builds the message of a template.

use reveille_ledger::template::{Template, TemplateVersion};
use reveille_proto::admin::v1;

use super::timestamp;

/// Builds the message of a template. Its etag is the log index of the newest version.
pub fn template(tenant: &str, name: &str, known: &Template) -> v1::Template {
    let version = |known: &TemplateVersion| v1::TemplateVersion {
        version: known.version,
        content_hash: known.content.to_string(),
        create_time: Some(timestamp(known.at)),
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
