//! Words in place of a tokenizer: one whitespace-separated word is one token, and long words are
//! cut every 12 bytes so that a text without spaces still has a length.
//!
//! A real tokenizer gives about 1.3 tokens a word of English; callers that need exact lengths send
//! token ids.

use crate::rng::{digest, scramble};

/// Longest piece of a word that is one token.
pub const PIECE_BYTES: usize = 12;
/// Number of different words an engine says.
pub const WORDS: u64 = 4096;

const CONSONANTS: [char; 16] = [
    'b', 'd', 'f', 'g', 'h', 'k', 'l', 'm', 'n', 'p', 'r', 's', 't', 'v', 'w', 'z',
];
const VOWELS: [char; 4] = ['a', 'e', 'i', 'o'];

/// The word with this index, taken modulo [`WORDS`]: two syllables, all different.
#[must_use]
pub fn word(index: u64) -> String {
    let index = (index % WORDS) as usize;
    let syllable = |i: usize| [CONSONANTS[i % 16], VOWELS[(i / 16) % 4]];
    syllable(index % 64)
        .into_iter()
        .chain(syllable(index / 64))
        .collect()
}

/// The word an answer with this seed has at a position, counted from 0.
#[must_use]
pub fn answer_word(answer_seed: u64, position: u32) -> String {
    word(scramble(answer_seed ^ (u64::from(position) << 17)))
}

/// The token id of the answer's word at a position.
#[must_use]
pub fn answer_token(answer_seed: u64, position: u32) -> u32 {
    piece_token(answer_word(answer_seed, position).as_bytes())
}

/// Length at which an answer with this seed ends by itself: log-normal, median about 180 tokens.
#[must_use]
pub fn natural_length(answer_seed: u64) -> u32 {
    let mut rng = crate::rng::SimRng::new(answer_seed);
    (180.0 * (0.7 * rng.normal()).exp()).clamp(8.0, 4096.0) as u32
}

/// The token id of one piece of a word.
#[must_use]
pub fn piece_token(piece: &[u8]) -> u32 {
    (digest(piece) >> 32) as u32
}

/// Token ids of a text.
#[must_use]
pub fn tokenize(text: &str) -> Vec<u32> {
    text.split_whitespace()
        .flat_map(|word| word.as_bytes().chunks(PIECE_BYTES))
        .map(piece_token)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn words_are_distinct_tokens() {
        let words: BTreeSet<String> = (0..WORDS).map(word).collect();
        let tokens: BTreeSet<u32> = words.iter().map(|w| piece_token(w.as_bytes())).collect();
        assert_eq!((words.len() as u64, tokens.len() as u64), (WORDS, WORDS));
    }

    #[test]
    fn an_answer_reads_back_as_its_own_tokens() {
        let text: Vec<String> = (0..50).map(|i| answer_word(99, i)).collect();
        let tokens: Vec<u32> = (0..50).map(|i| answer_token(99, i)).collect();
        assert_eq!(tokenize(&text.join(" ")), tokens);
        assert_ne!(
            tokens[..8],
            (0..8).map(|i| answer_token(98, i)).collect::<Vec<_>>()
        );
    }

    #[test]
    fn long_words_have_a_length() {
        assert_eq!(tokenize("").len(), 0);
        assert_eq!(tokenize(" one  two\nthree ").len(), 3);
        assert_eq!(tokenize(&"x".repeat(25)).len(), 3);
    }
}
