//! The description of the HTTP API in OpenAPI 3.1, made from the descriptors.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost_reflect::{Cardinality, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};

use super::HttpMethod;
use super::request::{field_of, id_field};
use crate::server::admin::access::BodyPart;

/// Returns the document.
pub fn document(methods: &[Arc<HttpMethod>]) -> Value {
    let mut schemas = Schemas::default();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for method in methods {
        let operation = operation(method, &mut schemas);
        paths.entry(described(method.http.path)).or_default().insert(method.http.verb.to_lowercase(), operation);
    }
    let paths: Map<String, Value> = paths.into_iter().map(|(path, verbs)| (path, verbs.into())).collect();
    schemas.0.insert("Problem".to_owned(), problem());
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Reveille", "version": env!("CARGO_PKG_VERSION") },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas.0,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

/// Returns the name of a field of a path: paths that differ in names only must not both exist.
fn parameter(field: &str) -> &str {
    field.rsplit('.').next().unwrap_or(field)
}

/// Returns a path with the names of its parameters.
fn described(path: &str) -> String {
    let part = |part: &str| field_of(part).map_or_else(|| part.to_owned(), |field| format!("{{{}}}", parameter(field)));
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// The schemas of messages, by their names.
#[derive(Default)]
struct Schemas(BTreeMap<String, Value>);

impl Schemas {
    /// Returns a reference to the schema of a message, which is added with all that it contains.
    fn message(&mut self, message: &MessageDescriptor) -> Value {
        if let Some(known) = well_known(message.full_name()) {
            return known;
        }
        let name = message.full_name().rsplit("v1.").next().unwrap_or(message.name()).to_owned();
        if !self.0.contains_key(&name) {
            // First, since a message may contain itself.
            self.0.insert(name.clone(), Value::Null);
            let fields = message.fields().map(|field| (field.json_name().to_owned(), self.field(&field)));
            let fields: Map<String, Value> = fields.collect();
            self.0.insert(name.clone(), json!({ "type": "object", "properties": fields }));
        }
        json!({ "$ref": format!("#/components/schemas/{name}") })
    }

    fn field(&mut self, field: &FieldDescriptor) -> Value {
        if let (true, Kind::Message(entry)) = (field.is_map(), field.kind()) {
            let value = self.field(&entry.map_entry_value_field());
            return json!({ "type": "object", "additionalProperties": value });
        }
        let one = match field.kind() {
            Kind::Bool => json!({ "type": "boolean" }),
            Kind::String => json!({ "type": "string" }),
            Kind::Bytes => json!({ "type": "string", "contentEncoding": "base64" }),
            Kind::Float | Kind::Double => json!({ "type": "number" }),
            // JSON of protobuf writes numbers of 64 bits as strings.
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 | Kind::Uint64 | Kind::Fixed64 => {
                json!({ "type": "string", "pattern": "^-?[0-9]+$" })
            }
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => json!({ "type": "integer" }),
            Kind::Uint32 | Kind::Fixed32 => json!({ "type": "integer", "minimum": 0 }),
            Kind::Enum(values) => {
                let names: Vec<String> = values.values().map(|value| value.name().to_owned()).collect();
                json!({ "type": "string", "enum": names })
            }
            Kind::Message(message) => self.message(&message),
        };
        match field.cardinality() {
            Cardinality::Repeated => json!({ "type": "array", "items": one }),
            Cardinality::Optional | Cardinality::Required => one,
        }
    }

    /// Returns the parameters of a field in the query. Each field of a message has its own, named by its path.
    fn in_query(&mut self, field: &FieldDescriptor, path: &str) -> Vec<Value> {
        let name = format!("{path}{}", field.json_name());
        match field.kind() {
            Kind::Message(message) if well_known(message.full_name()).is_none() => {
                message.fields().flat_map(|field| self.in_query(&field, &format!("{name}."))).collect()
            }
            _ => vec![json!({ "name": name, "in": "query", "schema": self.field(field) })],
        }
    }
}

/// Returns the schema of a message of protobuf's own that JSON writes as a text.
fn well_known(name: &str) -> Option<Value> {
    Some(match name {
        "google.protobuf.Timestamp" => json!({ "type": "string", "format": "date-time" }),
        "google.protobuf.Duration" => json!({ "type": "string", "pattern": "^-?[0-9]+(\\.[0-9]+)?s$" }),
        "google.protobuf.FieldMask" => json!({ "type": "string" }),
        _ => return None,
    })
}

fn operation(method: &HttpMethod, schemas: &mut Schemas) -> Value {
    let (input, output) = (method.method.input(), method.method.output());
    let in_path: Vec<&str> = method.http.path.split('/').filter_map(field_of).collect();
    let mut parameters: Vec<Value> = in_path
        .iter()
        .map(|name| json!({ "name": parameter(name), "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    let in_query = input.fields().filter(|field| {
        let is_body = match method.http.body {
            BodyPart::None => false,
            BodyPart::Whole => true,
            BodyPart::Field(body) => body == field.name(),
            BodyPart::Pieces(body) => body == field.name() || field.name() == "content_type",
        };
        !is_body && !in_path.contains(&field.name())
    });
    for field in in_query {
        parameters.extend(schemas.in_query(&field, ""));
    }
    for (header, field) in [("Idempotency-Key", id_field(&input, in_path.is_empty())), ("If-Match", "etag")] {
        if input.get_field_by_name(field).is_some() {
            parameters.push(json!({ "name": header, "in": "header", "schema": { "type": "string" } }));
        }
    }
    if method.http.verb == "PUT" && input.get_field_by_name("etag").is_some() {
        parameters.push(json!({ "name": "If-None-Match", "in": "header", "schema": { "const": "*" } }));
    }
    let kind = if method.method.is_server_streaming() { "application/jsonl" } else { "application/json" };
    let mut content = Map::new();
    content.insert(kind.to_owned(), json!({ "schema": schemas.message(&output) }));
    if method.is_export() {
        content.insert("text/csv".to_owned(), json!({ "schema": { "type": "string" } }));
    }
    let problem = json!({ "schema": { "$ref": "#/components/schemas/Problem" } });
    let mut operation = json!({
        "operationId": method.method.name(),
        "tags": [method.method.parent_service().name()],
        "parameters": parameters,
        "responses": {
            "200": { "description": "What was done or read.", "content": content },
            "default": {
                "description": "A problem of RFC 9457. Only with 504 the request may have taken effect.",
                "content": { "application/problem+json": problem },
            },
        },
    });
    if !method.is_idempotent {
        operation["description"] =
            "Its repeat may do more, so it refuses an Idempotency-Key, which it cannot keep.".into();
    }
    let body = match method.http.body {
        BodyPart::None => None,
        BodyPart::Whole => Some((vec!["application/json"], schemas.message(&input))),
        BodyPart::Field(field) => {
            input.get_field_by_name(field).map(|field| (vec!["application/json"], schemas.field(&field)))
        }
        BodyPart::Pieces(_) => Some((vec!["text/csv", "application/jsonl"], json!({ "type": "string" }))),
    };
    if let Some((kinds, schema)) = body {
        let content = kinds.into_iter().map(|kind| (kind.to_owned(), json!({ "schema": schema })));
        operation["requestBody"] = json!({ "content": content.collect::<Map<_, _>>() });
    }
    operation
}

fn problem() -> Value {
    json!({
        "type": "object",
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string" },
            "reason": { "type": "string", "description": "A value of ErrorReason without its prefix." },
            "requestId": { "type": "string" },
            "index": { "type": "string" },
            "leader": { "type": "string" },
            "leaderAddress": { "type": "string" },
            "leaderlessMs": { "type": "string" },
            "silentVoters": { "type": "string" },
            "staleHelps": { "type": "string" },
            "schedule": { "type": "string" },
            "campaign": { "type": "string" },
            "run": { "type": "string" },
            "recipient": { "type": "string" },
            "relay": { "type": "string" },
            "pool": { "type": "string" },
            "audience": { "type": "string" },
            "template": { "type": "string" },
            "member": { "type": "string" },
            "fields": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": { "field": { "type": "string" }, "detail": { "type": "string" } },
                },
            },
        },
    })
}
