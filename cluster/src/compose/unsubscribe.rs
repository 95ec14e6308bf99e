//! The way to opt out in bulk email (RFC 2369, RFC 8058): its header, and the tokens in it.
//!
//! Made once at the start of a node. `worker/composition.rs` gets the header for each recipient from it; the node's
//! listener decodes tokens with it. A token contains the tenant, the address key, and a keyed hash over both. So the
//! ledger stores nothing for it, and it is valid as long as its key is known. Keys are shown nowhere, and comparing
//! takes constant time. The token is not encrypted: the address in it can be read in the link, which was sent to that
//! address.

use data_encoding::BASE64URL_NOPAD;
use reveille_ledger::access::is_loopback;
use reveille_ledger::address::Address;

use crate::compose::LIST_UNSUBSCRIBE_BYTES_MAX;
use crate::process::secret::{Secret, SigningKeys};

/// Maximum bytes of the listener's public URL.
pub const URL_BYTES_MAX: usize = 250;
/// Maximum bytes of the email address that accepts opt-out requests.
pub const MAILTO_BYTES_MAX: usize = 100;
/// Maximum bytes of a token, for a tenant's name of 64 bytes and an address of 320.
pub const TOKEN_BYTES_MAX: usize = 560;
/// First byte of the signed content. Another value means another layout.
const VERSION: u8 = 1;
/// Bytes of the keyed hash.
const HASH: usize = 32;

// Format: `<URL/TOKEN>, <mailto:ADDRESS?subject=unsubscribe>`
const _: () = assert!(URL_BYTES_MAX + 1 + TOKEN_BYTES_MAX + 4 + MAILTO_BYTES_MAX + 28 <= LIST_UNSUBSCRIBE_BYTES_MAX);

/// The way to opt out of bulk email: URL, email address and keys.
#[derive(Debug)]
pub struct Unsubscribe {
    url: String,
    mailto: Option<String>,
    keys: SigningKeys,
}

/// Reason why the settings cannot be used. Deterministic, except for the content of a file. Its text
/// never contains a key, so it may be logged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsubscribeError {
    /// The listener's URL cannot be used.
    #[error("{0}")]
    Url(String),
    /// The email address cannot be used.
    #[error("{0}")]
    Mailto(String),
    /// One of the keys cannot be used.
    #[error("{0}")]
    Key(String),
}

/// The recipient and the tenant of an opt-out, from a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptOutSubject {
    /// Name of the tenant.
    pub tenant: String,
    /// The recipient's address key.
    pub key: String,
}

impl Unsubscribe {
    /// Reads the keys and checks the rest. `url` is the part before `/TOKEN`.
    ///
    /// # Errors
    /// An [`UnsubscribeError`] that names what is wrong and what would be right.
    pub fn new(url: &str, mailto: Option<&str>, keys: &[Secret]) -> Result<Unsubscribe, UnsubscribeError> {
        let url = check_url(url).map_err(UnsubscribeError::Url)?;
        let mailto = mailto.map(check_mailto).transpose().map_err(UnsubscribeError::Mailto)?;
        let keys = SigningKeys::read(keys, "reveille 2026-11 unsubscribe token").map_err(UnsubscribeError::Key)?;
        Ok(Unsubscribe { url, mailto, keys })
    }

    /// Returns the value of List-Unsubscribe for this recipient. It is the same in every email.
    pub fn header(&self, tenant: &str, key: &str) -> String {
        let link = self.link(tenant, key);
        match &self.mailto {
            Some(address) => format!("<{link}>, <mailto:{address}?subject=unsubscribe>"),
            None => format!("<{link}>"),
        }
    }

    /// Returns the URL of this recipient's page.
    pub fn link(&self, tenant: &str, key: &str) -> String {
        let payload = payload(tenant, key);
        let hash: [u8; HASH] = self.keys.sign(&[&payload]);
        let signed = [hash.as_slice(), &payload].concat();
        format!("{}/{}", self.url, BASE64URL_NOPAD.encode(&signed))
    }

    /// Decodes a token. `None` if no known key has signed it.
    pub fn read(&self, token: &str) -> Option<OptOutSubject> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let signed = BASE64URL_NOPAD.decode(token.as_bytes()).ok()?;
        let (hash, payload) = signed.split_first_chunk::<HASH>()?;
        let fits = self.keys.verify(&[payload], hash);
        let (VERSION, payload) =
            payload.split_first().filter(|_| fits).map(|(version, payload)| (*version, payload))?
        else {
            return None;
        };
        let (tenant, key) = std::str::from_utf8(payload).ok()?.split_once('\0')?;
        Some(OptOutSubject { tenant: tenant.to_owned(), key: key.to_owned() })
    }
}

/// Returns the signed bytes. No name and no address contains a NUL.
fn payload(tenant: &str, key: &str) -> Vec<u8> {
    [&[VERSION], tenant.as_bytes(), b"\0", key.as_bytes()].concat()
}

fn check_url(url: &str) -> Result<String, String> {
    let url = url.trim_end_matches('/');
    let (scheme, rest) =
        url.split_once("://").ok_or_else(|| format!("'{url}' is not an address: write https://HOST/PATH"))?;
    let host = rest.split('/').next().unwrap_or_default();
    // An IPv6 address contains colons, and is therefore in brackets.
    let name = match host.strip_prefix('[').map(|host| host.split_once(']')) {
        Some(Some((address, port))) if port.is_empty() || port.starts_with(':') => address,
        Some(_) => "",
        None => host.split(':').next().unwrap_or_default(),
    };
    if !(scheme == "https" || scheme == "http" && is_loopback(name)) {
        return Err(format!("'{url}' does not begin with https://, which mail programs demand (RFC 8058)"));
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/[]%@!$&'()*+;=".contains(&byte);
    if name.is_empty() || !url.bytes().all(is_plain) {
        return Err(format!("'{url}' is not a plain address: https://HOST/PATH, without blanks, `?`, `#` or `,`"));
    }
    if url.len() > URL_BYTES_MAX {
        return Err(format!("it has {} bytes, more than {URL_BYTES_MAX}", url.len()));
    }
    Ok(url.to_owned())
}

fn check_mailto(address: &str) -> Result<String, String> {
    let wire = Address::parse(address).map_err(|error| error.to_string())?.wire();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~@+".contains(&byte);
    if wire.len() > MAILTO_BYTES_MAX || !wire.bytes().all(is_plain) {
        return Err(format!(
            "'{wire}' does not fit into a link: letters, digits and -._~+, {MAILTO_BYTES_MAX} at most"
        ));
    }
    Ok(wire)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Keys(tempfile::TempDir);

    impl Keys {
        fn new() -> Keys {
            Keys(tempfile::tempdir().expect("a folder"))
        }

        fn file(&self, name: &str, content: &str) -> Secret {
            let path = self.0.path().join(name);
            std::fs::write(&path, content).expect("written");
            Secret::File(path.to_string_lossy().into_owned())
        }
    }

    const URL: &str = "https://news.example.com/u";

    fn unsubscribe_with(keys: &[Secret]) -> Unsubscribe {
        Unsubscribe::new(URL, None, keys).expect("made")
    }

    fn token(unsubscribe: &Unsubscribe, tenant: &str, key: &str) -> String {
        unsubscribe.link(tenant, key).strip_prefix(&format!("{URL}/")).expect("the address").to_owned()
    }

    #[test]
    fn unsubscribe_token_names_address_and_tenant_and_fits_its_line() {
        let keys = Keys::new();
        let one = unsubscribe_with(&[keys.file("one", &"k".repeat(32))]);
        let longest = format!("{}@{}", "é".repeat(32), "a".repeat(255));
        for (tenant, key) in [("default", "ann@example.com"), ("acme", "zoë@xn--bcher-kva.example"), ("t", &longest)] {
            let token = token(&one, tenant, key);
            assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{token}");
            assert_eq!(one.read(&token), Some(OptOutSubject { tenant: tenant.into(), key: key.into() }));
        }
        assert_eq!(token(&one, &"t".repeat(64), &longest).len(), 558, "within {TOKEN_BYTES_MAX}");
        let again = unsubscribe_with(&[keys.file("again", &format!("{}\n", "k".repeat(32)))]);
        assert_eq!(token(&again, "a", "b@c.d"), token(&one, "a", "b@c.d"), "a line's end is no part of a key");
    }

    #[test]
    fn only_signed_tokens_are_read() {
        let keys = Keys::new();
        let one = unsubscribe_with(&[keys.file("one", &"k".repeat(32))]);
        let good = token(&one, "default", "ann@example.com");
        let bytes = BASE64URL_NOPAD.decode(good.as_bytes()).expect("a token");
        for bit in 0..bytes.len() * 8 {
            let mut forged = bytes.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(one.read(&BASE64URL_NOPAD.encode(&forged)), None, "bit {bit}");
        }
        for length in 0..good.len() {
            assert_eq!(one.read(&good[..length]), None, "{length}");
        }
        for other in ["", "x", "%00", &format!("{good}="), &format!("{good}A"), &format!(" {good}"), &"A".repeat(9_999)]
        {
            assert_eq!(one.read(other), None, "{other}");
        }
        let unsigned = [&[0; HASH], payload("default", "ann@example.com").as_slice()].concat();
        assert_eq!(one.read(&BASE64URL_NOPAD.encode(&unsigned)), None);
        let stranger = unsubscribe_with(&[keys.file("two", &"l".repeat(32))]);
        assert_eq!(one.read(&token(&stranger, "default", "ann@example.com")), None);
        // A token with another layout version is refused.
        let key = blake3::derive_key("reveille 2026-11 unsubscribe token", "k".repeat(32).as_bytes());
        let later = [&[VERSION + 1], b"default\0ann@example.com".as_slice()].concat();
        let later = [blake3::keyed_hash(&key, &later).as_bytes(), later.as_slice()].concat();
        assert_eq!(one.read(&BASE64URL_NOPAD.encode(&later)), None);
    }

    #[test]
    fn replaced_key_is_valid_as_long_as_it_is_configured() {
        let keys = Keys::new();
        let (old, new) = (keys.file("old", &"o".repeat(32)), keys.file("new", &"n".repeat(32)));
        let before = unsubscribe_with(std::slice::from_ref(&old));
        let between = unsubscribe_with(&[new.clone(), old]);
        let after = unsubscribe_with(&[new]);
        let sent = token(&before, "default", "ann@example.com");
        assert!(between.read(&sent).is_some());
        assert_eq!(token(&between, "a", "b"), token(&after, "a", "b"), "the first key signs");
        assert_eq!(after.read(&sent), None);
    }

    #[test]
    fn unsubscribe_header_has_link_first_and_optional_address() {
        let keys = Keys::new();
        let key = [keys.file("one", &"k".repeat(32))];
        let both = Unsubscribe::new("https://a.example/u//", Some("Leave@a.example"), &key).expect("made");
        let (link, header) = (both.link("default", "b@c.d"), both.header("default", "b@c.d"));
        assert!(link.starts_with("https://a.example/u/") && !link.contains("u//"), "{link}");
        assert_eq!(header, format!("<{link}>, <mailto:Leave@a.example?subject=unsubscribe>"));
        assert!(!format!("{both:?}").contains("kkk"), "{both:?}");
    }

    #[test]
    fn invalid_unsubscribe_settings_are_reported_without_the_key() {
        let keys = Keys::new();
        let key = keys.file("one", &"k".repeat(32));
        let refused = |url: &str, mailto: Option<&str>, secrets: &[Secret]| {
            Unsubscribe::new(url, mailto, secrets).expect_err(url).to_string()
        };
        let long = format!("https://a.example/{}", "x".repeat(URL_BYTES_MAX));
        for url in ["", "a.example", "http://a.example/u", "https://", "https://a.example/u?t=", "https://a b/", &long]
        {
            refused(url, None, std::slice::from_ref(&key));
        }
        for url in ["https://[::1", "http://[::1]x/u", "http://[2001:db8::1]/u", "https://[]/u"] {
            refused(url, None, std::slice::from_ref(&key));
        }
        let taken = ["http://127.0.0.1:7681", "http://localhost/u", "http://[::1]:80/u", "https://a.example:8443"];
        for url in taken.into_iter().chain(["http://[::1]", "http://[::1]/u", "https://[2001:db8::1]/u"]) {
            assert!(Unsubscribe::new(url, None, std::slice::from_ref(&key)).is_ok(), "{url}");
        }
        for mailto in ["", "ann", "a?b@c.example", "zoë@example.com"] {
            refused(URL, Some(mailto), std::slice::from_ref(&key));
        }
        assert!(refused(URL, None, &[]).contains("1 to 4 keys"));
        let short = refused(URL, None, &[keys.file("short", "hunter2\n")]);
        assert!(short.contains("has 7 bytes") && !short.contains("hunter2"), "{short}");
        assert!(refused(URL, None, &[Secret::File("/no/such/key".into())]).contains("/no/such/key cannot be read"));
        assert!(refused(URL, None, &[Secret::Env("REVEILLE_SURELY_UNSET".into())]).contains("is not set"));
    }

    mod fuzz {
        use proptest::prelude::*;
        use reveille_fuzz::{cases, damage, damaged_text};

        use super::*;

        proptest! {
            #![proptest_config(cases(500))]

            #[test]
            fn token_reads_back_and_damaged_one_opts_nobody_else_out(
                tenant in "[a-z0-9.-]{1,64}",
                key in "\\PC{1,100}",
                damage in prop::collection::vec(damage(), 1..4),
            ) {
                let keys = Keys::new();
                let unsubscribe = unsubscribe_with(&[keys.file("key", &"k".repeat(32))]);
                let token = token(&unsubscribe, &tenant, &key);
                let subject = OptOutSubject { tenant, key };
                prop_assert_eq!(unsubscribe.read(&token), Some(subject));
                let other = damaged_text(&token, &damage);
                prop_assert!(other == token || unsubscribe.read(&other).is_none(), "{other}");
            }
        }
    }
}
