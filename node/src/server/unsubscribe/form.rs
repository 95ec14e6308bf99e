//! Decides whether the body of a POST is the one-click request of RFC 8058.
//!
//! Most mail programs send `multipart/form-data`. Others, and the page's button, send
//! `application/x-www-form-urlencoded`. All other fields are ignored.

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;

/// Maximum size of a body, in bytes: enough for the field and its form encoding.
const BODY_BYTES_MAX: usize = 4_096;
const NAME: &str = "List-Unsubscribe";
const VALUE: &str = "One-Click";

/// The content of a POST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The field `List-Unsubscribe=One-Click`.
    OneClick,
    /// Another content, or a body that is too large.
    Other,
}

/// Reads and classifies the body.
pub async fn read(request: Request) -> Form {
    let media_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = media_type.to_owned();
    let Ok(body) = to_bytes(request.into_body(), BODY_BYTES_MAX).await else { return Form::Other };
    if is_one_click(&media_type, &String::from_utf8_lossy(&body)) { Form::OneClick } else { Form::Other }
}

fn is_one_click(media_type: &str, body: &str) -> bool {
    let (kind, parameters) = media_type.split_once(';').unwrap_or((media_type, ""));
    match kind.trim().to_ascii_lowercase().as_str() {
        "multipart/form-data" => boundary(parameters).is_some_and(|boundary| parts(body, &boundary).any(is_pair)),
        // Some mail programs send no content type.
        "application/x-www-form-urlencoded" | "" => {
            body.trim().split('&').any(|pair| pair.split_once('=') == Some((NAME, VALUE)))
        }
        _ => false,
    }
}

fn boundary(parameters: &str) -> Option<String> {
    let mut named = parameters.split(';').filter_map(|parameter| parameter.trim().split_once('='));
    let (_, boundary) = named.find(|(name, _)| name.eq_ignore_ascii_case("boundary"))?;
    Some(format!("--{}", boundary.trim_matches('"'))).filter(|boundary| boundary.len() > 2)
}

/// Returns the parts between the boundaries.
fn parts<'b>(body: &'b str, boundary: &'b str) -> impl Iterator<Item = &'b str> {
    body.split(boundary).skip(1).take_while(|part| !part.starts_with("--"))
}

/// Returns true if this part is the field `List-Unsubscribe=One-Click`.
fn is_pair(part: &str) -> bool {
    let Some((head, value)) = part.split_once("\r\n\r\n") else { return false };
    let is_named = |line: &str| {
        let line = line.to_ascii_lowercase();
        line.starts_with("content-disposition:") && line.contains(&format!("name=\"{}\"", NAME.to_ascii_lowercase()))
    };
    head.lines().any(is_named) && value.trim_end_matches("\r\n") == VALUE
}

#[cfg(test)]
mod tests {
    use super::*;

    const URLENCODED: &str = "application/x-www-form-urlencoded";

    #[test]
    fn both_forms_of_the_standard_are_read() {
        for body in ["List-Unsubscribe=One-Click", "a=b&List-Unsubscribe=One-Click", "List-Unsubscribe=One-Click\r\n"] {
            assert!(is_one_click(URLENCODED, body), "{body}");
            assert!(is_one_click("", body) && is_one_click("Application/X-WWW-Form-Urlencoded; charset=utf-8", body));
        }
        // Example of RFC 8058, section 8.2.
        let multipart = "---FormBoundaryjWmhtjORrn\r\n\
            Content-Disposition: form-data; name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n---FormBoundaryjWmhtjORrn--\r\n";
        assert!(is_one_click("multipart/form-data; boundary=-FormBoundaryjWmhtjORrn", multipart));
        assert!(is_one_click("multipart/form-data; charset=x; boundary=\"-FormBoundaryjWmhtjORrn\"", multipart));
    }

    #[test]
    fn nothing_else_is_taken_for_it() {
        for body in ["", "List-Unsubscribe", "List-Unsubscribe=", "List-Unsubscribe=one-click2", "x=List-Unsubscribe"] {
            assert!(!is_one_click(URLENCODED, body), "{body}");
        }
        let pair = "List-Unsubscribe=One-Click";
        assert!(!is_one_click("application/json", pair) && !is_one_click("multipart/form-data", pair));
        assert!(!is_one_click("multipart/form-data; boundary=", pair));
        let other = "--b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nOne-Click\r\n--b--\r\n\
            --b\r\nContent-Disposition: form-data; name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n";
        assert!(!is_one_click("multipart/form-data; boundary=b", other), "what stands behind the end is no part");
    }

    mod fuzz {
        use proptest::prelude::*;
        use reveille_fuzz::{cases, text};

        use super::*;

        #[rustfmt::skip]
        const TYPES: &[&str] = &[
            "multipart/form-data", "application/x-www-form-urlencoded", ";", " boundary=", "b", "\"", "=", " ",
            "charset=x",
        ];
        #[rustfmt::skip]
        const BODIES: &[&str] = &[
            "--b\r\n", "--b--", "Content-Disposition: form-data; name=", "\"List-Unsubscribe\"", "List-Unsubscribe",
            "=", "One-Click", "\r\n", "\r\n\r\n", "\n", "&", ";", "\"", "--", " ",
        ];

        proptest! {
            #![proptest_config(cases(2_000))]

            #[test]
            fn only_a_body_with_name_and_value_opts_out(media_type in text(TYPES, 6), body in text(BODIES, 14)) {
                let has_both = body.contains(NAME) && body.contains(VALUE);
                prop_assert!(!is_one_click(&media_type, &body) || has_both, "{media_type:?} {body:?}");
            }
        }
    }
}
