//! A session: conversations one after another, each turn with everything that was said before.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use super::ledger::{Ledger, Outcome, TurnName};
use super::turn::{Api, Reply, Request};
use crate::engine::Profile;
use crate::fleet::answer_to;
use crate::live::text;

/// Far more than any fault lasts.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// One session.
pub struct Client {
    number: u64,
    rng: Pcg64,
    http: reqwest::Client,
    balancer: SocketAddr,
    profile: Profile,
    ledger: Arc<Ledger>,
}

impl Client {
    pub fn new(number: u64, seed: u64, balancer: SocketAddr, profile: &Profile, ledger: Arc<Ledger>) -> Client {
        // Different from the faults' numbers, and from those of every other session.
        let rng = Pcg64::seed_from_u64(seed ^ (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Client { number, rng, http: reqwest::Client::new(), balancer, profile: profile.clone(), ledger }
    }

    /// Goes on until it is stopped; the turn that is under way then is finished.
    pub async fn run(mut self, stopped: Receiver<bool>) {
        for conversation in 0.. {
            let api = [Api::Chat, Api::Messages, Api::Responses][self.rng.random_range(0..3)];
            let mut said = Vec::new();
            for turn in 0..self.rng.random_range(1..8) {
                tokio::time::sleep(Duration::from_millis(self.rng.random_range(0..1000))).await;
                if *stopped.borrow() {
                    return;
                }
                let name = TurnName { session: self.number, conversation, turn };
                match self.turn(name, api, &mut said).await {
                    Some(answer) => said.push(json!({"role": "assistant", "content": answer})),
                    None => break,
                }
            }
        }
    }

    /// Plays a turn. Returns its answer if that is whole.
    async fn turn(&mut self, name: TurnName, api: Api, said: &mut Vec<Value>) -> Option<String> {
        let tokens = if name.turn == 0 { self.rng.random_range(200..3000) } else { self.rng.random_range(20..300) };
        said.push(json!({"role": "user", "content": text::message(&name.to_string(), tokens)}));
        let streamed = self.rng.random_bool(0.7);
        let body = api.body(&self.profile.model.name, said, self.rng.random_range(1..64), streamed);
        let request = Request { api, streamed, body };
        // A name of its own for each conversation, as `x-session-id` or as Claude Code has it.
        let header = if api == Api::Messages { "x-claude-code-session-id" } else { "x-session-id" };
        let session = format!("session-{}-{}", self.number, name.conversation);
        let sending = self
            .http
            .post(format!("http://{}{}", self.balancer, api.path()))
            .header(header, session)
            .json(&request.body)
            .send();
        let leaves_after = self.rng.random_bool(0.03).then(|| Duration::from_millis(self.rng.random_range(0..300)));
        let expected = answer_to(&self.profile, api.path(), &request.body).unwrap_or_default();
        self.ledger.expect(name, &expected);
        let began = Instant::now();
        let reply = async {
            match sending.await {
                Ok(response) => Reply::read(response).await,
                Err(error) => Reply { broken: Some(format!("no answer: {error:?}")), ..Reply::default() },
            }
        };
        let Ok(reply) = tokio::time::timeout(leaves_after.unwrap_or(ANSWER_MAX), reply).await else {
            let outcome = match leaves_after {
                Some(_) => Outcome::Left,
                None => Outcome::Wrong(format!("no whole answer within {ANSWER_MAX:?}")),
            };
            self.ledger.note(name, api, began, &Reply::default(), outcome);
            return None;
        };
        let outcome = match reply.words(&request) {
            Ok(words) if words == expected => Outcome::Answered,
            Ok(words) => Outcome::Wrong(self.ledger.whose(name, &expected, &words)),
            Err(_) if self.ledger.is_lost(&reply, began) => Outcome::Lost,
            Err(why) => Outcome::Wrong(why),
        };
        let answered = outcome == Outcome::Answered;
        self.ledger.note(name, api, began, &reply, outcome);
        answered.then_some(expected)
    }
}
