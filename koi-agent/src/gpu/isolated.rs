//! A driver that may hang, kept in a thread of its own: callers only ever see its last word.
//!
//! A call that never returns costs one thread and nothing else. No second thread is started for
//! it: a driver that hangs once hangs again, and threads stuck in the kernel cannot be ended.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use koi_core::gpu::GpuFacts;

use crate::gpu::{GpuLook, GpuProbe, GpuProbeError};

/// The blocking side: opened and used in the isolated thread only.
pub trait BlockingDriver {
    /// Static facts of the devices.
    ///
    /// # Errors
    /// When they cannot be enumerated.
    fn facts(&mut self) -> Result<Vec<GpuFacts>, GpuProbeError>;

    /// One look, however long it takes.
    ///
    /// # Errors
    /// When the driver as a whole fails.
    fn look(&mut self) -> Result<GpuLook, GpuProbeError>;
}

/// What the isolated thread said last.
#[derive(Debug)]
struct LastWord {
    facts: Option<Result<Vec<GpuFacts>, GpuProbeError>>,
    look: Option<Result<GpuLook, GpuProbeError>>,
    taken_at: Instant,
    busy_since: Option<Instant>,
}

/// How often to look and how old a look may be.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Between two looks.
    pub interval: Duration,
    /// Oldest look that still counts.
    pub stale_after: Duration,
    /// Longest wait for the first look at start.
    pub first_look: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            stale_after: Duration::from_secs(10),
            first_look: Duration::from_secs(5),
        }
    }
}

/// A probe whose driver lives in its own thread.
#[derive(Debug)]
pub struct IsolatedProbe {
    last: Arc<Mutex<LastWord>>,
    pace: Pace,
    /// Dropping it ends the thread, unless the driver hangs.
    _stop: SyncSender<()>,
}

impl IsolatedProbe {
    /// Starts the thread and waits for its first look, at most [`Pace::first_look`].
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn start(
        open: impl FnOnce() -> Result<Box<dyn BlockingDriver>, GpuProbeError> + Send + 'static,
        pace: Pace,
    ) -> std::io::Result<Self> {
        let now = Instant::now();
        let word = LastWord {
            facts: None,
            look: None,
            taken_at: now,
            busy_since: Some(now),
        };
        let last = Arc::new(Mutex::new(word));
        let (stop, stopped) = sync_channel(0);
        let (ready, first) = sync_channel(1);
        let shared = Arc::clone(&last);
        thread::Builder::new()
            .name("gpu-driver".to_owned())
            .spawn(move || run(open, &shared, pace, &stopped, &ready))?;
        // Neither a slow nor a broken driver delays the agent further.
        let _in_time = first.recv_timeout(pace.first_look);
        Ok(Self {
            last,
            pace,
            _stop: stop,
        })
    }
}

fn run(
    open: impl FnOnce() -> Result<Box<dyn BlockingDriver>, GpuProbeError>,
    shared: &Mutex<LastWord>,
    pace: Pace,
    stopped: &Receiver<()>,
    ready: &SyncSender<()>,
) {
    let note = |change: &mut dyn FnMut(&mut LastWord)| {
        change(&mut shared.lock().unwrap_or_else(PoisonError::into_inner));
    };
    let mut driver = match open() {
        Ok(driver) => driver,
        Err(error) => {
            note(&mut |word| {
                word.facts = Some(Err(error.clone()));
                word.look = Some(Err(error.clone()));
                word.busy_since = None;
            });
            return;
        }
    };
    let facts = driver.facts();
    note(&mut |word| word.facts = Some(facts.clone()));
    loop {
        note(&mut |word| word.busy_since = Some(Instant::now()));
        let look = driver.look();
        note(&mut |word| {
            word.look = Some(look.clone());
            word.taken_at = Instant::now();
            word.busy_since = None;
        });
        // Only the first look is waited for.
        let _waited_for = ready.try_send(());
        match stopped.recv_timeout(pace.interval) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl GpuProbe for IsolatedProbe {
    fn facts(&self) -> Result<Vec<GpuFacts>, GpuProbeError> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.facts.clone().unwrap_or_else(|| Err(stale(&last)))
    }

    fn read(&self) -> Result<GpuLook, GpuProbeError> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let age = last.taken_at.elapsed();
        match &last.look {
            Some(Ok(look)) if age <= self.pace.stale_after => Ok(GpuLook {
                age_ms: milliseconds(age),
                ..look.clone()
            }),
            Some(Err(error)) => Err(error.clone()),
            Some(Ok(_)) | None => Err(stale(&last)),
        }
    }
}

fn stale(last: &LastWord) -> GpuProbeError {
    let reason = match last.busy_since {
        Some(since) => {
            format!(
                "a driver call has not returned for {} ms",
                milliseconds(since.elapsed())
            )
        }
        None => "the driver thread has ended".to_owned(),
    };
    GpuProbeError::Stale {
        age_ms: milliseconds(last.taken_at.elapsed()),
        reason,
    }
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scripted {
        looks: u32,
        hang_at: u32,
        hang: Duration,
    }

    impl BlockingDriver for Scripted {
        fn facts(&mut self) -> Result<Vec<GpuFacts>, GpuProbeError> {
            Ok(Vec::new())
        }

        fn look(&mut self) -> Result<GpuLook, GpuProbeError> {
            self.looks += 1;
            if self.looks == self.hang_at {
                thread::sleep(self.hang);
            }
            Ok(GpuLook::default())
        }
    }

    fn pace() -> Pace {
        Pace {
            interval: Duration::from_millis(5),
            stale_after: Duration::from_millis(100),
            first_look: Duration::from_millis(200),
        }
    }

    fn probe(hang_at: u32, hang_ms: u64) -> IsolatedProbe {
        let hang = Duration::from_millis(hang_ms);
        IsolatedProbe::start(
            move || {
                Ok(Box::new(Scripted {
                    looks: 0,
                    hang_at,
                    hang,
                }))
            },
            pace(),
        )
        .unwrap()
    }

    fn until(probe: &IsolatedProbe, wanted: impl Fn(&Result<GpuLook, GpuProbeError>) -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !wanted(&probe.read()) {
            assert!(Instant::now() < end);
            thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn hazard_f1_a_call_that_never_returns_leaves_only_stale_values() {
        let probe = probe(10, 600);
        assert!(probe.read().is_ok());
        until(&probe, |r| matches!(r, Err(GpuProbeError::Stale { .. })));
        let asked = Instant::now();
        let Err(GpuProbeError::Stale { age_ms, reason }) = probe.read() else {
            panic!("fresh?")
        };
        assert!(
            asked.elapsed() < Duration::from_millis(50),
            "reading never waits"
        );
        assert!(
            age_ms >= 100 && reason.contains("has not returned"),
            "{age_ms} {reason}"
        );
        until(&probe, Result::is_ok);
    }

    #[test]
    fn hazard_f1_a_driver_that_hangs_at_once_does_not_delay_the_start() {
        let began = Instant::now();
        let probe = probe(1, 3000);
        assert!(began.elapsed() < Duration::from_secs(2));
        assert!(matches!(probe.read(), Err(GpuProbeError::Stale { .. })));
        assert_eq!(probe.facts(), Ok(Vec::new()));
    }

    #[test]
    fn hazard_f7_a_missing_driver_is_said_so() {
        let missing = || {
            Err(GpuProbeError::Unavailable(
                "no libnvidia-ml.so.1".to_owned(),
            ))
        };
        let probe = IsolatedProbe::start(missing, pace()).unwrap();
        assert!(matches!(probe.read(), Err(GpuProbeError::Unavailable(_))));
        assert!(matches!(probe.facts(), Err(GpuProbeError::Unavailable(_))));
    }
}
