//! Encodes bytes as a JSON string in base64: an array of numbers would be four times as long.

use data_encoding::BASE64;
use serde::{Deserialize, Deserializer, Serializer, de};

pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&BASE64.encode(bytes))
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    BASE64.decode(String::deserialize(deserializer)?.as_bytes()).map_err(de::Error::custom)
}
