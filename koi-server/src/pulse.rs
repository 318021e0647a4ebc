//! Whether the database answers now and takes what is written: asked once a second, whatever else is
//! written or read.
//!
//! A write that hangs says nothing until its deadline, and nothing at all while nobody writes. What is
//! told here is the time since the last answer, so that a database that hangs is not called well, and
//! what was refused of late, so that one whose disk is full is not either.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::store::Store;

/// Pause between an answer and the next question.
const PAUSE: Duration = Duration::from_secs(1);
/// A database that has not answered for so long is away.
const SILENCE_LIMIT: Duration = Duration::from_secs(2);
/// A question that waited this long is asked again over another connection.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// What the last answers were. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pulse {
    beat: Arc<Mutex<Beat>>,
    store: Store,
}

#[derive(Debug)]
struct Beat {
    answered_at: Instant,
    error: Option<String>,
}

impl Pulse {
    /// Starts asking; it ends when `shutdown` is cancelled.
    #[must_use]
    pub fn start(store: Store, shutdown: CancellationToken) -> (Self, tokio::task::JoinHandle<()>) {
        let beat = Beat {
            answered_at: Instant::now(),
            error: None,
        };
        let pulse = Self {
            beat: Arc::new(Mutex::new(beat)),
            store,
        };
        let asking = pulse.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = asking.ask() => {}
            }
        });
        (pulse, task)
    }

    async fn ask(&self) {
        loop {
            match tokio::time::timeout(ASK_AGAIN, self.store.ping()).await {
                Ok(Ok(())) => {
                    *self.lock() = Beat {
                        answered_at: Instant::now(),
                        error: None,
                    };
                }
                Ok(Err(error)) => self.lock().error = Some(error.to_string()),
                Err(_elapsed) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Beat> {
        self.beat.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is wrong with the database; `None` when it answers and refused nothing of late.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let silence = self.lock().problem_at(Instant::now());
        silence.or_else(|| self.store.refused_writes())
    }
}

impl Beat {
    fn problem_at(&self, now: Instant) -> Option<String> {
        let silent = now.saturating_duration_since(self.answered_at);
        let silence = format!("no answer for {} s", silent.as_secs());
        match &self.error {
            Some(error) if silent > SILENCE_LIMIT => Some(format!("{silence}: {error}")),
            Some(error) => Some(error.clone()),
            None => (silent > SILENCE_LIMIT).then_some(silence),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_and_errors_are_told() {
        let answered_at = Instant::now();
        let told = |error: Option<&str>, silent_ms| {
            let error = error.map(str::to_owned);
            let now = answered_at + Duration::from_millis(silent_ms);
            Beat { answered_at, error }.problem_at(now)
        };
        assert_eq!(told(None, 2_000), None);
        assert_eq!(told(None, 7_500).unwrap(), "no answer for 7 s");
        let error = Some("connection refused");
        assert_eq!(told(error, 500).unwrap(), "connection refused");
        let both = "no answer for 7 s: connection refused";
        assert_eq!(told(error, 7_500).unwrap(), both);
    }
}
