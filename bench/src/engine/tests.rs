use proptest::prelude::*;

use super::*;

/// A small engine: 4 tokens a block, 16 usable blocks, 32 tokens a step.
fn profile() -> Profile {
    let mut profile = Profile::load("a4000-qwen3-4b").unwrap();
    profile.engine = EngineConfig {
        block_size: 4,
        kv_cache_tokens: 17 * 4,
        max_num_batched_tokens: 32,
        max_num_seqs: 4,
        max_model_len: 64,
    };
    profile
}

fn request(id: RequestId, prompt: impl IntoIterator<Item = u32>, output: u32) -> Request {
    let mut tokens = Prompt::new(4);
    tokens.extend(prompt);
    Request { id, prompt: tokens, output: (0..output).map(|n| 1000 + id as u32 * 100 + n).collect(), max_tokens: 1000 }
}

/// Runs the engine until it is idle and returns all events with the time each happened.
fn run(engine: &mut Engine, mut now_s: f64) -> Vec<(f64, Event)> {
    let mut events = Vec::new();
    while let Some(step) = engine.next_step(now_s) {
        assert!(step.end_s > now_s && step.tokens > 0);
        now_s = step.end_s;
        events.extend(step.events.into_iter().map(|event| (now_s, event)));
    }
    events
}

fn usages(events: &[(f64, Event)]) -> Vec<(RequestId, Usage)> {
    let finished = events.iter().filter_map(|(_, event)| match event {
        Event::Finished { id, usage, .. } => Some((*id, *usage)),
        Event::Token { .. } => None,
    });
    finished.collect()
}

fn cached_after(engine: &mut Engine, request: Request) -> u32 {
    engine.submit(0.0, request).unwrap();
    usages(&run(engine, 0.0))[0].1.cached_tokens
}

#[test]
fn a_request_gets_its_tokens_in_order_and_then_ends() {
    let mut engine = Engine::new(profile());
    engine.submit(5.0, request(1, 0..10, 3)).unwrap();
    let events = run(&mut engine, 5.0);
    let tokens = events.iter().filter_map(|(_, e)| match e {
        Event::Token { index, token, .. } => Some((*index, *token)),
        Event::Finished { .. } => None,
    });
    assert_eq!(tokens.collect::<Vec<_>>(), [(0, 1100), (1, 1101), (2, 1102)]);
    let (end_s, Event::Finished { reason, usage, timeline, .. }) = events.last().unwrap() else { panic!("no end") };
    assert_eq!(*reason, FinishReason::Stop);
    assert_eq!((usage.prompt_tokens, usage.output_tokens), (10, 3));
    assert_eq!((timeline.submitted_s, timeline.scheduled_s, timeline.finished_s), (5.0, 5.0, *end_s));
    assert!(engine.is_idle() && engine.snapshot().kv_usage == 0.0);
}

#[test]
fn max_tokens_and_the_context_end_a_request_for_length() {
    let mut engine = Engine::new(profile());
    engine.submit(0.0, Request { max_tokens: 2, ..request(1, 0..8, 5) }).unwrap();
    engine.submit(0.0, request(2, 0..60, 20)).unwrap();
    let events = run(&mut engine, 0.0);
    let ends = events.iter().filter_map(|(_, event)| match event {
        Event::Finished { id, reason, usage, .. } => Some((*id, *reason, usage.output_tokens)),
        Event::Token { .. } => None,
    });
    assert_eq!(ends.collect::<Vec<_>>(), [(1, FinishReason::Length, 2), (2, FinishReason::Length, 4)]);
}

#[test]
fn the_next_turn_finds_its_prompt_and_the_answer_in_the_cache() {
    let mut engine = Engine::new(profile());
    assert_eq!(cached_after(&mut engine, request(1, 0..10, 7)), 0);
    // Computed were the prompt and all of the answer but its last token: 16 tokens, 4 full blocks.
    let next = (0..10).chain(1100..1107).chain(50..60);
    assert_eq!(cached_after(&mut engine, request(2, next, 1)), 16);
}

#[test]
fn at_least_one_token_is_computed() {
    let mut engine = Engine::new(profile());
    cached_after(&mut engine, request(1, 0..8, 1));
    assert_eq!(cached_after(&mut engine, request(2, 0..8, 1)), 4);
    assert_eq!(cached_after(&mut engine, request(3, 0..9, 1)), 8);
}

#[test]
fn requests_of_one_step_share_their_prefix() {
    let mut engine = Engine::new(profile());
    engine.submit(0.0, request(1, 0..12, 1)).unwrap();
    engine.submit(0.0, request(2, (0..8).chain(90..94), 1)).unwrap();
    let usages = usages(&run(&mut engine, 0.0));
    assert_eq!(usages.iter().map(|(_, usage)| usage.cached_tokens).collect::<Vec<_>>(), [0, 8]);
    assert_eq!(usages.iter().map(|(_, usage)| usage.created_cache_tokens).collect::<Vec<_>>(), [12, 4]);
    let snapshot = engine.snapshot();
    assert_eq!((snapshot.prefix_cache.queries, snapshot.prefix_cache.hits), (24, 8));
    assert_eq!((snapshot.prompt_tokens, snapshot.prompt_tokens_cached), (24, 8));
}

#[test]
fn a_long_prompt_is_computed_in_chunks_and_running_requests_come_first() {
    let mut engine = Engine::new(profile());
    engine.submit(0.0, request(1, 0..4, 5)).unwrap();
    engine.next_step(0.0).unwrap();
    engine.submit(1.0, request(2, 100..140, 1)).unwrap();
    // One token goes to the running request, the rest of the budget to the first chunk.
    let step = engine.next_step(1.0).unwrap();
    assert_eq!((step.tokens, step.events.len()), (32, 1));
    let step = engine.next_step(step.end_s).unwrap();
    assert_eq!((step.tokens, step.events.len()), (1 + 9, 3));
}

#[test]
fn a_request_that_does_not_fit_blocks_the_queue_until_blocks_are_free() {
    let mut engine = Engine::new(profile());
    engine.submit(0.0, request(1, 0..40, 3)).unwrap();
    engine.submit(0.0, request(2, 100..140, 1)).unwrap();
    engine.submit(0.0, request(3, 200..204, 1)).unwrap();
    let step = engine.next_step(0.0).unwrap();
    let step = engine.next_step(step.end_s).unwrap();
    // The third would fit, but it waits its turn.
    assert_eq!((engine.snapshot().running, engine.snapshot().waiting), (1, 2));
    let order = usages(&run(&mut engine, step.end_s));
    assert_eq!(order.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2, 3]);
    let snapshot = engine.snapshot();
    assert_eq!(snapshot.prefix_cache.queries, 84);
    // The old count has the second request once for each step it was tried in.
    assert!(snapshot.prefix_cache_attempts.queries > 84 && snapshot.preemptions == 0);
}

#[test]
fn the_youngest_request_is_preempted_and_comes_back_first() {
    let mut engine = Engine::new(profile());
    engine.submit(0.0, request(1, 0..28, 20)).unwrap();
    engine.submit(0.0, request(2, 100..128, 20)).unwrap();
    engine.submit(0.0, request(3, 200..204, 1)).unwrap();
    let ended = usages(&run(&mut engine, 0.0));
    let of = |id| ended.iter().find(|(other, _)| *other == id).unwrap().1;
    assert_eq!((of(1).preemptions, of(1).output_tokens), (0, 20));
    assert!(of(2).preemptions > 0 && of(2).output_tokens == 20);
    let snapshot = engine.snapshot();
    assert_eq!(snapshot.preemptions, u64::from(of(2).preemptions + of(3).preemptions));
    // A request is counted once, however often it comes back.
    assert_eq!(snapshot.prefix_cache.queries, 28 + 28 + 4);
    assert_eq!(snapshot.kv_usage, 0.0);
}

#[test]
fn an_aborted_request_frees_its_blocks_and_keeps_them_cached() {
    let mut engine = Engine::new(profile());
    engine.submit(0.0, request(1, 0..20, 20)).unwrap();
    engine.submit(0.0, request(2, 100..160, 1)).unwrap();
    engine.next_step(0.0).unwrap();
    assert!(engine.snapshot().kv_usage > 0.0);
    assert!(engine.abort(1) && engine.abort(2) && !engine.abort(1));
    assert!(engine.is_idle() && engine.snapshot().kv_usage == 0.0);
    assert_eq!(cached_after(&mut engine, request(3, 0..21, 1)), 20);
}

#[test]
fn what_no_engine_could_serve_is_refused() {
    let mut engine = Engine::new(profile());
    let too_long = SubmitError::TooLong { prompt_tokens: 64, max_model_len: 64 };
    assert_eq!(engine.submit(0.0, request(1, 0..64, 1)), Err(too_long));
    assert_eq!(engine.submit(0.0, request(1, 0..4, 0)), Err(SubmitError::Empty));
    assert_eq!(engine.submit(0.0, request(1, [], 1)), Err(SubmitError::Empty));
    let wrong = Request { prompt: Prompt::new(16), ..request(1, 0..4, 1) };
    let wrong = Request {
        prompt: {
            let mut p = wrong.prompt;
            p.push(1);
            p
        },
        ..request(1, 0..4, 1)
    };
    assert_eq!(engine.submit(0.0, wrong), Err(SubmitError::BlockSize { prompt: 16, engine: 4 }));
    assert!(engine.is_idle());
}

#[test]
fn a_slowed_engine_takes_longer_over_the_same_step() {
    let seconds = |factor| {
        let mut engine = Engine::new(profile());
        engine.set_slowdown(factor);
        engine.submit(0.0, request(1, 0..8, 1)).unwrap();
        engine.next_step(0.0).unwrap().end_s
    };
    assert_eq!(seconds(4.0), 4.0 * seconds(1.0));
}

/// What a load can do to the engine.
#[derive(Clone, Debug)]
enum Action {
    Submit { prefix: u32, prompt: u32, output: u32 },
    Abort(u64),
    Step,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let submit = (0u32..4, 1u32..60, 1u32..24);
    let action = prop_oneof![
        2 => submit.prop_map(|(prefix, prompt, output)| Action::Submit { prefix, prompt, output }),
        1 => (0u64..40).prop_map(Action::Abort),
        4 => Just(Action::Step),
    ];
    prop::collection::vec(action, 1..150)
}

/// Does the actions, then runs to the end. Returns all steps and the last snapshot.
fn play(actions: &[Action]) -> (Vec<Step>, Snapshot) {
    let mut engine = Engine::new(profile());
    let (mut steps, mut now_s, mut next_id) = (Vec::new(), 0.0, 0);
    let mut step = |engine: &mut Engine| {
        let step = engine.next_step(now_s)?;
        now_s = step.end_s;
        let usage = engine.snapshot().kv_usage;
        assert!((0.0..=1.0).contains(&usage), "{usage}");
        steps.push(step);
        Some(())
    };
    for action in actions {
        match action {
            Action::Submit { prefix, prompt, output } => {
                let tokens = (0..*prompt).map(|n| prefix * 1000 + n);
                engine.submit(0.0, request(next_id, tokens, *output)).unwrap();
                next_id += 1;
            }
            Action::Abort(id) => _ = engine.abort(*id),
            Action::Step => _ = step(&mut engine),
        }
    }
    while step(&mut engine).is_some() {}
    (steps, engine.snapshot())
}

proptest! {
    #[test]
    fn whatever_happens_the_books_balance(actions in actions()) {
        let (steps, end) = play(&actions);
        prop_assert_eq!((end.running, end.waiting, end.kv_usage), (0, 0, 0.0));
        prop_assert!(end.prefix_cache.hits <= end.prefix_cache.queries);
        prop_assert!(end.prefix_cache_attempts.hits <= end.prefix_cache_attempts.queries);
        prop_assert!(end.prefix_cache.queries <= end.prefix_cache_attempts.queries);
        let tokens = steps.iter().flat_map(|s| &s.events).filter(|e| matches!(e, Event::Token { .. })).count();
        prop_assert_eq!(tokens as u64, end.generation_tokens);
        for step in &steps {
            prop_assert!(step.tokens <= 32);
        }
    }

    #[test]
    fn the_same_load_gives_the_same_steps(actions in actions()) {
        prop_assert_eq!(play(&actions), play(&actions));
    }
}
