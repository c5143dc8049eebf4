//! What sessions do, in tokens.

use std::collections::VecDeque;

use homing_bench::engine::Profile;
use homing_bench::load::{Conversation, Load, Session, Sessions};
use rand::SeedableRng;
use rand_pcg::Pcg64;

/// How long a conversation is at its end.
fn tokens(conversation: &Conversation) -> u32 {
    conversation.turns.iter().map(|turn| turn.system_tokens + turn.message_tokens + turn.output_tokens).sum()
}

fn named(name: &str) -> Load {
    Load::read(name).unwrap()
}

#[test]
fn every_built_in_load_is_valid_and_fits_its_profile() {
    for name in Load::names() {
        let load = Load::read(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        let limit = Profile::load(&load.profile).unwrap().engine.max_model_len;
        assert!(load.context_max <= limit, "{name}: contexts of {} tokens, {limit} fit", load.context_max);
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
    assert_eq!((load.replicas, load.tiers.as_slice()), (7, [16, 26, 40].as_slice()));
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
    let longest = all().map(tokens).max().unwrap();
    assert!((95_000..=100_000).contains(&longest), "{longest}");
    let mut pauses: Vec<f64> = all().flat_map(|it| it.turns.iter().skip(1)).map(|turn| turn.think_s).collect();
    pauses.sort_by(f64::total_cmp);
    assert!((2.7..3.3).contains(&pauses[pauses.len() / 2]), "{}", pauses[pauses.len() / 2]);
}

/// The pauses of the loads with a person or a tool between turns are 5 s on average.
#[test]
fn pauses_are_five_seconds_on_average() {
    for name in ["think", "poisson"] {
        let load = named(name);
        let mut rng = Pcg64::seed_from_u64(1);
        let draws = 100_000;
        let mean = (0..draws).map(|_| load.think_s.draw(&mut rng)).sum::<f64>() / f64::from(draws);
        assert!((mean - 5.0).abs() < 0.1, "{name}: {mean}");
    }
}

#[test]
fn thinking_sessions_have_fifteen_turns_and_grow_to_20k() {
    for number in 0..50 {
        let session = Session::plan(&named("think"), 1, number);
        let [conversation] = session.conversations.as_slice() else { panic!("one conversation a session") };
        assert_eq!(conversation.turns.len(), 15);
        let context = tokens(conversation);
        assert!((19_500..=21_200).contains(&context), "{context}");
    }
}

#[test]
fn a_burst_starts_ten_agents_at_once() {
    let mut sessions = Sessions::new(named("burst"), 24, 1);
    let mut in_flight = VecDeque::new();
    let (mut ended, mut bursts, mut now_s) = (0, 0, 0.0);
    while ended < 200 {
        let due: Vec<_> = std::iter::from_fn(|| sessions.take(now_s)).map(|call| call.id).collect();
        let begun = due.iter().filter(|id| id.conversation > 0 && id.turn == 0).count();
        assert!(begun == 0 || begun == 10, "{begun} agents begin");
        bursts += usize::from(begun == 10);
        in_flight.extend(due);
        now_s += 1.0;
        ended += usize::from(sessions.ended(now_s, in_flight.pop_front().expect("a turn in flight")));
    }
    assert!((20..=70).contains(&bursts), "{bursts} bursts in {ended} sessions: about one in five");
}

/// A burst needs about half of the fleet's KV cache, so that it is a matter of placement whether it fits.
#[test]
fn the_agents_of_a_burst_fill_about_half_of_the_cache() {
    let load = named("burst");
    let fleet = Profile::load(&load.profile).unwrap().engine.kv_cache_tokens * u32::from(load.replicas);
    let sessions = (0..100).map(|number| Session::plan(&load, 1, number));
    let burst = sessions.map(|session| session.conversations).find(|it| it.len() > 1).expect("a burst in 100 sessions");
    let own: u32 = burst[1..].iter().take(10).map(|agent| tokens(agent) - agent.turns[0].system_tokens).sum();
    let share = f64::from(own) / f64::from(fleet);
    assert!((0.45..0.65).contains(&share), "{share}");
}

#[test]
fn poisson_sessions_are_mostly_short_and_some_fill_their_context() {
    let load = named("poisson");
    let sessions: Vec<Session> = (0..2000).map(|number| Session::plan(&load, 3, number)).collect();
    let mut turns: Vec<usize> = sessions.iter().map(|session| session.conversations[0].turns.len()).collect();
    turns.sort_unstable();
    assert!((6..=8).contains(&turns[1000]), "median {}", turns[1000]);
    assert!(turns[1900] > 25, "95th percentile {}", turns[1900]);
    let longest = sessions.iter().map(|session| tokens(&session.conversations[0])).max().unwrap();
    assert!((32_000..=32_768).contains(&longest), "{longest}");
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
