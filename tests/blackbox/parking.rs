//! Parked requests whose wait ends otherwise than by room: their clients leave, the settings change, the process ends.

use nix::sys::signal::Signal;
use serde_json::json;
use tokio::net::TcpStream;

use crate::harness::full::{Full, adds_up, room_for_two, turn};
use crate::harness::*;

/// How a client can go.
#[derive(Clone, Copy, Debug)]
enum Goes {
    Closing,
    Resetting,
}

#[tokio::test]
async fn a_client_that_leaves_is_forgotten_at_once_and_never_reaches_an_engine() {
    let mut full = Full::start_with(json!({"server": {"access_log": "json"}}), json!({})).await;
    let mut left = 0;
    for goes in [Goes::Closing, Goes::Resetting] {
        // A byte of its next request, read or not, does not hide its departure.
        for next in ["", "P"] {
            let mut client = full.park(&turn("leaves"), 1).await;
            client.send_bytes(next.as_bytes()).await;
            if let Goes::Resetting = goes {
                client.wire.reset_on_drop();
            }
            drop(client);
            left += 1;
            let routing = full.balancer.routing_when(&format!("{goes:?} {next:?}"), |r| r.parked() == 0).await;
            assert_eq!((routing.admission("parked"), routing.admission("left")), (left, left));
        }
    }
    let line = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        (line["status"] == 499).then_some(line)
    };
    for line in full.balancer.output.count("the access log", left as usize, line).await {
        assert!(line["parked_s"].is_number() && line["model"] == "m", "{line}");
        assert!(line["replica"].is_null() && line["decision"].is_null(), "{line}");
    }
    full.balancer.metric_becomes("homing_parked_outcomes_total", &[("outcome", "left")], left as f64).await;
    assert_eq!(full.engine.turns(), 2);
    full.empties().await;
}

/// The next request on a connection waits behind a parked one, and is answered after it.
#[tokio::test]
async fn a_pipelined_request_is_answered_after_the_parked_one() {
    let mut full = Full::start(json!({})).await;
    let mut client = full.park(&turn("waits"), 1).await;
    client.send(&turn("waits")).await;
    full.end("waits");
    full.end("held-1");
    client.response("POST").await.is("placed");
    assert_eq!(client.response("POST").await.status, 200);
    full.empties().await;
}

#[tokio::test]
async fn turning_it_off_lets_all_go_who_wait() {
    for mode in ["off", "observe"] {
        let mut full = Full::start(json!({})).await;
        let mut clients = Vec::new();
        for (n, id) in ["waits-1", "waits-2"].iter().enumerate() {
            full.end(id);
            clients.push(full.park(&turn(id), n as u64 + 1).await);
        }
        full.reload(json!({"mode": mode})).await;
        for client in &mut clients {
            client.response("POST").await.is("placed");
        }
        full.empties().await;
    }
}

#[tokio::test]
async fn a_model_that_is_served_no_more_lets_all_go_who_wait() {
    let full = Full::start(json!({})).await;
    full.end("waits");
    let mut client = full.park(&turn("waits"), 1).await;
    let other = Engine::start().await;
    let without = json!({"models": [model("other", [&other], json!({}))]});
    assert_eq!(full.balancer.reload(&without).await.status, 200);
    client.response("POST").await.is("placed");
}

#[tokio::test]
async fn a_shutdown_lets_those_who_wait_have_their_answer() {
    let mut full = Full::start(json!({})).await;
    let mut client = full.park(&turn("waits"), 1).await;
    full.balancer.signal(Signal::SIGTERM);
    until("new connections refused", async || TcpStream::connect(full.balancer.listen).await.err()).await;
    for id in ["held-1", "held-2"] {
        full.end(id);
    }
    full.came(3, "waits").await;
    full.end("waits");
    client.response("POST").await.is("placed");
    assert!(full.balancer.exit().await.success());
}

#[tokio::test]
async fn the_grace_period_ends_a_wait_too() {
    let mut full = Full::start_with(json!({"server": {"grace": "500 ms"}}), json!({})).await;
    let mut client = full.park(&turn("waits"), 1).await;
    full.balancer.signal(Signal::SIGTERM);
    within("the end of the connection", client.wire.closed()).await;
    assert!(full.balancer.exit().await.success());
    assert_eq!(full.engine.turns(), 2);
}

/// Three hundred at once for whom there is room for few; a third of those that wait leave.
#[tokio::test]
async fn a_flood_leaves_nothing_behind() {
    const ALL: usize = 300;
    let engine = Engine::start().await;
    let mut settings = room_for_two(json!({}));
    settings["kv_cache_tokens"] = json!(20_000);
    let balancer = Balancer::start(one_model([&engine], settings)).await;
    let gate = Gate::shut();
    engine.holds(&gate);
    let mut clients = Vec::new();
    for n in 0..ALL {
        let mut client = balancer.client().await;
        client.send(&turn(&format!("session-{n}")).with(json!({"user": format!("caller-{}", n % 7)}))).await;
        clients.push(client);
    }
    let taken = |routing: &routing::Routing| routing.parked() + routing.total("in_flight") == ALL as u64;
    let routing = balancer.routing_when("all of them", taken).await;
    let (parked, placed) = (routing.parked(), routing.total("in_flight"));
    assert!(placed > 2 && parked > ALL as u64 / 2, "{placed} placed, {parked} parked");
    // The last ones wait. Some leave before there is room, and some while room is made.
    let mut stay = Vec::new();
    for (n, client) in clients.into_iter().enumerate() {
        if n > ALL / 2 && n % 3 != 0 {
            if n % 2 == 0 {
                client.wire.reset_on_drop();
            }
            drop(client);
        } else {
            stay.push(client);
        }
        if n == 3 * ALL / 4 {
            gate.open();
        }
    }
    for client in &mut stay {
        client.response("POST").await.is("placed");
    }
    adds_up(&balancer).await;
    let routing = balancer.routing().await;
    assert_eq!(routing.admission("parked"), parked);
    assert!(routing.admission("left") > 0 && routing.admission("overdue") == 0);
    assert_eq!(routing.column("held_tokens").len(), 1);
}
