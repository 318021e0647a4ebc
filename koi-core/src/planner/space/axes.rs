//! What a wide search varies, and how a position in the space becomes engine settings.
//!
//! An axis holds what must be decided together: tensor and pipeline width, sequences and tokens of a
//! step. Formats of weights and cache are no axis, for the reason that [`super::super::enumerate`]
//! gives.

use crate::configuration::EngineShape;

/// Number of axes of settings.
pub(super) const AXES: usize = 5;
/// Most values of one axis.
pub(super) const VALUES_MAX: usize = 256;

/// One value on an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Knob {
    /// Tensor-parallel width and pipeline depth.
    Split(u32, u32),
    /// Sequences and tokens of one step.
    Batch(u32, u32),
    /// Share of device memory.
    MemoryShare(f64),
    /// Tokens of a cache block.
    Block(u32),
    /// Whether equal prefixes share blocks.
    PrefixCaching(bool),
}

impl Knob {
    /// Puts the value into a shape.
    pub(super) const fn apply(self, shape: &mut EngineShape) {
        match self {
            Self::Split(tp, pp) => {
                shape.tp = tp;
                shape.pp = pp;
            }
            Self::Batch(sequences, tokens) => {
                shape.max_num_seqs = sequences;
                shape.max_num_batched_tokens = tokens;
            }
            Self::MemoryShare(share) => shape.gpu_memory_utilization = share,
            Self::Block(tokens) => shape.block_size = tokens,
            Self::PrefixCaching(is_on) => shape.prefix_caching = is_on,
        }
    }
}

/// The axis that a catalog variable lies on.
pub(super) fn axis_of(id: &str) -> Option<usize> {
    Some(match id {
        "tp" | "pp" => 0,
        "max_num_seqs" | "max_num_batched_tokens" => 1,
        "gpu_memory_utilization" => 2,
        "block_size" => 3,
        "prefix_cache_enabled" => 4,
        _ => return None,
    })
}

/// Catalog variables that lie on an axis.
pub(super) const VARIABLES: [&str; 7] = [
    "tp",
    "pp",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "block_size",
    "prefix_cache_enabled",
];

/// The values of every setting that a search combines.
#[derive(Debug, Clone, PartialEq)]
pub struct Axes {
    /// Tensor-parallel widths.
    pub tp: Vec<u32>,
    /// Pipeline depths, inside one host.
    pub pp: Vec<u32>,
    /// Sequences of one step.
    pub max_num_seqs: Vec<u32>,
    /// Tokens of one step.
    pub max_num_batched_tokens: Vec<u32>,
    /// Shares of device memory.
    pub gpu_memory_utilization: Vec<f64>,
    /// Tokens of a cache block.
    pub block_size: Vec<u32>,
    /// Whether equal prefixes share blocks.
    pub prefix_caching: Vec<bool>,
    /// Most replicas; the job's own bounds hold besides.
    pub replicas_max: u32,
}

impl Axes {
    /// Everything that one would try who had the time.
    #[must_use]
    pub fn wide() -> Self {
        Self {
            tp: vec![1, 2, 4, 8, 16],
            pp: vec![1, 2, 4],
            max_num_seqs: vec![16, 32, 64, 128, 256, 512, 1024],
            max_num_batched_tokens: vec![1024, 2048, 4096, 8192, 16_384, 32_768],
            gpu_memory_utilization: vec![0.85, 0.90, 0.95],
            block_size: vec![16, 32],
            prefix_caching: vec![true, false],
            replicas_max: 16,
        }
    }

    /// The values by axis. A step that holds fewer tokens than sequences is none.
    pub(super) fn values(&self) -> [Vec<Knob>; AXES] {
        let pairs = |a: &[u32], b: &[u32]| -> Vec<(u32, u32)> {
            a.iter()
                .flat_map(|x| b.iter().map(move |y| (*x, *y)))
                .collect()
        };
        let splits = pairs(&self.tp, &self.pp);
        let batches = pairs(&self.max_num_seqs, &self.max_num_batched_tokens);
        [
            splits.into_iter().map(|(a, b)| Knob::Split(a, b)).collect(),
            batches
                .into_iter()
                .filter(|(sequences, tokens)| sequences <= tokens)
                .map(|(a, b)| Knob::Batch(a, b))
                .collect(),
            each(&self.gpu_memory_utilization, Knob::MemoryShare),
            each(&self.block_size, Knob::Block),
            each(&self.prefix_caching, Knob::PrefixCaching),
        ]
    }
}

fn each<T: Copy>(values: &[T], knob: fn(T) -> Knob) -> Vec<Knob> {
    values.iter().copied().map(knob).collect()
}
