//! How a request says which conversation it belongs to.
//!
//! Each case sends two requests with different words, so that only what the case names can bring them together.

use serde_json::{Value, json};

use crate::harness::*;

/// What a case adds to a request: headers, and fields of the body.
struct Says(&'static [(&'static str, &'static str)], Value);

impl Says {
    fn ask(&self, words: &str) -> Ask {
        let ask = Ask::messages("m", words).with(self.1.clone());
        self.0.iter().fold(ask, |ask, (name, value)| ask.header(name, value))
    }
}

async fn balancer(session: Value) -> (Balancer, [Engine; 4]) {
    let engines = engines::<4>().await;
    let mut config = one_model(&engines, json!({}));
    config["session"] = session;
    (Balancer::start(config).await, engines)
}

/// Whether two requests that say this are of one conversation.
async fn together(balancer: &Balancer, case: usize, one: &Says, other: &Says) -> bool {
    let first = balancer.ask(&one.ask(&format!("The first words of case {case}."))).await;
    first.is("placed");
    let second = balancer.ask(&other.ask(&format!("Other words in case {case}."))).await;
    assert_eq!(second.status, 200);
    second.decision() == "sticky" && second.replica() == first.replica()
}

fn long(length: usize) -> String {
    "x".repeat(length)
}

#[tokio::test]
async fn a_conversation_is_known_by_any_of_its_ids() {
    let claude = json!({"metadata": {"user_id":
        "{\"device_id\":\"0011\",\"account_uuid\":\"\",\"session_id\":\"5f6e0c1a-claude-json\"}"}});
    let old_claude = json!({"metadata": {"user_id":
        "user_00ff_account__session_7d2f3a50-1111-4222-8333-444455556666"}});
    let cases = [
        Says(&[("x-claude-code-session-id", "claude-session-1")], json!({})),
        Says(&[("user-agent", "codex_cli_rs/0.1"), ("session-id", "codex-session-1")], json!({})),
        Says(&[("originator", "codex_vscode"), ("session_id", "codex-session-2")], json!({})),
        Says(&[("x-codex-turn", "1"), ("conversation_id", "codex-session-3")], json!({})),
        Says(&[("x-session-id", "session-header-1")], json!({})),
        Says(&[("x-session-affinity", "session-header-2")], json!({})),
        Says(&[("x-opencode-session", "session-header-3")], json!({})),
        Says(&[("session_id", "session-header-4")], json!({})),
        Says(&[("session-id", "session-header-5")], json!({})),
        Says(&[("x-litellm-session-id", "gateway-header-1")], json!({})),
        Says(&[("x-kilocode-taskid", "gateway-header-2")], json!({})),
        Says(&[("x-task-id", "gateway-header-3")], json!({})),
        Says(&[("x-openwebui-chat-id", "gateway-header-4")], json!({})),
        Says(&[("x-conversation-id", "gateway-header-5")], json!({})),
        Says(&[], claude),
        Says(&[], old_claude),
        Says(&[], json!({"prompt_cache_key": "body-id-1"})),
        Says(&[], json!({"session_id": "body-id-2"})),
        Says(&[], json!({"conversation": "body-id-3"})),
        Says(&[], json!({"conversation": {"id": "body-id-4"}})),
        Says(&[], json!({"litellm_session_id": "body-id-5"})),
        Says(&[], json!({"metadata": {"session_id": "body-id-6"}})),
        // Not a UUID, and every sign that an id may hold.
        Says(&[("x-session-id", "aZ09_.:-")], json!({})),
    ];
    let (balancer, _engines) = balancer(json!({})).await;
    for (n, case) in cases.iter().enumerate() {
        assert!(together(&balancer, n, case, case).await, "case {n}: {:?} {}", case.0, case.1);
    }
}

#[tokio::test]
async fn ids_of_128_characters_are_the_longest() {
    let (balancer, _engines) = balancer(json!({})).await;
    for (n, (length, one)) in [(7, false), (8, true), (128, true), (129, false)].into_iter().enumerate() {
        let case = Says(&[], json!({"session_id": long(length)}));
        assert_eq!(together(&balancer, n, &case, &case).await, one, "an id of {length} characters");
        let headed = |words: &str| Ask::chat("m", words).session(&"y".repeat(length));
        balancer.ask(&headed(&format!("First, {length}."))).await.is("placed");
        balancer.ask(&headed(&format!("Then, {length}."))).await.is(if one { "sticky" } else { "placed" });
    }
}

#[tokio::test]
async fn what_is_no_id_brings_no_conversations_together() {
    let cases = [
        Says(&[("x-request-id", "request-id-0001")], json!({})),
        Says(&[("x-correlation-id", "request-id-0001")], json!({})),
        Says(&[("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")], json!({})),
        Says(&[("x-client-request-id", "request-id-0001")], json!({})),
        Says(&[("x-forwarded-for", "192.0.2.17")], json!({})),
        Says(&[("x-session-id", "has a space")], json!({})),
        Says(&[("x-session-id", "has/a/slash")], json!({})),
        Says(&[], json!({"user": "5f6e0c1a-2b3c-4d5e-8f90-a1b2c3d4e5f6"})),
        Says(&[], json!({"metadata": {"user_id": "someone-or-other"}})),
        Says(&[], json!({"tools": [{"session_id": "nested-id-0001"}], "extra": {"session_id": "nested-id-0001"}})),
    ];
    let (balancer, _engines) = balancer(json!({})).await;
    for (n, case) in cases.iter().enumerate() {
        assert!(!together(&balancer, n, case, case).await, "case {n}: {:?} {}", case.0, case.1);
    }
}

#[tokio::test]
async fn ids_are_compared_whole() {
    let (balancer, _engines) = balancer(json!({})).await;
    for id in ["session-1", "session-12", "session-123", "Session-1"] {
        balancer.ask(&Ask::chat("m", "Hello.").session(id)).await.is("placed");
    }
}

#[tokio::test]
async fn one_model_s_conversations_are_not_another_s() {
    let engines = engines::<2>().await;
    let models = [model("one", &engines, json!({})), model("two", &engines, json!({}))];
    let balancer = Balancer::start(json!({"models": models})).await;
    for model in ["one", "two"] {
        balancer.ask(&Ask::chat(model, "Hello.").session("session-1")).await.is("placed");
        balancer.ask(&Ask::chat(model, "Go on.").session("session-1")).await.is("sticky");
    }
}

#[tokio::test]
async fn an_agent_is_a_conversation_of_its_own_unless_told() {
    const ONE: &[(&str, &str)] = &[("x-claude-code-session-id", "claude-session-1")];
    const AGENT: &[(&str, &str)] =
        &[("x-claude-code-session-id", "claude-session-1"), ("x-claude-code-agent-id", "agent-0001")];
    const OTHER: &[(&str, &str)] =
        &[("x-claude-code-session-id", "claude-session-1"), ("x-claude-code-agent-id", "agent-0002")];
    for (agents, decisions) in [
        (json!({}), ["placed", "placed", "placed", "sticky", "sticky", "sticky"]),
        (json!({"agents": "separate"}), ["placed", "placed", "placed", "sticky", "sticky", "sticky"]),
        (json!({"agents": "together"}), ["placed", "sticky", "sticky", "sticky", "sticky", "sticky"]),
    ] {
        let (balancer, _engines) = balancer(agents.clone()).await;
        for (n, (headers, decision)) in [ONE, AGENT, OTHER, ONE, AGENT, OTHER].into_iter().zip(decisions).enumerate() {
            let answer = balancer.ask(&Says(headers, json!({})).ask(&format!("Words {n}."))).await;
            assert_eq!(answer.decision(), decision, "request {n}, {agents}");
        }
    }
}

#[tokio::test]
async fn a_codex_thread_is_an_agent() {
    let (balancer, _engines) = balancer(json!({})).await;
    let ask = |words: &str, thread: &str| {
        Ask::chat("m", words)
            .header("user-agent", "codex_cli_rs/0.1")
            .header("session-id", "codex-session-1")
            .header("thread-id", thread)
    };
    balancer.ask(&ask("One.", "thread-0001")).await.is("placed");
    balancer.ask(&ask("Two.", "thread-0002")).await.is("placed");
    balancer.ask(&ask("Three.", "thread-0001")).await.is("sticky");
}

#[tokio::test]
async fn an_operator_s_own_header_comes_first_and_as_it_is() {
    let (balancer, _engines) = balancer(json!({"headers": ["x-tenant-chat"]})).await;
    let ask =
        |words: &str, own: &str, session: &str| Ask::chat("m", words).header("X-Tenant-Chat", own).session(session);
    balancer.ask(&ask("One.", "chat 7", "session-1")).await.is("placed");
    balancer.ask(&ask("Two.", "chat 7", "session-2")).await.is("sticky");
    balancer.ask(&ask("Three.", "chat 8", "session-1")).await.is("placed");
}

#[tokio::test]
async fn only_listed_sources_count_and_in_their_order() {
    let (balancer, _engines) = balancer(json!({"sources": ["body_user", "session_headers"]})).await;
    let user = |words: &str, user: &str| Ask::chat("m", words).with(json!({"user": user}));
    balancer.ask(&user("One.", "conversation-0001")).await.is("placed");
    balancer.ask(&user("Two.", "conversation-0001").session("session-1")).await.is("sticky");
    balancer.ask(&Ask::chat("m", "Three.").session("session-1")).await.is("placed");
    balancer.ask(&Ask::chat("m", "Four.").session("session-1")).await.is("sticky");
    // Not listed: body ids, and the opening.
    let unlisted = Ask::chat("m", "Five.").with(json!({"session_id": "body-id-0001"}));
    for _ in 0..2 {
        balancer.ask(&unlisted).await.is("balanced");
    }
}

#[tokio::test]
async fn an_opening_is_the_first_user_s_words_and_the_caller() {
    let (balancer, _engines) = balancer(json!({})).await;
    let opening = "o".repeat(512);
    let ask = |system: &str, words: String| {
        Ask::chat("m", "").with(json!({"messages": [
            {"role": "system", "content": system}, {"role": "user", "content": words},
        ]}))
    };
    balancer.ask(&ask("Be terse.", opening.clone())).await.is("placed");
    balancer.ask(&ask("Be kind.", format!("{opening} and more"))).await.is("sticky");
    balancer.ask(&ask("Be terse.", format!("p{}", &opening[1..]))).await.is("placed");
    let caller = |key: &str| ask("Be terse.", opening.clone()).header("authorization", &format!("Bearer {key}"));
    balancer.ask(&caller("first-caller")).await.is("placed");
    balancer.ask(&caller("other-caller")).await.is("placed");
    balancer.ask(&caller("first-caller")).await.is("sticky");
    // Content in parts is the same text.
    let parts = ask("Be terse.", opening.clone())
        .with(json!({"messages": [{"role": "user", "content": [{"type": "text", "text": opening}]}]}));
    balancer.ask(&parts).await.is("sticky");
}

#[tokio::test]
async fn keys_count_wherever_they_stand_in_a_body() {
    let (balancer, engines) = balancer(json!({})).await;
    let filler = "f".repeat(300_000);
    let late = |id: &str| {
        let body = format!(
            "{{\"messages\":[{{\"role\":\"user\",\"content\":\"{filler} \\\"model\\\": \\\"x\\\"\"}}],\
             \"metadata\":{{\"session_id\":\"{id}\"}},\n \"\\u006dodel\" : \"m\"}}"
        );
        Ask::new("POST", "/v1/chat/completions").header("content-type", "application/json").body(body)
    };
    let first = balancer.ask(&late("late-id-0001")).await;
    first.is("placed");
    assert_eq!(balancer.ask(&late("late-id-0001")).await.is("sticky").replica(), first.replica());
    balancer.ask(&late("late-id-0002")).await.is("placed");
    assert_eq!(engines.iter().map(Engine::turns).sum::<usize>(), 3);
}

#[tokio::test]
async fn conversations_are_forgotten_when_idle_and_when_too_many() {
    let engines = engines::<2>().await;
    let idle = model("idle", &engines, json!({"idle_forget": "1 s"}));
    let few = model("few", &engines, json!({"conversations_max": 2}));
    let balancer = Balancer::start(json!({"models": [idle, few]})).await;
    let homed = async |model: &str| balancer.routing_of(model).await.column("conversations").iter().sum::<u64>();

    balancer.ask(&Ask::chat("idle", "Hello.").session("session-1")).await.is("placed");
    until("an idle conversation forgotten", async || (homed("idle").await == 0).then_some(())).await;
    balancer.ask(&Ask::chat("idle", "Hello.").session("session-1")).await.is("placed");

    for id in ["session-1", "session-2", "session-3"] {
        balancer.ask(&Ask::chat("few", "Hello.").session(id)).await.is("placed");
        assert!(homed("few").await <= 2);
    }
    balancer.ask(&Ask::chat("few", "Hello.").session("session-3")).await.is("sticky");
    balancer.ask(&Ask::chat("few", "Hello.").session("session-2")).await.is("sticky");
    balancer.ask(&Ask::chat("few", "Hello.").session("session-1")).await.is("placed");
}
