//! Encrypts page tokens that contain an address: clients put tokens into queries, which proxies log.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use uuid::Uuid;

/// Encrypts a text. Its nonce is drawn.
pub fn seal(secret: &[u8; 32], text: &[u8]) -> Vec<u8> {
    let [nonce @ .., _, _, _, _] = Uuid::new_v4().into_bytes();
    let mut sealed = text.to_vec();
    let done = key(secret).and_then(|key| {
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut sealed).ok()
    });
    match done {
        Some(()) => [&nonce[..], &sealed].concat(),
        // Only for texts above 64 GiB. An empty token would end the list.
        None => vec![0],
    }
}

/// Decrypts what [`seal`] returned. `None`: the secret is another one, or a byte was changed.
pub fn open(secret: &[u8; 32], sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, text) = sealed.split_first_chunk::<NONCE_LEN>()?;
    let mut text = text.to_vec();
    let opened = key(secret)?.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::empty(), &mut text).ok()?;
    Some(opened.to_vec())
}

fn key(secret: &[u8; 32]) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_256_GCM, secret).ok().map(LessSafeKey::new)
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
