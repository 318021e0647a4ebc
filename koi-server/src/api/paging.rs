//! Pages: sizes are bounded, tokens are opaque and carry the key after which the page starts.

use koi_proto::v1;
use tonic::Status;

use super::status::invalid_field;

/// Size of a page when none is asked for.
const DEFAULT_SIZE: usize = 100;
/// Largest page.
const MAX_SIZE: usize = 500;

/// A decoded page request: how many, and after which key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// At most so many items.
    pub size: usize,
    /// Key of the last item of the page before.
    pub after: Option<String>,
}

/// Decodes a request.
///
/// # Errors
/// `INVALID_ARGUMENT` for a token that was not given out here.
pub fn page(request: Option<v1::PageRequest>) -> Result<Page, Status> {
    let request = request.unwrap_or_default();
    let size = match request.size as usize {
        0 => DEFAULT_SIZE,
        n => n.min(MAX_SIZE),
    };
    let after = match request.token.as_str() {
        "" => None,
        token => Some(
            token
                .strip_prefix("after:")
                .filter(|key| key.len() <= 200)
                .ok_or_else(|| invalid_field("page.token", "is not a token of this list"))?
                .to_owned(),
        ),
    };
    Ok(Page { size, after })
}

/// Cuts one page out of items in key order and names the next.
pub fn cut<T>(
    page: &Page,
    items: impl Iterator<Item = T>,
    key: impl Fn(&T) -> String,
) -> (Vec<T>, v1::PageReply) {
    let before = |item: &T| page.after.as_ref().is_some_and(|after| key(item) <= *after);
    let mut items: Vec<T> = items.skip_while(before).take(page.size + 1).collect();
    let more = items.len() > page.size;
    items.truncate(page.size);
    let last = items.last().map(&key);
    (items, reply(last, more))
}

/// The reply for a page whose items were cut by the database.
#[must_use]
pub fn reply(last: Option<String>, more: bool) -> v1::PageReply {
    let next_token = match last {
        Some(key) if more => format!("after:{key}"),
        Some(_) | None => String::new(),
    };
    v1::PageReply { next_token }
}
