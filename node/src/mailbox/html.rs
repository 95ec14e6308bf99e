//! The HTML frame and style of every page, and [`Escaped`], the only way to insert untrusted text.

use std::fmt::{self, Write};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All that is encoded in a value of a query.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'@');

/// Displays text escaped, so that it is safe inside an element and inside a quoted attribute.
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => formatter.write_str("&amp;")?,
                '<' => formatter.write_str("&lt;")?,
                '>' => formatter.write_str("&gt;")?,
                '"' => formatter.write_str("&quot;")?,
                '\'' => formatter.write_str("&#39;")?,
                // Direction marks could make an address look like another one.
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\0' => formatter.write_str("\u{fffd}")?,
                _ => formatter.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// Percent-encodes text as one value of a query string.
pub(super) fn query_value(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Formats an instant in microseconds since 1970 as readable text.
pub(super) fn instant(unix_us: u64) -> String {
    let instant = i64::try_from(unix_us).ok().and_then(|us| jiff::Timestamp::from_microsecond(us).ok());
    instant.map_or_else(String::new, |instant| instant.strftime("%F %T%.3f UTC").to_string())
}

/// Formats a byte count with its unit.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{}.{} kB", bytes / 1_000, bytes % 1_000 / 100),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
    }
}

/// Returns a whole document. The caller has escaped `body`.
pub(super) fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{} · Mailbox</title><style>{STYLE}</style></head><body>{body}</body></html>",
        Escaped(title)
    )
}

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1d2430; --soft: #667085; --line: #e3e7ee; --back: #f6f7f9;
  --card: #ffffff; --mark: #2f6fde; --glow: #eef3fd; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ef; --soft: #929db0; --line: #2b3341; --back: #12161d;
  --card: #1a202a; --mark: #82adff; --glow: #202a3b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.5rem; line-height: 1.25; letter-spacing: -.01em; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: .8rem; text-transform: uppercase; letter-spacing: .06em; color: var(--soft); margin: 2rem 0 .6rem; }
a { color: var(--mark); text-decoration: none; } a:hover { text-decoration: underline; }
.top { display: flex; flex-wrap: wrap; gap: .75rem 1.5rem; align-items: center; justify-content: space-between;
  margin-bottom: 1.25rem; }
.soft { color: var(--soft); } .number { font-variant-numeric: tabular-nums; white-space: nowrap; }
form { display: flex; gap: .5rem; }
input, button, .button { font: inherit; color: inherit; padding: .4rem .75rem; border: 1px solid var(--line);
  border-radius: .5rem; background: var(--card); }
input { min-width: 15rem; } button, .button { cursor: pointer; color: var(--mark); display: inline-block; }
input:focus-visible, button:focus-visible, a:focus-visible { outline: 2px solid var(--mark); outline-offset: 1px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .75rem; overflow: hidden; }
.wide { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; }
th, td { text-align: left; padding: .6rem 1rem; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child > * { border-bottom: 0; } tbody tr:hover { background: var(--glow); }
thead th { font-size: .75rem; text-transform: uppercase; letter-spacing: .05em; color: var(--soft); font-weight: 600; }
td, .facts td { overflow-wrap: anywhere; }
.facts th { width: 11rem; font-weight: 500; color: var(--soft); white-space: nowrap; }
pre, code { font: 13px/1.55 ui-monospace, 'SF Mono', Menlo, Consolas, monospace; }
pre { margin: 0; padding: 1rem; white-space: pre-wrap; overflow-wrap: anywhere; }
iframe { display: block; width: 100%; height: 36rem; border: 0; background: #fff; color-scheme: light; }
.empty { padding: 3rem 1rem; text-align: center; color: var(--soft); }
nav { display: flex; gap: .75rem; justify-content: space-between; margin-top: 1rem; }
details summary { cursor: pointer; padding: .7rem 1rem; color: var(--soft); }
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_cannot_leave_its_place() {
        let hostile = "\"><script>alert('x')</script>&\u{202e}";
        assert_eq!(
            Escaped(hostile).to_string(),
            "&quot;&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;\u{fffd}"
        );
        assert_eq!(query_value("a b&c=d+é\"@x"), "a%20b%26c%3Dd%2B%C3%A9%22@x");
    }

    #[test]
    fn instants_and_sizes_are_readable() {
        assert_eq!(instant(1_795_224_511_123_456), "2026-11-21 01:28:31.123 UTC");
        assert_eq!([size(999), size(2_048), size(10_500_000)], ["999 B", "2.0 kB", "10.5 MB"]);
    }
}
