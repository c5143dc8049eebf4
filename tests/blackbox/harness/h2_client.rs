//! An HTTP/2 client of one connection.

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Version};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::ask::Ask;
use super::client::{Response, status};
use super::wire::{Head, Pipe};
use super::within;

pub struct H2Client {
    requests: SendRequest<Bytes>,
    /// Ends with the connection.
    pub connection: JoinHandle<Result<(), h2::Error>>,
}

/// A request that was begun.
pub struct Exchange {
    pub body: SendStream<Bytes>,
    answer: Option<ResponseFuture>,
    pieces: Option<RecvStream>,
}

impl H2Client {
    /// With prior knowledge.
    pub async fn connect(address: std::net::SocketAddr) -> H2Client {
        H2Client::over(TcpStream::connect(address).await.expect("the balancer takes connections")).await
    }

    pub async fn over(stream: impl Pipe + 'static) -> H2Client {
        let handshake = h2::client::Builder::new().initial_window_size(1 << 20).handshake(stream);
        let (requests, connection) = within("an HTTP/2 handshake", handshake).await.expect("HTTP/2 is spoken");
        H2Client { requests, connection: tokio::spawn(connection) }
    }

    /// Begins a request whose header is `request`.
    pub async fn begin(&mut self, request: Request<()>, end: bool) -> Result<Exchange, h2::Error> {
        let mut ready = within("room for a request", self.requests.clone().ready()).await?;
        let (answer, body) = ready.send_request(request, end)?;
        Ok(Exchange { body, answer: Some(answer), pieces: None })
    }

    /// Sends a whole request.
    pub async fn send(&mut self, ask: &Ask) -> Exchange {
        let empty = ask.body.is_empty() && ask.chunks_of.is_none();
        let mut exchange = self.begin(request(ask), empty).await.expect("the request is sent");
        if !empty {
            exchange.send_body(ask).await.expect("the body is sent");
        }
        exchange
    }

    /// Asks and waits for the whole answer.
    pub async fn ask(&mut self, ask: &Ask) -> Response {
        self.send(ask).await.response().await.expect("a whole answer")
    }
}

impl Exchange {
    async fn send_body(&mut self, ask: &Ask) -> Result<(), h2::Error> {
        for piece in ask.body.chunks(ask.chunks_of.unwrap_or(usize::MAX)) {
            self.send_piece(piece).await?;
        }
        self.body.send_data(Bytes::new(), true)
    }

    /// Sends a piece of the body, as fast as the other side takes it.
    pub async fn send_piece(&mut self, piece: &[u8]) -> Result<(), h2::Error> {
        let mut piece = Bytes::copy_from_slice(piece);
        while !piece.is_empty() {
            self.body.reserve_capacity(piece.len());
            let room = within("room for a body", std::future::poll_fn(|cx| self.body.poll_capacity(cx))).await;
            let room = room.ok_or(Reason::STREAM_CLOSED)??;
            self.body.send_data(piece.split_to(room.min(piece.len())), false)?;
        }
        Ok(())
    }

    pub fn reset(&mut self) {
        self.body.send_reset(Reason::CANCEL);
    }

    pub async fn head(&mut self) -> Result<Head, h2::Error> {
        let answer = self.answer.take().expect("the head is asked for once");
        let (head, pieces) = within("an answer", answer).await?.into_parts();
        self.pieces = Some(pieces);
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        Ok(Head { start: format!("HTTP/2 {}", head.status.as_u16()), headers })
    }

    /// The next piece of the answer; `None` at its end.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, h2::Error> {
        let pieces = self.pieces.as_mut().expect("the head was read");
        let piece = within("a piece of the answer", pieces.data()).await.transpose()?;
        if let Some(piece) = &piece {
            pieces.flow_control().release_capacity(piece.len())?;
        }
        Ok(piece)
    }

    pub async fn response(mut self) -> Result<Response, h2::Error> {
        let head = self.head().await?;
        let mut body = Vec::new();
        while let Some(piece) = self.piece().await? {
            body.extend_from_slice(&piece);
        }
        Ok(Response { status: status(&head), head, body })
    }
}

/// The header of `ask`, with a length unless it is chunked.
pub fn request(ask: &Ask) -> Request<()> {
    let uri = format!("http://balancer.test{}", ask.target);
    let mut request = Request::builder().version(Version::HTTP_2).method(ask.method.as_str()).uri(uri);
    for (name, value) in &ask.headers {
        request = request.header(name, value);
    }
    if ask.chunks_of.is_none() && !ask.body.is_empty() {
        request = request.header("content-length", ask.body.len());
    }
    request.body(()).expect("a request")
}
