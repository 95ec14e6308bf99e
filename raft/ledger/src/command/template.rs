//! Commands about templates.

use serde::{Deserialize, Serialize};

use crate::model::Content;

/// Arguments of [`Command::TemplatePut`](super::Command::TemplatePut).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplatePut {
    /// Tenant of the template.
    pub tenant: String,
    /// Name, unique in the tenant.
    pub name: String,
    /// The content. If the newest version has it, nothing changes.
    pub content: Content,
    /// Log index of the newest version that the caller has read; 0: the template does not exist. `None`: any.
    pub expected: Option<u64>,
}

/// Arguments of [`Command::TemplateDelete`](super::Command::TemplateDelete).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateDelete {
    /// Tenant of the template.
    pub tenant: String,
    /// Name of the template.
    pub name: String,
    /// Log index of the newest version that the caller has read. `None`: any.
    pub expected: Option<u64>,
}
