//! Tests of attachments.

use reveille_ledger::ids::Hash;

use super::*;

fn attachment(name: &str, content_type: &str, content_id: Option<&str>, bytes: &[u8]) -> (Attachment, Vec<u8>) {
    let attachment = Attachment {
        name: name.to_owned(),
        content_type: content_type.to_owned(),
        content_id: content_id.map(str::to_owned),
        size: bytes.len() as u64,
        file: Hash::of(bytes),
    };
    (attachment, bytes.to_vec())
}

fn with(attachments: &[(Attachment, Vec<u8>)]) -> Content {
    Content { attachments: attachments.iter().map(|(attachment, _)| attachment.clone()).collect(), ..content() }
}

/// Returns the whole email.
fn whole(attachments: &[(Attachment, Vec<u8>)]) -> String {
    let end = encode_attachments(attachments, &stamp(4).boundary_seed);
    assert!(end.len() <= end_len(&with(attachments).attachments));
    mail(&with(attachments), &recipient("ann@example.com", "Ann")) + std::str::from_utf8(&end).expect("ASCII")
}

#[test]
fn files_are_listed_behind_the_bodies_or_shown_by_the_html() {
    let pdf = attachment("terms.pdf", "application/pdf", None, b"%PDF-1.7");
    let logo = attachment("logo.png", "image/png", Some("logo"), b"png");
    let email = whole(&[pdf, logo]);
    let (_, body) = email.split_once("MIME-Version: 1.0\r\n").expect("a head");
    let seed = "07".repeat(16);
    let expected = format!(
        "Content-Type: multipart/mixed; boundary=\"=_m{seed}\"\r\n\r\n--=_m{seed}\r\n\
         Content-Type: multipart/related; type=\"multipart/alternative\";\r\n boundary=\"=_r{seed}\"\r\n\r\n\
         --=_r{seed}\r\nContent-Type: multipart/alternative; boundary=\"=_{seed}\"\r\n\r\n--=_{seed}\r\n"
    );
    assert!(body.starts_with(&expected), "{body}");
    let expected = format!(
        "\r\n--=_{seed}--\r\n\r\n--=_r{seed}\r\nContent-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\
         Content-Disposition: inline;\r\n filename=\"logo.png\"\r\nContent-ID: <logo>\r\n\r\ncG5n\r\n\
         \r\n--=_r{seed}--\r\n\r\n--=_m{seed}\r\nContent-Type: application/pdf\r\n\
         Content-Transfer-Encoding: base64\r\nContent-Disposition: attachment;\r\n filename=\"terms.pdf\"\r\n\r\n\
         JVBERi0xLjc=\r\n\r\n--=_m{seed}--\r\n"
    );
    assert!(body.ends_with(&expected), "{body}");
}

#[test]
fn only_the_needed_layers_are_written() {
    let pdf = attachment("a.pdf", "application/pdf", None, b"");
    let email = whole(std::slice::from_ref(&pdf));
    assert!(email.contains("multipart/mixed") && !email.contains("multipart/related"), "{email}");
    let email = whole(&[attachment("a.png", "image/png", Some("a"), b"x")]);
    assert!(!email.contains("multipart/mixed") && email.contains("multipart/related"), "{email}");
    assert_eq!(encode_attachments(&[], &[7; 32]), b"");
    let text_alone = Content { html: None, ..with(&[pdf]) };
    let email = mail(&text_alone, &recipient("ann@example.com", "Ann"));
    assert!(email.contains("\r\nContent-Type: text/plain; charset=utf-8\r\n"), "{email}");
}

#[test]
fn file_names_beyond_short_ascii_are_encoded() {
    let written = |name: &str| {
        let email = whole(&[attachment(name, "text/csv; charset=utf-8", None, b"x")]);
        let (_, field) = email.split_once("Content-Disposition: attachment;\r\n ").expect("the field");
        field.split_once("\r\n\r\n").expect("its end").0.to_owned()
    };
    assert_eq!(written("a \"b\".csv"), "filename=\"a \\\"b\\\".csv\"");
    assert_eq!(written("Zoë 1.csv"), "filename*=utf-8''Zo%C3%AB%201.csv");
    let long = written(&"漢字".repeat(10));
    assert!(long.starts_with("filename*0*=utf-8''%E6%BC%A2") && long.contains("\r\n filename*3*="), "{long}");
    assert!(long.lines().all(|line| line.len() <= 78), "{long}");
}

#[test]
fn attachment_that_cannot_be_sent_is_refused_with_its_field() {
    let refused = |change: fn(&mut Attachment)| {
        let mut all = vec![attachment("a", "text/plain", Some("a"), b"x"), attachment("b", "text/plain", None, b"x")];
        change(&mut all[1].0);
        refusal(|content| content.attachments = with(&all).attachments)
    };
    for (text, change) in [
        ("attachments[1].name: is a file name", (|one| one.name.clear()) as fn(&mut Attachment)),
        ("attachments[1].name: contains a slash", |one| one.name = "../a".to_owned()),
        ("attachments[1].name: contains a slash or a control", |one| one.name = "a\r\nX: y".to_owned()),
        ("attachments[1].content_type: \"pdf\" is no media type", |one| one.content_type = "pdf".to_owned()),
        ("attachments[1].content_type: \"a/b\\r\\nX: y\"", |one| one.content_type = "a/b\r\nX: y".to_owned()),
        ("attachments[1].content_type: message/rfc822 cannot", |one| one.content_type = "message/rfc822".to_owned()),
        ("attachments[1].content_id: \"a>\" is no id", |one| one.content_id = Some("a>".to_owned())),
        ("attachments[1].content_id: \"a\" is given twice", |one| one.content_id = Some("a".to_owned())),
    ] {
        let refused = refused(change);
        assert!(refused.starts_with(text), "{refused}");
    }
}

#[test]
fn number_and_bytes_of_attachments_are_bounded() {
    let (one, _) = attachment("a.pdf", "application/pdf", None, b"x");
    let proposed = |attachments: Vec<Attachment>| {
        let checked = check_proposed(&Content { attachments, ..content() }, &columns(), limits(1));
        checked.err().map(|error| error.to_string())
    };
    let size = limits(1).attachment_bytes_max as u64;
    assert_eq!(proposed(vec![Attachment { size: size / 10, ..one.clone() }; 10]), None);
    let refused = proposed(vec![one.clone(); 11]).expect("too many");
    assert_eq!(refused, "attachments: 11 are more than 10; link to some instead");
    let refused = proposed(vec![Attachment { size: size / 2 + 1, ..one }; 2]).expect("too large");
    assert!(refused.starts_with("attachments: have 10485762 bytes together"), "{refused}");
}
