//! Prompts as token ids: exact lengths, and the same tokens exactly where requests share them.

use std::fmt::Write as _;

use super::rng::SplitMix;
use super::trace::{HASH_BLOCK_TOKENS, Row, Shared};

/// Ids below are left out: tokenizers keep their special tokens there.
const FIRST_ID: u32 = 10;
/// Largest id when nobody names one; every vocabulary in use is larger.
pub(super) const DEFAULT_VOCABULARY: u32 = 30_000;
/// Smallest vocabulary that leaves a choice.
pub(super) const MIN_VOCABULARY: u32 = 64;

/// Appends `tokens` ids of this seed.
fn push(ids: &mut Vec<u32>, seed: u64, tokens: u32, vocabulary: u32) {
    let mut rng = SplitMix::new(seed);
    let span = u64::from(vocabulary.max(MIN_VOCABULARY) - FIRST_ID);
    ids.extend((0..tokens).map(|_| FIRST_ID + (rng.next() % span) as u32));
}

/// Seeds of shared text lie apart from those of unique text.
const SHARED_SEED: u64 = 0x5348_4152_4544_0000;

/// Token ids of a request. `unique` must differ between requests, so that nothing is shared that the
/// trace does not share.
pub(super) fn token_ids(row: &Row, unique: u64, vocabulary: u32) -> Vec<u32> {
    let n = row.prompt_tokens;
    let mut ids = Vec::with_capacity(n as usize);
    match &row.shared {
        Shared::Nothing => {}
        Shared::Prefix { id, tokens } => {
            // At least one token stays its own: a request of which everything is cached is another
            // kind of request.
            push(
                &mut ids,
                SHARED_SEED ^ id.wrapping_mul(0x9E37),
                (*tokens).min(n - 1),
                vocabulary,
            );
        }
        Shared::Blocks(blocks) => {
            for id in blocks.iter() {
                let left = n - ids.len() as u32;
                push(
                    &mut ids,
                    SHARED_SEED ^ id.wrapping_mul(0x9E37),
                    left.min(HASH_BLOCK_TOKENS),
                    vocabulary,
                );
            }
        }
    }
    let left = n - ids.len() as u32;
    push(&mut ids, unique, left, vocabulary);
    ids
}

/// Body of a streaming completion request for exactly `generated` tokens.
pub(super) fn body(model: &str, ids: &[u32], generated: u32) -> String {
    let mut body = String::with_capacity(ids.len() * 6 + 256);
    let model = serde_json::Value::from(model);
    // Writing to a String cannot fail.
    write!(body, "{{\"model\":{model},\"prompt\":[").ok();
    for (i, id) in ids.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        write!(body, "{comma}{id}").ok();
    }
    write!(
        body,
        "],\"max_tokens\":{generated},\"min_tokens\":{generated},\"ignore_eos\":true,\"temperature\":0,\
         \"stream\":true,\"stream_options\":{{\"include_usage\":true}}}}"
    )
    .ok();
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(prompt_tokens: u32, shared: Shared) -> Row {
        Row {
            at_s: 0.0,
            prompt_tokens,
            generated_tokens: 1,
            shared,
            session: None,
        }
    }

    #[test]
    fn lengths_are_exact_and_prefixes_shared() {
        let shared = Shared::Prefix { id: 3, tokens: 100 };
        let a = token_ids(&row(150, shared.clone()), 1, 30_000);
        let b = token_ids(&row(120, shared), 2, 30_000);
        assert_eq!((a.len(), b.len()), (150, 120));
        assert_eq!(a[..100], b[..100]);
        assert_ne!(a[100..120], b[100..120]);
        let other = token_ids(&row(150, Shared::Prefix { id: 4, tokens: 100 }), 1, 30_000);
        assert_ne!(a[..100], other[..100]);
        assert_eq!(
            token_ids(&row(5, Shared::Prefix { id: 3, tokens: 100 }), 1, 30_000).len(),
            5
        );
    }

    #[test]
    fn blocks_agree_up_to_the_first_difference() {
        let blocks = |ids: &[u64]| Shared::Blocks(ids.into());
        let a = token_ids(&row(1400, blocks(&[0, 1, 2])), 1, 30_000);
        let b = token_ids(&row(1200, blocks(&[0, 1, 9])), 2, 30_000);
        assert_eq!((a.len(), b.len()), (1400, 1200));
        assert_eq!(a[..1024], b[..1024]);
        assert_ne!(a[1024..1200], b[1024..1200]);
        assert_eq!(
            token_ids(&row(2000, blocks(&[0])), 1, 30_000).len(),
            2000,
            "fewer blocks than tokens"
        );
    }

    #[test]
    fn bodies_are_json_and_ids_stay_in_the_vocabulary() {
        let ids = token_ids(&row(500, Shared::Nothing), 7, 341);
        assert!(ids.iter().all(|id| (10..341).contains(id)));
        let text = body("we\"ird", &ids, 42);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (
                value["prompt"].as_array().unwrap().len(),
                &value["max_tokens"]
            ),
            (500, &42.into())
        );
        assert_eq!(value["model"], "we\"ird");
    }
}
