use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{StatusCode, header};
use pingora::connectors::http::Connector;
use pingora::http::RequestHeader;
use pingora::{Error, ErrorType, OrErr, Result};
use serde_json::Value;

use super::Engine;
use crate::config::Secret;
use crate::metrics::METRICS;

/// Bytes of an answer to `/health`: vLLM sends none.
const HEALTH_MAX: u64 = 64 << 10;

/// Fetches small documents from engines, each within a time and a size.
pub struct Fetcher {
    connector: Connector,
}

/// What an engine answered.
pub struct Answer {
    pub status: StatusCode,
    pub body: Bytes,
}

impl Default for Fetcher {
    fn default() -> Self {
        Fetcher { connector: Connector::new(None) }
    }
}

impl Fetcher {
    /// GETs `path` from an engine, with `authorization` unless the engine has a key of its own.
    ///
    /// # Errors
    /// If it cannot be reached, does not finish within `time_max`, or sends more than `bytes_max`.
    pub async fn get(
        &self,
        engine: &Engine,
        path: &str,
        authorization: Option<&[u8]>,
        time_max: Duration,
        bytes_max: u64,
    ) -> Result<Answer> {
        let mut request = RequestHeader::build("GET", path.as_bytes(), None)?;
        if let Some(own) = authorization {
            request.insert_header(header::AUTHORIZATION, own)?;
        }
        within(time_max, self.fetch(engine, request, Bytes::new(), bytes_max)).await
    }

    /// Asks for `/health`, which an engine whose core has died answers with 503.
    ///
    /// # Errors
    /// If it does not answer within `time_max`, or says that it is out of order.
    pub async fn probe(&self, engine: &Engine, time_max: Duration) -> Result<()> {
        let answer = self.get(engine, "/health", None, time_max, HEALTH_MAX).await?;
        match answer.status.is_server_error() {
            true => Error::e_explain(ErrorType::HTTPStatus(answer.status.as_u16()), "asking for /health"),
            false => Ok(()),
        }
    }

    /// POSTs a JSON `body` to an engine.
    ///
    /// # Errors
    /// As for [`Fetcher::get`].
    pub async fn post(
        &self,
        engine: &Engine,
        path: &str,
        body: &Value,
        time_max: Duration,
        bytes_max: u64,
    ) -> Result<Answer> {
        let body = Bytes::from(body.to_string());
        let mut request = RequestHeader::build("POST", path.as_bytes(), None)?;
        request.insert_header(header::CONTENT_TYPE, "application/json")?;
        request.insert_header(header::CONTENT_LENGTH, body.len().to_string())?;
        within(time_max, self.fetch(engine, request, body, bytes_max)).await
    }

    async fn fetch(&self, engine: &Engine, mut request: RequestHeader, body: Bytes, bytes_max: u64) -> Result<Answer> {
        let peer = engine.peer().await.or_err(ErrorType::ConnectNoRoute, "its name does not resolve")?;
        request.insert_header(header::HOST, &engine.name)?;
        if let Some(key) = engine.api_key() {
            request.insert_header(header::AUTHORIZATION, bearer(&key))?;
        }
        let (mut session, _) = self.connector.get_http_session(&peer).await?;
        session.write_request_header(Box::new(request)).await?;
        if !body.is_empty() {
            session.write_request_body(body, false).await?;
        }
        session.finish_request_body().await?;
        session.read_response_header().await?;
        let status = session.response_header().map_or(StatusCode::BAD_GATEWAY, |header| header.status);
        let mut body = BytesMut::new();
        while let Some(chunk) = session.read_response_body().await? {
            if body.len() as u64 + chunk.len() as u64 > bytes_max {
                METRICS.limits_hit.with_label_values(&["fetch_size"]).inc();
                return Error::e_explain(ErrorType::ReadError, format!("more than {bytes_max} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        self.connector.release_http_session(session, &peer, peer.options.idle_timeout).await;
        Ok(Answer { status, body: body.freeze() })
    }
}

async fn within(time_max: Duration, fetch: impl Future<Output = Result<Answer>>) -> Result<Answer> {
    tokio::time::timeout(time_max, fetch)
        .await
        .inspect_err(|_| METRICS.limits_hit.with_label_values(&["fetch_time"]).inc())
        .or_err_with(ErrorType::ReadTimedout, || format!("no whole answer within {time_max:?}"))?
}

/// The value of an Authorization header for a key.
pub fn bearer(key: &Secret) -> String {
    format!("Bearer {}", key.expose())
}
