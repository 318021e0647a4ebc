//! Sizes of layers that keep a state instead of keys and values.

use super::plan::{DeltaPlan, Mamba1Plan, Mamba2Plan};
use super::reader::Reader;
use super::shape::{MAX_HEAD_DIM, MAX_HEADS, MAX_WIDTH};
use super::spec::Keys;

const MAX_STATE: u32 = 4_096;
const MAX_KERNEL: u32 = 64;

/// Mamba-2 in Nemotron-H, Bamba and Granite 4.
pub(super) fn read_mamba2(reader: &mut Reader<'_>) -> Option<Mamba2Plan> {
    let mut number = |fact: &str, keys: Keys, max: u32| reader.required(fact, keys, max);
    let heads: Keys = &["mamba_num_heads", "mamba_n_heads"];
    let heads = number("mamba.heads", heads, MAX_HEADS);
    let head_dim: Keys = &["mamba_head_dim", "mamba_d_head"];
    let head_dim = number("mamba.head_dim", head_dim, MAX_HEAD_DIM);
    let groups = number("mamba.groups", &["n_groups", "mamba_n_groups"], MAX_HEADS);
    let state = number(
        "mamba.state",
        &["ssm_state_size", "mamba_d_state"],
        MAX_STATE,
    );
    let kernel = number("mamba.kernel", &["conv_kernel", "mamba_d_conv"], MAX_KERNEL);
    let conv_bias: Keys = &["use_conv_bias", "mamba_conv_bias"];
    let conv_bias = reader.flag_or("mamba.conv_bias", conv_bias, true);
    let proj_bias: Keys = &["mamba_proj_bias", "use_bias"];
    if reader.flag_or("mamba.proj_bias", proj_bias, false) {
        let message = "biases of the Mamba projections are not modelled";
        reader.violations.add("mamba_proj_bias", message);
    }
    Some(Mamba2Plan {
        heads: heads?,
        head_dim: head_dim?,
        groups: groups?,
        state: state?,
        kernel: kernel?,
        conv_bias,
    })
}

/// Mamba in Jamba.
pub(super) fn read_mamba1(reader: &mut Reader<'_>, hidden: u32) -> Option<Mamba1Plan> {
    let expand = reader.required("mamba.expand", &["mamba_expand"], 16);
    let state = reader.required("mamba.state", &["mamba_d_state"], MAX_STATE);
    let kernel = reader.required("mamba.kernel", &["mamba_d_conv"], MAX_KERNEL);
    let keys: Keys = &["mamba_dt_rank"];
    let is_auto = reader
        .find_any(keys)
        .is_some_and(|(_, v)| v.as_str() == Some("auto"));
    let rank = if is_auto {
        reader.source("mamba.rank", "mamba_dt_rank is auto: ⌈hidden / 16⌉");
        Some(hidden.div_ceil(16))
    } else {
        reader.required("mamba.rank", keys, MAX_WIDTH)
    };
    let inner = expand?.checked_mul(hidden).filter(|n| *n <= 8 * MAX_WIDTH);
    if inner.is_none() {
        let message = format!("mamba_expand × hidden exceeds {}", 8 * MAX_WIDTH);
        reader.violations.add("mamba_expand", message);
    }
    Some(Mamba1Plan {
        inner: inner?,
        state: state?,
        rank: rank?,
        kernel: kernel?,
    })
}

/// The gated delta rule of Qwen3-Next and Qwen3.5.
pub(super) fn read_delta(reader: &mut Reader<'_>) -> Option<DeltaPlan> {
    let key_heads = reader.required("linear.key_heads", &["linear_num_key_heads"], MAX_HEADS);
    let key_dim = reader.required("linear.key_dim", &["linear_key_head_dim"], MAX_HEAD_DIM);
    let value_heads = reader.required("linear.value_heads", &["linear_num_value_heads"], MAX_HEADS);
    let value_dim = reader.required("linear.value_dim", &["linear_value_head_dim"], MAX_HEAD_DIM);
    let kernel = reader.required("linear.kernel", &["linear_conv_kernel_dim"], MAX_KERNEL);
    Some(DeltaPlan {
        key_heads: key_heads?,
        key_dim: key_dim?,
        value_heads: value_heads?,
        value_dim: value_dim?,
        kernel: kernel?,
    })
}
