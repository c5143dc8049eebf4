//! The page at `/`: a frame that holds no data, and the parts that its script asks for and puts in place.

mod cards;
mod chart;
mod decisions;

mod history;
mod shell;

use http::{Response, StatusCode, header};

use super::query::Query;
use crate::decisions::Decisions;
use crate::figures;
use crate::fleet::Fleet;

const STYLE: &str = include_str!("panel.css");
const SCRIPT: &str = include_str!("panel.js");
const ICON: &str = include_str!("icon.svg");

/// Nothing from elsewhere, and nothing that stands in the page itself runs.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The frame and what belongs to it. None: the path is another.
pub fn frame(path: &str) -> Option<Response<Vec<u8>>> {
    Some(match path {
        "/" => html(shell::page().into_string()),
        "/panel.css" => answer("text/css; charset=utf-8", STYLE.to_owned()),
        "/panel.js" => answer("text/javascript; charset=utf-8", SCRIPT.to_owned()),
        "/icon.svg" => answer("image/svg+xml", ICON.to_owned()),
        _ => return None,
    })
}

/// A part with data in it. None: the path is another.
pub fn part(path: &str, query: &Query, fleet: &Fleet, decisions: &Decisions, since: u64) -> Option<Response<Vec<u8>>> {
    let part = match path {
        "/panel/models" => cards::all(fleet, since),
        "/panel/history" => return Some(html(charts(fleet, query.0))),
        "/panel/decisions" => decisions::section(fleet, decisions, query),
        _ => return None,
    };
    Some(html(part.into_string()))
}

/// The part with the charts and the numbers behind them, for what stands after the question mark of its address. It depends
/// on the history alone, so its cost can be measured without waiting for an hour.
pub fn charts(fleet: &Fleet, query: &str) -> String {
    history::section(fleet, &Query(query)).into_string()
}

fn html(body: String) -> Response<Vec<u8>> {
    answer("text/html; charset=utf-8", body)
}

fn answer(kind: &'static str, body: String) -> Response<Vec<u8>> {
    let mut answer = super::answer(StatusCode::OK, kind, body.into_bytes());
    let headers = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in headers {
        answer.headers_mut().insert(name, header::HeaderValue::from_static(value));
    }
    answer
}
