//! Signatures of requests: AWS Signature Version 4, with the hash of the body in the signature.
//!
//! A service that checks the hash refuses a body that changed on its way.

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ring::{digest, hmac};

/// All but the unreserved characters of RFC 3986, section 2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SERVICE: &str = "s3";
const SCOPE_END: &str = "aws4_request";
/// Headers in the signature, in alphabetical order.
const SIGNED: &str = "host;x-amz-content-sha256;x-amz-date";

/// The key of a user of the service. Shown nowhere.
pub struct BucketKey {
    id: String,
    secret: String,
}

impl BucketKey {
    /// Parses `ID:SECRET`. Returns `None` if the text has another form.
    pub fn parse(text: &[u8]) -> Option<BucketKey> {
        let (id, secret) = std::str::from_utf8(text).ok()?.split_once(':')?;
        let is_part = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic());
        let (id, secret) = (id.to_owned(), secret.to_owned());
        (is_part(&id) && is_part(&secret)).then_some(BucketKey { id, secret })
    }
}

/// What a signature covers.
pub struct SignedRequest<'r> {
    /// Method, in upper case.
    pub method: &'r str,
    /// Header `host`.
    pub host: &'r str,
    /// Path. Its characters need no encoding.
    pub path: &'r str,
    /// Encoded query, with its names in alphabetical order.
    pub query: &'r str,
    /// Region of the service.
    pub region: &'r str,
    /// SHA-256 of the body, in hexadecimal digits: header `x-amz-content-sha256`.
    pub body_hash: &'r str,
    /// Time of the request.
    pub at: Timestamp,
}

impl SignedRequest<'_> {
    /// Header `x-amz-date`.
    pub fn date(&self) -> String {
        self.at.strftime("%Y%m%dT%H%M%SZ").to_string()
    }

    /// Header `authorization`.
    pub fn authorization(&self, credentials: &BucketKey) -> String {
        let SignedRequest { method, host, path, query, region, body_hash, .. } = self;
        let date = self.date();
        let day = date.get(..8).unwrap_or_default();
        let request = format!(
            "{method}\n{path}\n{query}\nhost:{host}\nx-amz-content-sha256:{body_hash}\nx-amz-date:{date}\n\n{SIGNED}\n\
             {body_hash}"
        );
        let scope = format!("{day}/{region}/{SERVICE}/{SCOPE_END}");
        let signed = format!("{ALGORITHM}\n{date}\n{scope}\n{}", sha256(request.as_bytes()));
        let key = format!("AWS4{}", credentials.secret).into_bytes();
        let steps = [day, region, SERVICE, SCOPE_END, &signed];
        let signature = steps.iter().fold(key, |key, step| hmac_sha256(&key, step));
        let signature = HEXLOWER.encode(&signature);
        format!("{ALGORITHM} Credential={}/{scope},SignedHeaders={SIGNED},Signature={signature}", credentials.id)
    }
}

/// Returns the SHA-256 of `bytes` in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hmac_sha256(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

/// Encodes a value of a query.
pub fn encoded(value: &str) -> String {
    utf8_percent_encode(value, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of "Authenticating Requests: Using the Authorization Header" in the API reference of Amazon S3.
    #[test]
    fn signatures_are_those_of_the_published_examples() {
        let credentials = BucketKey::parse(b"AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY").unwrap();
        for (query, signature) in [
            ("lifecycle=", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
            ("max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
        ] {
            let request = SignedRequest {
                method: "GET",
                host: "examplebucket.s3.amazonaws.com",
                path: "/",
                query,
                region: "us-east-1",
                body_hash: &sha256(b""),
                at: "2013-05-24T00:00:00Z".parse().unwrap(),
            };
            let authorization = request.authorization(&credentials);
            let begin = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,";
            assert!(authorization.starts_with(begin), "{authorization}");
            assert!(authorization.ends_with(&format!(",Signature={signature}")), "{authorization}");
        }
    }

    #[test]
    fn credentials_have_two_parts_without_spaces() {
        assert!(BucketKey::parse(b"ID:se/cr+et:x").is_some());
        for text in ["", "ID", "ID:", ":secret", "ID:se cret", "ID:secret\nmore"] {
            assert!(BucketKey::parse(text.as_bytes()).is_none(), "{text:?}");
        }
    }

    #[test]
    fn query_values_are_encoded() {
        assert_eq!(encoded("a-b_c.~/1 +&="), "a-b_c.~%2F1%20%2B%26%3D");
    }
}
