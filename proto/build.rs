//! Compiles every `.proto` under `proto/` with a compiler written in Rust, so that no `protoc` is needed,
//! and writes their descriptors beside the code for gRPC reflection.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use prost::Message;

/// Payload fields of the peer service are shared slices: an entry travels from socket to log uncopied.
const SHARED_BYTES: &[&str] = &[".reveille.peer.v1"];

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

    let mut builder = tonic_prost_build::configure().include_file("generated.rs").btree_map(SORTED);
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
