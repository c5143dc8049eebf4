//! What became of a conversation's cache, and what to tell the operator.

use homing::routing::{Admission, Advice, Ask, CacheOutcome, Reading, Retry, Router, Tokens};

use crate::world::{OWN, SIZE, World, admission, ask, engines, settings, tokens};

/// Two replicas, conversation 1 at home on the first, which has room for little more.
fn at_home() -> World {
    let mut world = World::new(2, Admission { kv_cache_tokens: Some(OWN + 200), ..admission() });
    assert_eq!(world.serves(1, 0), Some(CacheOutcome::FirstTurn));
    world
}

/// A turn of conversation 1 that found `cached` tokens.
fn next(world: &mut World, cached: Option<u64>) -> Option<CacheOutcome> {
    let turn = world.goes(1);
    world.router.finish(&turn, Some(Tokens { cached, ..tokens(0) }), world.now)
}

#[test]
fn at_home_it_is_kept_evicted_changed_or_not_measured() {
    let cases = [
        (SIZE, Some(SIZE), CacheOutcome::Kept),
        // A template may render the last answer anew, and the last block is not full.
        (SIZE, Some(SIZE - SIZE / 10 - 64), CacheOutcome::Kept),
        (SIZE, Some(SIZE - SIZE / 10 - 65), CacheOutcome::Evicted),
        (SIZE, Some(0), CacheOutcome::Evicted),
        (SIZE - 1, Some(1_000), CacheOutcome::PromptChanged),
        (SIZE, None, CacheOutcome::Unmeasured),
    ];
    for (prompt, cached, outcome) in cases {
        let mut world = at_home();
        let turn = world.goes(1);
        let tokens = Tokens { prompt, cached, completion: 0 };
        assert_eq!(world.router.finish(&turn, Some(tokens), world.now), Some(outcome), "{tokens:?}");
        assert_eq!(world.snapshot().caches.of(outcome), 1);
    }
}

#[test]
fn a_cache_that_is_mostly_empty_evicts_nothing() {
    let mut world = World::new(1, Admission { kv_cache_tokens: Some(3 * OWN), ..admission() });
    world.serves(1, 0);
    assert_eq!(next(&mut world, Some(1_000)), Some(CacheOutcome::PromptChanged));
}

#[test]
fn one_that_others_pushed_out_was_evicted() {
    let mut world = at_home();
    world.router.set_up(1, false);
    world.passes(10.001);
    world.serves(2, 0);
    world.passes(10.001);
    world.router.set_up(1, true);
    assert_eq!(next(&mut world, Some(0)), Some(CacheOutcome::Evicted), "whichever replica it got then");
}

#[test]
fn elsewhere_the_reason_is_what_took_it_there() {
    let mut world = World { router: Router::new(settings(admission()), &engines(2)), now: Default::default() };
    world.serves(1, 0);
    world.router.set_up(0, false);
    assert_eq!(next(&mut world, Some(0)), Some(CacheOutcome::Moved), "its home was out");

    let mut world = at_home();
    let turn = world.goes(1);
    let turn = world
        .router
        .retry(&ask(1), &turn, &[world.router.attempt(0)], Retry::Refused, world.now)
        .expect("another is left");
    assert_eq!(world.router.finish(&turn, Some(tokens(0)), world.now), Some(CacheOutcome::Moved), "its home failed");

    let mut world = at_home();
    let with = |prompt_tokens| Reading { prompt_tokens: Some(prompt_tokens), ..Reading::default() };
    world.router.read(0, &[with(9)], world.now);
    world.router.read(0, &[with(1)], world.now);
    assert_eq!(next(&mut world, Some(0)), Some(CacheOutcome::ReplicaRestarted));
    assert_eq!(next(&mut world, Some(SIZE)), Some(CacheOutcome::Kept), "said once");

    let mut world = at_home();
    world.router.configure(settings(admission()), &engines(2)[1..], world.now);
    assert_eq!(next(&mut world, Some(0)), Some(CacheOutcome::Moved), "its home is gone");
}

/// The second time, there is an old copy of it where it is sent.
#[test]
fn a_turn_that_home_is_too_busy_for_spills() {
    let settings = homing::routing::Settings { spill_threshold: 1, ..settings(admission()) };
    let mut world = World { router: Router::new(settings, &engines(2)), now: Default::default() };
    world.serves(1, 0);
    for _ in 0..2 {
        let (home, spilled) = (world.goes(1), world.goes(1));
        assert_eq!(world.router.finish(&spilled, Some(tokens(0)), world.now), Some(CacheOutcome::Spilled));
        assert_eq!(world.ends(&home), Some(CacheOutcome::Kept));
    }
}

#[test]
fn only_turns_of_a_conversation_that_were_answered_have_an_outcome() {
    let mut world = at_home();
    let turn = world.goes(1);
    assert_eq!(world.router.finish(&turn, None, world.now), None);
    let keyless = world.asks(&Ask { key: None, ..ask(0) });
    assert_eq!(world.ends(&keyless), None);
    let caches = world.snapshot().caches;
    assert_eq!(CacheOutcome::ALL.map(|outcome| caches.of(outcome)).iter().sum::<u64>(), 1);
}

#[test]
fn what_was_foreseen_is_compared_with_what_was_found() {
    let mut world = at_home();
    next(&mut world, Some(SIZE));
    next(&mut world, Some(1_000));
    let caches = world.snapshot().caches;
    assert_eq!((caches.expected_tokens, caches.found_tokens, caches.error_tokens), (6_000, 4_000, 2_000));
}

#[test]
fn fifty_turns_that_all_point_to_something_give_an_advice() {
    let cases = [
        (None, Some(Advice::NoCachedTokens)),
        (Some(0), Some(Advice::NoPrefixCache)),
        (Some(1_000), Some(Advice::PromptHeadChanges)),
        (Some(SIZE), None),
    ];
    for (cached, advice) in cases {
        let mut world = at_home();
        (0..49).for_each(|_| {
            next(&mut world, cached);
        });
        assert_eq!(world.snapshot().advice, None, "{cached:?}: too few");
        next(&mut world, cached);
        assert_eq!(world.snapshot().advice, advice, "{cached:?}");
        assert!(advice.is_none_or(|advice| !advice.sentence().is_empty()));
    }
}
