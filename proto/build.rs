//! Compiles every `.proto` under `proto/` with a compiler written in Rust, so that no `protoc` is needed, and writes
//! their descriptors beside the code for gRPC reflection. For the admin API it also implements `Name` for each message,
//! and `Unary` and `Listing` for the request of each method that they fit.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorSet, field_descriptor_proto::Label, field_descriptor_proto::Type};

/// The package whose methods are called by the type of their request.
const ADMIN: &str = "reveille.admin.v1";
/// Payload fields of the peer service are shared slices: an entry travels from socket to log uncopied.
const SHARED_BYTES: &[&str] = &[".reveille.peer.v1"];

/// Messages whose debug text must not show their fields: they contain secrets. `lib.rs` implements it.
const SECRET: &[&str] = &[
    ".reveille.peer.v1.JoinRequest",
    ".reveille.peer.v1.JoinResponse",
    ".reveille.admin.v1.CreateTokenResponse",
    ".reveille.admin.v1.ResetTokensResponse",
];

/// Maps are sorted: equal messages are equal bytes.
const SORTED: &str = ".reveille";

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new("proto");
    println!("cargo:rerun-if-changed=proto");

    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();

    let descriptors = protox::compile(&files, [root])?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is set by cargo")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    fs::write(out.join("calls.rs"), calls(&descriptors))?;

    let mut builder = tonic_prost_build::configure().include_file("generated.rs").btree_map(SORTED).skip_debug(SECRET);
    for path in SHARED_BYTES {
        builder = builder.bytes(*path);
    }
    builder.compile_fds(descriptors)?;
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the implementations of `Name`, `Unary` and `Listing`.
fn calls(descriptors: &FileDescriptorSet) -> String {
    let files = || descriptors.file.iter().filter(|file| file.package() == ADMIN);
    let message = |name: &str| files().flat_map(|file| &file.message_type).find(|message| message.name() == name);
    let mut code = String::new();
    for message in files().flat_map(|file| &file.message_type) {
        code += &format!(
            "impl prost::Name for admin::v1::{0} {{\n    const NAME: &'static str = \"{0}\";\n    \
             const PACKAGE: &'static str = \"{ADMIN}\";\n}}\n",
            message.name()
        );
    }
    for service in files().flat_map(|file| &file.service) {
        for method in service.method.iter().filter(|one| !one.client_streaming() && !one.server_streaming()) {
            let (request, response) = (own_name(method.input_type()), own_name(method.output_type()));
            code += &format!(
                "impl Unary for admin::v1::{request} {{\n    type Response = admin::v1::{response};\n    \
                 const PATH: &'static str = \"/{ADMIN}.{}/{}\";\n}}\n",
                service.name(),
                method.name()
            );
            if let Some([item, rows, incomplete, lost_parts]) =
                message(request).zip(message(response)).and_then(|(from, to)| listed(from, to))
            {
                code += &format!(
                    "impl Listing for admin::v1::{request} {{\n    type Item = admin::v1::{item};\n    \
                     fn at(mut self, stale: bool, page_size: i32, page_token: String) -> Self {{\n        \
                     (self.stale, self.page_size, self.page_token) = (stale, page_size, page_token);\n        \
                     self\n    }}\n    \
                     fn page(answer: Self::Response) -> ListPage<Self::Item> {{\n        \
                     let (next, freshness) = (answer.next_page_token, answer.freshness);\n        \
                     let (incomplete, lost_parts) = ({incomplete}, {lost_parts});\n        \
                     ListPage {{ rows: answer.{rows}, next, freshness, incomplete, lost_parts }}\n    \
                     }}\n}}\n"
                );
            }
        }
    }
    code
}

/// Returns the type and the field of the rows, and the expressions for whether rows are missing and for the parts of lists
/// that are lost, if the messages are request and response of a list with pages.
fn listed<'m>(request: &DescriptorProto, response: &'m DescriptorProto) -> Option<[&'m str; 4]> {
    let has = |message: &DescriptorProto, name| message.field.iter().any(|field| field.name() == name);
    if !(has(request, "page_size") && has(response, "next_page_token") && has(response, "freshness")) {
        return None;
    }
    let rows =
        response.field.iter().find(|field| field.label() == Label::Repeated && field.r#type() == Type::Message)?;
    let incomplete = if has(response, "incomplete") { "answer.incomplete" } else { "false" };
    let lost_parts = if has(response, "lost_parts") { "answer.lost_parts" } else { "Vec::new()" };
    Some([own_name(rows.type_name()), rows.name(), incomplete, lost_parts])
}

/// Returns the last part of a type's full name.
fn own_name(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}
