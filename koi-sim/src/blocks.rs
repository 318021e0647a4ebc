//! The paged KV cache: blocks with reference counts, a prefix cache keyed by hash links, and an
//! LRU list of free blocks whose contents stay usable until they are taken.

use std::collections::BTreeMap;

/// Index of a block.
pub type BlockId = u32;

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone)]
struct Block {
    references: u32,
    link: Option<u64>,
    previous: u32,
    next: u32,
}

/// A pool of equal blocks.
#[derive(Debug, Clone)]
pub struct BlockPool {
    blocks: Vec<Block>,
    cached: BTreeMap<u64, BlockId>,
    oldest: u32,
    newest: u32,
    n_free: u32,
}

impl BlockPool {
    /// A pool in which every block is free and empty.
    #[must_use]
    pub fn new(n_blocks: u32) -> Self {
        let block = Block {
            references: 0,
            link: None,
            previous: NONE,
            next: NONE,
        };
        let mut pool = Self {
            blocks: vec![block; n_blocks as usize],
            cached: BTreeMap::new(),
            oldest: NONE,
            newest: NONE,
            n_free: 0,
        };
        for id in 0..n_blocks {
            pool.append_free(id);
        }
        pool
    }

    /// Blocks that nobody refers to.
    #[must_use]
    pub const fn n_free(&self) -> u32 {
        self.n_free
    }

    /// All blocks.
    #[must_use]
    pub fn n_blocks(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Share of blocks in use, 0..=1.
    #[must_use]
    pub fn usage_fraction(&self) -> f64 {
        if self.blocks.is_empty() {
            return 0.0;
        }
        1.0 - f64::from(self.n_free) / self.blocks.len() as f64
    }

    /// The cached blocks of the longest prefix of `links` that is in the cache.
    #[must_use]
    pub fn lookup(&self, links: &[u64]) -> Vec<BlockId> {
        links
            .iter()
            .map_while(|link| self.cached.get(link).copied())
            .collect()
    }

    /// How many of these blocks are free now, and so would be taken from the free list by a touch.
    #[must_use]
    pub fn n_free_among(&self, ids: &[BlockId]) -> u32 {
        ids.iter()
            .filter(|id| self.blocks[**id as usize].references == 0)
            .count() as u32
    }

    /// Takes one more reference on blocks that [`Self::lookup`] gave.
    pub fn touch(&mut self, ids: &[BlockId]) {
        for id in ids {
            if self.blocks[*id as usize].references == 0 {
                self.unlink_free(*id);
            }
            self.blocks[*id as usize].references += 1;
        }
    }

    /// Takes the free block that was unused for longest, forgetting what it cached.
    pub fn take(&mut self) -> Option<BlockId> {
        let id = self.oldest;
        if id == NONE {
            return None;
        }
        self.unlink_free(id);
        let block = &mut self.blocks[id as usize];
        block.references = 1;
        if let Some(link) = block.link.take() {
            self.cached.remove(&link);
        }
        Some(id)
    }

    /// Makes a full block findable. The first block with a link keeps it.
    pub fn cache(&mut self, id: BlockId, link: u64) {
        if self.blocks[id as usize].link.is_none() && !self.cached.contains_key(&link) {
            self.cached.insert(link, id);
            self.blocks[id as usize].link = Some(link);
        }
    }

    /// Gives back a sequence's blocks, the last one first, so that its tail is evicted first.
    ///
    /// # Panics
    /// When a block is released more often than it was referred to.
    pub fn release(&mut self, ids: &[BlockId]) {
        for id in ids.iter().rev() {
            let block = &mut self.blocks[*id as usize];
            assert!(
                block.references > 0,
                "a block is released once per reference"
            );
            block.references -= 1;
            if block.references == 0 {
                self.append_free(*id);
            }
        }
    }

    fn append_free(&mut self, id: BlockId) {
        let newest = self.newest;
        let block = &mut self.blocks[id as usize];
        (block.previous, block.next) = (newest, NONE);
        match newest {
            NONE => self.oldest = id,
            newest => self.blocks[newest as usize].next = id,
        }
        self.newest = id;
        self.n_free += 1;
    }

    fn unlink_free(&mut self, id: BlockId) {
        let Block { previous, next, .. } = self.blocks[id as usize];
        match previous {
            NONE => self.oldest = next,
            previous => self.blocks[previous as usize].next = next,
        }
        match next {
            NONE => self.newest = previous,
            next => self.blocks[next as usize].previous = previous,
        }
        self.n_free -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_blocks_stay_cached_until_taken_oldest_tail_first() {
        let mut pool = BlockPool::new(3);
        let ids: Vec<BlockId> = (0..3).filter_map(|_| pool.take()).collect();
        assert_eq!((ids.len(), pool.take()), (3, None));
        for (id, link) in ids.iter().zip([10, 11, 12]) {
            pool.cache(*id, link);
        }
        pool.release(&ids);
        assert_eq!(pool.lookup(&[10, 11, 12]), ids);
        assert!(pool.take().is_some());
        assert_eq!(pool.lookup(&[10, 11, 12]), ids[..2]);
        assert_eq!(pool.lookup(&[11]), ids[1..2]);
    }

    #[test]
    fn a_shared_block_is_free_only_after_the_last_release() {
        let mut pool = BlockPool::new(2);
        let id = pool.take().unwrap();
        pool.cache(id, 7);
        pool.touch(&[id]);
        pool.release(&[id]);
        assert_eq!((pool.n_free(), pool.n_free_among(&[id])), (1, 0));
        pool.release(&[id]);
        assert_eq!((pool.n_free(), pool.n_free_among(&[id])), (2, 1));
        pool.touch(&[id]);
        assert!((pool.usage_fraction() - 0.5).abs() < 1e-12);
    }

    #[test]
    fn the_first_block_with_a_link_keeps_it() {
        let mut pool = BlockPool::new(2);
        let (a, b) = (pool.take().unwrap(), pool.take().unwrap());
        pool.cache(a, 7);
        pool.cache(b, 7);
        pool.release(&[b]);
        assert_eq!(pool.take(), Some(b));
        assert_eq!(pool.lookup(&[7]), vec![a]);
    }
}
