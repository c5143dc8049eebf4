//! What sessions do, in tokens.

use homing_bench::load::{Load, Session, Sessions};

fn named(name: &str) -> Load {
    Load::read(name).unwrap()
}

#[test]
fn every_built_in_load_is_valid() {
    for name in Load::names() {
        assert!(Load::read(name).is_ok(), "{name}: {:?}", Load::read(name));
    }
}

#[test]
fn a_wrong_load_is_refused_with_its_field() {
    let yaml = include_str!("../loads/published.yaml");
    let cases = [
        ("turns: {constant: 6}", "turns: {constant: -1}", "turns"),
        ("min: 350, max: 450", "min: 450, max: 350", "later_message_tokens"),
        ("context_max: 32768", "context_max: 11000", "context_max"),
        ("arrivals: closed_loop", "arrivals: {poisson: {session_s: 0}}", "session_s"),
        ("replicas: 4", "replicas: 0", "replicas"),
        ("max_tokens: 256", "max_token: 256", "max_token"),
    ];
    for (right, wrong, named) in cases {
        let error = Load::parse(&yaml.replace(right, wrong)).unwrap_err();
        assert!(error.contains(named), "{wrong}: {error}");
    }
    assert!(Load::read("no-such-load").unwrap_err().contains("published"));
}

/// Each range as published: the system prompt, the first message, five more turns, answers as long as allowed.
#[test]
fn the_published_load_has_the_published_figures() {
    let load = named("published");
    let sessions: Vec<Session> = (0..200).map(|number| Session::plan(&load, 1, number)).collect();
    let (mut first, mut later) = (Vec::new(), Vec::new());
    for session in &sessions {
        let [conversation] = session.conversations.as_slice() else { panic!("one conversation a session") };
        assert_eq!(conversation.turns.len(), 6);
        let (opening, rest) = conversation.turns.split_first().unwrap();
        assert_eq!(opening.system_tokens, 3500);
        first.push(opening.message_tokens);
        assert!(rest.iter().all(|turn| turn.system_tokens == 0));
        later.extend(rest.iter().map(|turn| turn.message_tokens));
        assert!(conversation.turns.iter().all(|turn| turn.output_tokens == 256 && turn.think_s == 0.0));
    }
    assert!(first.iter().all(|tokens| (7200..=7500).contains(tokens)));
    let mean = |tokens: &[u32]| f64::from(tokens.iter().sum::<u32>()) / tokens.len() as f64;
    assert!((mean(&first) + 3500.0 - 10_850.0).abs() < 20.0, "{}", mean(&first));
    assert!((mean(&later) - 400.0).abs() < 5.0, "{}", mean(&later));
}

/// Each turn reads again all that went before it: what of all prompts could be cached at best.
#[test]
fn the_best_possible_hit_ratio_of_the_published_load_is_87_5_percent() {
    let load = named("published");
    let (mut prompts, mut new) = (0, 0);
    for number in 0..200 {
        let mut context = 0;
        for turn in &Session::plan(&load, 1, number).conversations[0].turns {
            prompts += context + turn.system_tokens + turn.message_tokens;
            new += turn.message_tokens;
            context += turn.system_tokens + turn.message_tokens + turn.output_tokens;
        }
    }
    let best = 1.0 - f64::from(new) / f64::from(prompts);
    assert!((best - 0.875).abs() < 0.005, "{best}");
}

#[test]
fn the_farm_has_contexts_of_58k() {
    let load = named("farm");
    assert_eq!((load.replicas, load.tiers.as_slice()), (7, [16, 26].as_slice()));
    let (mut turns, mut prompts) = (0, 0);
    for number in 0..100 {
        let mut context = 0;
        for turn in &Session::plan(&load, 1, number).conversations[0].turns {
            prompts += context + turn.system_tokens + turn.message_tokens;
            turns += 1;
            context += turn.system_tokens + turn.message_tokens + turn.output_tokens;
        }
    }
    let mean = f64::from(prompts) / f64::from(turns);
    assert!((57_000.0..59_000.0).contains(&mean), "{mean}");
}

#[test]
fn a_session_is_the_same_whenever_it_is_asked_for() {
    for name in Load::names() {
        let load = named(name);
        for number in 0..50 {
            assert_eq!(Session::plan(&load, 7, number), Session::plan(&load, 7, number));
        }
        assert_ne!(Session::plan(&load, 7, 0), Session::plan(&load, 8, 0));
        assert_ne!(Session::plan(&load, 7, 0), Session::plan(&load, 7, 1));
    }
}

#[test]
fn in_a_closed_loop_a_session_begins_as_one_ends() {
    let mut sessions = Sessions::new(named("published"), 3, 1);
    let mut in_flight = Vec::new();
    let (mut ended, mut now_s) = (0, 0.0);
    while ended < 20 {
        while let Some(call) = sessions.take(now_s) {
            in_flight.push(call.id);
        }
        // No pauses: as many turns in flight as there are sessions, always.
        assert_eq!(in_flight.len(), 3);
        now_s += 1.0;
        ended += usize::from(sessions.ended(now_s, in_flight.remove(0)));
    }
}

#[test]
fn in_an_open_loop_sessions_come_however_slow_the_answers_are() {
    let mut load = named("open");
    load.arrivals = homing_bench::load::Arrivals::Poisson { session_s: 100.0 };
    let mut sessions = Sessions::new(load, 10, 1);
    let mut begun = 0;
    while sessions.next_s().is_some_and(|next_s| next_s < 10_000.0) {
        // No turn ever ends.
        begun += u32::from(sessions.take(sessions.next_s().unwrap()).is_some());
    }
    assert!((900..1100).contains(&begun), "{begun} sessions at one in ten seconds");
}

#[test]
fn open_sessions_have_heavy_tails_pauses_and_bounded_contexts() {
    let load = named("open");
    let sessions: Vec<Session> = (0..2000).map(|number| Session::plan(&load, 3, number)).collect();
    let mut turns: Vec<usize> = sessions.iter().map(|session| session.conversations[0].turns.len()).collect();
    turns.sort_unstable();
    assert!((8..=12).contains(&turns[1000]), "median {}", turns[1000]);
    assert!(turns[1980] > 50, "99th percentile {}", turns[1980]);
    let all = || sessions.iter().flat_map(|session| &session.conversations);
    let contexts = all().map(|conversation| {
        conversation.turns.iter().map(|turn| turn.system_tokens + turn.message_tokens + turn.output_tokens).sum()
    });
    let longest: u32 = contexts.max().unwrap();
    assert!((95_000..=100_000).contains(&longest), "{longest}");
    let mut pauses: Vec<f64> = all().flat_map(|it| it.turns.iter().skip(1)).map(|turn| turn.think_s).collect();
    pauses.sort_by(f64::total_cmp);
    assert!((2.7..3.3).contains(&pauses[pauses.len() / 2]), "{}", pauses[pauses.len() / 2]);
}

/// An agent's first turn comes when the turn that started it has ended, and the main conversation waits for all agents.
#[test]
fn the_main_conversation_waits_for_its_agents() {
    let mut load = named("open");
    load.arrivals = homing_bench::load::Arrivals::ClosedLoop;
    load.think_s = homing_bench::load::Distribution::Constant(0.0);
    load.agents.as_mut().unwrap().chance = 1.0;
    let mut sessions = Sessions::new(load, 1, 1);
    let opening = sessions.take(0.0).unwrap().id;
    assert!(!sessions.ended(1.0, opening));
    let mut agents: Vec<_> = std::iter::from_fn(|| sessions.take(1.0)).map(|call| call.id).collect();
    assert!(!agents.is_empty() && agents.iter().all(|agent| agent.conversation > 0));
    let mut now_s = 1.0;
    let next = loop {
        now_s += 1.0;
        let agent = agents.remove(0);
        sessions.ended(now_s, agent);
        let mut due: Vec<_> = std::iter::from_fn(|| sessions.take(now_s)).map(|call| call.id).collect();
        if due.iter().any(|id| id.conversation == 0) {
            break due.remove(0);
        }
        agents.append(&mut due);
    };
    assert!(agents.is_empty(), "the main conversation went on before {agents:?}");
    assert_eq!((next.conversation, next.turn), (0, 1));
}
