//! Documents beside the key columns. Stored as `json`, not `jsonb`: the text comes back as written,
//! so that a float is the same float.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::StoreError;

pub(super) fn write<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(StoreError::Unstorable)
}

pub(super) fn read<T: DeserializeOwned>(
    table: &'static str,
    key: impl ToString,
    text: &str,
) -> Result<T, StoreError> {
    let corrupt = |source| StoreError::Corrupt {
        table,
        key: key.to_string(),
        source,
    };
    serde_json::from_str(text).map_err(corrupt)
}

/// Text for people in a column of its own; Postgres takes every character but NUL.
pub(super) fn plain(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
