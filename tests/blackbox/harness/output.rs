//! What the balancer writes, line by line.

use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::sync::watch;

use super::within;

#[derive(Clone)]
pub struct Output(Arc<watch::Sender<Vec<String>>>);

impl Output {
    pub fn new() -> Output {
        Output(Arc::new(watch::Sender::new(Vec::new())))
    }

    /// Keeps every line that comes from `source`.
    pub fn keep(&self, source: impl AsyncRead + Unpin + Send + 'static) {
        let lines = self.0.clone();
        tokio::spawn(async move {
            let mut source = BufReader::new(source).lines();
            while let Ok(Some(line)) = source.next_line().await {
                lines.send_modify(|lines| lines.push(line));
            }
        });
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    /// Waits for the first line of which `pick` makes something.
    pub async fn line<T>(&self, what: &str, pick: impl Fn(&str) -> Option<T>) -> T {
        let mut lines = self.0.subscribe();
        let found = tokio::time::timeout(super::PATIENCE, async {
            loop {
                let found = lines.borrow_and_update().iter().find_map(|line| pick(line));
                match found {
                    Some(found) => return found,
                    None => lines.changed().await.expect("the output outlives the test"),
                }
            }
        });
        found.await.unwrap_or_else(|_| panic!("no {what} in the output:\n{}", self.lines().join("\n")))
    }

    /// Waits until as many lines as `count` pass `pick`, and gives what it made of them.
    pub async fn count<T>(&self, what: &str, count: usize, pick: impl Fn(&str) -> Option<T>) -> Vec<T> {
        let mut lines = self.0.subscribe();
        let all = |lines: &Vec<String>| lines.iter().filter_map(|line| pick(line)).collect::<Vec<T>>();
        let enough = lines.wait_for(|lines| all(lines).len() >= count);
        let waited = within(&format!("{count} lines of {what}"), enough).await;
        all(&waited.expect("the output outlives the test"))
    }
}
