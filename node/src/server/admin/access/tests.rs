//! The table has exactly the methods that the node serves.

use std::collections::BTreeSet;

use prost::Message as _;
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use reveille_proto::DESCRIPTORS;

use super::{METHODS, Reach};

/// A method of the admin API: its path, and whether its message names a tenant.
pub struct Method {
    pub path: String,
    /// Name of the type of its message.
    pub message: String,
}

pub fn files() -> Vec<FileDescriptorProto> {
    FileDescriptorSet::decode(DESCRIPTORS).expect("descriptors").file
}

/// Returns the methods of the admin API.
pub fn methods() -> Vec<Method> {
    let mut methods = Vec::new();
    for file in files().into_iter().filter(|file| file.package() == "reveille.admin.v1") {
        for service in &file.service {
            methods.extend(service.method.iter().map(|method| Method {
                path: format!("/reveille.admin.v1.{}/{}", service.name(), method.name()),
                message: method.input_type().rsplit('.').next().unwrap_or_default().to_owned(),
            }));
        }
    }
    methods
}

/// Returns the number of a field of a message.
pub fn field(message: &str, field: &str) -> Option<i32> {
    let files = files();
    let mut messages = files.iter().flat_map(|file| &file.message_type);
    let fields = &messages.find(|known| known.name() == message)?.field;
    fields.iter().find(|known| known.name() == field).map(|known| known.number())
}

#[test]
fn every_method_has_exactly_one_row() {
    let methods: BTreeSet<String> = methods().into_iter().map(|method| method.path).collect();
    let rows: Vec<&str> = METHODS.iter().map(|row| row.path).collect();
    let of_api: BTreeSet<String> =
        rows.iter().filter(|path| path.starts_with("/reveille.")).map(|path| (*path).to_owned()).collect();
    assert_eq!(of_api, methods);
    assert_eq!(rows.iter().collect::<BTreeSet<_>>().len(), rows.len(), "a row is there twice");
}

#[test]
fn messages_that_name_a_tenant_are_about_one() {
    for method in methods() {
        let row = METHODS.iter().find(|row| row.path == method.path).expect("a row");
        let named = field(&method.message, "tenant").is_some()
            || field(&method.message, "schedule").is_some()
            || ["BatchCreateSchedulesRequest", "GetTenantRequest"].contains(&method.message.as_str());
        assert_eq!(row.reach == Reach::Tenant, named, "{}", method.path);
        assert!(row.reach != Reach::Open, "{}", method.path);
    }
}
