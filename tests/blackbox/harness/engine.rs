//! An engine that stands where a vLLM would: it keeps what it is sent, and does as the test says.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::answer::{Answer, Gate, Step};
use super::vllm::{self, USAGE, Vitals};
use super::wire::{Framing, Head, Wire};
use super::{h2_engine, within};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    pub head: Head,
    pub framing: Option<Framing>,
    pub body: Vec<u8>,
    /// Which request of its connection it is, from 0.
    pub nth_on_connection: usize,
}

/// What happened at an engine so far. What only watches it (metrics, health, models) is kept apart from the rest.
#[derive(Default)]
pub struct Seen {
    pub requests: Vec<Arc<Request>>,
    pub probes: Vec<Arc<Request>>,
    /// Requests whose sender went away before the answer was complete.
    pub left: usize,
}

type Script = Box<dyn Fn(&Request) -> Answer + Send>;
type ProbeScript = Box<dyn Fn(&Request) -> Option<Answer> + Send>;

/// What an engine's connections have in common.
pub struct Shared {
    seen: watch::Sender<Seen>,
    script: Mutex<Script>,
    /// Comes before the usual answer to a probe.
    probe_script: Mutex<ProbeScript>,
    vitals: Mutex<Vitals>,
}

pub struct Engine {
    pub address: SocketAddr,
    pub speaks: Speaks,
    shared: Arc<Shared>,
    /// Keeps the port ours while nothing listens on it: bound, so that it refuses.
    _reservation: TcpSocket,
    accepting: Option<AbortHandle>,
}

/// What it speaks on its port.
#[derive(Clone, Default)]
pub struct Speaks {
    pub tls: Option<TlsAcceptor>,
    /// HTTP/2; with TLS only if that is agreed on.
    pub http2: bool,
}

impl Request {
    pub fn method(&self) -> &str {
        self.head.start.split(' ').next().unwrap_or_default()
    }

    /// Path and query.
    pub fn target(&self) -> &str {
        self.head.start.split(' ').nth(1).unwrap_or_default()
    }

    pub fn path(&self) -> &str {
        self.target().split('?').next().unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    pub fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&self.body).ok()
    }

    pub fn is_probe(&self) -> bool {
        let watching = ["/metrics", "/health", "/ping", "/version", "/v1/models", "/load", "/server_info"];
        self.method() == "GET" && watching.contains(&self.path())
    }
}

impl Engine {
    pub async fn start() -> Engine {
        Engine::with_ranks(1).await
    }

    pub async fn with_ranks(ranks: usize) -> Engine {
        Engine::speaking(Speaks::default(), ranks).await
    }

    pub async fn speaking(speaks: Speaks, ranks: usize) -> Engine {
        let reservation = reusable_socket("127.0.0.1:0".parse().unwrap());
        let address = reservation.local_addr().unwrap();
        let shared = Shared {
            seen: watch::Sender::new(Seen::default()),
            script: Mutex::new(Box::new(|request| vllm::turn(request, USAGE))),
            probe_script: Mutex::new(Box::new(|_| None)),
            vitals: Mutex::new(Vitals::of_ranks(ranks)),
        };
        let shared = Arc::new(shared);
        let mut engine = Engine { address, speaks, shared, _reservation: reservation, accepting: None };
        engine.listen();
        engine
    }

    /// As the balancer calls it.
    pub fn name(&self) -> String {
        self.address.to_string()
    }

    pub fn url(&self) -> String {
        format!("{}://{}", if self.speaks.tls.is_some() { "https" } else { "http" }, self.address)
    }

    /// Refuses connections from now on, and cuts those that are open: the process is gone.
    pub fn refuse(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
        }
    }

    /// Takes connections (again).
    pub fn listen(&mut self) {
        let listener = reusable_socket(self.address).listen(1024).expect("its port listens");
        self.accepting = Some(tokio::spawn(accept(listener, self.speaks.clone(), self.shared.clone())).abort_handle());
    }

    /// What each turn is answered with from now on.
    pub fn answers(&self, script: impl Fn(&Request) -> Answer + Send + 'static) {
        *self.shared.script.lock().unwrap() = Box::new(script);
    }

    /// Answers as usual, reporting these tokens.
    pub fn reports(&self, usage: vllm::Usage) {
        self.answers(move |request| vllm::turn(request, usage));
    }

    /// Holds each turn, before the first byte or after the first event of a stream, until `gate` opens.
    pub fn holds(&self, gate: &Gate) {
        let gate = gate.clone();
        self.answers(move |request| vllm::turn_held(request, USAGE, &gate));
    }

    /// What each probe (metrics, health, models) is answered with from now on; `None` is what is usual.
    pub fn answers_probes(&self, script: impl Fn(&Request) -> Option<Answer> + Send + 'static) {
        *self.shared.probe_script.lock().unwrap() = Box::new(script);
    }

    /// The same answer for all of them.
    pub fn answers_all_probes(&self, answer: Answer) {
        self.answers_probes(move |_| Some(answer.clone()));
    }

    /// Changes what /metrics says.
    pub fn vitals(&self, change: impl FnOnce(&mut Vitals)) {
        change(&mut self.shared.vitals.lock().unwrap());
    }

    /// The turns that came so far.
    pub fn requests(&self) -> Vec<Arc<Request>> {
        self.shared.seen.borrow().requests.clone()
    }

    /// How many turns came so far.
    pub fn turns(&self) -> usize {
        self.shared.seen.borrow().requests.len()
    }

    /// The probes that came so far.
    pub fn probed(&self) -> Vec<Arc<Request>> {
        self.shared.seen.borrow().probes.clone()
    }

    /// How many probes came so far.
    pub fn probes(&self) -> usize {
        self.shared.seen.borrow().probes.len()
    }

    /// The last turn that came.
    pub fn last(&self) -> Arc<Request> {
        self.shared.seen.borrow().requests.last().cloned().expect("the engine was sent a request")
    }

    /// Lets go of the turns that came so far.
    pub fn forget(&self) {
        self.shared.seen.send_modify(|seen| seen.requests.clear());
    }

    /// Waits until `reached` holds of what happened here.
    pub async fn saw(&self, what: &str, reached: impl FnMut(&Seen) -> bool) {
        let mut seen = self.shared.seen.subscribe();
        let waited = within(&format!("{what} at the engine"), seen.wait_for(reached)).await;
        waited.expect("the engine outlives the test");
    }

    /// Waits until this many turns have come in all.
    pub async fn saw_turns(&self, count: usize) {
        self.saw(&format!("{count} requests"), |seen| seen.requests.len() >= count).await;
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.refuse();
    }
}

/// Bound, not listening. The port is shared by the reservation and the listener of one engine only.
fn reusable_socket(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseport(true).expect("a reusable port");
    socket.bind(address).expect("a port");
    socket
}

async fn accept(listener: TcpListener, speaks: Speaks, shared: Arc<Shared>) {
    // Owned here, so that the connections end with the listener.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(open(stream, speaks.clone(), shared.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn open(stream: TcpStream, speaks: Speaks, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    match speaks.tls {
        None if speaks.http2 => h2_engine::serve(stream, shared).await,
        None => serve(Wire::new(stream), shared).await,
        Some(acceptor) => {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => h2_engine::serve(stream, shared).await,
                _ => serve(Wire::new(stream), shared).await,
            }
        }
    }
}

async fn serve(mut wire: Wire, shared: Arc<Shared>) {
    for nth in 0.. {
        let request = match read(&mut wire, nth).await {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                let _ = wire.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
                return;
            }
            Err(_) => return,
        };
        let probe = request.is_probe();
        let answer = shared.take(request);
        match play(&mut wire, answer).await {
            End::Open => {}
            End::Closed => return,
            End::Left => {
                if !probe {
                    shared.left();
                }
                return;
            }
        }
    }
}

async fn read(wire: &mut Wire, nth_on_connection: usize) -> std::io::Result<Option<Request>> {
    let Some(head) = wire.head().await? else {
        return Ok(None);
    };
    let framing = head.framing()?;
    let body = match framing {
        Some(framing) => wire.body(framing).await?,
        None => Vec::new(),
    };
    Ok(Some(Request { head, framing, body, nth_on_connection }))
}

/// How a connection stands after an answer.
pub enum End {
    Open,
    /// By the engine, as the answer said.
    Closed,
    /// By the other side, before the answer was complete.
    Left,
}

pub async fn play(wire: &mut Wire, answer: Answer) -> End {
    for step in answer.steps {
        let there = match step {
            Step::Send(bytes) => wire.send(&bytes).await.is_ok(),
            Step::Wait(gate) => tokio::select! {
                () = gate.opened() => true,
                () = wire.closed() => false,
            },
            Step::Receive(bytes) => wire.bytes(bytes.len()).await.is_ok_and(|received| received == bytes),
            Step::Close => return End::Closed,
            Step::Reset => {
                wire.reset_on_drop();
                return End::Closed;
            }
        };
        if !there {
            return End::Left;
        }
    }
    End::Open
}

impl Shared {
    /// Notes that the sender of a request went away.
    pub fn left(&self) {
        self.seen.send_modify(|seen| seen.left += 1);
    }

    /// Keeps the request and says what to do with it.
    pub fn take(&self, request: Request) -> Answer {
        if !request.is_probe() {
            let answer = self.script.lock().unwrap()(&request);
            self.seen.send_modify(|seen| seen.requests.push(Arc::new(request)));
            return answer;
        }
        let scripted = self.probe_script.lock().unwrap()(&request);
        let answer = scripted.unwrap_or_else(|| self.probe(&request));
        self.seen.send_modify(|seen| seen.probes.push(Arc::new(request)));
        answer
    }

    fn probe(&self, request: &Request) -> Answer {
        let vitals = self.vitals.lock().unwrap();
        match request.path() {
            "/metrics" => Answer::whole("200 OK", &[("content-type", "text/plain")], vitals.text().as_bytes()),
            "/v1/models" => Answer::json(
                "200 OK",
                &serde_json::json!({"object": "list", "data": [
                    {"id": vitals.model, "object": "model", "owned_by": "vllm", "max_model_len": 32768}
                ]}),
            ),
            "/version" => Answer::json("200 OK", &serde_json::json!({"version": "0.32.0"})),
            _ => Answer::whole("200 OK", &[], b""),
        }
    }
}
