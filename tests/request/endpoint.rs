use homing::request::endpoint::{BodyForm, Dialect, Kind, Local, Route, dialect_of, response_id, route};
use http::Method;

const BALANCED: [(&str, Kind); 26] = [
    ("/v1/chat/completions", Kind::Chat),
    ("/v1/completions", Kind::Completions),
    ("/v1/responses", Kind::Responses),
    ("/v1/messages", Kind::Messages),
    ("/v1/messages/count_tokens", Kind::CountTokens),
    ("/v1/embeddings", Kind::Embeddings),
    ("/pooling", Kind::Pooling),
    ("/classify", Kind::Classify),
    ("/score", Kind::Score),
    ("/v1/score", Kind::Score),
    ("/rerank", Kind::Rerank),
    ("/v1/rerank", Kind::Rerank),
    ("/v2/rerank", Kind::Rerank),
    ("/v1/audio/transcriptions", Kind::Audio),
    ("/v1/audio/translations", Kind::Audio),
    ("/tokenize", Kind::Tokenize),
    ("/detokenize", Kind::Detokenize),
    ("/v1/chat/completions/render", Kind::Render),
    ("/v1/completions/render", Kind::Render),
    ("/v1/responses/render", Kind::Render),
    ("/v1/messages/render", Kind::Render),
    ("/invocations", Kind::Invocations),
    ("/v1/responses/resp_1/cancel", Kind::StoredResponse),
    ("/v1/responses/resp-2/cancel", Kind::StoredResponse),
    ("/v1/responses/cancel/cancel", Kind::StoredResponse),
    ("/v1/responses/0/cancel", Kind::StoredResponse),
];

#[test]
fn balanced_routes_take_post_alone() {
    for (path, kind) in BALANCED {
        let Route::Engine(endpoint) = route(&Method::POST, path) else { panic!("{path}") };
        assert_eq!(endpoint.kind, kind, "{path}");
        for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::OPTIONS] {
            assert_eq!(route(&method, path), Route::WrongMethod { allow: "POST" }, "{method} {path}");
        }
    }
}

#[test]
fn stored_responses_are_read_and_deleted_where_they_are() {
    for path in ["/v1/responses/resp_1/input_items", "/v1/responses/input_items/input_items"] {
        let Route::Engine(endpoint) = route(&Method::GET, path) else { panic!("{path}") };
        assert_eq!((endpoint.kind, endpoint.body_form()), (Kind::StoredResponse, BodyForm::Empty));
        assert_eq!(route(&Method::POST, path), Route::WrongMethod { allow: "GET" });
    }
    for path in ["/v1/responses/resp_bf2ec4837ac798d7", "/v1/responses/cancel"] {
        for method in [Method::GET, Method::DELETE] {
            let Route::Engine(endpoint) = route(&method, path) else { panic!("{method} {path}") };
            assert_eq!((endpoint.kind, endpoint.body_form()), (Kind::StoredResponse, BodyForm::Empty));
        }
        assert_eq!(route(&Method::POST, path), Route::WrongMethod { allow: "GET, DELETE" });
    }
    assert_eq!(response_id("/v1/responses/resp_1"), Some("resp_1"));
    assert_eq!(response_id("/v1/responses/resp_1/cancel"), Some("resp_1"));
    assert_eq!(response_id("/v1/responses/resp_1/input_items"), Some("resp_1"));
    assert_eq!(response_id("/v1/responses"), None);
}

#[test]
fn realtime_is_asked_for_by_get_and_counted() {
    let Route::Engine(endpoint) = route(&Method::GET, "/v1/realtime") else { panic!("an engine's") };
    assert_eq!((endpoint.kind, endpoint.body_form()), (Kind::Realtime, BodyForm::Empty));
    assert!(endpoint.counted() && !endpoint.has_usage() && !endpoint.is_conversation());
    assert_eq!(route(&Method::POST, "/v1/realtime"), Route::WrongMethod { allow: "GET" });
}

#[test]
fn some_routes_are_answered_here() {
    for (path, local) in [
        ("/v1/models", Local::Models),
        ("/health", Local::Health),
        ("/ping", Local::Ping),
        ("/version", Local::Version),
        ("/api/hello", Local::Hello),
    ] {
        for method in [Method::GET, Method::HEAD] {
            assert_eq!(route(&method, path), Route::Local(local), "{method} {path}");
        }
    }
    assert_eq!(route(&Method::POST, "/ping"), Route::Local(Local::Ping));
    assert_eq!(route(&Method::PUT, "/ping"), Route::WrongMethod { allow: "GET, HEAD, POST" });
    assert_eq!(route(&Method::POST, "/v1/models"), Route::WrongMethod { allow: "GET, HEAD" });
}

#[test]
fn the_engines_administration_is_closed_whatever_the_method() {
    for path in [
        "/sleep",
        "/wake_up",
        "/is_sleeping",
        "/pause",
        "/resume",
        "/is_paused",
        "/reset_prefix_cache",
        "/reset_mm_cache",
        "/reset_encoder_cache",
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/start_profile",
        "/stop_profile",
        "/collective_rpc",
        "/update_weights",
        "/scale_elastic_ep",
        "/is_scaling_elastic_ep",
        "/fault_tolerance/status",
        "/fault_tolerance/apply/now",
        "/abort_requests",
        "/server_info",
        "/load",
        "/docs",
        "/redoc",
        "/openapi.json",
        "/metrics",
    ] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            assert_eq!(route(&method, path), Route::Closed, "{method} {path}");
        }
    }
}

#[test]
fn other_spellings_are_unknown() {
    for path in [
        "",
        "/",
        "*",
        "/v1",
        "/v1/",
        "/v1/chat/completions/",
        "//v1/chat/completions",
        "/v1//chat/completions",
        "/v1/./chat/completions",
        "/v1/x/../chat/completions",
        "/v1/chat%2fcompletions",
        "/v1/chat/completion%73",
        "/V1/chat/completions",
        "/v1/chat/completions?x=1",
        "/chat/completions",
        "/health/",
        "/sleep/",
        "/reset__cache/x",
        "/reset_cache",
        "/reset_a/b_cache",
        "/fault_tolerance",
        "/v1/audio/",
        "/v1/audio/..",
        "/v1/responses/",
        "/v1/responses/a/b",
        "/v1/responses/a/input_items/x",
        "/v1/responses/a/cancel/input_items",
        "/v1/responses//input_items",
        "/v1/realtime/",
        "/v1/realtime/x",
        "/v1/responses/../cancel",
        "/v1/responses/..",
        "/v1/responses/%2e%2e",
        "/v1/responses//cancel",
        "/v1/embeddings/render",
        "/v1/chat/completions/render/render",
        "/render",
        "/v1/models/tiny",
    ] {
        assert_eq!(route(&Method::POST, path), Route::Unknown, "{path}");
        assert_eq!(route(&Method::GET, path), Route::Unknown, "{path}");
    }
    assert_eq!(route(&Method::POST, &format!("/v1/responses/{}", "x".repeat(129))), Route::Unknown);
    assert_eq!(route(&Method::POST, &"/render".repeat(100_000)), Route::Unknown);
}

#[test]
fn the_dialect_is_the_paths_known_or_not() {
    for path in ["/v1/messages", "/v1/messages/count_tokens", "/v1/messages/", "/v1/messages/batches"] {
        assert_eq!(dialect_of(path), Dialect::Anthropic, "{path}");
    }
    for path in ["/v1/messagesx", "/v1/chat/completions", "/messages", "/", ""] {
        assert_eq!(dialect_of(path), Dialect::OpenAi, "{path}");
    }
}

#[test]
fn each_kind_has_its_traits() {
    for (path, kind) in BALANCED {
        let Route::Engine(endpoint) = route(&Method::POST, path) else { panic!("{path}") };
        let asks_only =
            matches!(kind, Kind::CountTokens | Kind::Tokenize | Kind::Detokenize | Kind::Render | Kind::StoredResponse);
        assert_eq!(endpoint.counted(), !asks_only, "{path}");
        assert_eq!(endpoint.body_form() == BodyForm::Multipart, kind == Kind::Audio, "{path}");
        assert_eq!(endpoint.has_usage(), !asks_only && kind != Kind::Audio, "{path}");
        let follows_home = matches!(kind, Kind::Chat | Kind::Completions | Kind::Responses | Kind::Messages)
            || matches!(kind, Kind::CountTokens | Kind::Tokenize | Kind::Render);
        assert_eq!(endpoint.is_conversation(), follows_home, "{path}");
    }
}
