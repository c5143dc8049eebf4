//! A replica: a port, and one process after another that serves it.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::api;
use super::fault::Fault;
use super::process::{Process, Settings};

/// Connections that wait to be accepted at most.
const BACKLOG: u32 = 1024;
/// An idle connection is closed after this long, as uvicorn does.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The port, open or closed. Closed it stays bound, so that nobody else can take it.
enum Port {
    Open(TcpListener),
    Closed(TcpSocket),
}

impl Port {
    fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    }

    fn open(self) -> io::Result<Self> {
        match self {
            Self::Closed(socket) => Ok(Self::Open(socket.listen(BACKLOG)?)),
            open => Ok(open),
        }
    }

    fn close(self, address: SocketAddr) -> io::Result<Self> {
        match self {
            Self::Open(listener) => {
                drop(listener);
                Ok(Self::Closed(Self::bind(address)?))
            }
            closed => Ok(closed),
        }
    }

    async fn accept(&self) -> TcpStream {
        loop {
            match self {
                // An error is of one connection that did not come to be.
                Self::Open(listener) => match listener.accept().await {
                    Ok((connection, _)) => return connection,
                    Err(_) => tokio::task::yield_now().await,
                },
                Self::Closed(_) => pending().await,
            }
        }
    }
}

/// Serves one port until its task is dropped.
pub struct Replica {
    pub address: SocketAddr,
    port: Port,
    settings: Settings,
    faults: watch::Receiver<Fault>,
}

impl Replica {
    /// Opens the port; 0 takes a free one.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn bind(address: SocketAddr, settings: Settings, faults: watch::Receiver<Fault>) -> io::Result<Self> {
        let socket = Port::bind(address)?;
        let address = socket.local_addr()?;
        Ok(Self { address, port: Port::Closed(socket).open()?, settings, faults })
    }

    /// Serves one process after another.
    ///
    /// # Errors
    /// When the port is lost while it is closed.
    pub async fn run(mut self) -> io::Result<()> {
        loop {
            self.port = self.port.open()?;
            self = self.serve_process().await?;
            self.port = self.port.close(self.address)?;
            self.stay_down().await;
        }
    }

    /// Serves from the start of a process to its end, which cuts its connections.
    async fn serve_process(mut self) -> io::Result<Self> {
        let process = Arc::new(Process::start(&self.settings, self.faults.clone()));
        let router = api::router(process);
        let mut connections = JoinSet::new();
        // The process before may have ended while the next fault had begun.
        let mut engine_dead = *self.faults.borrow() == Fault::EngineDead;
        loop {
            tokio::select! {
                connection = self.port.accept() => {
                    connections.spawn(serve_connection(connection, router.clone()));
                }
                Some(_) = connections.join_next() => {}
                Ok(()) = self.faults.changed() => {
                    let fault = self.faults.borrow_and_update().clone();
                    // A dead engine does not come back to life: what comes after it is a new process.
                    if fault.kills() || engine_dead {
                        return Ok(self);
                    }
                    engine_dead = fault == Fault::EngineDead;
                    self.port = match fault {
                        Fault::Refuse => self.port.close(self.address)?,
                        _ => self.port.open()?,
                    };
                }
            }
        }
    }

    /// Waits for the end of a fault that ended the process.
    async fn stay_down(&mut self) {
        loop {
            let fault = self.faults.borrow_and_update().clone();
            let up_again = async {
                match fault {
                    Fault::Die => pending().await,
                    Fault::Restart { down_s } => tokio::time::sleep(Duration::from_secs_f64(down_s)).await,
                    _ => {}
                }
            };
            tokio::select! {
                () = up_again => return,
                _ = self.faults.changed() => {}
            }
        }
    }
}

async fn serve_connection(connection: TcpStream, router: axum::Router) {
    _ = connection.set_nodelay(true);
    let service = TowerToHyperService::new(router);
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(KEEP_ALIVE);
    // A client may cut its connection at any time; the generations it waited for are aborted by their drop.
    _ = server.serve_connection(TokioIo::new(connection), service).await;
}
