//! vLLM's pool of KV blocks with its prefix cache, block for block.
//!
//! Written after `vllm/v1/core/block_pool.py` and `kv_cache_utils.py` of vLLM 0.32. What decides which block is evicted,
//! and so every hit that follows, is kept: one block is reserved as the null block; a block that is let go with a hash
//! goes to the back of the free queue and one without to the front; blocks with equal hashes are not merged, and a
//! lookup finds the oldest of them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::prompt::BlockHash;

/// The place of a block in the pool.
pub type BlockId = u32;

/// The reserved block. It is never handed out, so its links serve as both ends of the free queue.
const NULL: BlockId = 0;

#[derive(Clone, Default)]
struct Block {
    /// Requests that use the block. Zero means it is in the free queue.
    references: u32,
    /// Set once the block is full: what a lookup finds it by, until it is evicted.
    hash: Option<BlockHash>,
    /// The next younger block with the same hash, `NULL` if none.
    twin: BlockId,
    previous: BlockId,
    next: BlockId,
}

/// A fixed number of blocks: in use, free but still cached, or free and empty.
pub struct BlockPool {
    blocks: Vec<Block>,
    free: u32,
    /// The oldest block of each hash.
    cached: HashMap<BlockHash, BlockId, BuildHasherDefault<AlreadyHashed>>,
}

impl BlockPool {
    /// A pool of `blocks` blocks, one of which is reserved: at least 2.
    pub fn new(blocks: u32) -> Self {
        assert!(blocks >= 2, "a pool has the null block and at least one more");
        let mut pool = Self { blocks: vec![Block::default(); blocks as usize], free: 0, cached: HashMap::default() };
        for id in 1..blocks {
            pool.push_back(id);
        }
        pool
    }

    /// Blocks in the free queue, cached ones included.
    pub fn free_blocks(&self) -> u32 {
        self.free
    }

    /// Blocks that requests can use: all but the null block.
    pub fn usable_blocks(&self) -> u32 {
        self.blocks.len() as u32 - 1
    }

    /// The share of usable blocks that requests hold, 0 to 1. Free blocks that are still cached do not count.
    pub fn usage(&self) -> f64 {
        1.0 - f64::from(self.free) / f64::from(self.usable_blocks())
    }

    /// The block a lookup of `hash` finds.
    pub fn find(&self, hash: BlockHash) -> Option<BlockId> {
        self.cached.get(&hash).copied()
    }

    /// Whether `id` is still cached under `hash`.
    pub fn holds(&self, id: BlockId, hash: BlockHash) -> bool {
        self.blocks[id as usize].hash == Some(hash)
    }

    /// Whether no request uses the block.
    pub fn is_free(&self, id: BlockId) -> bool {
        self.blocks[id as usize].references == 0
    }

    /// One more request uses a cached block.
    pub fn touch(&mut self, id: BlockId) {
        if self.is_free(id) {
            self.unlink(id);
        }
        self.blocks[id as usize].references += 1;
    }

    /// Takes the block at the front of the free queue, evicting what it held.
    ///
    /// # Panics
    /// When no block is free: ask [`Self::free_blocks`] first.
    pub fn allocate(&mut self) -> BlockId {
        let id = self.blocks[NULL as usize].next;
        assert_ne!(id, NULL, "the pool has no free block");
        self.unlink(id);
        self.evict(id);
        self.blocks[id as usize].references = 1;
        id
    }

    /// Makes a full block findable by `hash`.
    pub fn cache(&mut self, id: BlockId, hash: BlockHash) {
        debug_assert!(self.blocks[id as usize].hash.is_none(), "a block is cached once");
        self.blocks[id as usize].hash = Some(hash);
        let Some(&oldest) = self.cached.get(&hash) else {
            self.cached.insert(hash, id);
            return;
        };
        let mut last = oldest;
        while self.blocks[last as usize].twin != NULL {
            last = self.blocks[last as usize].twin;
        }
        self.blocks[last as usize].twin = id;
    }

    /// Lets go of blocks, in the order in which they should be evicted.
    pub fn release(&mut self, blocks: impl Iterator<Item = BlockId>) {
        let mut empty = Vec::new();
        for id in blocks {
            let block = &mut self.blocks[id as usize];
            assert!(block.references > 0, "a block is let go only by a request that uses it");
            block.references -= 1;
            match (block.references, block.hash) {
                (0, Some(_)) => self.push_back(id),
                (0, None) => empty.push(id),
                _ => {}
            }
        }
        for id in empty.into_iter().rev() {
            self.push_after(NULL, id);
        }
    }

    fn evict(&mut self, id: BlockId) {
        let block = &mut self.blocks[id as usize];
        let Some(hash) = block.hash.take() else {
            return;
        };
        let younger = std::mem::replace(&mut block.twin, NULL);
        let oldest = self.cached[&hash];
        if oldest != id {
            let mut before = oldest;
            while self.blocks[before as usize].twin != id {
                before = self.blocks[before as usize].twin;
            }
            self.blocks[before as usize].twin = younger;
        } else if younger == NULL {
            self.cached.remove(&hash);
        } else {
            self.cached.insert(hash, younger);
        }
    }

    fn push_back(&mut self, id: BlockId) {
        self.push_after(self.blocks[NULL as usize].previous, id);
    }

    fn push_after(&mut self, previous: BlockId, id: BlockId) {
        let next = self.blocks[previous as usize].next;
        self.blocks[id as usize].previous = previous;
        self.blocks[id as usize].next = next;
        self.blocks[previous as usize].next = id;
        self.blocks[next as usize].previous = id;
        self.free += 1;
    }

    fn unlink(&mut self, id: BlockId) {
        let Block { previous, next, .. } = self.blocks[id as usize];
        self.blocks[previous as usize].next = next;
        self.blocks[next as usize].previous = previous;
        self.free -= 1;
    }
}

/// A hasher for keys that are hashes already.
#[derive(Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn write(&mut self, _: &[u8]) {
        unreachable!("block hashes are written as one u64");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
#[path = "prefix_cache_tests.rs"]
mod tests;
