//! Clients that ask on and on while a test changes something.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinHandle;

use super::{Ask, Balancer, Client, Engine, until};

const CALLERS: usize = 8;

/// Callers of the model `m`, each with conversations of its own.
pub struct Callers<'e> {
    /// Engines whose conversations are to stay there.
    stay: &'e [Engine],
    over: Arc<AtomicBool>,
    callers: Vec<JoinHandle<usize>>,
}

impl Callers<'_> {
    /// They ask until they are told to end.
    pub fn start<'e>(balancer: &Balancer, stay: &'e [Engine]) -> Callers<'e> {
        let over = Arc::new(AtomicBool::new(false));
        let names: Vec<String> = stay.iter().map(Engine::name).collect();
        let caller = |caller| tokio::spawn(call(balancer.listen, caller, names.clone(), over.clone()));
        Callers { stay, callers: (0..CALLERS).map(caller).collect(), over }
    }

    /// Waits until more requests have come than were under way when this was called.
    pub async fn go_on(&self) {
        let turns = || self.stay.iter().map(Engine::turns).sum::<usize>();
        let before = turns();
        until("more requests", async || (turns() > before + CALLERS).then_some(())).await;
    }

    /// Ends them. Every request was answered, decided once, and came to one of `engines` once.
    pub async fn end(self, balancer: &Balancer, engines: &[Engine]) {
        self.over.store(true, Ordering::SeqCst);
        let mut asked = 0;
        for caller in self.callers {
            asked += caller.await.expect("a caller that lost nothing");
        }
        let routing = balancer.idle().await;
        assert_eq!(routing.decided(), asked as u64, "each request asked was decided once");
        assert_eq!(engines.iter().map(Engine::turns).sum::<usize>(), asked, "and arrived once");
        assert_eq!(routing.total("failed_over"), 0);
    }
}

/// Says how many requests it made. A conversation whose home stays is placed once.
async fn call(address: SocketAddr, caller: usize, stay: Vec<String>, over: Arc<AtomicBool>) -> usize {
    let mut client = Client::connect(address).await;
    let mut asked = 0;
    for conversation in 0.. {
        let id = format!("caller-{caller}-{conversation}");
        let mut home = String::new();
        for nth in 0..10 {
            let turn = Ask::chat("m", "Hello.").session(&id);
            let answer = client.ask(&if nth % 3 == 0 { turn.streamed() } else { turn }).await;
            asked += 1;
            assert_eq!(answer.status, 200, "{}", answer.text());
            if stay.contains(&home) {
                assert_eq!((answer.decision(), answer.replica()), ("sticky", home.as_str()), "{id}, turn {nth}");
            }
            home = answer.replica().to_string();
            if over.load(Ordering::SeqCst) {
                return asked;
            }
        }
    }
    asked
}
