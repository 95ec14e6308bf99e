//! Hash of the words of a relay's answer, without the words that differ by recipient (P6).
//!
//! The worker sends it with a permanent refusal, and the ledger counts recipients by it. It is neither secret nor a
//! proof: two texts with the same hash are counted together.

/// Returns the hash, which is never zero. `address` is the recipient's.
///
/// Words with a digit are left out (queue ids, times, IP addresses, enhanced codes), as are words with `@` and the two
/// parts of the recipient's own address. Case and punctuation do not count.
pub fn words_hash(text: &str, address: &str) -> u32 {
    let address = address.to_lowercase();
    let (local, domain) = address.rsplit_once('@').unwrap_or((&address, ""));
    let mut hasher = blake3::Hasher::new();
    for word in text.to_lowercase().split_whitespace() {
        let word = word.trim_matches(|letter: char| !letter.is_alphanumeric());
        let differs = word.contains(|letter: char| letter == '@' || letter.is_ascii_digit());
        if !(word.is_empty() || differs || word == local || word == domain) {
            hasher.update(word.as_bytes()).update(b" ");
        }
    }
    let [first, second, third, fourth, ..] = *hasher.finalize().as_bytes();
    u32::from_le_bytes([first, second, third, fourth]).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_one_cause_have_one_hash_for_each_recipient() {
        let same = [
            ("<ada@x.example>: Recipient address rejected: Account suspended", "ada@x.example"),
            ("<Bob.b@y.example>: recipient address rejected: account suspended", "bob.b@y.example"),
            ("4XyQ1k2 <c@z.example>: Recipient address rejected: Account suspended.", "c@z.example"),
        ];
        let hashes: Vec<u32> = same.iter().map(|(text, address)| words_hash(text, address)).collect();
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
        let bare = |name: &str, domain: &str| {
            words_hash(&format!("mailbox {name} at {domain} unavailable [192.0.2.1]"), &format!("{name}@{domain}"))
        };
        assert_eq!(bare("ada", "x.example"), bare("bob", "y.example"));
    }

    #[test]
    fn words_of_two_causes_have_two_hashes() {
        let hash = |text: &str| words_hash(text, "ada@x.example");
        assert_ne!(hash("user unknown"), hash("mailbox full"));
        assert_ne!(hash("nouser"), hash("no user"));
        assert_ne!(hash("550"), 0);
    }
}
