use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;

use super::answer::{self, Answer};
use super::conversation::Conversation;
use super::pace::{Clock, Way};
use super::via::Via;
use crate::experiment::Choice;
use crate::load::Call;

/// A client that has waited this long for an answer, by the load's clock, gives up.
const ANSWER_MAX_S: f64 = 600.0;

/// One turn, from the client to an engine and back.
pub struct Errand {
    /// The index of the turn.
    pub turn: usize,
    pub call: Call,
    pub conversation: Conversation,
    pub via: Via,
    pub way: Way,
    pub clock: Clock,
    pub client: reqwest::Client,
    /// Takes what happens on the way, with the turn's index.
    pub see: UnboundedSender<(usize, Seen)>,
}

/// What happens before a turn is over. A turn that is cut off has that much to show.
pub enum Seen {
    Chosen(Choice),
    FirstByte(Instant),
}

/// A turn that is over.
pub struct Ended {
    pub turn: usize,
    pub conversation: Conversation,
    /// The answer, or what was wrong with it.
    pub answer: Result<Answer, String>,
}

impl Errand {
    /// Ends when the client has the answer.
    pub async fn run(self) -> Ended {
        self.clock.sleep(self.way.to_balancer_s).await;
        let answer = self.ask().await;
        self.clock.sleep(self.way.back_s).await;
        Ended { turn: self.turn, conversation: self.conversation, answer }
    }

    /// From where the replica is chosen to the end of the answer there.
    async fn ask(&self) -> Result<Answer, String> {
        let placed = self.via.place(self.turn, &self.call, &self.conversation, &self.clock);
        if let Some(choice) = placed.choice() {
            self.see(Seen::Chosen(choice));
        }
        let request = placed.target.request(&self.client, &self.call, &self.conversation);
        self.clock.sleep(self.way.to_engine_s).await;
        let exchange = async {
            let response = request.send().await.map_err(|error| error.to_string())?;
            answer::read(response, |moment| self.see(Seen::FirstByte(moment))).await
        };
        let answer = tokio::time::timeout(self.clock.real(ANSWER_MAX_S), exchange).await;
        answer.unwrap_or_else(|_| Err("no whole answer in time".to_owned()))
    }

    fn see(&self, seen: Seen) {
        // A driver that is gone needs to know nothing.
        _ = self.see.send((self.turn, seen));
    }
}
