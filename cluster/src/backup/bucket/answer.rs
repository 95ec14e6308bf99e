//! Reads the XML in answers of the service: lists of files, and errors.

use std::time::SystemTime;

use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use roxmltree::{Document, Node};

use crate::backup::target::StoredFile;

/// Maximum length of the service's own words in an error.
const MESSAGE_MAX: usize = 200;

/// One answer to a request for a list.
#[derive(Debug, PartialEq, Eq)]
pub struct FileListPage {
    /// The files, with their full names in the bucket.
    pub files: Vec<StoredFile>,
    /// Where the next page begins. `None`: this is the last one.
    pub next: Option<String>,
}

impl FileListPage {
    /// Parses an answer. Never panics, whatever the bytes are.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn parse(bytes: &[u8]) -> Result<FileListPage, String> {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        let document = Document::parse(text).map_err(|error| error.to_string())?;
        let root = document.root_element();
        if root.tag_name().name() != "ListBucketResult" {
            return Err(format!("<{}> is no list", root.tag_name().name()));
        }
        let is_file = |node: &Node<'_, '_>| node.tag_name().name() == "Contents";
        let files = root.children().filter(is_file).map(file).collect::<Result<Vec<StoredFile>, String>>()?;
        let next = match child(root, "IsTruncated") {
            Some("true") => Some(child(root, "NextContinuationToken").ok_or("the list goes on nowhere")?.to_owned()),
            _ => None,
        };
        Ok(FileListPage { files, next })
    }
}

fn file(node: Node<'_, '_>) -> Result<StoredFile, String> {
    let part = |name: &str| child(node, name).ok_or_else(|| format!("a file has no <{name}>"));
    let name = percent_decode_str(part("Key")?).decode_utf8().map_err(|_| "a name is not UTF-8")?.into_owned();
    let bytes = part("Size")?.parse().map_err(|_| format!("the size of {name} is not a number"))?;
    let modified: Timestamp = part("LastModified")?.parse().map_err(|_| format!("the time of {name} is no time"))?;
    Ok(StoredFile { name, bytes, modified: SystemTime::from(modified) })
}

fn child<'d>(node: Node<'d, '_>, name: &str) -> Option<&'d str> {
    node.children().find(|child| child.tag_name().name() == name)?.text()
}

/// What the service says about a failed request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ServiceError {
    /// Such as `NoSuchKey`. Empty if the answer has none.
    pub code: String,
    /// In its own words.
    pub message: String,
}

impl ServiceError {
    /// Parses an answer. Empty if it cannot be read: the service may be a proxy.
    pub fn parse(bytes: &[u8]) -> ServiceError {
        let text = String::from_utf8_lossy(bytes);
        let Ok(document) = Document::parse(&text) else { return ServiceError::default() };
        let root = document.root_element();
        let plain = |name: &str| {
            let text = child(root, name).unwrap_or_default();
            text.chars().filter(|one| !one.is_control()).take(MESSAGE_MAX).collect::<String>()
        };
        ServiceError { code: plain("Code"), message: plain("Message") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <Name>bucket</Name><IsTruncated>true</IsTruncated><NextContinuationToken>1&amp;2=</NextContinuationToken>
  <Contents><Key>p%2Fblocks/ab%C3%A4</Key><LastModified>2026-11-27T13:41:11.64Z</LastModified>
    <ETag>&quot;x&quot;</ETag><Size>6</Size></Contents>
  <CommonPrefixes><Prefix>p/blocks/more/</Prefix></CommonPrefixes>
</ListBucketResult>"#;

    #[test]
    fn list_has_names_sizes_times_and_its_next_page() {
        let page = FileListPage::parse(LIST.as_bytes()).unwrap();
        let modified = SystemTime::from("2026-11-27T13:41:11.64Z".parse::<Timestamp>().unwrap());
        assert_eq!(page.files, [StoredFile { name: "p/blocks/abä".to_owned(), bytes: 6, modified }]);
        assert_eq!(page.next.as_deref(), Some("1&2="));
        let last = LIST.replace("true", "false");
        assert_eq!(FileListPage::parse(last.as_bytes()).unwrap().next, None);
    }

    #[test]
    fn answer_that_is_no_list_is_refused() {
        for wrong in ["", "<html></html>", "<Error/>", &LIST.replace("<Size>6</Size>", ""), &LIST[..300]] {
            assert!(FileListPage::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let bomb = "<!DOCTYPE a [<!ENTITY b \"bbbb\">]><ListBucketResult><Name>&b;</Name></ListBucketResult>";
        assert!(FileListPage::parse(bomb.as_bytes()).is_err());
        for place in 0..LIST.len() {
            let mut flipped = LIST.as_bytes().to_vec();
            flipped[place] ^= 1 << (place % 8);
            // It may still be a list. It never panics.
            let _ = FileListPage::parse(&flipped);
        }
    }

    #[test]
    fn error_of_the_service_is_short_and_plain() {
        let long = "x".repeat(1_000);
        let error = format!("<Error><Code>NoSuchKey</Code><Message>a\nb{long}</Message></Error>");
        let error = ServiceError::parse(error.as_bytes());
        assert_eq!((error.code.as_str(), error.message.len()), ("NoSuchKey", MESSAGE_MAX));
        assert!(error.message.starts_with("abx"));
        assert_eq!(ServiceError::parse(b"502 Bad Gateway"), ServiceError::default());
    }
}
