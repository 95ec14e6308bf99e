//! Tests that a filled email has the same bytes as one that is rendered whole, or fails in the same way.

use super::super::prepared::{Body, Field};
use super::super::values::Values;
use super::*;

fn columns() -> Vec<String> {
    ["a", "b", "h"].map(str::to_owned).to_vec()
}

/// Text between code, and values: characters that encodings treat specially.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ -z]{0,12}",
        2 => Just("\n".to_owned()),
        1 => "[\r\n\t =.<&é漢😀\\\\}]{1,4}",
        1 => "[a ]{60,90}",
        1 => "(\n\\.?[a-z ]{0,20}){1,4}",
        1 => Just(String::new()),
    ]
    .prop_map(|text| text.replace('{', "("))
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        24 => text(),
        6 => "[Ѐ-џ ]{1,60}",
        3 => "(?s).{0,20}",
        1 => Just("\x000\0".to_owned()),
        1 => (900_usize..1_100).prop_map(|length| "y z".repeat(length / 3)),
        1 => (20_000_usize..25_000).prop_map(|length| "x".repeat(length)),
        1 => (65_000_usize..66_000).prop_map(|length| "é".repeat(length / 2)),
    ]
}

/// A template of the language: texts, names and other code.
fn template() -> impl Strategy<Value = String> {
    let code = prop_oneof![
        6 => "\\{\\{-?[ \n]?(a|b|recipient|c|a\\|urlencode|b\\|urlencode)[ \n]?-?\\}\\}",
        1 => prop::sample::select(vec![
            "{{ a|upper }}",
            "{{- b|default('you', true)|title -}}",
            "{{ (a) }}",
            "{{ a|first }}",
            "{{ a.b }}",
            "{{ a|safe }}",
            "{{ c|urlencode }}",
            "{{ '\\x00' }}",
            "{{ '\\x00' }}0{{ '\\x00' }}",
            "{{ 'a' if b else \"b\" }}",
            "{# {{ a }} #}",
            "{#- x -#}",
            "{{ a|int }}",
            "{{ ('x')|length }}",
            "{{ '{{ a }}' }}",
        ])
        .prop_map(str::to_owned),
    ];
    let leaf = prop_oneof![3 => text(), 2 => code];
    let block = leaf.prop_recursive(3, 24, 6, |inner| {
        let inner = prop::collection::vec(inner, 0..6).prop_map(|pieces| pieces.concat());
        prop_oneof![
            6 => inner.clone(),
            1 => ("\\{%-? if (a|b == c|c|not b|a is defined) -?%\\}", inner.clone(), inner.clone(), "\\{%-? endif -?%\\}")
                .prop_map(|(begin, yes, no, end)| format!("{begin}{yes}{{% else %}}{no}{end}")),
            1 => ("\\{% for (a|x) in (a|'<1 2>'|b)\\|split\\(' '\\) -?%\\}", inner)
                .prop_map(|(begin, inner)| format!("{begin}{inner}{{% endfor %}}")),
        ]
    });
    prop::collection::vec(block, 0..8).prop_map(|pieces| pieces.concat())
}

fn header() -> impl Strategy<Value = String> {
    let usual = prop::sample::select(vec![
        "<https://example.com/u?a={{ recipient|urlencode }}>",
        "{{ h }}",
        "Good day, {{ h|upper }} {{h}}\t{{ recipient }} {{ run }}",
        "{% if h %}é {{ h }}{% endif %}",
        "{{ h|urlencode }}{{ 'x' }}",
        "{{ c|length }} =?",
        "",
    ]);
    prop_oneof![8 => usual.prop_map(str::to_owned), 1 => template().prop_map(|template| template.replace(['\r', '\n'], " "))]
}

fn contents() -> impl Strategy<Value = Content> {
    let parts = (prop::option::weighted(0.8, template()), prop::option::weighted(0.8, template()));
    (header(), parts, prop::collection::vec(header(), 2), text()).prop_map(|(subject, (text, html), headers, c)| {
        Content {
            subject,
            text,
            html,
            headers: ["List-Unsubscribe", "X-A"].map(str::to_owned).into_iter().zip(headers).collect(),
            variables: vec![("c".to_owned(), c)],
            ..content()
        }
    })
}

fn recipients() -> impl Strategy<Value = Recipient> {
    let address = prop::sample::select(vec![
        "ann@example.com",
        "ann@example.com",
        "Zoë \"<>\" <z'&o@bücher.example>",
        "é@x",
        "ann",
    ]);
    let one_line = prop_oneof![9 => "[ -~]{0,40}|[a-zäß漢 ]{0,80}", 1 => value()];
    let values = (value(), value(), one_line, prop_oneof![9 => Just(3), 1 => 0..3_usize])
        .prop_map(|(a, b, h, count)| [a, b, h].into_iter().take(count).collect());
    (address, values).prop_map(|(address, values): (_, Vec<String>)| Recipient { values, ..recipient(address, "") })
}

proptest! {
    #[test]
    fn filled_email_equals_one_rendered_whole(
        content in contents(),
        recipients in prop::collection::vec(recipients(), 1..5),
    ) {
        let Ok(compiled) = Compiled::new(&content, &columns()) else { return Ok(()) };
        let _ = compiled.compose(&recipient("ann@example.com", ""), &stamp(3));
        for recipient in recipients {
            let whole = compiled.compose_whole(&recipient, &stamp(4));
            prop_assert_eq!(compiled.compose(&recipient, &stamp(4)), whole);
        }
    }
}

/// Returns true if the first email, rendered whole, and the second, from the prepared content, both equal the email
/// that is rendered whole.
fn same(content: &Content, values: &[&str]) -> bool {
    let compiled = Compiled::new(content, &columns()).unwrap_or_else(|error| panic!("{error}"));
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    let recipient = Recipient { values, ..recipient("ann@example.com", "") };
    let whole = compiled.compose_whole(&recipient, &stamp(4));
    let first = compiled.compose(&recipient, &stamp(4));
    compiled.prepared.get().is_none()
        && first == whole
        && compiled.compose(&recipient, &stamp(4)) == whole
        && compiled.prepared.get().is_some()
}

fn plain(text: &str) -> Content {
    Content { subject: "x".to_owned(), text: Some(text.to_owned()), html: None, headers: Vec::new(), ..content() }
}

#[test]
fn value_with_line_ends_changes_the_lines_as_rendering_does() {
    for text in [
        "{{ a }}",
        "x\n{{ a }}",
        "x\n{{ a }}\n",
        "x\n{{ a }}\n\n",
        "\r{{ a }}\nx",
        "x\r\n{{ a }}\r\n.",
        "{{ a }}\r\rx",
        "x\n{{ a }}\r",
        "x {{ a }} \n",
    ] {
        for value in
            ["", "\n", "\r", "\r\n", "y", "y\n", "\ny", "y\r", "\ry", ".", " ", "x\ry\r\nz\n\n", "é", "éééééé", "="]
        {
            assert!(same(&plain(text), &[value]), "{text:?} with {value:?}");
        }
    }
}

#[test]
fn prepared_email_fails_where_whole_rendering_fails() {
    let long = "x".repeat(60_000);
    for (text, values) in [
        ("{{ a }}".repeat(20), vec![long.as_str()]),
        ("{{ a }}\n".repeat(20), vec![&long]),
        ("{{ a|urlencode }}".to_owned(), vec![&long]),
        ("{{ b }}".to_owned(), vec![""]),
    ] {
        assert!(same(&plain(&text), &values), "{}", text.get(..40).unwrap_or(&text));
    }
}

#[test]
fn fuel_is_shared_by_all_pieces() {
    let nested = format!("{}{}", "{% for x in '012345678901234567890123456' %}".repeat(3), "{% endfor %}".repeat(3));
    let varying = format!("{{% if a == '' %}}{nested}{{% endif %}}");
    let fails = |text: &str| {
        assert!(same(&plain(text), &[""]), "{text:.40}");
        let compiled = Compiled::new(&plain(text), &columns()).expect("content");
        compiled.compose_whole(&Recipient { values: vec![String::new()], ..recipient("a@b", "") }, &stamp(4)).is_err()
    };
    assert!(!fails(&nested) && !fails(&varying) && fails(&(nested + &varying)));
    assert!(
        !fails(&"{{a}}".repeat(30_000)) && fails(&"{{a}}".repeat(60_000)) && fails(&"{{a|urlencode}}".repeat(34_000))
    );
}

#[test]
fn usual_template_is_filled_and_not_rendered_whole() {
    let content = Content {
        text: Some("Hello {{ a }},\n{% if b %}\nmore\n{% endif %}\nend".to_owned()),
        html: Some("<p>{{ a|default('you', true) }} <a href=\"{{ recipient|urlencode }}{{ run }}\">".to_owned()),
        headers: vec![("X-A".to_owned(), "{{ a }}".to_owned()), ("X-B".to_owned(), "{{ city }}".to_owned())],
        ..content()
    };
    let content = Content { subject: "To {{ a }}".to_owned(), ..content };
    let compiled = Compiled::new(&content, &columns()).expect("content");
    let prepared = compiled.prepare();
    assert!(matches!(prepared.subject, Field::Filled(..)), "{prepared:?}");
    assert!(matches!(prepared.headers.as_slice(), [Field::Filled(..), Field::Same(_)]), "{prepared:?}");
    assert!(matches!(prepared.text, Body::Lines(..)) && matches!(prepared.html, Body::Lines(..)), "{prepared:?}");
    let to = Recipient { values: vec!["Ann".to_owned(), "x".to_owned()], ..recipient("ann@example.com", "") };
    let mailbox = Mailbox::parse("ann@example.com").expect("an address");
    let values = Values::new(&compiled.variables, &to, &mailbox, RunId { index: 3, place: 0 }).expect("values");
    for body in [&prepared.text, &prepared.html] {
        let Body::Lines(code, lines) = body else { panic!("{body:?}") };
        assert!(lines.write(&mut Vec::new(), "text/plain", code, &values));
    }
}
