//! How much a replica can keep: told, or learned from what is missed.

use homing::routing::{Admission, CacheOutcome, CapacitySource, EngineSpec, Reading, Router};

use crate::world::{OWN, SIZE, World, admission, ask, engines, settings};

fn reading(capacity_tokens: Option<u64>) -> Reading {
    Reading { capacity_tokens, ..Reading::default() }
}

fn capacity(world: &mut World) -> (Option<u64>, CapacitySource) {
    let snapshot = world.snapshot();
    (snapshot.replicas[0].capacity_tokens, snapshot.replicas[0].capacity_source)
}

/// One replica of which nobody says what it can keep.
fn unknown() -> World {
    World::new(1, Admission { kv_cache_tokens: None, ..admission() })
}

/// Conversations 1 and 2 are there, and 1 finds only a part of what it left: the cache held less than both.
fn missed() -> World {
    let mut world = unknown();
    world.serves(1, 0);
    world.serves(2, 0);
    assert_eq!(world.serves(1, 1_000), Some(CacheOutcome::Evicted));
    world
}

#[test]
fn the_configuration_comes_before_the_engine_and_that_before_what_is_learned() {
    let cases = [
        (Some(7), Some(9), (Some(7), CapacitySource::Set)),
        (None, Some(9), (Some(9), CapacitySource::Engine)),
        (None, Some(0), (None, CapacitySource::Learned)),
        (None, None, (None, CapacitySource::Learned)),
    ];
    for (set, said, expected) in cases {
        let mut world = World::new(1, Admission { kv_cache_tokens: set, ..admission() });
        world.router.read(0, &[reading(said)], world.now);
        assert_eq!(capacity(&mut world), expected, "set {set:?}, said {said:?}");
    }
}

#[test]
fn each_rank_has_a_cache_of_its_own() {
    let ranked = [EngineSpec { name: "ranked:1".into(), data_parallel_size: 2 }];
    let admission = Admission { kv_cache_tokens: None, ..admission() };
    let mut world = World { router: Router::new(settings(admission), &ranked), now: Default::default() };
    world.router.read(0, &[reading(Some(2 * OWN + 300)), reading(Some(OWN + 200))], world.now);
    let ranks: Vec<Option<u32>> = (1..=3).map(|conversation| world.goes(conversation).target.rank).collect();
    assert_eq!(ranks, [Some(0), Some(1), Some(0)]);
    world.parks(4);
}

#[test]
fn of_an_unknown_capacity_nothing_is_expected_before_a_miss() {
    let mut world = unknown();
    (0..1_000).for_each(|conversation| {
        world.goes(conversation);
    });
    assert_eq!((capacity(&mut world), world.counts().parked), ((None, CapacitySource::Learned), 0));
}

#[test]
fn a_miss_that_nothing_else_explains_shrinks_what_is_learned() {
    let mut world = missed();
    let learned = |world: &mut World| capacity(world).0.expect("learned");
    let first = learned(&mut world);
    assert_eq!(first, (2.0 * OWN as f64 * 0.97) as u64, "just under what was believed to be there");
    world.passes(4.999);
    world.serves(1, 1_000);
    assert_eq!(learned(&mut world), first, "one eviction shows in many turns");
    world.passes(0.001);
    world.serves(1, 1_000);
    assert!(learned(&mut world) < first);
    for _ in 0..1_000 {
        world.passes(5.0);
        world.serves(1, 1_000);
    }
    assert_eq!(learned(&mut world), OWN, "a replica that has held a conversation can hold it");
}

#[test]
fn it_grows_with_turns_that_find_their_cache_while_others_wait() {
    let mut world = missed();
    world.serves(1, SIZE);
    let before = capacity(&mut world).0;
    world.serves(1, SIZE);
    assert_eq!(capacity(&mut world).0, before, "nobody waits");
    world.parks(3);
    world.serves(1, SIZE);
    assert!(capacity(&mut world).0 > before);
    for _ in 0..100 {
        world.passes(1.0);
        world.serves(1, SIZE);
    }
    assert_eq!(world.wakes().len(), 1, "until there is room");
}

#[test]
fn nothing_is_learned_where_the_capacity_is_known_or_there_is_no_cache() {
    let mut told = unknown();
    told.router.read(0, &[reading(Some(2 * OWN + 300))], told.now);
    told.serves(1, 0);
    told.serves(2, 0);
    assert_eq!(told.serves(1, 1_000), Some(CacheOutcome::Evicted));
    told.router.read(0, &[reading(None)], told.now);
    assert_eq!(capacity(&mut told), (None, CapacitySource::Learned));

    let mut without = unknown();
    for conversation in [1, 2, 1, 2, 1] {
        without.serves(conversation, 0);
        without.passes(5.0);
    }
    assert_eq!(capacity(&mut without).0, None, "an engine without prefix caching finds nothing at all");
}

#[test]
fn what_is_learned_is_of_the_model_and_stays_when_the_fleet_changes() {
    let mut world = missed();
    let before = capacity(&mut world);
    let others = [engines(1), vec![EngineSpec { name: "other:1".into(), data_parallel_size: 1 }]].concat();
    world.router.configure(settings(Admission { kv_cache_tokens: None, ..admission() }), &others, world.now);
    let learned: Vec<_> = world.snapshot().replicas.iter().map(|replica| replica.capacity_tokens).collect();
    assert_eq!(learned, [before.0; 2]);
    assert_eq!(world.asks(&ask(9)).target.engine, 1);
}
