//! A sequence of tokens reduced to what scheduling needs: its length and a hash chain, one link
//! per full block. Two sequences share a link exactly when they agree up to the end of that block.

use crate::rng::scramble;

/// Hash chain over a token sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenChain {
    tokens: u32,
    block_size: u32,
    state: u64,
    links: Vec<u64>,
}

impl TokenChain {
    /// The empty sequence. A block size of 0 counts as 1.
    #[must_use]
    pub fn new(block_size: u32) -> Self {
        Self {
            tokens: 0,
            block_size: block_size.max(1),
            state: 0x6B6F_695F_7369_6D00,
            links: vec![],
        }
    }

    /// The chain of these token ids.
    #[must_use]
    pub fn of_tokens(token_ids: &[u32], block_size: u32) -> Self {
        let mut chain = Self::new(block_size);
        for id in token_ids {
            chain.push(*id);
        }
        chain
    }

    /// A chain of `prefix_tokens` common to everybody who names `prefix_seed`, then unique tokens.
    #[must_use]
    pub fn synthetic(prefix: (u64, u32), unique: (u64, u32), block_size: u32) -> Self {
        let mut chain = Self::new(block_size);
        for (seed, tokens) in [prefix, unique] {
            for i in 0..tokens {
                chain.push((scramble(seed ^ (u64::from(i) << 20)) >> 32) as u32);
            }
        }
        chain
    }

    /// A chain as it came over a wire; `None` when the number of links does not match the length.
    #[must_use]
    pub fn from_parts(tokens: u32, block_size: u32, state: u64, links: Vec<u64>) -> Option<Self> {
        let expected = tokens.checked_div(block_size)?;
        (links.len() == expected as usize).then_some(Self {
            tokens,
            block_size,
            state,
            links,
        })
    }

    /// Appends one token.
    pub fn push(&mut self, token_id: u32) {
        self.state = scramble(self.state.rotate_left(5) ^ u64::from(token_id).wrapping_add(1));
        self.tokens += 1;
        if self.tokens.is_multiple_of(self.block_size) {
            self.links.push(self.state);
        }
    }

    /// Length in tokens.
    #[must_use]
    pub const fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Tokens per block.
    #[must_use]
    pub const fn block_size(&self) -> u32 {
        self.block_size
    }

    /// State after the last token.
    #[must_use]
    pub const fn state(&self) -> u64 {
        self.state
    }

    /// One hash per full block, in order.
    #[must_use]
    pub fn links(&self) -> &[u64] {
        &self.links
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_agree_exactly_on_the_common_prefix() {
        let a = TokenChain::synthetic((1, 40), (2, 40), 16);
        let b = TokenChain::synthetic((1, 40), (3, 40), 16);
        assert_eq!((a.tokens(), a.links().len()), (80, 5));
        assert_eq!(a.links()[..2], b.links()[..2]);
        assert!(
            a.links()[2..]
                .iter()
                .zip(&b.links()[2..])
                .all(|(x, y)| x != y)
        );
    }

    #[test]
    fn parts_round_trip_and_wrong_parts_are_refused() {
        let a = TokenChain::of_tokens(&[5; 33], 16);
        let back = TokenChain::from_parts(33, 16, a.state(), a.links().to_vec());
        assert_eq!(back, Some(a));
        assert_eq!(TokenChain::from_parts(33, 16, 0, vec![1]), None);
        assert_eq!(TokenChain::from_parts(33, 0, 0, vec![1]), None);
    }
}
