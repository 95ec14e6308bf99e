//! The HTML of the unsubscribe page: one small page without scripts, images or fonts.

use crate::mailbox::html::Escaped;

/// A page to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnsubscribePage {
    /// The button that opts this address out.
    Confirm(String),
    /// This address is opted out.
    Done(String),
    /// The link is invalid.
    Unknown,
    /// The POST was not a one-click request.
    Malformed,
    /// The opt-out failed for now; the recipient should try again later.
    Later,
}

const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#f4f5f7;--card:#fff;--ink:#1c2430;--soft:#5b6675;--line:#dfe3e8;--act:#1f5fbf;--on:#fff}\
@media(prefers-color-scheme:dark){:root{--paper:#14181e;--card:#1d232b;--ink:#e8ebef;--soft:#a3adba;--line:#313a45;--act:#7db0ff;--on:#0f1b2d}}\
*{box-sizing:border-box}\
body{margin:0;min-height:100vh;display:grid;place-items:center;padding:1.5rem;background:var(--paper);color:var(--ink);\
font:17px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}\
main{width:100%;max-width:28rem;padding:2rem;background:var(--card);border:1px solid var(--line);border-radius:12px}\
h1{margin:0 0 .75rem;font-size:1.35rem;line-height:1.3}\
p{margin:0 0 1rem}\
p:last-child{margin:0}\
strong{overflow-wrap:anywhere}\
.soft{color:var(--soft);font-size:.92rem}\
button{width:100%;margin:.5rem 0 1.25rem;padding:.8rem 1rem;border:0;border-radius:8px;background:var(--act);color:var(--on);\
font:inherit;font-weight:600;cursor:pointer}\
button:hover{filter:brightness(1.08)}\
button:focus-visible{outline:3px solid var(--ink);outline-offset:2px}";

impl UnsubscribePage {
    /// Returns the whole page. The address is escaped.
    pub fn html(&self) -> String {
        let (title, body) = match self {
            UnsubscribePage::Confirm(address) => (
                "Unsubscribe",
                format!(
                    "<p>Do you want no more email from this sender at <strong>{}</strong>?</p>\
                     <form method=\"post\"><input type=\"hidden\" name=\"List-Unsubscribe\" value=\"One-Click\">\
                     <button type=\"submit\">Unsubscribe</button></form>\
                     <p class=\"soft\">Nothing has changed yet. If you came here by mistake, close this page.</p>",
                    Escaped(address)
                ),
            ),
            UnsubscribePage::Done(address) => (
                "You are unsubscribed",
                format!(
                    "<p>This sender will send no more email to <strong>{}</strong>.</p>\
                     <p class=\"soft\">One that was on its way already may still arrive.</p>",
                    Escaped(address)
                ),
            ),
            UnsubscribePage::Unknown => (
                "This link is not complete",
                "<p>It may have been cut when it was copied.</p>\
                 <p class=\"soft\">Please open it from the email itself, or answer that email.</p>"
                    .to_owned(),
            ),
            UnsubscribePage::Malformed => (
                "That did not work",
                "<p>Please open the link from the email again and press the button.</p>".to_owned(),
            ),
            UnsubscribePage::Later => (
                "Please try again in a moment",
                "<p>We could not make sure that you are unsubscribed.</p>\
                 <p class=\"soft\">Wait a minute and load this page again.</p>"
                    .to_owned(),
            ),
        };
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <meta name=\"robots\" content=\"noindex\"><title>{title}</title><style>{STYLE}</style></head>\n\
             <body><main><h1>{title}</h1>{body}</main></body></html>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_text_and_never_markup() {
        for page in
            [UnsubscribePage::Confirm("<b>'\"&@x.org".to_owned()), UnsubscribePage::Done("<b>'\"&@x.org".to_owned())]
        {
            let html = page.html();
            assert!(html.contains("<strong>&lt;b&gt;&#39;&quot;&amp;@x.org</strong>"), "{html}");
        }
    }

    #[test]
    fn only_the_question_has_a_button_and_no_page_has_a_script() {
        let address = || "ann@example.com".to_owned();
        for page in [
            UnsubscribePage::Confirm(address()),
            UnsubscribePage::Done(address()),
            UnsubscribePage::Unknown,
            UnsubscribePage::Malformed,
            UnsubscribePage::Later,
        ] {
            let html = page.html();
            assert_eq!(html.contains("<form"), matches!(page, UnsubscribePage::Confirm(_)), "{html}");
            assert!(!html.contains("<script") && !html.contains("http"), "{html}");
        }
    }
}
