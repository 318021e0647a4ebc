//! The two efficiency signals of a node: prefix-cache hit rate and generated tokens per joule.
//!
//! Raw observed values only: what counts as a valid or a good value is the placement's business, so
//! a ratio may leave 0..=1 here. ADR-0007 D2; spec §15.

/// Two readings of one monotonic counter, earlier first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterPair {
    /// The earlier reading.
    pub previous: u64,
    /// The later reading.
    pub current: u64,
}

impl CounterPair {
    /// Growth; `None` after a reset.
    #[must_use]
    pub const fn growth(self) -> Option<u64> {
        self.current.checked_sub(self.previous)
    }
}

/// Share of the prefix-cache queries of all services on the node that were answered from cache.
///
/// # Formula   Σ Δhits / Σ Δqueries over the services without a reset
/// # Shapes    one (hits, queries) pair per service that was read twice
/// # Units     fraction
/// # Errors    `None` when nothing was asked or every service was reset
/// # Source    ADR-0007 D2
#[must_use]
pub fn kv_cache_hit_rate(
    services: impl IntoIterator<Item = (CounterPair, CounterPair)>,
) -> Option<f64> {
    let mut hits = 0.0;
    let mut queries = 0.0;
    for (service_hits, service_queries) in services {
        if let (Some(h), Some(q)) = (service_hits.growth(), service_queries.growth()) {
            hits += h as f64;
            queries += q as f64;
        }
    }
    (queries > 0.0).then(|| hits / queries)
}

/// Generated tokens per joule of the node over one report window.
///
/// # Formula   Σ Δtokens / (Σ Δenergy / 1000)
/// # Shapes    one token counter per service, one energy counter per GPU
/// # Units     energy counters in millijoules; result in tokens per joule
/// # Errors    `None` without tokens, without energy, or when an energy counter went backwards: the
/// rest would be too small a divisor. A token counter that went backwards leaves its service out.
/// # Source    ADR-0007 D2; spec §15
#[must_use]
pub fn tokens_per_joule(
    generation_tokens: impl IntoIterator<Item = CounterPair>,
    energy_millijoules: impl IntoIterator<Item = CounterPair>,
) -> Option<f64> {
    let tokens: f64 = generation_tokens
        .into_iter()
        .filter_map(CounterPair::growth)
        .map(|t| t as f64)
        .sum();
    let mut joules = 0.0;
    for gpu in energy_millijoules {
        joules += gpu.growth()? as f64 / 1000.0;
    }
    (tokens > 0.0 && joules > 0.0).then(|| tokens / joules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::test_data::vector_cases;

    fn numbers(value: &serde_json::Value) -> Vec<u64> {
        value
            .as_array()
            .unwrap()
            .iter()
            .map(|v| v.as_u64().unwrap())
            .collect()
    }

    fn pairs(previous: &[u64], current: &[u64]) -> Vec<CounterPair> {
        previous
            .iter()
            .zip(current)
            .map(|(p, c)| CounterPair {
                previous: *p,
                current: *c,
            })
            .collect()
    }

    fn check(got: Option<f64>, want: &serde_json::Value, case: &serde_json::Value) {
        match (got, want.as_f64()) {
            (Some(got), Some(want)) => {
                assert!((got - want).abs() <= 1e-9 * want.abs(), "{case} {got}")
            }
            (got, want) => assert_eq!(got, want, "{case}"),
        }
    }

    #[test]
    fn vector_telemetry_hit_rates() {
        let Some(cases) = vector_cases("telemetry") else {
            return;
        };
        let mut seen = 0;
        for case in cases
            .iter()
            .filter(|c| !c["out"]["kv_cache_hit_rate"].is_null() || c["in"]["previous"].is_array())
        {
            seen += 1;
            let column = |at: &str, i: usize| -> Vec<u64> {
                case["in"][at]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|s| numbers(s)[i])
                    .collect()
            };
            let hits = pairs(&column("previous", 0), &column("current", 0));
            let queries = pairs(&column("previous", 1), &column("current", 1));
            check(
                kv_cache_hit_rate(hits.into_iter().zip(queries)),
                &case["out"]["kv_cache_hit_rate"],
                case,
            );
        }
        assert!(seen >= 8, "{seen}");
    }

    #[test]
    fn vector_telemetry_tokens_per_joule() {
        let Some(cases) = vector_cases("telemetry") else {
            return;
        };
        let mut seen = 0;
        for case in cases.iter().filter(|c| c["in"]["previous_mj"].is_array()) {
            seen += 1;
            let input = |name: &str| numbers(&case["in"][name]);
            let tokens = pairs(&input("previous_tokens"), &input("current_tokens"));
            let energy = pairs(&input("previous_mj"), &input("current_mj"));
            check(
                tokens_per_joule(tokens, energy),
                &case["out"]["gen_tokens_per_joule"],
                case,
            );
        }
        assert!(seen >= 8, "{seen}");
    }

    #[test]
    fn hazard_f8_energy_that_goes_backwards_gives_no_signal() {
        let tokens = pairs(&[0], &[100]);
        assert_eq!(
            tokens_per_joule(tokens.clone(), pairs(&[5000, 9000], &[6000, 8000])),
            None
        );
        assert_eq!(
            tokens_per_joule(tokens.clone(), []),
            None,
            "no energy counter"
        );
        assert_eq!(
            tokens_per_joule(tokens, pairs(&[5000], &[7000])),
            Some(50.0)
        );
    }
}
