//! Reads the files of `--attachment FILE[:TYPE]`.

use std::path::Path;

use reveille_ledger::LEVEL;
use reveille_ledger::limits::limits;
use reveille_proto::admin::v1::Attachment;

use super::failure::Failure;
use super::input;

/// Media type of a file that no other is known of.
pub const OCTETS: &str = "application/octet-stream";
/// Media types by extension. Other files are [`OCTETS`].
const TYPES: &[(&str, &str)] = &[
    ("csv", "text/csv"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("gif", "image/gif"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ics", "text/calendar"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("json", "application/json"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("svg", "image/svg+xml"),
    ("txt", "text/plain"),
    ("vcf", "text/vcard"),
    ("webp", "image/webp"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "application/xml"),
    ("zip", "application/zip"),
];

/// Reads files, each `FILE` or `FILE:TYPE`.
///
/// # Errors
/// If a file cannot be read, has no name in UTF-8, or all have more bytes together than emails may have.
pub fn read(given: &[String]) -> Result<Vec<Attachment>, Failure> {
    let most = limits(LEVEL).attachment_bytes_max;
    let (mut attachments, mut bytes) = (Vec::with_capacity(given.len()), 0);
    for given in given {
        let (path, content_type) = split(given);
        let place = || path.display().to_string();
        let data = input::file(path, most - bytes)?;
        bytes += data.len();
        if bytes > most {
            let message = format!("with it the attachments have more than {most} bytes together; link to large files");
            return Err(Failure::file(place(), message));
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Failure::file(place(), "its name is not UTF-8; rename it".to_owned()))?;
        let (name, content_type) = (name.to_owned(), content_type.to_owned());
        attachments.push(Attachment { name, content_type, data, ..Attachment::default() });
    }
    Ok(attachments)
}

/// Returns the path and the media type of `FILE` or `FILE:TYPE`. A type has a slash, and the file exists.
fn split(given: &str) -> (&Path, &str) {
    match given.rsplit_once(':') {
        Some((path, content_type)) if content_type.contains('/') && !Path::new(given).exists() => {
            (Path::new(path), content_type)
        }
        _ => (Path::new(given), type_of(Path::new(given))),
    }
}

fn type_of(path: &Path) -> &'static str {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let known = TYPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(extension));
    known.map_or(OCTETS, |(_, content_type)| content_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_type_is_given_or_of_the_extension() {
        let types: Vec<&str> = ["a.PDF", "a.b", "a", "a.bin:image/png", "a.txt:text/csv; charset=utf-8", "a:b.txt"]
            .iter()
            .map(|given| split(given).1)
            .collect();
        let octets = "application/octet-stream";
        let expected = ["application/pdf", octets, octets, "image/png", "text/csv; charset=utf-8", "text/plain"];
        assert_eq!(types, expected);
        assert_eq!(split("dir/a.bin:image/png").0, Path::new("dir/a.bin"));
        assert!(TYPES.is_sorted_by_key(|(extension, _)| extension), "in order");
    }
}
