//! Pages of a listing, with tokens that say where the next one starts.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::StoreError;

/// Most items of one page.
pub const MAX_PAGE: u32 = 1_000;
/// Longest token; ours are far shorter.
const MAX_TOKEN_BYTES: usize = 400;

/// Which page.
#[derive(Debug, Clone, Default)]
pub struct PageRequest {
    /// Most items; 0 asks for 100, more than [`MAX_PAGE`] for [`MAX_PAGE`].
    pub limit: u32,
    /// Where the last page ended; absent for the first.
    pub token: Option<String>,
}

impl PageRequest {
    /// The first page.
    #[must_use]
    pub const fn first(limit: u32) -> Self {
        Self { limit, token: None }
    }

    pub(super) fn size(&self) -> usize {
        if self.limit == 0 {
            100
        } else {
            self.limit.min(MAX_PAGE) as usize
        }
    }

    /// One more than fits, to know whether there is a next page.
    pub(super) fn sql_limit(&self) -> i64 {
        self.size() as i64 + 1
    }

    /// The position after which this page starts, or the given one for the first page.
    pub(super) fn after<K: DeserializeOwned>(
        &self,
        listing: &str,
        first: K,
    ) -> Result<K, StoreError> {
        let Some(token) = &self.token else {
            return Ok(first);
        };
        decode(listing, token).ok_or(StoreError::BadPageToken)
    }
}

/// One page.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// Items in the listing's order.
    pub items: Vec<T>,
    /// Token of the next page; absent on the last.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// Cuts the extra item off and makes the token from the last item that stays.
    pub(super) fn cut<K: Serialize>(
        mut items: Vec<T>,
        request: &PageRequest,
        listing: &str,
        key: impl Fn(&T) -> K,
    ) -> Self {
        let more = items.len() > request.size();
        items.truncate(request.size());
        let next = items
            .last()
            .filter(|_| more)
            .map(|last| encode(listing, &key(last)));
        Self { items, next }
    }
}

fn encode<K: Serialize>(listing: &str, key: &K) -> String {
    let json = serde_json::json!([listing, key]).to_string();
    json.bytes().map(|b| format!("{b:02x}")).collect()
}

fn decode<K: DeserializeOwned>(listing: &str, token: &str) -> Option<K> {
    if token.len() > MAX_TOKEN_BYTES || !token.is_ascii() {
        return None;
    }
    let byte = |i: usize| u8::from_str_radix(token.get(i..i + 2)?, 16).ok();
    let bytes: Vec<u8> = (0..token.len())
        .step_by(2)
        .map(byte)
        .collect::<Option<_>>()?;
    // No text of ours has a NUL, and the database takes none.
    if bytes.windows(6).any(|six| six == br"\u0000") {
        return None;
    }
    let (name, key): (String, K) = serde_json::from_slice(&bytes).ok()?;
    (name == listing).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip_and_belong_to_one_listing() {
        let token = encode("plans", &(7_i64, "x"));
        assert_eq!(
            decode::<(i64, String)>("plans", &token),
            Some((7, "x".to_owned()))
        );
        assert_eq!(decode::<(i64, String)>("ticks", &token), None);
        for bad in ["", "5", "zz", "é", &"5b".repeat(300)] {
            assert_eq!(decode::<(i64, String)>("plans", bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_token_with_a_nul_is_none_of_ours() {
        let token = encode("rows", &"a\0b");
        assert_eq!(decode::<String>("rows", &token), None);
    }

    #[test]
    fn the_last_page_has_no_token() {
        let ask = PageRequest::first(2);
        assert_eq!(Page::cut(vec![3, 2], &ask, "n", |n| *n).next, None);
        let page = Page::cut(vec![3, 2, 1], &ask, "n", |n| *n);
        assert_eq!(page.items, [3, 2]);
        let next = PageRequest {
            limit: 2,
            token: page.next,
        };
        assert_eq!(next.after("n", i64::MAX).unwrap(), 2);
    }
}
