//! Reading the command line, with every problem reported at once and argparse's exit code 2.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::flags::{FLAGS, Takes, check_value, find};

/// What the command line asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    /// Print the version.
    Version,
    /// Print the flags.
    Help,
    /// Serve a model.
    Serve(Box<ServeSettings>),
    /// The engine's child process (internal).
    EngineCore(String),
}

/// Everything `serve` was told; `None` means vLLM's default, which may depend on the device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServeSettings {
    pub(crate) model_dir: String,
    pub(crate) served_model_names: Vec<String>,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) api_key: Option<String>,
    pub(crate) tensor_parallel_size: u32,
    pub(crate) pipeline_parallel_size: u32,
    pub(crate) data_parallel_size: u32,
    pub(crate) enable_expert_parallel: bool,
    pub(crate) max_num_seqs: Option<u32>,
    pub(crate) max_num_batched_tokens: Option<u32>,
    pub(crate) max_model_len: Option<u32>,
    pub(crate) gpu_memory_utilization: f64,
    pub(crate) kv_cache_memory_bytes: Option<u64>,
    pub(crate) num_gpu_blocks_override: Option<u32>,
    pub(crate) block_size: u32,
    pub(crate) enable_prefix_caching: bool,
    pub(crate) enable_chunked_prefill: bool,
    pub(crate) enforce_eager: bool,
    pub(crate) async_scheduling: bool,
    pub(crate) disable_custom_all_reduce: bool,
    pub(crate) long_prefill_token_threshold: u32,
    pub(crate) dtype: String,
    pub(crate) quantization: Option<String>,
    pub(crate) kv_cache_dtype: String,
    pub(crate) seed: u64,
    pub(crate) shutdown_timeout_s: u64,
    pub(crate) enable_prompt_tokens_details: bool,
    /// Flags that were given and change nothing here.
    pub(crate) inert_flags: Vec<String>,
}

/// The command line cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.join("\n"))]
pub(crate) struct UsageError {
    pub(crate) problems: Vec<String>,
}

/// Reads the words after the program's name.
pub(crate) fn parse(words: &[String]) -> Result<Command, UsageError> {
    let wants = |names: &[&str]| words.iter().any(|word| names.contains(&word.as_str()));
    match words.first().map(String::as_str) {
        Some("engine-core") if words.len() == 2 => Ok(Command::EngineCore(words[1].clone())),
        Some("--version" | "-v") => Ok(Command::Version),
        _ if wants(&["--help", "-h"]) => Ok(Command::Help),
        Some("serve") => Ok(Command::Serve(Box::new(settings(&split(&words[1..])?)?))),
        _ => Err(UsageError {
            problems: vec!["the first word must be 'serve'".to_owned()],
        }),
    }
}

/// Values by flag name; a switch has the value `true` or `false`.
#[derive(Debug, Default)]
struct Given {
    model_tag: Option<String>,
    values: BTreeMap<&'static str, Vec<String>>,
    inert: Vec<String>,
}

fn split(words: &[String]) -> Result<Given, UsageError> {
    let mut given = Given::default();
    let mut problems = Vec::new();
    let mut unknown = Vec::new();
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.next() {
        let (name, attached) = match word.split_once('=') {
            Some((name, value)) if name.starts_with('-') => (name, Some(value.to_owned())),
            _ => (word.as_str(), None),
        };
        if !name.starts_with('-') {
            match given.model_tag {
                None => given.model_tag = Some(word.clone()),
                Some(_) => unknown.push(word.clone()),
            }
            continue;
        }
        let Some(found) = find(name) else {
            unknown.push(word.clone());
            continue;
        };
        let flag = found.flag;
        let mut values: Vec<String> = attached.into_iter().collect();
        let is_value = |next: &&String| !next.starts_with('-') || next.parse::<f64>().is_ok();
        match flag.takes {
            Takes::Switch | Takes::Bare if values.is_empty() => {
                given
                    .values
                    .insert(flag.name, vec![(!found.negated).to_string()]);
            }
            Takes::Words if values.is_empty() => {
                values.extend(std::iter::from_fn(|| {
                    rest.next_if(|next| is_value(next)).cloned()
                }));
            }
            _ if values.is_empty() => values.extend(rest.next_if(|next| is_value(next)).cloned()),
            _ => {}
        }
        if !flag.has_effect {
            given.inert.push(format!("--{}", flag.name));
        }
        if matches!(flag.takes, Takes::Switch | Takes::Bare) && values.is_empty() {
            continue;
        }
        if values.is_empty() {
            problems.push(format!("argument --{}: expected one argument", flag.name));
        }
        let mut checked = Vec::new();
        for value in values {
            match check_value(flag, &value) {
                Ok(value) => checked.push(value),
                Err(problem) => problems.push(problem),
            }
        }
        given.values.insert(flag.name, checked);
    }
    if !unknown.is_empty() {
        problems.push(format!("unrecognized arguments: {}", unknown.join(" ")));
    }
    if problems.is_empty() {
        Ok(given)
    } else {
        Err(UsageError { problems })
    }
}

impl Given {
    fn text(&self, name: &str) -> Option<String> {
        self.values
            .get(name)
            .and_then(|values| values.last())
            .cloned()
    }

    fn switch(&self, name: &str, default: bool) -> bool {
        self.text(name).map_or(default, |value| value == "true")
    }

    /// A number of the wanted width; what does not fit is a problem.
    fn number<T: std::str::FromStr>(&self, name: &str, problems: &mut Vec<String>) -> Option<T> {
        let text = self.text(name)?;
        let number = text.parse().ok();
        if number.is_none() {
            problems.push(format!("argument --{name}: {text} is too large"));
        }
        number
    }
}

fn settings(given: &Given) -> Result<ServeSettings, UsageError> {
    let mut problems = Vec::new();
    let p = &mut problems;
    let model_dir = given.model_tag.clone().or_else(|| given.text("model"));
    if model_dir.is_none() {
        p.push("the following arguments are required: model_tag".to_owned());
    }
    let model_dir = model_dir.unwrap_or_default();
    let names = given
        .values
        .get("served-model-name")
        .cloned()
        .unwrap_or_default();
    let names = if names.is_empty() {
        vec![model_dir.clone()]
    } else {
        names
    };
    let settings = ServeSettings {
        served_model_names: names,
        model_dir,
        host: given.text("host").unwrap_or_else(|| "0.0.0.0".to_owned()),
        port: given.number("port", p).unwrap_or(8000),
        api_key: given.text("api-key"),
        tensor_parallel_size: given.number("tensor-parallel-size", p).unwrap_or(1),
        pipeline_parallel_size: given.number("pipeline-parallel-size", p).unwrap_or(1),
        data_parallel_size: given.number("data-parallel-size", p).unwrap_or(1),
        enable_expert_parallel: given.switch("enable-expert-parallel", false),
        max_num_seqs: given.number("max-num-seqs", p),
        max_num_batched_tokens: given.number("max-num-batched-tokens", p),
        max_model_len: given.number("max-model-len", p),
        gpu_memory_utilization: given.number("gpu-memory-utilization", p).unwrap_or(0.92),
        kv_cache_memory_bytes: given.number("kv-cache-memory-bytes", p),
        num_gpu_blocks_override: given.number("num-gpu-blocks-override", p),
        block_size: given.number("block-size", p).unwrap_or(16),
        enable_prefix_caching: given.switch("enable-prefix-caching", true),
        enable_chunked_prefill: given.switch("enable-chunked-prefill", true),
        enforce_eager: given.switch("enforce-eager", false),
        async_scheduling: given.switch("async-scheduling", true),
        disable_custom_all_reduce: given.switch("disable-custom-all-reduce", false),
        long_prefill_token_threshold: given.number("long-prefill-token-threshold", p).unwrap_or(0),
        dtype: given.text("dtype").unwrap_or_else(|| "auto".to_owned()),
        quantization: given.text("quantization"),
        kv_cache_dtype: given
            .text("kv-cache-dtype")
            .unwrap_or_else(|| "auto".to_owned()),
        seed: given.number("seed", p).unwrap_or(0),
        shutdown_timeout_s: given.number("shutdown-timeout", p).unwrap_or(30),
        enable_prompt_tokens_details: given.switch("enable-prompt-tokens-details", false),
        inert_flags: given.inert.clone(),
    };
    if problems.is_empty() {
        Ok(settings)
    } else {
        Err(UsageError { problems })
    }
}

/// The text of `--help`.
pub(crate) fn help() -> String {
    let mut text = String::from(
        "usage: koi-engine-sim serve [model_tag] [options]\n\n\
         A simulated engine with the command line of `vllm serve` 0.32.\n\noptions:\n",
    );
    for flag in FLAGS {
        let value = match flag.takes {
            Takes::Switch => format!(", --no-{}", flag.name),
            Takes::Bare => String::new(),
            Takes::Choice(words) => format!(" {{{}}}", words.join(",")),
            Takes::Words => " WORD [WORD ...]".to_owned(),
            Takes::Integer { .. } | Takes::Number { .. } | Takes::Text => " VALUE".to_owned(),
        };
        let short = flag
            .short
            .map(|short| format!(", -{short}"))
            .unwrap_or_default();
        let note = if flag.has_effect {
            ""
        } else {
            "  (accepted, without effect here)"
        };
        text.push_str(&format!("  --{}{short}{value}{note}\n", flag.name));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(line: &str) -> Result<ServeSettings, UsageError> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match parse(&words)? {
            Command::Serve(settings) => Ok(*settings),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_forms_and_switches() {
        let s = serve(
            "serve /m/llama --served-model-name=chat --port 9001 -tp 2 --max_num_seqs=64 \
             --no-enable-prefix-caching --gpu-memory-utilization .85 --enforce-eager",
        )
        .unwrap();
        assert_eq!(
            (s.model_dir.as_str(), s.served_model_names.as_slice()),
            ("/m/llama", &["chat".to_owned()][..])
        );
        assert_eq!(
            (s.port, s.tensor_parallel_size, s.max_num_seqs),
            (9001, 2, Some(64))
        );
        assert!(!s.enable_prefix_caching && s.enforce_eager && s.enable_chunked_prefill);
        assert!((s.gpu_memory_utilization - 0.85).abs() < 1e-12);
        assert_eq!(s.max_model_len, None);
    }

    #[test]
    fn several_names_and_inert_flags() {
        let s =
            serve("serve m --served-model-name a b --disable-log-stats --max-logprobs -1").unwrap();
        assert_eq!(s.served_model_names, ["a", "b"]);
        assert_eq!(s.inert_flags, ["--disable-log-stats", "--max-logprobs"]);
    }

    #[test]
    fn every_mistake_is_reported() {
        let error = serve(
            "serve m --disable-log-requests --port=99999999 --dtype int3 extra --max-num-seqs 0 --seed",
        )
        .unwrap_err();
        assert_eq!(error.problems.len(), 4, "{error}");
        assert!(
            error
                .to_string()
                .contains("unrecognized arguments: --disable-log-requests extra")
        );
        assert!(
            serve("serve m --port 70000")
                .unwrap_err()
                .to_string()
                .contains("too large")
        );
        assert!(
            serve("serve")
                .unwrap_err()
                .to_string()
                .contains("model_tag")
        );
        assert!(parse(&["run".to_owned()]).is_err());
    }

    #[test]
    fn help_and_version() {
        assert_eq!(parse(&["--version".to_owned()]), Ok(Command::Version));
        assert_eq!(
            parse(&["serve".to_owned(), "--help".to_owned()]),
            Ok(Command::Help)
        );
        assert!(help().contains("--enable-prefix-caching, --no-enable-prefix-caching"));
    }
}
