//! What the HTTP server counts about itself, by handler.

use std::collections::BTreeMap;

use koi_sim::histogram::Histogram;

const FINE_EDGES_S: [f64; 21] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0,
    7.5, 10.0, 30.0, 60.0,
];
const COARSE_EDGES_S: [f64; 3] = [0.1, 0.5, 1.0];

/// Number and total of some sizes.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) count: u64,
    pub(crate) sum_bytes: u64,
}

/// Counters of one server.
#[derive(Debug)]
pub(crate) struct HttpStats {
    /// By handler, method and status class.
    pub(crate) requests: BTreeMap<(String, String, String), u64>,
    /// By handler.
    pub(crate) request_sizes: BTreeMap<String, Sizes>,
    /// By handler.
    pub(crate) response_sizes: BTreeMap<String, Sizes>,
    /// All handlers.
    pub(crate) durations_s: Histogram,
    /// By handler and method.
    pub(crate) handler_durations_s: BTreeMap<(String, String), Histogram>,
}

/// One answered request.
pub(crate) struct Answered<'a> {
    pub(crate) handler: &'a str,
    pub(crate) method: &'a str,
    pub(crate) status: u16,
    pub(crate) request_bytes: u64,
    pub(crate) response_bytes: u64,
    pub(crate) seconds: f64,
}

impl Default for HttpStats {
    fn default() -> Self {
        Self {
            requests: BTreeMap::new(),
            request_sizes: BTreeMap::new(),
            response_sizes: BTreeMap::new(),
            durations_s: Histogram::new(&FINE_EDGES_S),
            handler_durations_s: BTreeMap::new(),
        }
    }
}

impl HttpStats {
    /// Counts one answer.
    pub(crate) fn count(&mut self, answered: &Answered<'_>) {
        let (handler, method) = (answered.handler.to_owned(), answered.method.to_owned());
        let class = format!("{}xx", answered.status / 100);
        *self
            .requests
            .entry((handler.clone(), method.clone(), class))
            .or_default() += 1;
        let sizes = [
            (&mut self.request_sizes, answered.request_bytes),
            (&mut self.response_sizes, answered.response_bytes),
        ];
        for (by_handler, bytes) in sizes {
            let sizes = by_handler.entry(handler.clone()).or_default();
            sizes.count += 1;
            sizes.sum_bytes += bytes;
        }
        self.durations_s.observe(answered.seconds);
        self.handler_durations_s
            .entry((handler, method))
            .or_insert_with(|| Histogram::new(&COARSE_EDGES_S))
            .observe(answered.seconds);
    }
}
