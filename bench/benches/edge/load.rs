//! The clients: as many connections as they are told, each with one request at a time, made beforehand.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::http;
use crate::upstream::{Paces, STREAM};

/// What is asked of a balancer.
#[derive(Clone, Copy)]
pub struct Load {
    pub name: &'static str,
    /// What is counted.
    pub each: &'static str,
    pub connections: usize,
    /// Bytes of each request's body, about.
    pub body: usize,
    /// Requests of each connection, or events of its one stream.
    pub turns: usize,
    pub streamed: bool,
}

impl Load {
    /// What is counted, over all connections.
    pub fn count(&self) -> usize {
        self.connections * self.turns
    }

    /// Asks it all, and says how long that took.
    ///
    /// # Errors
    /// When a connection ends early, or an answer is not 200.
    pub async fn run(&self, balancer: SocketAddr, paces: &Paces) -> io::Result<Duration> {
        let mut clients = JoinSet::new();
        let began = Instant::now();
        for client in 0..self.connections {
            let (load, paces) = (*self, paces.clone());
            clients.spawn_local(async move {
                let mut connection = TcpStream::connect(balancer).await?;
                connection.set_nodelay(true)?;
                match load.streamed {
                    true => load.stream(&mut connection, client, &paces).await,
                    false => load.requests(&mut connection, client).await,
                }
            });
        }
        while let Some(ended) = clients.join_next().await {
            ended.map_err(io::Error::other)??;
        }
        Ok(began.elapsed())
    }

    async fn requests(&self, connection: &mut TcpStream, client: usize) -> io::Result<()> {
        let request = request(client, self.body, "", "");
        let mut read = BytesMut::with_capacity(64 << 10);
        for _ in 0..self.turns {
            connection.write_all(&request).await?;
            let head = http::read_head(connection, &mut read).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
            while read.len() < head.length {
                if connection.read_buf(&mut read).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            read.advance(head.length);
        }
        Ok(())
    }

    /// Asks for each event of a stream once the one before has come.
    async fn stream(&self, connection: &mut TcpStream, client: usize, paces: &Paces) -> io::Result<()> {
        let (stream, pace) = paces.add();
        let header = format!("{STREAM}: {stream} {}\r\n", self.turns);
        connection.write_all(&request(client, self.body, &header, r#""stream":true,"#)).await?;
        // Homing passes the head on with the first event.
        pace.add_permits(1);
        let mut read = BytesMut::with_capacity(64 << 10);
        http::read_head(connection, &mut read).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        for _ in 0..self.turns {
            // Events end with an empty line, whose ends are of one byte; those of chunks are of two.
            let end = loop {
                match memmem::find(&read, b"\n\n") {
                    Some(end) => break end + 2,
                    None if connection.read_buf(&mut read).await? == 0 => {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    None => {}
                }
            };
            read.advance(end);
            pace.add_permits(1);
        }
        Ok(())
    }
}

/// A chat completion of a session.
fn request(client: usize, body: usize, header: &str, field: &str) -> Vec<u8> {
    let words = "the quick brown fox ".repeat(body / 20);
    let body = format!(
        r#"{{"model":"m",{field}"messages":[{{"role":"system","content":"You are helpful."}},{{"role":"user","content":"{words}"}}],"max_tokens":10}}"#
    );
    let length = body.len();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: balancer.test\r\nuser-agent: bench\r\naccept: */*\r\n\
         content-type: application/json\r\nx-session-id: session-{client}\r\n{header}content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}
