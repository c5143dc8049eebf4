//! Every route of an engine that is open: it arrives as it was sent, it is counted if it generates, and its usage is read.

use serde_json::{Value, json};

use crate::harness::vllm::USAGE;
use crate::harness::*;

const FORM: &str = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b\r\n\
    Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n--b--\r\n";

/// What generates, or makes the model run: each has a decision and a place in flight.
const COUNTED: [&str; 14] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/pooling",
    "/classify",
    "/score",
    "/v1/score",
    "/rerank",
    "/v1/rerank",
    "/v2/rerank",
    "/invocations",
    "/v1/audio/transcriptions",
];

const UNCOUNTED: [&str; 7] = [
    "/v1/messages/count_tokens",
    "/tokenize",
    "/detokenize",
    "/v1/chat/completions/render",
    "/v1/completions/render",
    "/v1/responses/render",
    "/v1/messages/render",
];

fn ask(path: &str) -> Ask {
    match path.starts_with("/v1/audio/") {
        true => Ask::new("POST", path).header("content-type", "multipart/form-data; boundary=b").body(FORM),
        false => Ask::turn(path, "m", "Hello."),
    }
}

#[tokio::test]
async fn each_arrives_as_it_was_sent_and_its_answer_comes_back() {
    let engines = engines::<2>().await;
    let models = [model("m", [&engines[0]], json!({})), model("other", [&engines[1]], json!({}))];
    let balancer = Balancer::start(json!({"models": models})).await;
    let body: &[u8] = b"{\"object\":\"list\",\"data\":[{\"index\":0}], \"usage\" : null}";
    engines[0].answers(move |_| Answer::whole("200 OK", &[("content-type", "application/json")], body));
    let mut client = balancer.client().await;
    let routes = COUNTED.iter().chain(&UNCOUNTED).chain(&["/v1/audio/translations", "/v1/audio/speech"]);
    for path in routes {
        let sent = ask(path);
        let answer = client.ask(&sent).await;
        assert_eq!((answer.status, answer.body.as_slice()), (200, body), "{path}");
        let heard = engines[0].last();
        assert_eq!((heard.method(), heard.path(), &heard.body), ("POST", *path, &sent.body), "{path}");
        assert_eq!(heard.header("content-type"), sent.headers.first().map(|(_, value)| value.as_str()), "{path}");
    }
    assert_eq!(engines[1].turns(), 0);
}

#[tokio::test]
async fn what_generates_is_counted_and_the_rest_is_not() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let gate = Gate::shut();
    engine.holds(&gate);
    let held = ask_all(balancer.listen, COUNTED.iter().chain(&UNCOUNTED).map(|path| ask(path)));
    engine.saw_turns(COUNTED.len() + UNCOUNTED.len()).await;
    let routing = balancer.routing().await;
    assert_eq!((routing.total("in_flight"), routing.decided()), (COUNTED.len() as u64, COUNTED.len() as u64));
    gate.open();
    for answer in held {
        assert_eq!(answer.await.unwrap().status, 200);
    }
    assert_eq!(balancer.idle().await.decided(), COUNTED.len() as u64);
}

/// A whole answer has its usage at the top, the stream of a response in its last event.
#[tokio::test]
async fn a_response_tells_its_usage_in_both_forms() {
    let engine = Engine::start().await;
    engine.answers(|request| vllm::response(request, "resp_1", None));
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    for (answered, stream) in [(1.0, false), (2.0, true)] {
        let ask = Ask::post("/v1/responses", &json!({"model": "m", "input": "Hello.", "stream": stream}));
        assert_eq!(balancer.ask(&ask).await.status, 200);
        let cached = USAGE.cached.expect("the engine says it") as f64;
        let computed = USAGE.prompt as f64 - cached;
        for (source, tokens) in [("cached", cached), ("computed", computed)] {
            balancer.metric_becomes("homing_prompt_tokens_total", &[("source", source)], answered * tokens).await;
        }
        let completion = USAGE.completion as f64;
        balancer.metric_becomes("homing_completion_tokens_total", &[("model", "m")], answered * completion).await;
    }
}

/// Lists of texts and scores tell what they read, and generate nothing.
#[tokio::test]
async fn lists_tell_their_usage_too() {
    let engine = Engine::start().await;
    let usage = json!({"prompt_tokens": 5, "total_tokens": 5, "completion_tokens": 0, "prompt_tokens_details": null});
    let list: Value = json!({"object": "list", "data": [], "model": "m", "usage": usage});
    engine.answers(move |_| Answer::json("200 OK", &list));
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let paths =
        ["/v1/embeddings", "/pooling", "/classify", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank"];
    for path in paths {
        assert_eq!(balancer.ask(&ask(path)).await.status, 200, "{path}");
    }
    let expected = 5.0 * paths.len() as f64;
    balancer.metric_becomes("homing_prompt_tokens_total", &[("source", "unmeasured")], expected).await;
}
