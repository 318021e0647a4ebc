//! Bytes of one matrix in a number format, scales and zero points included.

use crate::model::WeightDtype;

/// How the scales of a matrix are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Scales {
    None,
    /// So many 32-bit numbers a matrix.
    Tensor {
        scalars: u32,
    },
    /// One number per output element.
    Channel {
        bits: u32,
    },
    /// One 32-bit number per block.
    Block {
        rows: u32,
        cols: u32,
    },
    /// Per group of inputs of one output; no size: the whole input.
    Group {
        size: Option<u32>,
        scale_bits: u32,
        zero_bits: u32,
        /// Bits per input element beside the weights.
        input_bits: u32,
    },
}

/// A number format with its scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) struct Format {
    pub(in crate::model) dtype: WeightDtype,
    scales: Scales,
    /// 32-bit numbers a matrix, beside the scales.
    scalars: u32,
}

impl Format {
    pub(super) const fn of(dtype: WeightDtype, scales: Scales) -> Self {
        Self {
            dtype,
            scales,
            scalars: 0,
        }
    }

    /// Groups of 32 with an 8-bit power of two each.
    pub(super) const fn mxfp4() -> Self {
        Self::of(
            WeightDtype::Mxfp4,
            Scales::Group {
                size: Some(32),
                scale_bits: 8,
                zero_bits: 0,
                input_bits: 0,
            },
        )
    }

    /// Groups of 16 with an 8-bit float each, and two 32-bit scales a matrix.
    pub(super) const fn nvfp4() -> Self {
        Self {
            dtype: WeightDtype::Nvfp4,
            scales: Scales::Group {
                size: Some(16),
                scale_bits: 8,
                zero_bits: 0,
                input_bits: 0,
            },
            scalars: 2,
        }
    }

    /// Bytes of a matrix of rows × cols.
    ///
    /// # Formula
    /// ⌈r·c·b/8⌉ + scales: 4 a block, or ⌈c/g⌉·r·(s+z)/8 for groups
    pub(in crate::model) fn bytes(&self, rows: u64, cols: u64) -> u64 {
        let bits = u64::from(self.dtype.bits().unwrap_or(16));
        let data = (rows * cols * bits).div_ceil(8);
        let scales = match self.scales {
            Scales::None => 0,
            Scales::Tensor { scalars } => 4 * u64::from(scalars),
            Scales::Channel { bits } => rows * u64::from(bits) / 8,
            Scales::Block { rows: r, cols: c } => {
                4 * rows.div_ceil(u64::from(r)) * cols.div_ceil(u64::from(c))
            }
            Scales::Group {
                size,
                scale_bits,
                zero_bits,
                input_bits,
            } => {
                let groups = size.map_or(1, |g| cols.div_ceil(u64::from(g)));
                let per_group = u64::from(scale_bits + zero_bits);
                (rows * groups * per_group + cols * u64::from(input_bits)).div_ceil(8)
            }
        };
        data + scales + 4 * u64::from(self.scalars)
    }

    /// Inputs that share a scale.
    pub(super) const fn group(&self) -> Option<u32> {
        match self.scales {
            Scales::Group { size, .. } => size,
            Scales::Block { cols, .. } => Some(cols),
            Scales::None | Scales::Tensor { .. } | Scales::Channel { .. } => None,
        }
    }

    /// Multiples that one shard's outputs and inputs must be of, for the kernels that engines use:
    /// whole blocks for block-scaled fp8, 16 for other fp8, Marlin's 64 × 128 tile for grouped
    /// integers, 32 for NVFP4. MXFP4 experts are padded by the engine.
    pub(super) const fn tile(&self) -> (u32, u32) {
        match (self.dtype, self.scales) {
            (WeightDtype::Fp8, Scales::Block { rows, cols }) => (rows, cols),
            (
                WeightDtype::Fp8 | WeightDtype::Int8,
                Scales::Tensor { .. } | Scales::Channel { .. },
            ) => (16, 16),
            (WeightDtype::Int4 | WeightDtype::Int8, _) => (64, 128),
            (WeightDtype::Nvfp4, _) => (32, 32),
            _ => (1, 1),
        }
    }
}
