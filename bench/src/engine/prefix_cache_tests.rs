use proptest::prelude::*;

use super::*;

fn take(pool: &mut BlockPool, n: usize) -> Vec<BlockId> {
    (0..n).map(|_| pool.allocate()).collect()
}

/// Takes a block for each hash and caches it.
fn fill(pool: &mut BlockPool, hashes: &[u64]) -> Vec<BlockId> {
    let ids = take(pool, hashes.len());
    for (id, hash) in ids.iter().zip(hashes) {
        pool.cache(*id, BlockHash(*hash));
    }
    ids
}

fn release_in_reverse(pool: &mut BlockPool, ids: &[BlockId]) {
    pool.release(ids.iter().rev().copied());
}

fn found(pool: &BlockPool, hashes: &[u64]) -> Vec<bool> {
    hashes.iter().map(|hash| pool.find(BlockHash(*hash)).is_some()).collect()
}

#[test]
fn one_block_is_reserved() {
    let mut pool = BlockPool::new(5);
    assert_eq!((pool.free_blocks(), pool.usable_blocks(), pool.usage()), (4, 4, 0.0));
    assert_eq!(take(&mut pool, 4), [1, 2, 3, 4]);
    assert_eq!((pool.free_blocks(), pool.usage()), (0, 1.0));
}

#[test]
fn a_request_loses_its_tail_first() {
    let mut pool = BlockPool::new(5);
    let ids = fill(&mut pool, &[10, 11, 12, 13]);
    release_in_reverse(&mut pool, &ids);
    take(&mut pool, 2);
    assert_eq!(found(&pool, &[10, 11, 12, 13]), [true, true, false, false]);
}

#[test]
fn the_least_recently_used_request_is_evicted_first() {
    let mut pool = BlockPool::new(5);
    let (old, new) = (fill(&mut pool, &[10, 11]), fill(&mut pool, &[20, 21]));
    release_in_reverse(&mut pool, &old);
    release_in_reverse(&mut pool, &new);
    // Using the older one again makes it the younger one.
    old.iter().for_each(|id| pool.touch(*id));
    release_in_reverse(&mut pool, &old);
    take(&mut pool, 2);
    assert_eq!(found(&pool, &[10, 11, 20, 21]), [true, true, false, false]);
}

#[test]
fn blocks_without_a_hash_are_reused_before_any_cached_one() {
    let mut pool = BlockPool::new(4);
    let cached = fill(&mut pool, &[10, 11]);
    let partial = take(&mut pool, 1);
    release_in_reverse(&mut pool, &cached);
    release_in_reverse(&mut pool, &partial);
    assert_eq!(take(&mut pool, 1), partial);
    assert_eq!(found(&pool, &[10, 11]), [true, true]);
}

#[test]
fn a_block_in_use_is_never_evicted() {
    let mut pool = BlockPool::new(4);
    let ids = fill(&mut pool, &[10, 11]);
    ids.iter().for_each(|id| pool.touch(*id));
    release_in_reverse(&mut pool, &ids);
    assert_eq!(pool.free_blocks(), 1);
    take(&mut pool, 1);
    assert_eq!(found(&pool, &[10, 11]), [true, true]);
}

#[test]
fn a_lookup_finds_the_oldest_of_equal_blocks_and_then_the_next() {
    let mut pool = BlockPool::new(6);
    let (first, second, third) = (fill(&mut pool, &[7]), fill(&mut pool, &[7]), fill(&mut pool, &[7]));
    assert_eq!(pool.find(BlockHash(7)), Some(first[0]));
    // The middle one goes: the first is still found, and the last after it.
    pool.release(second.into_iter());
    take(&mut pool, 3);
    assert_eq!(pool.find(BlockHash(7)), Some(first[0]));
    pool.release(first.into_iter());
    take(&mut pool, 1);
    assert_eq!(pool.find(BlockHash(7)), Some(third[0]));
    pool.release(third.into_iter());
    take(&mut pool, 1);
    assert_eq!(pool.find(BlockHash(7)), None);
}

proptest! {
    /// Whatever requests come and go, no block is lost or held twice, and what is in use stays findable.
    #[test]
    fn blocks_are_conserved(steps in prop::collection::vec((0u64..6, 1usize..8, any::<bool>()), 1..200)) {
        let mut pool = BlockPool::new(24);
        let mut requests: Vec<Vec<BlockId>> = Vec::new();
        for (prefix, blocks, finish) in steps {
            let hashes: Vec<_> = (0..blocks as u64).map(|n| BlockHash(prefix * 100 + n)).collect();
            if finish && !requests.is_empty() {
                let request = requests.remove(prefix as usize % requests.len());
                pool.release(request.into_iter().rev());
            } else {
                let hits: Vec<_> = hashes.iter().map_while(|hash| pool.find(*hash)).collect();
                let freed = hits.iter().filter(|id| pool.is_free(**id)).count();
                if blocks - hits.len() + freed > pool.free_blocks() as usize {
                    continue;
                }
                hits.iter().for_each(|id| pool.touch(*id));
                let mut request = hits.clone();
                for hash in &hashes[hits.len()..] {
                    let id = pool.allocate();
                    pool.cache(id, *hash);
                    request.push(id);
                }
                for (id, hash) in request.iter().zip(&hashes) {
                    prop_assert!(pool.holds(*id, *hash));
                    prop_assert!(pool.find(*hash).is_some());
                }
                requests.push(request);
            }
            let mut used: Vec<_> = requests.iter().flatten().copied().collect();
            used.sort_unstable();
            used.dedup();
            prop_assert!(!used.contains(&NULL));
            prop_assert_eq!(used.len() as u32 + pool.free_blocks(), pool.usable_blocks());
            for id in 1..24 {
                let references = requests.iter().flatten().filter(|used| **used == id).count();
                prop_assert_eq!(pool.blocks[id as usize].references as usize, references);
            }
        }
    }
}
