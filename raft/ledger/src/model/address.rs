//! Email addresses: one parser, three forms.
//!
//! Called wherever an address enters (schedules, audiences, opt-outs, senders) and where an email is composed. An
//! [`Address`] is valid on the wire: its parts are checked once, here.
//!
//! - **as given**: trimmed, otherwise unchanged; shown to users
//! - **wire**: local part in NFC, domain as lower-case A-labels; sent in `RCPT TO`
//! - **key**: wire form with the local part in lower case; two recipients are the same if their keys are equal
//!
//! Dots and plus tags are kept, and no DNS is queried. Quoted local parts (`"a b"@example.com`) and address literals
//! (`a@[192.0.2.1]`) are rejected. So are control, bidirectional and zero-width characters: two addresses that look
//! alike must not differ. A change of the key needs a new ledger level (P23).

use std::fmt;

use unicode_normalization::UnicodeNormalization;

/// Longest local part, in octets (RFC 5321 4.5.3.1.1).
pub const LOCAL_OCTETS_MAX: usize = 64;
/// Longest domain, in octets (RFC 5321 4.5.3.1.2).
pub const DOMAIN_OCTETS_MAX: usize = 255;
/// Longest name and address together, in octets: one header line (RFC 5322 2.1.1).
pub const MAILBOX_OCTETS_MAX: usize = 998;

/// A valid email address, in its three forms.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    given: String,
    local: String,
    domain: String,
}

/// An address with an optional display name: `addr` or `Name <addr>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mailbox {
    /// The display name: NFC, trimmed, each run of blanks replaced by one, never empty. `None`: there is no name.
    pub name: Option<String>,
    /// The address.
    pub address: Address,
}

/// Why a text is not an address, as a sentence for the user. Positions count characters of the whole text, from 1. The
/// sentence depends on the text only.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressError(String);

impl AddressError {
    fn character(what: &str, character: char, part: &str, at: usize) -> AddressError {
        let code = u32::from(character);
        AddressError(format!("{what} (U+{code:04X}) at character {at} is not allowed in the {part}"))
    }

    fn empty(part: &str, at: usize) -> AddressError {
        AddressError(format!("the {part} is empty at character {at}"))
    }

    fn unsupported(form: &str, at: usize) -> AddressError {
        AddressError(format!("{form} is not supported at character {at}: give a plain LOCAL@DOMAIN"))
    }

    fn domain(label: &str, at: usize) -> AddressError {
        AddressError(format!("'{label}' at character {at} cannot stand in a domain"))
    }

    fn bracket(bracket: char, at: usize) -> AddressError {
        let form = "a mailbox is ADDRESS or NAME <ADDRESS>";
        AddressError(format!("the '{bracket}' at character {at} has no partner: {form}"))
    }
}

/// Name of the part before the `@`.
const LOCAL_PART: &str = "local part";
/// Name of the part after the `@`.
const DOMAIN: &str = "domain";

impl Address {
    /// Parses `LOCAL@DOMAIN`. Surrounding blanks are dropped.
    ///
    /// # Errors
    /// Returns an [`AddressError`] that names the problem and its position.
    pub fn parse(text: &str) -> Result<Address, AddressError> {
        Self::parse_within(text, 0)
    }

    /// Like [`Address::parse`], for a text that begins after `before` characters of a larger one.
    fn parse_within(text: &str, before: usize) -> Result<Address, AddressError> {
        let start = before + leading_blanks(text);
        let given = text.trim();
        if given.is_empty() {
            return Err(AddressError("the address is empty".to_owned()));
        }
        if given.starts_with('"') {
            return Err(AddressError::unsupported("a quoted local part", start + 1));
        }
        let no_at = || AddressError(format!("'{given}' has no '@': an address is LOCAL@DOMAIN"));
        let (local, domain) = given.split_once('@').ok_or_else(no_at)?;
        let domain_start = start + local.chars().count() + 1;
        let local = read_local(local, start)?;
        let domain = read_domain(domain, domain_start)?;
        Ok(Address { given: given.to_owned(), local, domain })
    }

    /// The address as given, trimmed.
    pub fn as_given(&self) -> &str {
        &self.given
    }

    /// The local part, in NFC.
    pub fn local(&self) -> &str {
        &self.local
    }

    /// The domain, as lower-case A-labels.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The form that is sent in `MAIL FROM`, `RCPT TO` and header fields.
    pub fn wire(&self) -> String {
        [&self.local, "@", &self.domain].concat()
    }

    /// The key by which duplicates and opt-outs are found. A key is a valid address, and its own key.
    pub fn key(&self) -> String {
        // Lower-casing can undo the composition. It is normalised again, so that a key is its own key.
        [&normalized(&self.local.to_lowercase()), "@", &self.domain].concat()
    }

    /// True if the relay must offer SMTPUTF8 (RFC 6531) to accept this address.
    pub fn needs_smtputf8(&self) -> bool {
        !self.local.is_ascii()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.given)
    }
}

impl Mailbox {
    /// Parses `ADDRESS`, `<ADDRESS>` or `NAME <ADDRESS>`. The name may be in double quotes.
    ///
    /// # Errors
    /// Returns an [`AddressError`] that names the problem and its position.
    pub fn parse(text: &str) -> Result<Mailbox, AddressError> {
        let start = leading_blanks(text);
        let trimmed = text.trim();
        let Some(body) = trimmed.strip_suffix('>') else {
            let stray = trimmed.chars().position(|character| character == '<');
            return match stray {
                Some(offset) => Err(AddressError::bracket('<', start + offset + 1)),
                None => Ok(Mailbox { name: None, address: Address::parse_within(trimmed, start)? }),
            };
        };
        let Some((name, address)) = body.rsplit_once('<') else {
            return Err(AddressError::bracket('>', start + trimmed.chars().count()));
        };
        let address = Address::parse_within(address, start + name.chars().count() + 1)?;
        let name = read_name(name, start)?;
        let octets = name.as_ref().map_or(0, |name| name.len() + 1) + address.wire().len() + 2;
        within("mailbox", octets, MAILBOX_OCTETS_MAX)?;
        Ok(Mailbox { name, address })
    }
}

/// Returns a text in NFC. ASCII always is (UAX 15): most addresses need no look at the tables.
fn normalized(text: &str) -> String {
    if text.is_ascii() { text.to_owned() } else { text.nfc().collect() }
}

fn leading_blanks(text: &str) -> usize {
    text.chars().take_while(|character| character.is_whitespace()).count()
}

fn within(part: &str, octets: usize, limit: usize) -> Result<(), AddressError> {
    match octets > limit {
        true => Err(AddressError(format!("the {part} has {octets} octets, more than {limit}"))),
        false => Ok(()),
    }
}

/// Describes a character that is never allowed in an address; `None` for every other character.
fn hidden(character: char) -> Option<&'static str> {
    match character {
        _ if character.is_control() => Some("a control character"),
        _ if character.is_whitespace() => Some("a blank"),
        '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => {
            Some("a bidirectional control")
        }
        // Default-ignorable code points (Unicode, DerivedCoreProperties) have no width.
        '\u{00AD}'
        | '\u{034F}'
        | '\u{115F}'
        | '\u{1160}'
        | '\u{17B4}'
        | '\u{17B5}'
        | '\u{180B}'..='\u{180F}'
        | '\u{200B}'..='\u{200D}'
        | '\u{2060}'..='\u{2065}'
        | '\u{206A}'..='\u{206F}'
        | '\u{3164}'
        | '\u{FE00}'..='\u{FE0F}'
        | '\u{FEFF}'
        | '\u{FFA0}'
        | '\u{FFF0}'..='\u{FFFB}'
        | '\u{1BCA0}'..='\u{1BCA3}'
        | '\u{1D173}'..='\u{1D17A}'
        | '\u{E0000}'..='\u{E0FFF}' => Some("a zero-width character"),
        _ => None,
    }
}

/// True for characters of a dot-atom (RFC 5322 3.2.3, RFC 6532 3.2), except the dot.
fn is_atom(character: char) -> bool {
    !character.is_ascii() || character.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(character)
}

fn read_local(text: &str, before: usize) -> Result<String, AddressError> {
    if text.is_empty() {
        return Err(AddressError::empty(LOCAL_PART, before + 1));
    }
    let mut after_dot = true;
    for (offset, character) in text.chars().enumerate() {
        let at = before + offset + 1;
        let what = match hidden(character) {
            Some(what) => what,
            None if character == '.' && after_dot => "a dot without a character before it",
            None if character == '.' || is_atom(character) => {
                after_dot = character == '.';
                continue;
            }
            None => "a character with a meaning of its own",
        };
        return Err(AddressError::character(what, character, LOCAL_PART, at));
    }
    if after_dot {
        let at = before + text.chars().count();
        return Err(AddressError::character("a dot at the end", '.', LOCAL_PART, at));
    }
    let local = normalized(text);
    within(LOCAL_PART, local.len(), LOCAL_OCTETS_MAX)?;
    Ok(local)
}

fn read_domain(text: &str, before: usize) -> Result<String, AddressError> {
    if text.is_empty() {
        return Err(AddressError::empty(DOMAIN, before + 1));
    }
    if text.starts_with('[') {
        return Err(AddressError::unsupported("an address literal", before + 1));
    }
    for (offset, character) in text.chars().enumerate() {
        if let Some(what) = hidden(character).or((character == '@').then_some("a second '@'")) {
            return Err(AddressError::character(what, character, DOMAIN, before + offset + 1));
        }
    }
    within(DOMAIN, text.len(), 4 * DOMAIN_OCTETS_MAX)?;
    match idna::domain_to_ascii_strict(text) {
        Ok(domain) => within(DOMAIN, domain.len(), DOMAIN_OCTETS_MAX).map(|()| domain),
        Err(_) => Err(label_at_fault(text, before)),
    }
}

/// Names the first label that is invalid by itself, or the whole domain if each label is valid.
fn label_at_fault(domain: &str, before: usize) -> AddressError {
    let mut start = before;
    for label in domain.split('.') {
        if label.is_empty() || idna::domain_to_ascii_strict(label).is_err() {
            let label = if label.is_empty() { ".." } else { label };
            return AddressError::domain(label, start + 1);
        }
        start += label.chars().count() + 1;
    }
    AddressError::domain(domain, before + 1)
}

fn read_name(text: &str, before: usize) -> Result<Option<String>, AddressError> {
    let start = before + leading_blanks(text);
    let text = text.trim();
    for (offset, character) in text.chars().enumerate() {
        let line_end = matches!(character, '\u{2028}' | '\u{2029}');
        if character.is_control() || line_end {
            let what = if line_end { "a line separator" } else { "a control character" };
            return Err(AddressError::character(what, character, "name", start + offset + 1));
        }
    }
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let plain = match quoted {
        Some(quoted) => unescape(quoted),
        None => {
            if let Some((offset, bracket)) = text.chars().enumerate().find(|(_, c)| matches!(c, '<' | '>')) {
                return Err(AddressError::bracket(bracket, start + offset + 1));
            }
            text.to_owned()
        }
    };
    let words: Vec<&str> = plain.split_whitespace().collect();
    let name = normalized(&words.join(" "));
    Ok((!name.is_empty()).then_some(name))
}

/// Removes the backslashes of a quoted string.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => plain.extend(characters.next()),
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(text: &str) -> Address {
        Address::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refusal(text: &str) -> String {
        match Mailbox::parse(text) {
            Ok(mailbox) => panic!("{text:?} was taken as {mailbox:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn address_has_three_forms() {
        let given = address("  Jose\u{301}.Müller+News@BÜCHER.Example ");
        assert_eq!(given.as_given(), "Jose\u{301}.Müller+News@BÜCHER.Example");
        assert_eq!(given.wire(), "José.Müller+News@xn--bcher-kva.example");
        assert_eq!(given.key(), "josé.müller+news@xn--bcher-kva.example");
        assert!(given.needs_smtputf8());
        assert!(!address("ann@bücher.example").needs_smtputf8());
    }

    #[test]
    fn dots_and_plus_tags_make_different_recipients() {
        assert_ne!(address("a.b@example.com").key(), address("ab@example.com").key());
        assert_ne!(address("a+x@example.com").key(), address("a@example.com").key());
        assert_eq!(address("A@EXAMPLE.com").key(), address("a@example.COM").key());
    }

    #[test]
    fn ordinary_and_unusual_addresses_are_valid() {
        for text in ["a@localhost", "o'brien@example.com", "!#$%&'*+-/=?^_`{|}~@a.b", "用户@例子.广告", "x@a-b.c1"]
        {
            address(text);
        }
    }

    #[test]
    fn address_error_names_fault_and_place() {
        for (text, expected) in [
            ("", "the address is empty"),
            ("ann", "'ann' has no '@': an address is LOCAL@DOMAIN"),
            ("@example.com", "the local part is empty at character 1"),
            ("ann@", "the domain is empty at character 5"),
            ("a b@example.com", "a blank (U+0020) at character 2 is not allowed in the local part"),
            ("ann@a@b", "a second '@' (U+0040) at character 6 is not allowed in the domain"),
            (".a@b", "a dot without a character before it (U+002E) at character 1 is not allowed in the local part"),
            ("a..b@c", "a dot without a character before it (U+002E) at character 3 is not allowed in the local part"),
            ("a.@c", "a dot at the end (U+002E) at character 2 is not allowed in the local part"),
            ("a,b@c", "a character with a meaning of its own (U+002C) at character 2 is not allowed in the local part"),
            ("a\u{200B}b@c", "a zero-width character (U+200B) at character 2 is not allowed in the local part"),
            ("a@b\u{202E}c", "a bidirectional control (U+202E) at character 4 is not allowed in the domain"),
            ("a\u{7f}@c", "a control character (U+007F) at character 2 is not allowed in the local part"),
            ("  a\0@c", "a control character (U+0000) at character 4 is not allowed in the local part"),
            ("a@b..c", "'..' at character 5 cannot stand in a domain"),
            ("a@foo_bar.example", "'foo_bar' at character 3 cannot stand in a domain"),
            ("a@example.-x-", "'-x-' at character 11 cannot stand in a domain"),
            ("\"a b\"@c", "a quoted local part is not supported at character 1: give a plain LOCAL@DOMAIN"),
            ("a@[::1]", "an address literal is not supported at character 3: give a plain LOCAL@DOMAIN"),
            ("Ann <ann@example.com", "the '<' at character 5 has no partner: a mailbox is ADDRESS or NAME <ADDRESS>"),
            ("ann@example.com>", "the '>' at character 16 has no partner: a mailbox is ADDRESS or NAME <ADDRESS>"),
            ("A <x> <ann@b>", "the '<' at character 3 has no partner: a mailbox is ADDRESS or NAME <ADDRESS>"),
            ("Ann <an n@b>", "a blank (U+0020) at character 8 is not allowed in the local part"),
            ("An\r\nBcc: x <a@b>", "a control character (U+000D) at character 3 is not allowed in the name"),
            ("\u{85}An\u{9b}n <a@b>", "a control character (U+009B) at character 4 is not allowed in the name"),
        ] {
            assert_eq!(refusal(text), expected, "{text:?}");
        }
    }

    #[test]
    fn address_length_limits_are_kept() {
        let local = |octets: usize| format!("{}@example.com", "x".repeat(octets));
        address(&local(64));
        assert_eq!(refusal(&local(65)), "the local part has 65 octets, more than 64");
        assert_eq!(refusal(&format!("{}@example.com", "ü".repeat(33))), "the local part has 66 octets, more than 64");
        assert!(Address::parse(&format!("a@{}", "b".repeat(64))).is_err(), "a label of 64");
        assert!(Address::parse(&format!("a@{}", vec!["bcd"; 64].join("."))).is_err(), "a domain of 255 and its dot");
        assert!(Address::parse(&format!("a@{}", "b.".repeat(500_000))).is_err(), "a megabyte");
        assert!(Mailbox::parse(&format!("{} <a@b>", "n".repeat(991))).is_ok());
        assert_eq!(refusal(&format!("{} <a@b>", "n".repeat(993))), "the mailbox has 999 octets, more than 998");
    }

    #[test]
    fn display_name_is_cleaned() {
        let name = |text: &str| Mailbox::parse(text).ok().and_then(|mailbox| mailbox.name);
        assert_eq!(name("ann@example.com"), None);
        assert_eq!(name("<ann@example.com>"), None);
        assert_eq!(name("\"\" <ann@example.com>"), None);
        assert_eq!(name("  Ann   Lee <ann@example.com> ").as_deref(), Some("Ann Lee"));
        assert_eq!(name("\"Lee, \\\"Ann\\\" <x>\" <ann@example.com>").as_deref(), Some("Lee, \"Ann\" <x>"));
        assert_eq!(name("Jose\u{301} <ann@example.com>").as_deref(), Some("José"));
    }

    proptest! {
        #[test]
        fn address_key_is_idempotent_and_equals_that_of_wire_form(
            local in "[a-zA-Z0-9ÄÖÜäöüßſİıΣσςÅ\u{212B}\u{301}\u{327}\u{307}ǅ.+_-]{1,20}",
            domain in "[a-zA-ZäßéΣ0-9]{1,8}\\.[a-z]{2,3}",
        ) {
            if let Ok(address) = Address::parse(&format!("{local}@{domain}")) {
                let key = address.key();
                let read = Address::parse(&key).map(|address| address.key());
                prop_assert_eq!(read.as_deref(), Ok(key.as_str()));
                let wire = Address::parse(&address.wire()).map(|address| address.key());
                prop_assert_eq!(wire.as_deref(), Ok(key.as_str()));
            }
        }

        #[test]
        fn any_text_is_parsed_without_panic_to_one_line(text in "(?s).{0,40}(<.{0,20}@.{0,20}>)?") {
            if let Ok(mailbox) = Mailbox::parse(&text) {
                prop_assert!(!mailbox.address.wire().chars().any(|c| c.is_control() || c.is_whitespace()));
                prop_assert!(!mailbox.name.unwrap_or_default().chars().any(char::is_control));
            }
        }
    }

    /// The key decides which recipients are one, so it must not follow the Unicode tables of a build: those of the
    /// standard library, of normalization and of IDNA. If this fails after an update, replicas of two releases would
    /// differ (P23).
    #[test]
    fn keys_of_all_characters_are_as_recorded() {
        let mut hasher = blake3::Hasher::new();
        // No character is assigned between these planes.
        for character in ('\0'..='\u{3FFFF}').chain('\u{E0000}'..='\u{E0FFF}') {
            for text in [format!("a{character}@example.com"), format!("a@a{character}.com")] {
                let key = Address::parse(&text).map_or_else(|_| String::new(), |address| address.key());
                hasher.update(key.as_bytes());
                hasher.update(&[0]);
            }
        }
        assert_eq!(hasher.finalize().to_string(), "a5133016f733bb23c8cf8a1305a70737b687a739d664dffb4c815cc86a500b6e");
    }
}
