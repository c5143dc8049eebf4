//! What a router knows, kept while no process runs: written by one, read by the next.
//!
//! Moments are ages, because the next process has another clock, and replicas are named, because their list may be
//! another. Kept are the conversations with their homes and sizes, where stored responses are, which engines were told to
//! drain, the counters by which a restart of an engine is noticed, and what is learned slowly: sizes, pauses, speeds, a
//! capacity that no engine states.
//! The order in which caches were used follows from the conversations. Not kept: who waits, places in the line, counts.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cache::{CacheOutcome, SavedCaches};
use super::health::Drains;
use super::turn::TOKENS_MAX;
use super::{Key, Reading, ReplicaId, Router, Target, Time};

/// See the [module](self). What is read of it may be anything: it is checked as it is restored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    replicas: Vec<SavedReplica>,
    /// The longest unused first.
    conversations: Vec<SavedConversation>,
    /// The longest unused first.
    stored: Vec<SavedPlace>,
    /// Those away first, and of them the first that left first.
    drains: Vec<SavedDrains>,
    caches: SavedCaches,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SavedReplica {
    engine: String,
    /// Ranks of its engine.
    ranks: u32,
    rank: u32,
    /// Only of an engine that is configured, as what follows.
    reading: Option<SavedReading>,
    /// Prompt tokens that it reads a second.
    rate: Option<f64>,
}

/// Whether an engine is told to drain, and whether the configuration says so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SavedDrains {
    engine: String,
    drains: Drains,
    /// Since when it is not configured any more; none: it is.
    away_ms: Option<u64>,
}

/// Of a reading, what tells a restart, and the capacity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SavedReading {
    age_ms: u64,
    prefix_queries: Option<u64>,
    prompt_tokens: Option<u64>,
    generation_tokens: Option<u64>,
    capacity_tokens: Option<u64>,
    process_start_s: Option<f64>,
}

/// A conversation as the table keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SavedConversation {
    key: Key,
    /// Its home's place in the list of replicas.
    home: u32,
    unused_ms: u64,
    /// Since the end of its last turn; 0 with one in flight.
    idle_ms: u64,
    /// Tokens; 0 where no engine has said.
    size: u64,
}

/// Where something is that an engine keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SavedPlace {
    key: Key,
    /// The replica, by its place in the list; none: lost.
    replica: Option<u32>,
    /// Whether it is known which of the engine's ranks has it.
    ranked: bool,
}

impl Saved {
    /// Conversations in it.
    pub fn conversations(&self) -> usize {
        self.conversations.len()
    }

    /// Keeps this share, 0 to 1, of the conversations and of the stored responses, those used last. Returns how many are gone.
    pub fn keep_newest(&mut self, share: f64) -> usize {
        let over = |length: usize| length - (length as f64 * share) as usize;
        let (conversations, stored) = (over(self.conversations.len()), over(self.stored.len()));
        self.conversations.drain(..conversations);
        self.stored.drain(..stored);
        conversations + stored
    }

    /// The same, so much later.
    pub fn aged(mut self, by: Duration) -> Saved {
        let by_ms = by.as_millis() as u64;
        let age = |age_ms: &mut u64| *age_ms = age_ms.saturating_add(by_ms);
        self.replicas
            .iter_mut()
            .filter_map(|replica| replica.reading.as_mut())
            .for_each(|reading| age(&mut reading.age_ms));
        self.drains.iter_mut().filter_map(|engine| engine.away_ms.as_mut()).for_each(age);
        for conversation in &mut self.conversations {
            age(&mut conversation.unused_ms);
            age(&mut conversation.idle_ms);
        }
        self
    }
}

impl Router {
    /// What is to be kept of it.
    pub fn save(&self, now: Time) -> Saved {
        let age = |moment: Time| now.since(moment).as_millis() as u64;
        let replica = |(index, replica): (usize, &super::replica::Replica)| {
            let engine = &self.engines[replica.engine];
            let reading = replica.reading.as_deref().filter(|_| engine.health.configured);
            SavedReplica {
                engine: engine.spec.name.clone(),
                ranks: engine.spec.data_parallel_size,
                rank: replica.rank,
                reading: reading.map(|reading| SavedReading::of(reading, age(replica.read_at))),
                rate: self.caches.rate(ReplicaId(index as u32)).filter(|_| engine.health.configured),
            }
        };
        let away = self.away.iter(now).map(|(engine, drains, left)| SavedDrains {
            engine: engine.to_owned(),
            drains,
            away_ms: Some(age(left)),
        });
        let here = self.order.iter().map(|index| SavedDrains {
            engine: self.engines[*index].spec.name.clone(),
            drains: self.drains(*index),
            away_ms: None,
        });
        let conversations = self.conversations.iter().map(|(key, conversation)| SavedConversation {
            key: *key,
            home: conversation.home.0,
            unused_ms: age(conversation.last_used),
            idle_ms: match conversation.last_ended() {
                Some(since) if !self.caches.is_running(conversation.home, key) => age(since),
                _ => 0,
            },
            size: conversation.size(),
        });
        let place = |(key, place): (&Key, &Option<Target>)| SavedPlace {
            key: *key,
            replica: place.map(|at| at.replica.map_or(self.engines[at.engine].replicas.start, |replica| replica.0)),
            ranked: place.is_some_and(|at| at.replica.is_some()),
        };
        Saved {
            replicas: self.replicas.iter().enumerate().map(replica).collect(),
            conversations: collect(self.conversations.len(), conversations),
            stored: collect(self.stored.len(), self.stored.iter().map(place)),
            drains: away.chain(here).collect(),
            caches: self.caches.save(),
        }
    }

    /// Takes back what was kept, `away` ago, into a router that has no conversation yet. What is too old, or too much for
    /// the limits, is left out, and so is what was at replicas that are not there any more.
    pub fn restore(&mut self, saved: &Saved, away: Duration, now: Time) {
        let at = |age_ms: u64| now - Duration::from_millis(age_ms).saturating_add(away);
        self.caches.restore(&saved.caches);
        let replicas: Vec<Option<ReplicaId>> =
            saved.replicas.iter().map(|replica| self.replica_called(replica)).collect();
        let known = |place: u32| replicas.get(place as usize).copied().flatten();
        for saved in &saved.drains {
            // One that was there when all this was kept may still be found.
            let left = saved.away_ms.map_or(now, at);
            self.away.leaves(&saved.engine, saved.drains, left);
            if let Some(engine) = self.engine(&saved.engine)
                && let Some(drains) = self.away.returns(&saved.engine, now)
            {
                self.restore_drains(engine, drains);
            }
        }
        for (saved, id) in saved.replicas.iter().zip(&replicas) {
            let Some(id) = *id else { continue };
            self.caches.restore_rate(id, saved.rate);
            if let Some(reading) = saved.reading.as_ref().filter(|_| self.replicas[id.index()].reading.is_none()) {
                self.caches.read(id, reading.capacity_tokens);
                let replica = &mut self.replicas[id.index()];
                (replica.read_at, replica.reading) = (at(reading.age_ms), Some(Box::new(reading.reading())));
            }
        }
        let due =
            |conversation: &&SavedConversation| now.since(at(conversation.unused_ms)) <= self.settings.idle_forget;
        let due: Vec<&SavedConversation> = saved.conversations.iter().filter(due).collect();
        let over = due.len().saturating_sub(self.settings.conversations_max);
        let mut resting = Vec::with_capacity(due.len() - over);
        for saved in &due[over..] {
            let Some(home) = known(saved.home) else {
                self.lost.put(saved.key, CacheOutcome::Moved);
                continue;
            };
            let (size, idle_since) = (saved.size.min(2 * TOKENS_MAX), at(saved.idle_ms));
            self.conversations.restore(saved.key, home, at(saved.unused_ms), idle_since, size, now);
            resting.push((idle_since, home, saved.key));
        }
        resting.sort_by_key(|(idle_since, ..)| *idle_since);
        let linger = self.linger();
        for (idle_since, home, key) in resting {
            let own = self.caches.own_tokens(self.conversations.size(&key), 0);
            self.caches.rest(home, key, own, idle_since, now.since(idle_since) <= linger);
        }
        replicas.iter().flatten().for_each(|id| self.cut(*id));
        for place in &saved.stored {
            let target = place.replica.and_then(known).map(|id| match place.ranked {
                true => self.target(id),
                false => Target { replica: None, rank: None, ..self.target(id) },
            });
            self.stored.restore(place.key, target, self.settings.conversations_max);
        }
    }

    fn replica_called(&self, saved: &SavedReplica) -> Option<ReplicaId> {
        let engine = &self.engines[self.engine(&saved.engine)?];
        engine.ids().nth(saved.rank as usize).filter(|_| engine.spec.data_parallel_size == saved.ranks)
    }
}

/// Room is made at once: growing under the router's lock would copy everything several times.
fn collect<T>(count: usize, items: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = Vec::with_capacity(count);
    all.extend(items);
    all
}

impl SavedReading {
    fn of(reading: &Reading, age_ms: u64) -> SavedReading {
        SavedReading {
            age_ms,
            prefix_queries: reading.prefix_queries,
            prompt_tokens: reading.prompt_tokens,
            generation_tokens: reading.generation_tokens,
            capacity_tokens: reading.capacity_tokens,
            process_start_s: reading.process_start_s,
        }
    }

    fn reading(&self) -> Reading {
        Reading {
            prefix_queries: self.prefix_queries,
            prompt_tokens: self.prompt_tokens,
            generation_tokens: self.generation_tokens,
            capacity_tokens: self.capacity_tokens,
            process_start_s: self.process_start_s,
            ..Reading::default()
        }
    }
}
