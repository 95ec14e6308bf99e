//! Tests of the guarantees of composing.

mod attached;
mod prepared;

use super::*;
use proptest::prelude::*;
use reveille_ledger::ids::{Epoch, Fence, RunId, Time};
use reveille_ledger::limits::{LedgerLimits, limits};

fn content() -> Content {
    Content {
        sender: "Morning Paper <paper@example.com>".to_owned(),
        reply_to: Some("desk@example.com".to_owned()),
        cc: vec!["Team <team@example.com>".to_owned(), "boss@example.com".to_owned()],
        subject: "Good morning, {{ name }}".to_owned(),
        text: Some("Hello {{ name }} <{{ recipient }}>,\nthe weather in {{ city }}.\n".to_owned()),
        html: Some("<p>Hello {{ name }}</p>".to_owned()),
        headers: vec![(
            "List-Unsubscribe".to_owned(),
            "<https://example.com/u?a={{ recipient|urlencode }}>".to_owned(),
        )],
        variables: vec![("city".to_owned(), "Lyon".to_owned())],
        bulk: false,
        attachments: vec![],
    }
}

/// Limits with this maximum size of a content.
fn bounded(content_bytes_max: usize) -> LedgerLimits {
    LedgerLimits { content_bytes_max, ..*limits(1) }
}

fn columns() -> Vec<String> {
    vec!["name".to_owned()]
}

fn recipient(address: &str, name: &str) -> Recipient {
    Recipient { address: address.to_owned(), key: address.to_owned(), values: vec![name.to_owned()] }
}

fn stamp(place: u32) -> Stamp {
    let run = RunId { index: 1042, place: 3 };
    Stamp {
        message_id: message_id(7, 1, run, 12, "example.com"),
        run,
        fence: Some(Fence { group: 1, epoch: Epoch(9), index: 1050, place }),
        date: Time(1_795_219_200_000),
        list_unsubscribe: None,
        boundary_seed: [7; 32],
    }
}

fn compiled(content: &Content) -> Compiled {
    Compiled::new(content, &columns()).unwrap_or_else(|error| panic!("{error}"))
}

fn mail(content: &Content, to: &Recipient) -> String {
    let bytes = compiled(content).compose(to, &stamp(4)).unwrap_or_else(|error| panic!("{error}"));
    String::from_utf8(bytes.data).unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(change: impl FnOnce(&mut Content)) -> String {
    let mut changed = content();
    change(&mut changed);
    match Compiled::new(&changed, &columns()) {
        Ok(_) => panic!("{changed:?} was taken"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn email_with_text_and_html_reads_as_expected() {
    let expected = "\
From: Morning Paper <paper@example.com>
To: ann@example.com
Cc: Team <team@example.com>,
 boss@example.com
Reply-To: desk@example.com
Subject: Good morning, Ann & Bo
Date: Sat, 21 Nov 2026 00:00:00 +0000
Message-ID: <ID>
Auto-Submitted: auto-generated
X-Reveille-Run: r1042.3
X-Reveille-Fence: 1.9.1050.4
List-Unsubscribe: <https://example.com/u?a=ann%40example.com>
MIME-Version: 1.0
Content-Type: multipart/alternative; boundary=\"=_07070707070707070707070707070707\"

--=_07070707070707070707070707070707
Content-Type: text/plain; charset=utf-8
Content-Transfer-Encoding: quoted-printable

Hello Ann & Bo <ann@example.com>,
the weather in Lyon.

--=_07070707070707070707070707070707
Content-Type: text/html; charset=utf-8
Content-Transfer-Encoding: quoted-printable

<p>Hello Ann &amp; Bo</p>

--=_07070707070707070707070707070707--
";
    let expected = expected.replace("<ID>", &format!("<{}>", stamp(4).message_id)).replace('\n', "\r\n");
    assert_eq!(mail(&content(), &recipient("ann@example.com", "Ann & Bo")), expected);
}

#[test]
fn one_part_alone_is_no_multipart() {
    let text = mail(&Content { html: None, ..content() }, &recipient("ann@example.com", "Ann"));
    assert!(text.contains("\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n"), "{text}");
    let html = mail(&Content { text: None, ..content() }, &recipient("ann@example.com", "Ann"));
    assert!(html.contains("\r\nMIME-Version: 1.0\r\nContent-Type: text/html; charset=utf-8\r\n"), "{html}");
    assert!(!text.contains("multipart") && !html.contains("multipart"));
}

#[test]
fn retried_email_is_the_same_except_for_its_fence() {
    let compiled_here = compiled(&content());
    let compiled_there = compiled(&content());
    let to = recipient("Ann Lee <ann@example.com>", "Ann");
    let first = compiled_here.compose(&to, &stamp(4));
    assert_eq!(first, compiled_there.compose(&to, &stamp(4)));
    let text =
        |result: Result<Composed, ContentError>| String::from_utf8(result.expect("an email").data).expect("text");
    let again = text(compiled_there.compose(&to, &stamp(5)));
    assert_eq!(again.replace("1.9.1050.5", "1.9.1050.4"), text(first));
}

#[test]
fn message_id_is_unique_by_cluster_run_and_recipient() {
    let run = RunId { index: 1, place: 0 };
    let id = message_id(1, 1, run, 1, "example.com");
    assert_eq!(id, message_id(1, 1, run, 1, "example.com"));
    assert_eq!(id.len(), 40 + "@example.com".len());
    for other in [
        message_id(2, 1, run, 1, "example.com"),
        message_id(1, 2, run, 1, "example.com"),
        message_id(1, 1, RunId { index: 1, place: 1 }, 1, "example.com"),
        message_id(1, 1, RunId { index: 2, place: 0 }, 1, "example.com"),
        message_id(1, 1, run, 2, "example.com"),
    ] {
        assert_ne!(id, other);
    }
}

#[test]
fn content_that_could_not_be_sent_is_refused_with_the_field_and_the_next_step() {
    assert_eq!(
        refusal(|c| c.sender = "paper".to_owned()),
        "sender: 'paper' has no '@': an address is LOCAL@DOMAIN; write ADDRESS or NAME <ADDRESS>"
    );
    assert_eq!(
        refusal(|c| c.sender = "{{ name }} <a@b>".to_owned()),
        "sender: is an address, not a template; write the address itself"
    );
    let large = Content { text: Some("x".repeat(1_000)), ..content() };
    assert_eq!(check_proposed(&large, &columns(), &bounded(5_000)), Ok(()));
    let refused = check_proposed(&large, &columns(), &bounded(1_000)).expect_err("too large").to_string();
    assert!(refused.starts_with("content: has 1"), "{refused}");
    assert!(refused.ends_with(" bytes, more than 1000; link to large parts instead"), "{refused}");
    assert_eq!(refusal(|c| c.cc = vec!["boss".to_owned()]).split(':').next(), Some("cc[0]"));
    assert!(refusal(|c| c.cc = vec!["a@example.com".to_owned(); 11]).starts_with("cc: 11 addresses are more than 10"));
    assert_eq!(refusal(|c| c.subject = "x".repeat(5_000)), "subject: is longer than 4096 bytes; shorten it");
    assert_eq!(refusal(|c| c.subject = "x".repeat(999)), "subject: is longer than 998 bytes when rendered");
    assert_eq!(
        refusal(|c| c.subject = "a\nBcc: x".to_owned()),
        "subject: contains a control character (U+000A); a header is one line of text"
    );
    assert_eq!(
        refusal(|c| (c.text, c.html) = (None, None)),
        "content: has neither text nor html; give one of them, or both"
    );
    assert_eq!(
        refusal(|c| c.html = Some("\n{{ nam }}".to_owned())),
        "html, line 2: unknown variable 'nam'; known are: city, name, recipient, run. Correct the name, or add a variable or a column 'nam'"
    );
    assert!(refusal(|c| c.text = Some("a\n{% if name %}".to_owned())).starts_with("text, line 2: does not compile: "));
    assert_eq!(
        refusal(|c| c.variables.push(("a b".to_owned(), String::new()))),
        "variables.a b: is not a name; use letters, digits and '_', not beginning with a digit"
    );
    assert!(refusal(|c| c.variables.push(("city".to_owned(), String::new()))).contains("twice"));
    assert!(refusal(|c| c.variables.push(("big".to_owned(), "x".repeat(70_000)))).contains("longer than 65536"));
}

#[test]
fn name_of_built_in_variable_is_refused_in_a_proposal_and_wins_in_stored_content() {
    let text = Some("{{ run }} {{ name }} {{ recipient }}".to_owned());
    let proposed = |variables: &[(&str, &str)], columns: &[&str]| {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let content = Content { text: text.clone(), html: None, variables, ..content() };
        let columns: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
        let refused = check_proposed(&content, &columns, &bounded(usize::MAX)).err().map(|error| error.to_string());
        let compiled = Compiled::new(&content, &columns).expect("stored content is composed");
        let to = Recipient { values: vec!["Ann".to_owned(), "own".to_owned()], ..recipient("ann@example.com", "") };
        let data = compiled.compose(&to, &stamp(4)).expect("an email").data;
        let body = String::from_utf8(data).expect("text").lines().last().map(str::to_owned);
        (refused, body.expect("a line"))
    };
    let (refused, body) = proposed(&[], &["name"]);
    assert_eq!((refused, body.as_str()), (None, "r1042.3 Ann ann@example.com"));
    let (refused, body) = proposed(&[], &["name", "run"]);
    let column = "columns: 'run' is a built-in variable (the run's name); rename the column";
    assert_eq!((refused.as_deref(), body.as_str()), (Some(column), "own Ann ann@example.com"));
    let (refused, body) = proposed(&[("run", "same")], &["name"]);
    let variable = "variables.run: 'run' is a built-in variable (the run's name); choose another name";
    assert_eq!((refused.as_deref(), body.as_str()), (Some(variable), "same Ann ann@example.com"));
}

#[test]
fn header_given_twice_is_refused_whatever_its_case() {
    for second in ["List-Id", "List-ID"] {
        let headers = ["List-Id", second].map(|name| (name.to_owned(), "<news.example.com>".to_owned())).to_vec();
        let refused = refusal(|content| content.headers = headers);
        assert_eq!(refused, format!("headers.{second}: is given twice; remove one of them"));
    }
}

#[test]
fn headers_are_neither_injected_nor_overridden() {
    let with = |name: &str, value: &str| {
        let header = (name.to_owned(), value.to_owned());
        refusal(|content| content.headers = vec![header])
    };
    for name in
        ["From", "to", "BCC", "Message-Id", "X-Reveille-Fence", "content-type", "Date", "MIME-Version", "Received"]
    {
        assert_eq!(with(name, "x"), format!("headers.{name}: is written by Reveille or on the way; remove it"));
    }
    for name in ["", "X:Y", "X Y", "X\r\nBcc", "X-Ümlaut", &"x".repeat(65)] {
        assert!(with(name, "x").contains("is not a header's name"), "{name:?}");
    }
    assert!(with("X-A", "a\r\nBcc: b@example.com").contains("control character"));
    assert!(with("X-A", "{{ '\\n' }}").contains("control character"));
}

#[test]
fn auto_submitted_and_feedback_id_are_settable() {
    let with = |name: &str, value: &str| {
        let headers = vec![(name.to_owned(), value.to_owned())];
        let compiled = compiled(&Content { headers, ..content() });
        // The first email is rendered whole, the second from the prepared content.
        let [first, second] = ["a@example.com", "b@example.com"].map(|to| {
            let mail = compiled.compose(&recipient(to, "Ann"), &stamp(4)).expect("an email");
            let mail = String::from_utf8(mail.data).expect("text");
            let start = format!("{}:", name.to_lowercase());
            let fields = mail.lines().filter(|line| line.to_lowercase().starts_with(&start));
            fields.map(str::to_owned).collect::<Vec<_>>()
        });
        assert_eq!(first, second);
        let preview = compiled.preview(&recipient("a@example.com", "Ann"), stamp(4).run).expect("a preview");
        assert_eq!(preview.headers.len(), first.len(), "the preview shows what the email has");
        first
    };
    assert_eq!(with("auto-submitted", "auto-replied"), ["auto-submitted: auto-replied"], "once");
    assert_eq!(with("Auto-Submitted", "no"), [""; 0]);
    assert_eq!(with("Feedback-ID", "spring:acme:news:reveille"), ["Feedback-ID: spring:acme:news:reveille"]);
}

#[test]
fn line_end_in_value_becomes_blank_in_header() {
    let compiled = compiled(&content());
    let subject = |name: &str| {
        let mail = compiled.compose(&recipient("ann@example.com", name), &stamp(4)).expect("an email");
        let mail = String::from_utf8(mail.data).expect("text");
        let (head, _) = mail.split_once("\r\n\r\n").expect("a head");
        assert!(!head.to_lowercase().contains("\r\nbcc:"), "{head}");
        head.lines().find(|line| line.starts_with("Subject:")).expect("a subject").to_owned()
    };
    let plain = subject("Ann Bcc: b@example.com");
    // The first email is rendered whole, the others are filled into the prepared content.
    for name in ["Ann\r\nBcc: b@example.com", "Ann\nBcc: b@example.com", "Ann\rBcc: b@example.com"] {
        assert_eq!(subject(name), plain);
    }
    let error = compiled.compose(&recipient("ann@example.com", "Ann\u{1b}"), &stamp(4)).unwrap_err().to_string();
    assert_eq!(error, "subject: contains a control character (U+001B); a header is one line of text");
}

#[test]
fn control_characters_are_refused_in_uploaded_content() {
    let nul = "holds the control character U+0000, which no email carries; remove it";
    assert_eq!(refusal(|c| c.text = Some("a\nb\0".to_owned())), format!("text, line 2: {nul}"));
    assert_eq!(refusal(|c| c.html = Some("\0".to_owned())), format!("html, line 1: {nul}"));
    assert_eq!(refusal(|c| c.variables.push(("x".to_owned(), "\0".to_owned()))), format!("variables.x: {nul}"));
    assert!(refusal(|c| c.text = Some("caf\u{92}".to_owned())).contains("U+0092"));
    // The rendered subject differs by recipient, so only the template's text can be checked.
    assert!(refusal(|c| c.subject = "{{ name }}\nBcc: x".to_owned()).starts_with("subject: contains a control"));
    assert!(refusal(|c| c.headers = vec![("X-A".to_owned(), "{{ name }}\u{1b}[2J".to_owned())]).contains("U+001B"));
    let two_lines = |c: &mut Content| {
        c.subject = "{{ name }} of {{ city }}".to_owned();
        c.variables = vec![("city".to_owned(), "Lyon\nParis".to_owned())];
    };
    assert!(refusal(two_lines).starts_with("variables.city: holds a line end, and subject uses it"));
}

#[test]
fn variable_of_header_has_one_line_and_of_text_many() {
    let values = |name: &str, bio: &str| vec![name.to_owned(), bio.to_owned()];
    let columns = ["name".to_owned(), "bio".to_owned()];
    let content = Content { text: Some("{{ bio }}".to_owned()), ..content() };
    let compiled = Compiled::new(&content, &columns).expect("content");
    assert_eq!(compiled.misfits(&values("Ann\t", "one\r\n\ttwo")), []);
    let why = "holds a line end, and subject uses it, which is one line; take it out there or here".to_owned();
    assert_eq!(compiled.misfits(&values("Ann\nBcc: x", "")), [(0, why)]);
    let long = compiled.misfits(&values(&"x".repeat(999), &"x".repeat(999)));
    assert_eq!(long, [(0, "has 999 bytes, and subject uses it, which may have 998".to_owned())]);
    assert_eq!(compiled.misfits(&[]), [], "a short row is another's to refuse");
}

#[test]
fn compose_error_of_one_recipient_spares_the_others() {
    let compiled = compiled(&content());
    let error = |to: &Recipient| compiled.compose(to, &stamp(4)).map(|_| ()).unwrap_err().to_string();
    assert!(error(&recipient("ann", "Ann")).starts_with("recipient: 'ann' has no '@'"));
    assert!(error(&Recipient { values: Vec::new(), ..recipient("a@b", "") }).starts_with("subject, line 1: undefined"));
    assert_eq!(error(&recipient("a@b", &"x".repeat(70_000))), "columns.name: the value is longer than 65536 bytes");
    assert_eq!(error(&recipient("a@b", &"x".repeat(2_000))), "subject: is longer than 998 bytes when rendered");
    assert!(compiled.compose(&recipient("a@b", "Ann"), &stamp(4)).is_ok());
    let bad = Stamp { message_id: "a@b>\r\nBcc: x".to_owned(), ..stamp(4) };
    let error = compiled.compose(&recipient("a@b", "Ann"), &bad).unwrap_err().to_string();
    assert_eq!(error, "stamp: this message id cannot stand in a header");
}

#[test]
fn bulk_email_has_one_unsubscribe_link_on_unbroken_lines() {
    let bulk = Content { bulk: true, headers: Vec::new(), ..content() };
    let own = |name: &str| refusal(|content| (content.bulk, content.headers) = (true, vec![(name.into(), "x".into())]));
    assert!(own("List-Unsubscribe").contains("is written by Reveille on bulk email"), "{}", own("List-Unsubscribe"));
    assert!(own("list-unsubscribe-POST").contains("is written by Reveille on bulk email"));
    let compiled = compiled(&bulk);
    assert!(compiled.is_bulk() && !Compiled::new(&content(), &columns()).expect("fine").is_bulk());
    let link = format!("<https://a.example/{}>", "t".repeat(800));
    let by = |ways: String| Stamp { list_unsubscribe: Some(ways), ..stamp(4) };
    let ann = recipient("ann@example.com", "Ann");
    let composed = compiled.compose(&ann, &by(format!("{link}, <mailto:u@a.example>"))).expect("composed");
    let composed = String::from_utf8(composed.data).expect("text");
    let fields = format!(
        "\r\nList-Unsubscribe: {link},\r\n <mailto:u@a.example>\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n"
    );
    assert!(composed.contains(&fields), "{composed}");
    for bad in ["<a>\r\nBcc: x".to_owned(), "x".repeat(LIST_UNSUBSCRIBE_BYTES_MAX + 1), "é".to_owned()] {
        let error = compiled.compose(&ann, &by(bad)).unwrap_err().to_string();
        assert_eq!(error, "stamp: this way to opt out cannot stand in a header");
    }
}

#[test]
fn pool_without_reveille_headers_writes_neither_of_them() {
    let hidden = Stamp { fence: None, ..stamp(4) };
    let ann = recipient("ann@example.com", "Ann");
    let compose = |stamp: &Stamp| {
        let composed = compiled(&content()).compose(&ann, stamp).expect("composed");
        String::from_utf8(composed.data).expect("text")
    };
    let fields = "X-Reveille-Run: r1042.3\r\nX-Reveille-Fence: 1.9.1050.4\r\n";
    assert_eq!(compose(&hidden), compose(&stamp(4)).replace(fields, ""), "nothing else changes");
    assert!(!compose(&hidden).contains("X-Reveille"), "{}", compose(&hidden));
}

#[test]
fn column_precedes_variable_and_empty_header_is_left_out() {
    let mut content = content();
    content.variables.push(("name".to_owned(), "subscriber".to_owned()));
    content.headers = vec![("X-Name".to_owned(), "{% if name != 'Bo' %}{{ name }}{% endif %}".to_owned())];
    assert!(mail(&content, &recipient("a@b", "Ann")).contains("\r\nX-Name: Ann\r\n"));
    assert!(!mail(&content, &recipient("a@b", "Bo")).contains("X-Name"));
}

proptest! {
    #[test]
    fn any_data_makes_one_message_of_short_lines(
        name in "(?s).{0,60}",
        display in "[ -;=?-~äß漢\u{85}\t]{0,80}",
        text in "(?s).{0,300}",
    ) {
        let content = Content { text: Some(text.replace('{', "(")), ..content() };
        let Ok(compiled) = Compiled::new(&content, &columns()) else { return Ok(()) };
        let Ok(mail) = compiled.compose(&recipient(&format!("{display} <ann@example.com>"), &name), &stamp(4)) else { return Ok(()) };
        let mail = String::from_utf8(mail.data).expect("text");
        prop_assert!(mail.ends_with("\r\n") && mail.is_ascii());
        prop_assert!(!mail.replace("\r\n", "").contains(['\r', '\n', '\0']));
        prop_assert!(mail.split("\r\n").all(|line| line.len() <= 998));
        let (head, body) = mail.split_once("\r\n\r\n").expect("a head and a body");
        let fields: Vec<&str> = head.split("\r\n").filter(|line| !line.starts_with(' ')).map(|line| line.split(':').next().unwrap_or_default()).collect();
        prop_assert_eq!(fields, ["From", "To", "Cc", "Reply-To", "Subject", "Date", "Message-ID", "Auto-Submitted", "X-Reveille-Run", "X-Reveille-Fence", "List-Unsubscribe", "MIME-Version", "Content-Type"]);
        prop_assert_eq!(body.matches("--=_07070707070707070707070707070707").count(), 3);
    }
}

mod fuzz {
    use std::time::{Duration, Instant};

    use reveille_fuzz::{cases, text};

    use super::*;

    #[rustfmt::skip]
    const FRAGMENTS: &[&str] = &[
        "{{ name }}", "{{ recipient|urlencode }}", "{{ x|upper }}", "{{ loop.index }}", "{{ city|default('a') }}",
        "{{ y }}", "{% if name %}", "{% if x == 'a' %}", "{% elif run %}", "{% else %}", "{% endif %}",
        "{% for x in name %}", "{% for y in name|split('') %}", "{% endfor %}", "{#", "#}", "{{", "}}", "{%", "%}",
        "{{- '\\n' -}}", "~", "*", "|", "|safe", "|length", "(", "[", "'", "\"", "\\", ".", " ", "\n", "\r\n",
        "\nBcc: evil@example.org", "<b>", "é", "1",
    ];

    proptest! {
        #![proptest_config(cases(500))]

        /// Whatever a tenant writes, one email is bounded in time and size, and its head has the expected fields.
        #[test]
        fn template_is_refused_or_makes_one_bounded_email(
            (subject, header, body, html) in (text(FRAGMENTS, 6), text(FRAGMENTS, 6), text(FRAGMENTS, 30), text(FRAGMENTS, 30)),
            value in text(FRAGMENTS, 30),
        ) {
            let started = Instant::now();
            let content = Content {
                subject,
                text: Some(body),
                html: Some(html),
                headers: vec![("X-A".to_owned(), header)],
                ..content()
            };
            if let Ok(compiled) = Compiled::new(&content, &columns()) {
                // The first email is rendered whole, the second from the prepared content.
                for recipient in [recipient("ann@example.com", &value), recipient("bob@example.com", &value.repeat(100))] {
                    let Ok(composed) = compiled.compose(&recipient, &stamp(4)) else { continue };
                    let mail = String::from_utf8(composed.data).expect("text");
                    prop_assert!(mail.len() < 8 * RENDERED_BYTES_MAX, "{} bytes", mail.len());
                    let (head, _) = mail.split_once("\r\n\r\n").expect("a head and a body");
                    let fields = head.split("\r\n").filter(|line| !line.starts_with(' '));
                    let fields: Vec<&str> = fields.map(|line| line.split(':').next().unwrap_or_default()).collect();
                    let own = ["From", "To", "Cc", "Reply-To", "Subject", "Date", "Message-ID", "Auto-Submitted", "X-Reveille-Run"];
                    prop_assert!(fields.starts_with(&own), "{head}");
                    let rest = ["X-Reveille-Fence", "X-A", "MIME-Version", "Content-Type"];
                    prop_assert!(fields[own.len()..].iter().all(|field| rest.contains(field)), "{head}");
                    prop_assert!(!head.replace("\r\n", "").contains(['\r', '\n', '\0']), "{head}");
                }
            }
            prop_assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        }
    }
}
