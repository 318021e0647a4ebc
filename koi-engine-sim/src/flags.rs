//! The command line of `vllm serve` 0.32 as a table: which flags exist and what they take.

/// What a flag takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Takes {
    /// A whole number of at least this; suffixes as in `8k` where the flag allows them.
    Integer { least: i64, suffixes: bool },
    /// A number above the first and up to the second.
    Number { above: f64, up_to: f64 },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any text.
    Text,
    /// One or more words.
    Words,
    /// Nothing; `--no-…` exists as well.
    Switch,
    /// Nothing; there is no `--no-…`.
    Bare,
}

/// One flag.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flag {
    /// Long name without dashes, with `-` between words.
    pub(crate) name: &'static str,
    /// Short form without its dash.
    pub(crate) short: Option<&'static str>,
    /// What it takes.
    pub(crate) takes: Takes,
    /// Whether the simulation acts on it; the others are accepted with a warning.
    pub(crate) has_effect: bool,
}

const fn works(name: &'static str, takes: Takes) -> Flag {
    Flag {
        name,
        short: None,
        takes,
        has_effect: true,
    }
}

const fn short(name: &'static str, short: &'static str, takes: Takes) -> Flag {
    Flag {
        name,
        short: Some(short),
        takes,
        has_effect: true,
    }
}

const fn inert(name: &'static str, takes: Takes) -> Flag {
    Flag {
        name,
        short: None,
        takes,
        has_effect: false,
    }
}

const fn at_least(least: i64) -> Takes {
    Takes::Integer {
        least,
        suffixes: false,
    }
}

const TOKENS: Takes = Takes::Integer {
    least: 1,
    suffixes: true,
};
const DTYPES: &[&str] = &["auto", "bfloat16", "float", "float16", "float32", "half"];
const KV_DTYPES: &[&str] = &["auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"];

/// Every flag that is understood.
#[rustfmt::skip] // a table reads best with one row a line
pub(crate) const FLAGS: &[Flag] = &[
    works("model", Takes::Text),
    works("served-model-name", Takes::Words),
    works("host", Takes::Text),
    works("port", Takes::Integer { least: 0, suffixes: false }),
    works("api-key", Takes::Text),
    short("tensor-parallel-size", "tp", at_least(1)),
    short("pipeline-parallel-size", "pp", at_least(1)),
    short("data-parallel-size", "dp", at_least(1)),
    short("enable-expert-parallel", "ep", Takes::Switch),
    works("max-num-seqs", at_least(1)),
    works("max-num-batched-tokens", TOKENS),
    works("max-model-len", TOKENS),
    works("gpu-memory-utilization", Takes::Number { above: 0.0, up_to: 1.0 }),
    works("kv-cache-memory-bytes", TOKENS),
    works("num-gpu-blocks-override", at_least(2)),
    works("block-size", Takes::Choice(&["1", "8", "16", "32", "64", "128"])),
    works("enable-prefix-caching", Takes::Switch),
    works("enable-chunked-prefill", Takes::Switch),
    works("enforce-eager", Takes::Switch),
    works("async-scheduling", Takes::Switch),
    works("disable-custom-all-reduce", Takes::Switch),
    works("long-prefill-token-threshold", at_least(0)),
    works("dtype", Takes::Choice(DTYPES)),
    short("quantization", "q", Takes::Text),
    works("kv-cache-dtype", Takes::Choice(KV_DTYPES)),
    works("seed", at_least(0)),
    works("shutdown-timeout", at_least(0)),
    works("enable-prompt-tokens-details", Takes::Switch),
    inert("tokenizer", Takes::Text),
    inert("tokenizer-mode", Takes::Text),
    inert("trust-remote-code", Takes::Switch),
    inert("revision", Takes::Text),
    inert("download-dir", Takes::Text),
    inert("load-format", Takes::Text),
    inert("config-format", Takes::Text),
    inert("hf-overrides", Takes::Text),
    inert("generation-config", Takes::Text),
    inert("max-logprobs", at_least(-1)),
    inert("skip-tokenizer-init", Takes::Switch),
    inert("attention-backend", Takes::Text),
    inert("moe-backend", Takes::Text),
    inert("optimization-level", at_least(0)),
    inert("performance-mode", Takes::Text),
    inert("compilation-config", Takes::Text),
    inert("cudagraph-capture-sizes", Takes::Words),
    inert("max-cudagraph-capture-size", at_least(0)),
    inert("speculative-config", Takes::Text),
    inert("kv-transfer-config", Takes::Text),
    inert("kv-offloading-size", Takes::Text),
    inert("kv-offloading-backend", Takes::Text),
    inert("cpu-offload-gb", Takes::Number { above: -1.0, up_to: 1e6 }),
    inert("prefix-caching-hash-algo", Takes::Text),
    inert("calculate-kv-scales", Takes::Switch),
    inert("scheduling-policy", Takes::Choice(&["fcfs", "priority"])),
    inert("max-num-partial-prefills", at_least(1)),
    inert("max-long-partial-prefills", at_least(1)),
    inert("disable-chunked-mm-input", Takes::Switch),
    inert("stream-interval", at_least(1)),
    inert("distributed-executor-backend", Takes::Choice(&["external_launcher", "mp", "ray", "uni"])),
    inert("all2all-backend", Takes::Text),
    inert("enable-eplb", Takes::Switch),
    inert("eplb-config", Takes::Text),
    inert("enable-dbo", Takes::Switch),
    inert("decode-context-parallel-size", at_least(1)),
    inert("prefill-context-parallel-size", at_least(1)),
    inert("max-parallel-loading-workers", at_least(1)),
    inert("disable-cascade-attn", Takes::Switch),
    inert("disable-sliding-window", Takes::Switch),
    inert("enable-lora", Takes::Switch),
    inert("max-loras", at_least(1)),
    inert("max-lora-rank", at_least(1)),
    inert("limit-mm-per-prompt", Takes::Text),
    inert("enable-log-requests", Takes::Switch),
    inert("enable-log-outputs", Takes::Switch),
    inert("disable-log-stats", Takes::Bare),
    inert("uvicorn-log-level", Takes::Text),
    inert("disable-uvicorn-access-log", Takes::Switch),
    inert("disable-access-log-for-endpoints", Takes::Text),
    inert("disable-fastapi-docs", Takes::Switch),
    inert("chat-template", Takes::Text),
    inert("enable-auto-tool-choice", Takes::Switch),
    inert("tool-call-parser", Takes::Text),
    inert("reasoning-parser", Takes::Text),
    inert("enable-mfu-metrics", Takes::Switch),
    inert("otlp-traces-endpoint", Takes::Text),
    inert("additional-config", Takes::Text),
];

/// A flag as it stands on a command line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    /// The row.
    pub(crate) flag: &'static Flag,
    /// Whether it was written `--no-…`.
    pub(crate) negated: bool,
}

/// The row of a word such as `--max_num_seqs`, `--no-enable-prefix-caching` or `-tp`.
pub(crate) fn find(word: &str) -> Option<Found> {
    let Some(name) = word.strip_prefix("--") else {
        let flag = FLAGS
            .iter()
            .find(|flag| flag.short == word.strip_prefix('-'))?;
        return word.starts_with('-').then_some(Found {
            flag,
            negated: false,
        });
    };
    let name = name.replace('_', "-");
    if let Some(flag) = FLAGS.iter().find(|flag| flag.name == name) {
        return Some(Found {
            flag,
            negated: false,
        });
    }
    let positive = name.strip_prefix("no-")?;
    let flag = FLAGS
        .iter()
        .find(|flag| flag.name == positive && flag.takes == Takes::Switch)?;
    Some(Found {
        flag,
        negated: true,
    })
}

/// Checks a value, and gives it in its plain form.
pub(crate) fn check_value(flag: &Flag, value: &str) -> Result<String, String> {
    let refuse = |what: String| Err(format!("argument --{}: {what}", flag.name));
    match flag.takes {
        Takes::Integer { least, suffixes } => match parse_integer(value, suffixes) {
            Some(n) if n >= least => Ok(n.to_string()),
            Some(_) => refuse(format!("{value} is less than {least}")),
            None => refuse(format!("invalid int value: '{value}'")),
        },
        Takes::Number { above, up_to } => match value.parse::<f64>() {
            Ok(n) if n > above && n <= up_to => Ok(value.to_owned()),
            Ok(_) => refuse(format!("{value} is not in ({above}, {up_to}]")),
            Err(_) => refuse(format!("invalid float value: '{value}'")),
        },
        Takes::Choice(words) if !words.contains(&value) => {
            let choices: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
            refuse(format!(
                "invalid choice: '{value}' (choose from {})",
                choices.join(", ")
            ))
        }
        Takes::Choice(_) | Takes::Text | Takes::Words => Ok(value.to_owned()),
        Takes::Switch | Takes::Bare => refuse(format!("ignored explicit argument '{value}'")),
    }
}

/// `8192`, `8k` (thousands), `8K` (1024s), `1.5m`.
fn parse_integer(text: &str, suffixes: bool) -> Option<i64> {
    if !suffixes {
        return text.parse().ok();
    }
    let unit = match text.chars().last()? {
        'k' => 1_000.0,
        'm' => 1e6,
        'g' => 1e9,
        'K' => 1_024.0,
        'M' => 1_048_576.0,
        'G' => 1_073_741_824.0,
        _ => return text.parse().ok(),
    };
    let number: f64 = text[..text.len() - 1].parse().ok()?;
    let value = number * unit;
    (value.is_finite() && value.abs() < 1e15).then_some(value as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_find_their_row() {
        for word in ["--max-num-seqs", "--max_num_seqs"] {
            assert_eq!(find(word).map(|f| f.flag.name), Some("max-num-seqs"));
        }
        assert_eq!(
            find("-tp").map(|f| f.flag.name),
            Some("tensor-parallel-size")
        );
        assert_eq!(
            find("--no-enable-prefix-caching").map(|f| f.negated),
            Some(true)
        );
        for word in [
            "--no-dtype",
            "--disable-log-requests",
            "--swap-space",
            "-x",
            "tp",
            "--",
        ] {
            assert!(find(word).is_none(), "{word}");
        }
    }

    #[test]
    fn values_are_checked() {
        let check = |name: &str, value: &str| check_value(find(name).unwrap().flag, value);
        assert_eq!(check("--max-model-len", "8k").as_deref(), Ok("8000"));
        assert_eq!(check("--max-model-len", "8K").as_deref(), Ok("8192"));
        assert_eq!(check("--port", "8000").as_deref(), Ok("8000"));
        for (name, value) in [
            ("--port", "8k"),
            ("--max-num-seqs", "0"),
            ("--dtype", "int7"),
            ("--gpu-memory-utilization", "NaN"),
            ("--gpu-memory-utilization", "1.5"),
            ("--max-model-len", ""),
            ("--enforce-eager", "yes"),
        ] {
            assert!(check(name, value).is_err(), "{name} {value}");
        }
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> = FLAGS.iter().map(|flag| flag.name).collect();
        assert_eq!(names.len(), FLAGS.len());
    }
}
