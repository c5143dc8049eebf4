//! `POST /replicas/{name}/drain` and `/undrain`.

use std::sync::Arc;

use http::{Method, Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::json;

use super::query::Query;
use super::{Admin, json_answer, not_allowed, not_found};
use crate::fleet::Model;

/// What is to become of an engine.
struct Asked {
    /// Its name, as metrics and JSON give it.
    engine: String,
    draining: bool,
}

impl Asked {
    /// None: the path is another.
    fn by(path: &str) -> Option<Asked> {
        let (name, verb) = path.strip_prefix("/replicas/")?.rsplit_once('/')?;
        let draining = match verb {
            "drain" => true,
            "undrain" => false,
            _ => return None,
        };
        Some(Asked { engine: percent_decode_str(name).decode_utf8_lossy().into_owned(), draining })
    }
}

impl Admin {
    /// Has an engine drained, or used again. In the query `model` says which model's it is, where several have it.
    pub(super) fn drain(&self, method: &Method, path: &str, query: &Query) -> Response<Vec<u8>> {
        let Some(Asked { engine, draining }) = Asked::by(path) else { return not_found() };
        if method != Method::POST {
            return not_allowed("POST");
        }
        let models = self.with_engine(&engine, query.get("model").as_deref());
        let [model] = models.as_slice() else { return unclear(&engine, &models) };
        let Some(in_flight) = model.set_draining(&engine, draining) else { return unclear(&engine, &[]) };
        let body = json!({"replica": engine, "model": model.label(), "draining": draining, "in_flight": in_flight});
        json_answer(StatusCode::OK, &body)
    }

    /// The models with an engine of this name; of those only the one that is named, where one is.
    fn with_engine(&self, engine: &str, named: Option<&str>) -> Vec<Arc<Model>> {
        let fleet = self.live.load().fleet.clone();
        let models = fleet.models().iter().filter(|model| named.is_none_or(|name| model.label() == name));
        models.filter(|model| model.router.lock().engine(engine).is_some()).cloned().collect()
    }
}

/// None has the engine, or several do.
fn unclear(engine: &str, models: &[Arc<Model>]) -> Response<Vec<u8>> {
    if !models.is_empty() {
        let models: Vec<&str> = models.iter().map(|model| model.label()).collect();
        let error = "several models have this replica: say which one's is meant, as in ?model=NAME";
        return json_answer(StatusCode::CONFLICT, &json!({"error": error, "models": models}));
    }
    let error = match engine.rsplit_once('#') {
        Some((whole, _)) => format!("ranks drain together: name their engine, {whole}"),
        None => "no model has a replica of this name; /routing lists them".to_owned(),
    };
    json_answer(StatusCode::NOT_FOUND, &json!({"error": error}))
}
