use std::time::{Duration, Instant};

use crate::experiment::{TO_BALANCER_S, TO_ENGINE_S};

/// How the load runs in real time.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Seconds of the load in a real second.
    pub speed: f64,
    pub way: Way,
}

/// Seconds, by the load's clock, that a turn is on its way, on top of what the real network takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Way {
    /// From the client to where the replica is chosen.
    pub to_balancer_s: f64,
    /// From there to the engine.
    pub to_engine_s: f64,
    /// From the engine back to the client.
    pub back_s: f64,
}

impl Way {
    /// That of virtual time.
    pub const AS_SIMULATED: Self =
        Self { to_balancer_s: TO_BALANCER_S, to_engine_s: TO_ENGINE_S, back_s: TO_BALANCER_S };

    /// As long as in virtual time, half of it each way: where another process chooses, nothing can be put behind the choice.
    pub const AROUND_A_BALANCER: Self = Self {
        to_balancer_s: TO_ENGINE_S / 2.0 + TO_BALANCER_S,
        to_engine_s: 0.0,
        back_s: TO_ENGINE_S / 2.0 + TO_BALANCER_S,
    };
}

/// The load's clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    speed: f64,
}

impl Clock {
    /// It is 0 now.
    pub fn start(speed: f64) -> Self {
        Self { began: Instant::now(), speed }
    }

    pub fn now_s(&self) -> f64 {
        self.at_s(Instant::now())
    }

    pub fn at_s(&self, moment: Instant) -> f64 {
        (moment - self.began).as_secs_f64() * self.speed
    }

    /// How long `seconds` of the load really are.
    pub fn real(&self, seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds / self.speed)
    }

    pub async fn sleep(&self, seconds: f64) {
        tokio::time::sleep(self.real(seconds)).await;
    }

    pub async fn sleep_until(&self, at_s: f64) {
        tokio::time::sleep_until((self.began + self.real(at_s)).into()).await;
    }
}
