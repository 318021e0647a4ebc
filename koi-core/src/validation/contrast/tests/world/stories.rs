//! What the world's mechanisms claim: edges and mechanisms as a catalog writes them.

pub(super) const EDGES: &str = r#"
[[edge]]
from = "max_num_seqs"
to = "running_requests"
sign = "+"
prior = "PLAUSIBLE"
doc = "The cap on the batch binds."
[[edge]]
from = "swap_space_gib"
to = "kv_cache_util"
sign = "+"
prior = "PLAUSIBLE"
doc = "Nothing of the kind."
[[edge]]
from = "gpu_memory_utilization"
to = "kv_cache_util"
sign = "+"
prior = "PLAUSIBLE"
doc = "The other way round."
[[edge]]
from = "api_server_count"
to = "running_requests"
sign = "+"
prior = "PLAUSIBLE"
doc = "In one place alone."
[[edge]]
from = "running_requests"
to = "throughput_tokens_per_sec"
sign = "+"
prior = "PLAUSIBLE"
doc = "More requests share a step."
[[edge]]
from = "kv_cache_util"
to = "throughput_tokens_per_sec"
sign = "+"
prior = "PLAUSIBLE"
doc = "A fuller cache is a larger batch."
"#;

/// The mechanisms of the world.
pub(crate) fn claims() -> [&'static str; 4] {
    ["M_true", "M_absent", "M_wrong_sign", "M_one_environment"]
}

pub(super) fn mechanisms() -> String {
    let edge = [
        "max_num_seqs->running_requests",
        "swap_space_gib->kv_cache_util",
        "gpu_memory_utilization->kv_cache_util",
        "api_server_count->running_requests",
    ];
    let through = [
        "running_requests",
        "kv_cache_util",
        "kv_cache_util",
        "running_requests",
    ];
    let mut text = String::new();
    for ((id, edge), through) in claims().into_iter().zip(edge).zip(through) {
        text += &format!(
            "[[mechanism]]\nid = \"{id}\"\nedges = [\"{edge}\", \
             \"{through}->throughput_tokens_per_sec\"]\nnarrative = \"A claim.\"\n\
             prior = \"PLAUSIBLE\"\n"
        );
    }
    text
}
