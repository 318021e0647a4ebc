//! The closed set of series that a window carries, with the names they have in pages and on the wire.
//!
//! Not the mediators: those are derived in `observe.rs`. Spec §3 (observed column), §14 (V0 and V1
//! names).

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! series {
    ($(#[$outer:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident => $text:literal;)+ }) => {
        $(#[$outer])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every member, in a fixed order.
            pub const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            /// The name in stored windows and on the wire.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $(Self::$variant => $text,)+ } }

            /// The member of this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|s| s.name() == name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(self.name()) }
        }
    };
}

series! {
    /// Counters: whole numbers that only grow while one engine process lives.
    CounterSeries {
        /// Prompt tokens, those answered from the prefix cache included.
        PromptTokens => "prompt_tokens";
        /// Generated tokens.
        GenerationTokens => "generation_tokens";
        /// Prompt tokens looked up in the prefix cache.
        PrefixCacheQueries => "prefix_cache_queries";
        /// Prompt tokens found there.
        PrefixCacheHits => "prefix_cache_hits";
        /// Requests preempted.
        Preemptions => "preemptions";
        /// Engine steps.
        Iterations => "iterations";
        /// Requests finished by a stop token.
        FinishedStop => "finished_stop";
        /// Requests finished by their length limit.
        FinishedLength => "finished_length";
        /// Requests aborted.
        FinishedAbort => "finished_abort";
        /// Requests finished by an error.
        FinishedError => "finished_error";
        /// Requests finished for any other reason.
        FinishedOther => "finished_other";
        /// Energy of the replica's GPUs in millijoules.
        EnergyMillijoules => "energy_millijoules";
        /// Bytes the replica's GPUs sent over NVLink.
        NvlinkTxBytes => "nvlink_tx_bytes";
        /// Bytes the replica's GPUs sent over PCIe.
        PcieTxBytes => "pcie_tx_bytes";
    }
}

series! {
    /// Gauges: momentary values, stored as time means.
    GaugeSeries {
        /// Requests in the running batch.
        RunningRequests => "running_requests";
        /// Requests waiting.
        WaitingRequests => "waiting_requests";
        /// Share of the KV pool in use.
        KvCacheUsage => "kv_cache_usage_fraction";
        /// Memory in use, mean over the replica's GPUs.
        GpuMemoryUsedBytes => "gpu_memory_used_bytes";
        /// Share of time a kernel ran, mean over GPUs.
        GpuUtilization => "gpu_utilization_fraction";
        /// Board power, summed over GPUs.
        GpuPowerW => "gpu_power_w";
        /// Share of cycles in which the tensor pipes worked, mean over GPUs.
        TensorActive => "tensor_active_fraction";
        /// Share of memory-bandwidth cycles, mean over GPUs.
        MemoryBandwidth => "memory_bandwidth_fraction";
    }
}

series! {
    /// Histograms: counts per bucket, stored as deltas.
    HistogramSeries {
        /// Time to first token in seconds.
        TimeToFirstToken => "time_to_first_token_seconds";
        /// Time per output token in seconds; which series it came from is stored beside it.
        TimePerOutputToken => "time_per_output_token_seconds";
        /// Prefill time per request in seconds.
        PrefillTime => "prefill_time_seconds";
        /// Decode time per request in seconds.
        DecodeTime => "decode_time_seconds";
        /// Whole request in seconds.
        EndToEnd => "end_to_end_seconds";
        /// Time in the engine's queue in seconds.
        QueueTime => "queue_time_seconds";
        /// Prompt tokens of finished requests.
        PromptTokensPerRequest => "prompt_tokens_per_request";
        /// Generated tokens of finished requests.
        GenerationTokensPerRequest => "generation_tokens_per_request";
    }
}

/// Which engine series the time per output token was read from; never mixed within a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TpotSource {
    /// `request_time_per_output_token_seconds`: one observation per request.
    PerRequest,
    /// `time_per_output_token_seconds`: one observation per token in old engines.
    PerToken,
    /// `inter_token_latency_seconds`: a proxy, one observation per step.
    InterTokenLatency,
}

impl TpotSource {
    /// True when the source is a stand-in for the outcome's definition.
    #[must_use]
    pub const fn is_proxy(self) -> bool {
        matches!(self, Self::InterTokenLatency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_round_trip() {
        let mut names = std::collections::BTreeSet::new();
        for series in CounterSeries::ALL {
            assert_eq!(CounterSeries::from_name(series.name()), Some(series));
            assert!(names.insert(series.name()), "{series}");
        }
        for series in GaugeSeries::ALL {
            assert_eq!(GaugeSeries::from_name(series.name()), Some(series));
            assert!(names.insert(series.name()), "{series}");
        }
        for series in HistogramSeries::ALL {
            assert_eq!(HistogramSeries::from_name(series.name()), Some(series));
            assert!(names.insert(series.name()), "{series}");
        }
    }
}
