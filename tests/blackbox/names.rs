//! The names of models: what clients call them, what engines hear, and what clients read.

use serde_json::json;

use crate::harness::answer::{chunk, stream_head};
use crate::harness::*;

#[tokio::test]
async fn a_name_comes_before_an_alias_and_an_alias_before_a_pattern() {
    let engines = engines::<2>().await;
    let models = [
        model("first", [&engines[0]], json!({"aliases": ["claude-*", "gpt-?", "o*", "same*"]})),
        model("claude-own", [&engines[1]], json!({"aliases": ["gpt-4", "gpt-*", "o1", "same-*"]})),
    ];
    let balancer = Balancer::start(json!({"models": models})).await;
    let cases = [
        ("first", 0),
        ("claude-own", 1),
        ("claude-sonnet", 0),
        ("claude-", 0),
        ("gpt-5", 0),
        ("gpt-4", 1),
        ("gpt-45", 1),
        ("o1", 1),
        ("o3-mini", 0),
        ("same-pattern", 0),
    ];
    for (name, engine) in cases {
        let ask = Ask::chat(name, "Hello.");
        let answer = balancer.ask(&ask).await;
        assert_eq!((answer.status, answer.replica()), (200, engines[engine].name().as_str()), "{name}");
        // Without rewrite nothing of it changes.
        assert_eq!(engines[engine].last().body, ask.body, "{name}");
        assert_eq!(answer.json()["model"], "m", "{name}");
        assert!(answer.header("content-length").is_some(), "{name}");
    }
    for name in ["claude", "Claude-x", "gpt", "", "firs", &format!("claude-{}", "x".repeat(250))] {
        let answer = balancer.ask(&Ask::chat(name, "Hello.")).await;
        assert_eq!((answer.status, answer.header("x-homing-error")), (404, Some("model_not_found")), "{name}");
    }
}

async fn rewriting(engine: &Engine) -> Balancer {
    Balancer::start(one_model([engine], json!({"aliases": ["claude-*", "tiny"], "rewrite": "on"}))).await
}

#[tokio::test]
async fn the_engine_hears_its_own_name_and_every_other_byte_as_it_was() {
    let engine = Engine::start().await;
    let balancer = rewriting(&engine).await;
    let mut client = balancer.client().await;
    let padding = "x".repeat(3_000_000);
    let bodies = [
        (
            " { \"model\" :\t\"claude-é\",\"messages\":[],\n\"x\":{\"model\":\"claude-é\"}} ",
            " { \"model\" :\t\"m\",\"messages\":[],\n\"x\":{\"model\":\"claude-é\"}} ",
        ),
        (
            r#"{"tools":[{"model":"tiny"}],"big":"PADDING","model":"tiny"}"#,
            r#"{"tools":[{"model":"tiny"}],"big":"PADDING","model":"m"}"#,
        ),
        (r#"{"model": "m", "messages": []}"#, r#"{"model": "m", "messages": []}"#),
        (r#"{"messages": []}"#, r#"{"messages": []}"#),
    ];
    for (sent, expected) in bodies {
        let (sent, expected) = (sent.replace("PADDING", &padding), expected.replace("PADDING", &padding));
        for path in ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/embeddings", "/tokenize"] {
            let ask = Ask::new("POST", path).body(sent.clone());
            for ask in [ask.clone(), ask.chunked(70_000)] {
                assert_eq!(client.ask(&ask).await.status, 200, "{path}");
                let heard = engine.last();
                assert!(heard.body == expected.as_bytes(), "{path}: {}", String::from_utf8_lossy(&heard.body[..100]));
                assert_eq!(heard.header("content-length"), Some(expected.len().to_string().as_str()), "{path}");
            }
        }
    }
}

#[tokio::test]
async fn in_a_form_it_is_the_model_field_that_changes() {
    let engine = Engine::start().await;
    let balancer = rewriting(&engine).await;
    let form = |model: &str| {
        let mut form =
            b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"model\"\r\n\r\n\x00\xfftiny\r\n"
                .to_vec();
        form.extend(
            format!("--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n--b--\r\n").bytes(),
        );
        form
    };
    engine.answers(|_| Answer::json("200 OK", &json!({"text": "tiny", "model": "m"})));
    for path in ["/v1/audio/transcriptions", "/v1/audio/translations"] {
        let ask = Ask::new("POST", path).header("content-type", "multipart/form-data; boundary=b").body(form("tiny"));
        let answer = balancer.ask(&ask).await;
        assert_eq!((answer.status, answer.json()), (200, json!({"text": "tiny", "model": "tiny"})));
        assert_eq!(engine.last().body, form("m"));
    }
}

#[tokio::test]
async fn the_client_reads_the_name_it_used_wherever_the_answer_is_cut() {
    let engine = Engine::start().await;
    let balancer = rewriting(&engine).await;
    let bodies = [
        r#"{"id":"x","object":"chat.completion","model":"m","choices":[{"message":{"content":"\"model\":\"m\"","model":"m"}}]}"#,
        r#"{"type":"message","content":[{"type":"text","text":"m"}],"model": "m","usage":{"input_tokens":1}}"#,
        r#"{"object":"response","id":"resp_1","model":"m","tools":[{"model":"m"}]}"#,
    ];
    let streams = [
        "data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"é\"}}]}\n\n: keep-alive\n\ndata: {\"choices\":[],\"model\":\"m\"}\n\ndata: [DONE]\n\n",
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[],\"model\":\"m\",\"usage\":{\"model\":\"m\"}}}\r\n\r\nevent: ping\ndata: {\"type\":\"ping\"}\n\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"n\"}}\n\n",
        "event: response.created\ndata: {\"response\":{\"id\":\"resp_1\",\"model\":\"m\",\"tools\":[{\"model\":\"m\"}]},\"type\":\"response.created\"}\n\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"n\"}\n\n",
    ];
    let renamed = |text: &str| {
        // At the top and in a message or response, which is what comes first in each event of these.
        text.split_inclusive("\n\n").map(|event| event.replacen("\"m\"", "\"claude-x\"", 1)).collect::<String>()
    };
    let whole = |text: &str| match text.starts_with(r#"{"type""#) {
        true => text.replace(r#""model": "m""#, r#""model": "claude-x""#),
        false => text.replacen(r#""model":"m""#, r#""model":"claude-x""#, 1),
    };
    let mut client = balancer.client().await;
    for (path, (body, stream)) in
        ["/v1/chat/completions", "/v1/messages", "/v1/responses"].into_iter().zip(bodies.into_iter().zip(streams))
    {
        let ask = Ask::turn(path, "claude-x", "Hello.");
        for size in [1, 5, 1000] {
            let cut = |start: Vec<u8>, text: &str| {
                text.as_bytes().chunks(size).fold(Answer::new().send(start), |a, p| a.send(chunk(p))).send("0\r\n\r\n")
            };
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
            let answers = [
                cut(head.into(), body),
                Answer::whole("200 OK", &[("content-type", "application/json")], body.as_bytes()),
            ];
            for answer in answers {
                engine.answers(move |_| answer.clone());
                assert_eq!(client.ask(&ask).await.text(), whole(body), "{path}");
            }
            let answer = cut(stream_head(), stream);
            engine.answers(move |_| answer.clone());
            let read = client.ask(&ask.clone().streamed()).await;
            assert_eq!(read.text(), renamed(stream), "{path}");
            assert_eq!(read.header("content-type"), Some("text/event-stream; charset=utf-8"));
        }
    }
}

/// It knows no chunks, and without a length its answer ends with the connection.
#[tokio::test]
async fn an_older_client_reads_it_too() {
    let engine = Engine::start().await;
    let balancer = rewriting(&engine).await;
    let mut client = balancer.client().await;
    let body = r#"{"model":"tiny","messages":[]}"#;
    let length = body.len();
    let ask = format!("POST /v1/chat/completions HTTP/1.0\r\ncontent-length: {length}\r\n\r\n{body}");
    client.send_bytes(ask.as_bytes()).await;
    let head = client.head().await;
    assert_eq!((head.header("content-length"), head.header("transfer-encoding")), (None, None));
    assert_eq!(client.rest(head, "POST").await.json()["model"], "tiny");
}

#[tokio::test]
async fn what_has_no_such_field_passes_as_it_is() {
    let engine = Engine::start().await;
    let balancer = rewriting(&engine).await;
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [u8]);
    let cases: [Case; 4] = [
        (&[("content-type", "application/json")], b"{\"tokens\":[1,2],\"models\":\"m\""),
        (&[("content-type", "application/json"), ("content-encoding", "gzip")], b"\x1f\x8b{\"model\":\"m\"}"),
        (&[("content-type", "text/plain")], b"{\"model\":\"m\"}"),
        (&[("content-type", "application/json")], b""),
    ];
    for (headers, body) in cases {
        let answer = Answer::whole("200 OK", headers, body);
        engine.answers(move |_| answer.clone());
        let answer = balancer.ask(&Ask::chat("tiny", "Hello.")).await;
        assert_eq!((answer.status, answer.body.as_slice()), (200, body));
    }
    // An engine is not asked for what could not be read.
    balancer.ask(&Ask::chat("tiny", "Hello.").header("accept-encoding", "gzip")).await;
    assert_eq!(engine.last().header("accept-encoding"), None);
    balancer.ask(&Ask::chat("m", "Hello.").header("accept-encoding", "gzip")).await;
    assert_eq!(engine.last().header("accept-encoding"), Some("gzip"));
}

/// The engine's error says its own name; what stands in its words is not searched.
#[tokio::test]
async fn an_error_passes_in_its_own_words() {
    let engine = Engine::start().await;
    let balancer = rewriting(&engine).await;
    engine.answers(|_| vllm::error("400 Bad Request"));
    let answer = balancer.ask(&Ask::messages("claude-x", "Hello.")).await;
    assert_eq!((answer.status, answer.json()["error"]["message"].as_str()), (400, Some("the engine says 400")));
}

#[tokio::test]
async fn the_list_of_models_has_the_aliases_that_are_names() {
    let engines = engines::<2>().await;
    engines[1].vitals(|vitals| vitals.model = "other".into());
    let models = [
        model("m", [&engines[0]], json!({"aliases": ["claude-*", "tiny", "o?"]})),
        model("not-served", [&engines[1]], json!({"aliases": ["nothing"]})),
    ];
    let balancer = Balancer::start(json!({"models": models})).await;
    let data = until("all models", async || {
        let data = balancer.ask(&Ask::get("/v1/models")).await.json()["data"].as_array().expect("a list").clone();
        (data.len() == 3).then_some(data)
    })
    .await;
    let ids: Vec<_> = data.iter().map(|model| model["id"].as_str().expect("an id")).collect();
    assert_eq!(ids, ["m", "other", "tiny"]);
    assert_eq!(data[2]["max_model_len"], data[0]["max_model_len"]);
}

#[tokio::test]
async fn a_reload_changes_the_names() {
    let engine = Engine::start().await;
    let balancer = rewriting(&engine).await;
    assert_eq!(balancer.ask(&Ask::chat("claude-x", "Hello.")).await.json()["model"], "claude-x");
    let reloaded = balancer.reload(&one_model([&engine], json!({"aliases": ["gpt-*"]}))).await;
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    assert_eq!(balancer.ask(&Ask::chat("claude-x", "Hello.")).await.status, 404);
    assert_eq!(balancer.ask(&Ask::chat("gpt-x", "Hello.")).await.json()["model"], "m");
    assert_eq!(engine.last().json().expect("JSON")["model"], "gpt-x");
}
