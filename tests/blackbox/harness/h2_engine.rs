//! An engine's end of an HTTP/2 connection. What it answers is written as for HTTP/1.1 and carried over.

use std::future::{Future, poll_fn};
use std::sync::Arc;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::HeaderMap;

use super::answer::Answer;
use super::engine::{End, Request, Shared, play};
use super::wire::{Framing, Head, Pipe, Wire};

pub async fn serve(stream: impl Pipe + 'static, shared: Arc<Shared>) {
    let mut builder = h2::server::Builder::new();
    let handshake = builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 20).handshake(stream);
    let Ok(mut connection) = handshake.await else { return };
    let mut nth = 0;
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(answer(request, respond, nth, shared.clone()));
        nth += 1;
    }
}

async fn answer(request: http::Request<RecvStream>, respond: SendResponse<Bytes>, nth: usize, shared: Arc<Shared>) {
    let Some(request) = read(request, nth).await else { return };
    let probe = request.is_probe();
    let answer = shared.take(request);
    if carry(answer, respond).await.is_err() && !probe {
        shared.left();
    }
}

async fn read(request: http::Request<RecvStream>, nth_on_connection: usize) -> Option<Request> {
    let (parts, mut pieces) = request.into_parts();
    let target = parts.uri.path_and_query().map_or("*", |target| target.as_str());
    let authority = parts.uri.authority().map(|authority| (":authority".to_owned(), authority.to_string()));
    let head = Head {
        start: format!("{} {target} HTTP/2", parts.method),
        headers: authority.into_iter().chain(headers(&parts.headers)).collect(),
    };
    let mut body = Vec::new();
    while let Some(piece) = pieces.data().await {
        let piece = piece.ok()?;
        pieces.flow_control().release_capacity(piece.len()).ok()?;
        body.extend_from_slice(&piece);
    }
    let framing = head.framing().ok()?;
    Some(Request { head, framing, body, nth_on_connection })
}

fn headers(headers: &HeaderMap) -> impl Iterator<Item = (String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(move |(name, value)| (name.to_string(), text(value)))
}

/// Has the answer played into a pipe, and sends what comes out of it. An error: the other side left.
async fn carry(answer: Answer, mut respond: SendResponse<Bytes>) -> Result<(), Left> {
    let (near, far) = tokio::io::duplex(1 << 20);
    let player = tokio::spawn(async move { matches!(play(&mut Wire::new(near), answer).await, End::Closed) });
    let mut wire = Wire::new(far);
    let head = unless(poll_fn(|cx| respond.poll_reset(cx)), wire.head()).await?;
    // An answer without a head closes: the stream is reset when it is dropped.
    let Ok(Some(head)) = head else { return Ok(()) };
    let mut response = http::Response::builder().status(super::client::status(&head));
    for (name, value) in head.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("transfer-encoding")) {
        response = response.header(name, value);
    }
    let mut pieces = respond.send_response(response.body(()).expect("a response"), false).map_err(|_| Left)?;
    loop {
        let piece = async {
            match head.framing() {
                Ok(Some(Framing::Chunked)) => wire.chunk().await.ok().flatten(),
                Ok(Some(framing)) => wire.body(framing).await.ok().filter(|body| !body.is_empty()),
                _ => None,
            }
        };
        let piece = unless(poll_fn(|cx| pieces.poll_reset(cx)), piece).await?;
        let Some(piece) = piece else { break };
        pieces.send_data(piece.into(), false).map_err(|_| Left)?;
        if !matches!(head.framing(), Ok(Some(Framing::Chunked))) {
            break;
        }
    }
    drop(wire);
    match player.await {
        Ok(true) | Err(_) => Ok(()),
        Ok(false) => pieces.send_data(Bytes::new(), true).map_err(|_| Left),
    }
}

/// The other side wants no more of it.
struct Left;

async fn unless<T>(reset: impl Future, done: impl Future<Output = T>) -> Result<T, Left> {
    tokio::select! {
        _ = reset => Err(Left),
        done = done => Ok(done),
    }
}
