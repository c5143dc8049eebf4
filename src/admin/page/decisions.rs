//! Last decisions: a row each, the newest first.

use maud::{Markup, html};

use super::figures::{count, date_time, or_dash, seconds};
use crate::admin::query::Query;
use crate::decisions::{DECISIONS_MAX, Decisions, Numbered};
use crate::fleet::Fleet;
use crate::routing::{CacheOutcome, Decision};

const COLUMNS: [&str; 9] =
    ["Time", "Model", "Replica", "Decision", "Reason", "Parked", "Cached of prompt", "Cache", "Conversation"];

/// The filter, and the decisions that it lets through.
pub fn section(fleet: &Fleet, decisions: &Decisions, query: &Query) -> Markup {
    let filter = query.filter();
    let selected = decisions.select(&filter);
    let chosen = |wanted: &Option<String>, name: &str| wanted.as_deref() == Some(name);
    html! {
        form .filter data-part="decisions" aria-label="Filter the decisions" {
            label { "Model"
                select name="model" {
                    option value="" { "all" }
                    @for model in fleet.models() {
                        option value=(model.label()) selected[chosen(&filter.model, model.label())] { (model.label()) }
                    }
                }
            }
            label { "Decision"
                select name="decision" {
                    option value="" { "all" }
                    @for decision in Decision::ALL {
                        option value=(decision.name()) selected[chosen(&filter.decision, decision.name())] {
                            (spoken(decision.name()))
                        }
                    }
                }
            }
            label { "Conversation"
                input name="conversation" type="search" maxlength="8" placeholder="first digits" autocomplete="off"
                    spellcheck="false";
            }
        }
        p .since {
            (count(selected.len() as u64)) " shown. The last " (count(DECISIONS_MAX as u64))
            " whose requests have ended are kept."
        }
        div .scroll .long tabindex="0" role="region" aria-label="The last decisions" {
            table .decisions role="table" aria-labelledby="decisions-title" {
                thead role="rowgroup" {
                    tr role="row" {
                        @for column in COLUMNS { th role="columnheader" scope="col" { (column) } }
                    }
                }
                tbody role="rowgroup" { @for one in &selected { (row(one)) } }
            }
        }
    }
}

fn row(Numbered { number, decided }: &Numbered) -> Markup {
    let time = date_time(decided.at);
    let cached = or_dash(decided.prompt_tokens, |prompt| {
        format!("{} of {}", or_dash(decided.cached_tokens, count), count(prompt))
    });
    html! {
        tr role="row" data-key=(number) {
            th role="rowheader" scope="row" { time datetime=(time.replace(' ', "T") + "Z") { (time[11..]) } }
            td role="cell" data-label=(COLUMNS[1]) { (decided.model) }
            td role="cell" data-label=(COLUMNS[2]) { (decided.replica) }
            td role="cell" data-label=(COLUMNS[3]) {
                span .decision .(decided.decision.name()) { (spoken(decided.decision.name())) }
            }
            td role="cell" .reason data-label=(COLUMNS[4]) { (decided.reason.sentence()) }
            td role="cell" .number data-label=(COLUMNS[5]) { (or_dash(decided.parked_s, seconds)) }
            td role="cell" .number data-label=(COLUMNS[6]) { (cached) }
            td role="cell" data-label=(COLUMNS[7]) { (or_dash(decided.cache, |cache| spoken(CacheOutcome::name(cache)))) }
            td role="cell" data-label=(COLUMNS[8]) {
                code { (or_dash(decided.conversation, |hash| hash.to_string())) }
            }
        }
    }
}

/// A name of the API in words.
fn spoken(name: &str) -> String {
    name.replace('_', " ")
}
