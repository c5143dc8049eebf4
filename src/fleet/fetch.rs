use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use pingora::connectors::http::Connector;
use pingora::http::RequestHeader;
use pingora::{Error, ErrorType, OrErr, Result};

use super::Engine;
use crate::config::Secret;

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
        let fetch = self.get_unbounded(engine, path, authorization, bytes_max);
        tokio::time::timeout(time_max, fetch)
            .await
            .or_err_with(ErrorType::ReadTimedout, || format!("no whole answer within {time_max:?}"))?
    }

    async fn get_unbounded(
        &self,
        engine: &Engine,
        path: &str,
        authorization: Option<&[u8]>,
        bytes_max: u64,
    ) -> Result<Answer> {
        let peer = engine.peer().await.or_err(ErrorType::ConnectNoRoute, "its name does not resolve")?;
        let mut request = RequestHeader::build("GET", path.as_bytes(), None)?;
        request.insert_header(http::header::HOST, &engine.name)?;
        match (engine.api_key(), authorization) {
            (Some(key), _) => request.insert_header(http::header::AUTHORIZATION, bearer(&key))?,
            (None, Some(own)) => request.insert_header(http::header::AUTHORIZATION, own)?,
            (None, None) => {}
        }
        let (mut session, _) = self.connector.get_http_session(&peer).await?;
        session.write_request_header(Box::new(request)).await?;
        session.finish_request_body().await?;
        session.read_response_header().await?;
        let status = session.response_header().map_or(StatusCode::BAD_GATEWAY, |header| header.status);
        let mut body = BytesMut::new();
        while let Some(chunk) = session.read_response_body().await? {
            if body.len() as u64 + chunk.len() as u64 > bytes_max {
                return Error::e_explain(ErrorType::ReadError, format!("more than {bytes_max} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        self.connector.release_http_session(session, &peer, peer.options.idle_timeout).await;
        Ok(Answer { status, body: body.freeze() })
    }
}

/// The value of an Authorization header for a key.
pub fn bearer(key: &Secret) -> String {
    format!("Bearer {}", key.expose())
}
