//! The arms over real HTTP, where the client plays the balancer.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use homing_bench::engine::{Profile, Snapshot};
use homing_bench::experiment::{Answer, Arm, ArmKind, Asked, Finished, Plan, Span, ToldCapacity, Trace, TurnRecord};
use homing_bench::fleet::{Fault, Fleet, FleetConfig};
use homing_bench::live::{Dialect, Driver, LiveCells, Pace, Target, Via, Way};
use homing_bench::load::{Distribution, Load, Sessions};
use parking_lot::Mutex;

/// As fast as a debug build keeps up with on any machine; nothing here depends on it.
const SPEED: f64 = 10.0;
const REPLICAS: usize = 3;
const SESSIONS: u32 = 6;

/// Turns of less than a second, so that many end in a short test.
const SHORT_TURNS: &str = "
profile: a4000-qwen3-4b
replicas: 3
tiers: [6]
arrivals: closed_loop
system_tokens: 64
first_message_tokens: {constant: 480}
later_message_tokens: {constant: 64}
turns: {constant: 6}
output_tokens: {constant: 16}
max_tokens: 16
think_s: {constant: 0}
context_max: 4096
";

fn plan() -> Plan {
    let load = Load::parse(SHORT_TURNS).expect("a load");
    Plan {
        profile: Profile::load(&load.profile).expect("the profile is built in"),
        replicas: REPLICAS,
        speeds: Vec::new(),
        told_capacity: ToldCapacity::default(),
        load,
        arms: Vec::new(),
        tiers: vec![SESSIONS],
        seeds: 1,
        span: Span { warmup_s: 0.0, measured_s: 20.0 },
    }
}

/// The arms that the product itself plays.
const HOMINGS_OWN: [ArmKind; 2] = [ArmKind::Affinity, ArmKind::WorkingSet];

/// A cell that needs no balancer.
async fn run(arm: ArmKind) -> Trace {
    let cells = LiveCells { homing: PathBuf::from("no-such-balancer"), speed: SPEED };
    cells.trace(&plan(), arm, SESSIONS, 1).await.unwrap_or_else(|error| panic!("{arm:?}: {error}"))
}

/// The replicas of each session's turns, of those that ended.
fn replicas_of_sessions(trace: &Trace) -> HashMap<u64, HashSet<usize>> {
    let mut replicas: HashMap<u64, HashSet<usize>> = HashMap::new();
    for turn in trace.turns.iter().filter(|turn| turn.ended.is_some()) {
        replicas.entry(turn.id.session).or_default().insert(turn.replica);
    }
    replicas
}

#[tokio::test(flavor = "multi_thread")]
async fn every_arm_but_homings_own_runs_without_a_balancer() {
    for arm in ArmKind::value_variants().iter().filter(|arm| !HOMINGS_OWN.contains(arm)) {
        let trace = run(*arm).await;
        assert!(trace.turns.iter().any(|turn| turn.ended.is_some()), "{arm:?}");
    }
}

#[tokio::test]
async fn homings_own_arms_run_through_the_balancer() {
    let cells = LiveCells { homing: PathBuf::from("no-such-balancer"), speed: SPEED };
    for arm in HOMINGS_OWN {
        let outcome = cells.trace(&plan(), arm, SESSIONS, 1).await;
        assert!(outcome.is_err_and(|error| error.contains("no-such-balancer")), "{arm:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hash_sends_a_session_where_it_goes_in_virtual_time() {
    let live = replicas_of_sessions(&run(ArmKind::Hash).await);
    let virtual_time = replicas_of_sessions(&plan().trace(ArmKind::Hash, SESSIONS, 1));
    assert!(live.len() >= REPLICAS, "{live:?}");
    for (session, replicas) in &live {
        assert_eq!(replicas.len(), 1, "session {session}");
        assert!(virtual_time.get(session).is_none_or(|expected| expected == replicas), "session {session}");
    }
    assert!(live.values().flatten().collect::<HashSet<_>>().len() > 1, "{live:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lots_lead_sessions_astray() {
    let sessions = replicas_of_sessions(&run(ArmKind::Random).await);
    assert!(sessions.values().any(|replicas| replicas.len() > 1), "{sessions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_prefix_is_warm() {
    let trace = run(ArmKind::Prefix).await;
    let sessions = replicas_of_sessions(&trace);
    assert!(sessions.values().all(|replicas| replicas.len() == 1), "{sessions:?}");
    // At the start all are cold, and the first sessions go to different replicas.
    assert_eq!(sessions.values().flatten().collect::<HashSet<_>>().len(), REPLICAS);
    let later: Vec<_> = trace.turns.iter().filter(|turn| turn.id.turn > 0).filter_map(|turn| turn.ended).collect();
    assert!(later.len() > 3);
    // At most the new message and a block of the answer are not in the cache.
    assert!(later.iter().all(|(_, usage)| usage.prompt_tokens - usage.cached_tokens < 64 + 2 * 16), "{later:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_is_cut_off_has_gone_somewhere_and_may_have_begun() {
    let mut plan = plan();
    // Answers that outlast the run.
    (plan.load.output_tokens, plan.load.max_tokens) = (Distribution::Constant(4096.0), 4096);
    (plan.load.context_max, plan.span.measured_s) = (8192, 10.0);
    let cells = LiveCells { homing: PathBuf::from("no-such-balancer"), speed: SPEED };
    let trace = cells.trace(&plan, ArmKind::RoundRobin, SESSIONS, 1).await.expect("turns that are sent");
    assert!(trace.turns.iter().all(|turn| turn.ended.is_none()));
    assert!(trace.turns.iter().any(|turn| turn.first_byte_s.is_some()));
    assert_eq!(trace.turns.iter().map(|turn| turn.replica).collect::<HashSet<_>>().len(), REPLICAS);
}

/// Sends the turns of a session to one replica after the other, and notes what it is told.
struct Noting(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    routed: u64,
    finished: u64,
    readings: Vec<(f64, Vec<Snapshot>)>,
}

impl Arm for Noting {
    fn route(&mut self, asked: &Asked) -> Answer {
        // What was said so far: the system prompt, a message, and more at each turn.
        let said = 544 + asked.turn.turn as u32 * 80;
        assert!(asked.prompt.len().abs_diff(said) < 40, "{said}: {}", asked.prompt.len());
        self.0.lock().routed += 1;
        (asked.turn.turn % REPLICAS).into()
    }

    fn finish(&mut self, _: &Finished) {
        self.0.lock().finished += 1;
    }

    fn reading_every_s(&self) -> Option<f64> {
        Some(0.5)
    }

    fn read(&mut self, now_s: f64, replicas: &[Snapshot]) {
        self.0.lock().readings.push((now_s, replicas.to_vec()));
    }
}

/// Runs the noting arm, with the last replica in a state.
async fn note(fault: Fault) -> (Trace, Told) {
    let plan = plan();
    let config = FleetConfig { speed: SPEED, ..FleetConfig::new(plan.profile.clone(), REPLICAS as u16) };
    let fleet = Fleet::start(config).await.expect("a fleet");
    fleet.set_fault(REPLICAS - 1, fault);
    let engine = |address| Target {
        url: format!("http://{address}"),
        model: plan.profile.model.name.clone(),
        dialect: Dialect::Messages,
    };
    let engines = fleet.replicas().iter().map(engine).collect();
    let told = Arc::new(Mutex::new(Told::default()));
    let via = Via::arm(Box::new(Noting(told.clone())), engines, plan.profile.engine.block_size);
    let pace = Pace { speed: SPEED, way: Way::AS_SIMULATED };
    let driver = Driver::new(via, pace, Sessions::new(plan.load, SESSIONS, 1));
    let trace = driver.run(plan.span).await.expect("turns that are answered");
    let told = std::mem::take(&mut *told.lock());
    (trace, told)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_arm_is_told_what_the_engines_say_and_which_turns_are_over() {
    let (trace, told) = note(Fault::Ok).await;
    let ended = trace.turns.iter().filter(|turn| turn.ended.is_some()).count() as u64;
    assert!(ended > 0 && told.finished >= ended && told.routed - told.finished <= u64::from(SESSIONS));
    let said: Vec<_> = told.readings.iter().map(|(_, said)| said).collect();
    assert!(said.iter().all(|said| said.len() == REPLICAS));
    assert!(said.iter().any(|said| said.iter().any(|engine| engine.running > 0 && engine.kv_usage > 0.0)));
    let generated = |said: &[Snapshot]| said.iter().map(|engine| engine.generation_tokens).sum::<u64>();
    assert!(said.windows(2).all(|pair| generated(pair[0]) <= generated(pair[1])));
    assert!(said.last().is_some_and(|said| generated(said) > 0));
    assert!(told.readings.is_sorted_by(|(earlier_s, _), (later_s, _)| earlier_s < later_s));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_fails_is_over_too() {
    let (trace, told) = note(Fault::Starting).await;
    let (failing, well): (Vec<&TurnRecord>, Vec<&TurnRecord>) =
        trace.turns.iter().partition(|turn| turn.replica == REPLICAS - 1);
    assert!(well.iter().any(|turn| turn.ended.is_some()) && failing.iter().all(|turn| turn.ended.is_none()));
    assert!(failing.len() > SESSIONS as usize, "{} turns failed", failing.len());
    assert!(told.routed - told.finished <= u64::from(SESSIONS), "{} of {}", told.finished, told.routed);
}
