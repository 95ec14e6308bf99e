//! Encrypts page tokens that contain an address: clients put tokens into queries, which proxies log.
//!
//! The nonce is synthetic, as in RFC 5297: the tag is a keyed hash of the text, and the key stream is the extended output
//! of a hash of the tag under another key. Both hashes are BLAKE3. Equal texts have equal tokens.

const TAG_BYTES: usize = 16;
const TAG_KEY: &str = "Reveille: tag of a page token, 1";
const STREAM_KEY: &str = "Reveille: key stream of a page token, 1";

/// Encrypts a text.
pub fn seal(secret: &[u8; 32], text: &[u8]) -> Vec<u8> {
    let (tag, mut text) = (tag(secret, text), text.to_vec());
    apply_stream(secret, &tag, &mut text);
    [&tag[..], &text].concat()
}

/// Decrypts what [`seal`] returned. `None`: the secret is another one, or a byte was changed.
pub fn open(secret: &[u8; 32], sealed: &[u8]) -> Option<Vec<u8>> {
    let (given, text) = sealed.split_first_chunk::<TAG_BYTES>()?;
    let mut text = text.to_vec();
    apply_stream(secret, given, &mut text);
    (tag(secret, &text) == *given).then_some(text)
}

fn tag(secret: &[u8; 32], text: &[u8]) -> [u8; TAG_BYTES] {
    let mut tag = [0; TAG_BYTES];
    blake3::Hasher::new_keyed(&blake3::derive_key(TAG_KEY, secret)).update(text).finalize_xof().fill(&mut tag);
    tag
}

fn apply_stream(secret: &[u8; 32], tag: &[u8; TAG_BYTES], text: &mut [u8]) {
    let mut stream = vec![0; text.len()];
    blake3::Hasher::new_keyed(&blake3::derive_key(STREAM_KEY, secret)).update(tag).finalize_xof().fill(&mut stream);
    text.iter_mut().zip(stream).for_each(|(byte, mask)| *byte ^= mask);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_byte_is_refused() {
        let sealed = seal(&[7; 32], b"ada@example.net");
        assert_eq!(open(&[7; 32], &sealed).as_deref(), Some(&b"ada@example.net"[..]));
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert_eq!(open(&[7; 32], &changed), None, "byte {place}");
            assert_eq!(open(&[7; 32], &sealed[..place]), None, "the first {place} bytes");
        }
    }
}
