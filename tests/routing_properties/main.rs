//! What must hold of the pure core whatever happens to it.

mod event;
mod world;

use std::collections::HashMap;

use homing::routing::{AdmissionMode, Ask, EngineSpec, Key, Router, Settings, Time, Tokens, Turn, Verdict};
use proptest::prelude::*;

use event::{Rules, event};
use world::{World, engines};

fn off() -> Settings {
    Rules::with(AdmissionMode::Off).settings(false)
}

fn go(verdict: Option<Verdict>) -> Turn {
    match verdict {
        Some(Verdict::Go(turn)) => turn,
        other => panic!("there is always an engine, and nothing waits: {other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn counts_add_up_whatever_happens(
        events in prop::collection::vec(event(), 1..200),
        mode in prop::sample::select(vec![AdmissionMode::Auto, AdmissionMode::Observe, AdmissionMode::Off]),
        forgets in any::<bool>(),
    ) {
        let mut world = World::new(mode, forgets);
        for event in &events {
            world.happen(event);
            world.check();
        }
        world.come_to_rest();
    }

    #[test]
    fn observing_changes_no_decision(turns in prop::collection::vec((0..30u128, 0..40u64, any::<bool>()), 1..300)) {
        let observe = Rules::with(AdmissionMode::Observe).settings(false);
        let mut routers = [off(), observe].map(|settings| Router::new(settings, &engines(0, 3)));
        let mut now = Time(0);
        for (key, seconds, ends) in turns {
            now = Time(now.0 + seconds * 1000);
            let ask = Ask { bytes: 10_000, ..Ask::of(Some(Key::new(key << 64))) };
            let [off, observe] = routers.each_mut().map(|router| {
                let turn = go(router.route(&ask, now));
                let tokens = Tokens { prompt: 3_000, cached: Some(0), completion: 100 };
                let _ = ends.then(|| router.finish(&turn, Some(tokens), now));
                (turn.target, turn.decision)
            });
            prop_assert_eq!(off, observe);
        }
    }

    #[test]
    fn asking_what_would_be_changes_nothing(
        turns in prop::collection::vec((0..30u128, 0..40u64, any::<bool>(), any::<bool>()), 1..300)
    ) {
        let settings = Rules::with(AdmissionMode::Auto).settings(true);
        let mut routers = [(); 2].map(|()| Router::new(settings.clone(), &engines(0, 3)));
        let mut now = Time(0);
        for (key, seconds, ends, keeps) in turns {
            now = Time(now.0 + seconds * 1000);
            // Looking ends the places that are due to end, and whoever asks looks.
            routers.iter_mut().for_each(|router| drop(router.snapshot(now)));
            let ask = |key: u128| Ask { stored: Some(Key::new(key)), bytes: 10_000, ..Ask::of(Some(Key::new(key << 64))) };
            // Of any conversation, not only of the one that comes.
            (0..30).for_each(|key| drop(routers[0].foresee(&ask(key), now)));
            let [asked, unasked] = routers.each_mut().map(|router| {
                let verdict = router.route(&ask(key), now);
                if let Some(Verdict::Go(turn)) = &verdict {
                    let tokens = Tokens { prompt: 3_000, cached: Some(0), completion: 100 };
                    let _ = keeps.then(|| router.keeps(&turn.target, Key::new(key)));
                    let _ = ends.then(|| router.finish(turn, Some(tokens), now));
                }
                let woken = router.woken(now);
                format!("{verdict:?} {woken:?} {:?}", router.snapshot(now))
            });
            prop_assert_eq!(asked, unasked);
        }
    }

    #[test]
    fn new_conversations_spread_evenly_over_equal_replicas(count in 1..300u128, replicas in 1..20usize) {
        let specs: Vec<EngineSpec> =
            (0..replicas).map(|index| EngineSpec { name: format!("e{index}"), data_parallel_size: 1 }).collect();
        let mut router = Router::new(off(), &specs);
        for key in 0..count {
            router.route(&Ask::of(Some(Key::new(key))), Time(0));
        }
        let in_flight: Vec<u32> = router.snapshot(Time(0)).replicas.iter().map(|r| r.in_flight).collect();
        let (most, fewest) = (in_flight.iter().max(), in_flight.iter().min());
        prop_assert!(most.zip(fewest).is_some_and(|(most, fewest)| most - fewest <= 1), "{in_flight:?}");
    }

    #[test]
    fn a_conversation_below_the_threshold_never_moves(turns in prop::collection::vec(0..30u128, 1..300)) {
        let mut router = Router::new(Settings { spill_threshold: 1, conversations_max: 30, ..off() }, &engines(0, 3));
        let mut homes: HashMap<u128, String> = HashMap::new();
        for (second, key) in turns.into_iter().enumerate() {
            let ask = Ask::of(Some(Key::new(key)));
            let route = go(router.route(&ask, Time(second as u64 * 1000)));
            let replica = router.replica_name(&route.target);
            let first = homes.entry(key).or_insert_with(|| replica.clone());
            prop_assert_eq!(first, &replica);
            router.finish(&route, None, Time(0));
        }
    }
}
