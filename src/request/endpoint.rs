//! The routes: what goes to an engine, what is answered here, what stays closed.
//!
//! A path is known only as it is written in vLLM: nothing is normalised, so a spelling that an engine might read otherwise than
//! the balancer (`//`, `%2e`, dot segments, a trailing slash) is unknown.

use http::Method;

/// Whose error shape and usage fields a path speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    OpenAi,
    Anthropic,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// It goes to an engine.
    Engine(Endpoint),
    /// The balancer answers it.
    Local(Local),
    /// An engine would do it, but nobody outside may ask: answered as if it were not there.
    Closed,
    /// The path is known and the method is not allowed on it; `allow` is the value of the Allow header.
    WrongMethod { allow: &'static str },
    /// No such path.
    Unknown,
}

/// What the balancer answers itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    Models,
    Health,
    Ping,
    Version,
    /// `/api/hello`, which Claude Code asks at its start.
    Hello,
}

/// A route of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub kind: Kind,
}

/// What an engine does on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Chat,
    Completions,
    Responses,
    /// One stored response: read, deleted or cancelled where it was made.
    StoredResponse,
    Messages,
    CountTokens,
    Embeddings,
    Pooling,
    Classify,
    Score,
    Rerank,
    Audio,
    /// Audio and events both ways, over a WebSocket.
    Realtime,
    Tokenize,
    Detokenize,
    /// The prompt as the engine would see it, on `<route>/render`.
    Render,
    Invocations,
}

/// The form of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyForm {
    /// No body, so nothing that names a model.
    Empty,
    Json,
    Multipart,
}

impl Endpoint {
    /// Whether it takes a place in the in-flight count and in the decisions: all that makes the engine's model run.
    pub fn counted(&self) -> bool {
        !matches!(
            self.kind,
            Kind::CountTokens | Kind::Tokenize | Kind::Detokenize | Kind::Render | Kind::StoredResponse
        )
    }

    /// The form of its request body.
    pub fn body_form(&self) -> BodyForm {
        match self.kind {
            Kind::StoredResponse | Kind::Realtime => BodyForm::Empty,
            Kind::Audio => BodyForm::Multipart,
            _ => BodyForm::Json,
        }
    }

    /// Whether its answers say how many tokens they took.
    pub fn has_usage(&self) -> bool {
        self.counted() && !matches!(self.kind, Kind::Audio | Kind::Realtime)
    }

    /// Whether its requests are turns of a conversation, or ask about one: what shares a prefix with other turns.
    pub fn is_conversation(&self) -> bool {
        matches!(
            self.kind,
            Kind::Chat
                | Kind::Completions
                | Kind::Responses
                | Kind::Messages
                | Kind::CountTokens
                | Kind::Tokenize
                | Kind::Render
        )
    }
}

const REALTIME: &str = "/v1/realtime";

const POST: &[Method] = &[Method::POST];
const READ: &[Method] = &[Method::GET, Method::HEAD];

/// What becomes of a request with this method and this path (without its query).
pub fn route(method: &Method, path: &str) -> Route {
    if let Some(kind) = posted(path) {
        return allowed(method, POST, "POST", Route::Engine(Endpoint { kind }));
    }
    if let Some(local) = local(path) {
        return match local {
            Local::Ping if method == Method::POST => Route::Local(local),
            Local::Ping => allowed(method, READ, "GET, HEAD, POST", Route::Local(local)),
            _ => allowed(method, READ, "GET, HEAD", Route::Local(local)),
        };
    }
    if path == REALTIME {
        return allowed(method, &[Method::GET], "GET", Route::Engine(Endpoint { kind: Kind::Realtime }));
    }
    if let Some((_, action)) = stored_response(path) {
        let engine = Route::Engine(Endpoint { kind: Kind::StoredResponse });
        return match action {
            Some(Action::Cancel) => allowed(method, POST, "POST", engine),
            Some(Action::InputItems) => allowed(method, &[Method::GET], "GET", engine),
            None => allowed(method, &[Method::GET, Method::DELETE], "GET, DELETE", engine),
        };
    }
    if is_closed(path) { Route::Closed } else { Route::Unknown }
}

/// The dialect that a path speaks, known or not.
pub fn dialect_of(path: &str) -> Dialect {
    match path.strip_prefix("/v1/messages") {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => Dialect::Anthropic,
        _ => Dialect::OpenAi,
    }
}

/// The id of the stored response that a path is about.
pub fn response_id(path: &str) -> Option<&str> {
    stored_response(path).map(|(id, _)| id)
}

fn allowed(method: &Method, methods: &[Method], allow: &'static str, route: Route) -> Route {
    if methods.contains(method) { route } else { Route::WrongMethod { allow } }
}

fn posted(path: &str) -> Option<Kind> {
    match path.strip_suffix("/render") {
        // Beside each route that makes a prompt of a conversation stands one that shows it.
        Some(rendered) => match known(rendered)? {
            Kind::Chat | Kind::Completions | Kind::Responses | Kind::Messages => Some(Kind::Render),
            _ => None,
        },
        None => known(path),
    }
}

fn known(path: &str) -> Option<Kind> {
    Some(match path {
        "/v1/chat/completions" => Kind::Chat,
        "/v1/completions" => Kind::Completions,
        "/v1/responses" => Kind::Responses,
        "/v1/messages" => Kind::Messages,
        "/v1/messages/count_tokens" => Kind::CountTokens,
        "/v1/embeddings" => Kind::Embeddings,
        "/pooling" => Kind::Pooling,
        "/classify" => Kind::Classify,
        "/score" | "/v1/score" => Kind::Score,
        "/rerank" | "/v1/rerank" | "/v2/rerank" => Kind::Rerank,
        "/tokenize" => Kind::Tokenize,
        "/detokenize" => Kind::Detokenize,
        "/invocations" => Kind::Invocations,
        _ if is_audio(path) => Kind::Audio,
        _ => return None,
    })
}

/// `/v1/audio/*`, of which new ones come with new models.
fn is_audio(path: &str) -> bool {
    let name = path.strip_prefix("/v1/audio/").unwrap_or_default();
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

fn local(path: &str) -> Option<Local> {
    Some(match path {
        "/v1/models" => Local::Models,
        "/health" => Local::Health,
        "/ping" => Local::Ping,
        "/version" => Local::Version,
        "/api/hello" => Local::Hello,
        _ => return None,
    })
}

/// What is below the path of a stored response.
enum Action {
    Cancel,
    InputItems,
}

/// The id, and what the path names below it: `/v1/responses/{id}`, `…/{id}/cancel`, `…/{id}/input_items`.
fn stored_response(path: &str) -> Option<(&str, Option<Action>)> {
    let rest = path.strip_prefix("/v1/responses/")?;
    let (id, action) = match rest.rsplit_once('/') {
        Some((id, "cancel")) => (id, Some(Action::Cancel)),
        Some((id, "input_items")) => (id, Some(Action::InputItems)),
        _ => (rest, None),
    };
    let plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    (plain && (1..=128).contains(&id.len())).then_some((id, action))
}

/// vLLM's administration: its key guards only the paths below `/v1`, so the edge must close the rest.
fn is_closed(path: &str) -> bool {
    match path {
        "/sleep" | "/wake_up" | "/is_sleeping" | "/pause" | "/resume" | "/is_paused" => true,
        "/v1/load_lora_adapter" | "/v1/unload_lora_adapter" => true,
        "/start_profile" | "/stop_profile" | "/collective_rpc" | "/update_weights" => true,
        "/scale_elastic_ep" | "/is_scaling_elastic_ep" | "/abort_requests" => true,
        "/server_info" | "/load" | "/metrics" | "/docs" | "/redoc" | "/openapi.json" => true,
        _ => {
            let reset = path.strip_prefix("/reset_").and_then(|rest| rest.strip_suffix("_cache"));
            reset.is_some_and(|cache| !cache.is_empty() && !cache.contains('/'))
                || path.starts_with("/fault_tolerance/")
        }
    }
}

/// A path as a log may show it: without the id of a stored response, and not at all if it is no route.
pub fn shown(path: &str) -> &str {
    match stored_response(path) {
        Some((_, None)) => "/v1/responses/{id}",
        Some((_, Some(Action::Cancel))) => "/v1/responses/{id}/cancel",
        Some((_, Some(Action::InputItems))) => "/v1/responses/{id}/input_items",
        None if path == REALTIME => path,
        None if posted(path).is_some() || local(path).is_some() || is_closed(path) => path,
        None => "-",
    }
}

/// A method as a log may show it.
pub fn shown_method(method: &Method) -> &str {
    match *method {
        Method::GET | Method::HEAD | Method::POST | Method::PUT | Method::DELETE | Method::OPTIONS | Method::PATCH => {
            method.as_str()
        }
        _ => "-",
    }
}
