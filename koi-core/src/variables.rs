//! The closed set of mediators V and outcomes Y, and dense vectors of them.
//!
//! Not the X variables: those are rows of the catalog. White paper V1, Appendix C; one definition
//! per variable is shared by the observing and the predicting side (see `docs/glossary.md`).

use serde::{Deserialize, Serialize};

/// Which of the three layers of the causal graph a name belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum VariableKind {
    /// A decision, model, workload or environment variable (X).
    Feature,
    /// A latent or measured state between decisions and outcomes (V).
    Mediator,
    /// A quantity that Koi optimises (Y).
    Outcome,
}

macro_rules! closed_set {
    ($(#[$outer:meta])* $name:ident, $values:ident, $count:ident { $($(#[$doc:meta])* $variant:ident => $text:literal, $unit:literal, $positive:literal;)+ }) => {
        $(#[$outer])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        /// How many members the set has.
        pub const $count: usize = [$($name::$variant),+].len();

        impl $name {
            /// Every member, in the order of the dense vectors.
            pub const ALL: [Self; $count] = [$(Self::$variant),+];

            /// The published name.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $(Self::$variant => $text,)+ } }

            /// The unit, as the catalog spells it.
            #[must_use]
            pub const fn unit(self) -> &'static str { match self { $(Self::$variant => $unit,)+ } }

            /// True when the variable is positive and lives on a log scale; false for fractions
            /// and signed quantities, whose residuals are in plain units.
            #[must_use]
            pub const fn is_log_scale(self) -> bool { match self { $(Self::$variant => $positive,)+ } }

            /// The member of this published name; aliases are the catalog's business.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|v| v.name() == name)
            }

            /// Position in the dense vectors.
            #[must_use]
            pub const fn index(self) -> usize { self as usize }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.name())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let name = String::deserialize(d)?;
                Self::from_name(&name)
                    .ok_or_else(|| serde::de::Error::custom(format!("unknown variable {name:?}")))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        /// A dense vector with one optional finite value per member; absent is never zero.
        #[derive(Debug, Clone, Copy, PartialEq, Default)]
        pub struct $values([Option<f64>; $count]);

        impl $values {
            /// A vector in which everything is absent.
            #[must_use]
            pub const fn absent() -> Self { Self([None; $count]) }

            /// The value of one member.
            #[must_use]
            pub const fn get(&self, v: $name) -> Option<f64> { self.0[v as usize] }

            /// Stores a value; a value that is not finite counts as absent.
            pub fn set(&mut self, v: $name, value: Option<f64>) {
                self.0[v.index()] = value.filter(|x| x.is_finite());
            }

            /// Builder form of [`Self::set`] with a present value.
            #[must_use]
            pub fn with(mut self, v: $name, value: f64) -> Self { self.set(v, Some(value)); self }

            /// Members that are present, in order.
            pub fn present(&self) -> impl Iterator<Item = ($name, f64)> + '_ {
                $name::ALL.into_iter().filter_map(|v| self.get(v).map(|x| (v, x)))
            }
        }

        impl Serialize for $values {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_map(self.present().map(|(v, x)| (v.name(), x)))
            }
        }

        impl<'de> Deserialize<'de> for $values {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let map = std::collections::BTreeMap::<$name, f64>::deserialize(d)?;
                let mut values = Self::absent();
                for (v, x) in map { values.set(v, Some(x)); }
                Ok(values)
            }
        }
    };
}

closed_set! {
    /// A mediator V: measurable state that carries every effect from X to Y.
    Mediator, MediatorValues, MEDIATOR_COUNT {
        /// Share of prefix-cache queries answered from cache.
        KvcacheHitRate => "kvcache_hit_rate", "fraction", false;
        /// Mean prompt tokens of finished requests.
        InputLengthObserved => "input_length_observed", "tokens", true;
        /// Mean generated tokens of finished requests.
        OutputLengthObserved => "output_length_observed", "tokens", true;
        /// (weights + activations + live KV) over device memory.
        GpuMemUsedFraction => "gpu_mem_used_fraction", "fraction", false;
        /// Memory allowed to the engine minus the same sum.
        VramHeadroomGb => "vram_headroom_gb", "GiB", false;
        /// Live KV tokens over the KV pool.
        KvCacheUtil => "kv_cache_util", "fraction", false;
        /// Block demand of running and waiting requests over the pool.
        KvPressureScore => "kv_pressure_score", "ratio", true;
        /// Peak activation bytes over device memory.
        ActivationMemPressure => "activation_mem_pressure", "fraction", false;
        /// Mean live batch.
        RunningRequests => "running_requests", "requests", true;
        /// Mean queue of waiting requests.
        QueueDepth => "queue_depth", "requests", false;
        /// Floating-point operations per second over the dense peak.
        SmUtilization => "sm_utilization", "fraction", false;
        /// Memory bytes per second over the peak.
        MemBandwidthUtilization => "mem_bandwidth_utilization", "fraction", false;
        /// Bytes per second sent over NVLink by one replica's GPUs.
        NvlinkBytesPerSec => "nvlink_bytes_per_sec", "B/s", true;
        /// Bytes per second sent over PCIe by one replica's GPUs.
        PcieBytesPerSec => "pcie_bytes_per_sec", "B/s", true;
        /// Prompt tokens computed per second.
        PrefillTokensPerSec => "prefill_tokens_per_sec", "1/s", true;
        /// Engine iterations per second.
        DecodeStepsPerSec => "decode_steps_per_sec", "1/s", true;
        /// ln(prefill time sum / decode time sum).
        PdImbalance => "pd_imbalance", "log ratio", false;
        /// Share of stage time lost to pipeline fill and drain.
        PipelineBubbleFraction => "pipeline_bubble_fraction", "fraction", false;
        /// Bytes sent per token by one shard.
        PerTokCommBytes => "per_tok_comm_bytes", "B/token", true;
        /// Link bytes over what the links could carry.
        CommOverheadPct => "comm_overhead_pct", "fraction", false;
        /// Largest over mean expert load; 1 for dense models.
        ExpertImbalance => "expert_imbalance", "ratio", true;
        /// Step time beyond the roofline at small batch.
        DispatchOverheadMs => "dispatch_overhead_ms", "ms", true;
    }
}

closed_set! {
    /// An outcome Y: what Koi optimises per job. The order is the paper's objective order.
    Outcome, OutcomeValues, OUTCOME_COUNT {
        /// USD per generated token.
        CostPerToken => "cost_per_token", "USD/token", true;
        /// 99th percentile of time to first token.
        P99TtftMs => "p99_ttft_ms", "ms", true;
        /// 99th percentile of time per output token.
        P99TpotMs => "p99_tpot_ms", "ms", true;
        /// Generated tokens per second.
        ThroughputTokensPerSec => "throughput_tokens_per_sec", "tok/s", true;
        /// Smallest relative headroom to the SLO's targets.
        SloMargin => "slo_margin", "fraction", false;
    }
}

impl Outcome {
    /// True for outcomes of which more is better (throughput and margin).
    #[must_use]
    pub const fn is_maximised(self) -> bool {
        matches!(self, Self::ThroughputTokensPerSec | Self::SloMargin)
    }
}
