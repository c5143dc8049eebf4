//! [`Replay`] as a session of a custom protocol, which is how Pingora takes one that is not its own.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use http::HeaderMap;
use pingora::Result;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Digest;
use pingora::protocols::http::HttpTask;
use pingora::protocols::http::custom::CustomMessageWrite;
use pingora::protocols::http::custom::server::Session as CustomSession;
use pingora::protocols::l4::socket::SocketAddr;

use super::session::Replay;

type Messages = Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>;

#[async_trait]
impl CustomSession for Replay {
    // What the wrapper is for: the body is done, and all of it is in the retry buffer.

    fn get_retry_buffer(&self) -> Option<Bytes> {
        Some(self.shared.body.lock().clone()).filter(|body| !body.is_empty())
    }

    fn retry_buffer_truncated(&self) -> bool {
        false
    }

    fn enable_retry_buffering(&mut self) {}

    fn is_body_done(&mut self) -> bool {
        !self.inner.was_upgraded() || self.inner.is_body_done()
    }

    fn is_body_empty(&mut self) -> bool {
        self.shared.body.lock().is_empty()
    }

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        match self.inner.was_upgraded() {
            true => self.inner.read_request_body().await,
            false => Ok(None),
        }
    }

    /// Ends only when the client goes away, or the engine has been waited for long enough. Pingora waits here whenever it waits
    /// for the engine, and an error here ends the try: so what ends a wait is noticed here, a hold that is over too.
    /// Once the client speaks another protocol, what it says is read, and nothing ends but with it or its engine.
    fn read_body_or_idle<'a, 'b>(&'a mut self, no_body_expected: bool) -> BoxFuture<'b, Result<Option<Bytes>>>
    where
        'a: 'b,
    {
        match self.flows {
            true => Box::pin(self.wait_beside_flow()),
            false if self.inner.was_upgraded() => Box::pin(self.inner.read_body_or_idle(no_body_expected)),
            false => Box::pin(self.wait()),
        }
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        Ok(())
    }

    // Everything else is the true session's.

    fn req_header(&self) -> &RequestHeader {
        self.inner.req_header()
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        self.inner.req_header_mut()
    }

    async fn write_response_header(&mut self, header: Box<ResponseHeader>, _end: bool) -> Result<()> {
        self.answering().write_response_header(header).await
    }

    async fn write_response_header_ref(&mut self, header: &ResponseHeader, _end: bool) -> Result<()> {
        self.answering().write_response_header_ref(header).await
    }

    async fn write_body(&mut self, data: Bytes, end: bool) -> Result<()> {
        self.inner.write_response_body(data, end).await
    }

    async fn write_trailers(&mut self, trailers: HeaderMap) -> Result<()> {
        self.inner.write_response_trailers(trailers).await
    }

    fn response_duplex_vec<'a, 'b>(&'a mut self, mut tasks: Vec<HttpTask>) -> BoxFuture<'b, Result<bool>>
    where
        'a: 'b,
    {
        match tasks.as_mut_slice() {
            _ if !self.flows => Box::pin(self.respond(tasks)),
            [HttpTask::Body(Some(piece), false)] => Box::pin(self.send_piece(std::mem::take(piece))),
            _ => Box::pin(self.send(tasks)),
        }
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_read_timeout(timeout);
    }

    fn get_read_timeout(&self) -> Option<Duration> {
        self.inner.get_read_timeout()
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_write_timeout(timeout);
    }

    fn get_write_timeout(&self) -> Option<Duration> {
        self.inner.get_write_timeout()
    }

    fn set_total_drain_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_total_drain_timeout(timeout);
    }

    fn get_total_drain_timeout(&self) -> Option<Duration> {
        self.inner.get_total_drain_timeout()
    }

    fn request_summary(&self) -> String {
        self.inner.request_summary()
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.inner.response_written()
    }

    async fn shutdown(&mut self, _code: u32, _context: &str) {
        self.inner.shutdown().await;
    }

    async fn finish(&mut self) -> Result<()> {
        self.inner.finish_body().await
    }

    fn body_bytes_sent(&self) -> usize {
        self.inner.body_bytes_sent()
    }

    fn body_bytes_read(&self) -> usize {
        self.inner.body_bytes_read()
    }

    fn digest(&self) -> Option<&Digest> {
        self.inner.digest()
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        self.inner.digest_mut()
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        self.inner.client_addr()
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        self.inner.server_addr()
    }

    fn is_upgrade_req(&self) -> bool {
        self.inner.is_upgrade_req()
    }

    fn was_upgraded(&self) -> bool {
        self.inner.was_upgraded()
    }

    // Messages beside the body exist only in custom protocols.

    fn pseudo_raw_h1_request_header(&self) -> Bytes {
        Bytes::new()
    }

    async fn finish_custom(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_reader(&mut self) -> Option<Messages> {
        None
    }

    fn restore_custom_message_reader(&mut self, _reader: Messages) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_writer(&mut self) -> Option<Box<dyn CustomMessageWrite>> {
        None
    }

    fn restore_custom_message_writer(&mut self, _writer: Box<dyn CustomMessageWrite>) -> Result<()> {
        Ok(())
    }
}
