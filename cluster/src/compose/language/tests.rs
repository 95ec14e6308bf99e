use super::*;

fn refusal(source: &str) -> String {
    match check("text", source) {
        Ok(_) => panic!("{source} was taken"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn ordinary_templates_pass() {
    for source in [
        "no code, { braces } and % signs ~ * +",
        "{{ a }}{{- b -}}{{+ c +}}{# {% set %} ~ #}{#- x -#}",
        "{% if a is not defined and b|length > 2 %}{{ a[0].b|default('it\\'s ~', true) }}{% elif c %}{%- else +%}x{% endif %}",
        "{% for item in items|split(\"~}}\") %}{{ loop.index }}: {{ item }}{% endfor %}",
    ] {
        check("text", source).map(|_| ()).unwrap_or_else(|error| panic!("{source}: {error}"));
    }
}

#[test]
fn unbounded_template_is_refused_with_its_line() {
    assert_eq!(
        refusal("a\nb\n{% set x = 1 %}"),
        "text, line 3: there is no tag 'set'; there are: if, elif, else, endif, for, endfor"
    );
    for source in [
        "{{ a ~ a }}",
        "{{ a * 9 }}",
        "{{ a + a }}",
        "{%- with x = a %}",
        "{%+ raw %}",
        "{% macro m() %}",
        "{{ {'a': 1} }}",
    ] {
        assert!(refusal(source).starts_with("text, line 1: "), "{source}");
    }
    assert!(refusal("{{ a|\n replace('', a) }}").starts_with("text, line 2: there is no filter 'replace'"));
    assert!(refusal("{{ a is callable }}").contains("there is no test 'callable'"));
    assert!(refusal("{{ '\\' ~ a ~ ' ~ a }}").contains("'~' is not available"), "an escaped quote ends no text");
    assert!(refusal(&format!("{{{{ {} }}}}", "a".repeat(2_000))).contains("longer than 500 bytes"));
    assert!(refusal(&format!("{{{{ {} }}}}", "(".repeat(17))).contains("more than 16 brackets"));
    assert!(refusal(&"{% if a %}".repeat(33)).contains("more than 32 blocks"));
    assert!(refusal(&"{% elif a %}".repeat(51)).contains("more than 50 'elif'"));
}

#[test]
fn code_without_an_end_is_refused() {
    for source in ["{{ a", "{% if a", "{# a", "{{ 'a }}", "{{ a| }}", "{% %}", "{{ a is }}", "{{ ä }}"] {
        assert!(refusal(source).starts_with("text, line 1: "), "{source}");
    }
}
