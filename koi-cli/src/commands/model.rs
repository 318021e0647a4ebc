//! `koi model`: what follows from a model's config.json, without a server.

mod text;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use koi_core::model::{KnownModel, MAX_CONFIG_BYTES, ModelFacts, ModelReport, ReportChoices};

use crate::args::{ModelCommand, ShowArgs};
use crate::failure::{ExitCode, Failure};
use crate::output::{Format, Grid, emit};

/// Runs a question about a model.
pub(super) fn run(format: Format, command: &ModelCommand) -> anyhow::Result<()> {
    match command {
        ModelCommand::Show(args) => show(format, args),
        ModelCommand::List => list(format),
    }
}

fn show(format: Format, args: &ShowArgs) -> anyhow::Result<()> {
    let texts = Texts::read(args)?;
    let facts = ModelFacts::from_texts(&texts.config, texts.side_file.as_deref())
        .map_err(|problems| Failure::invalid(&texts.name, problems))?;
    let choices = ReportChoices {
        tp: args.tp,
        pp: args.pp,
        weight_dtype: args.weight_dtype,
        kv_dtype: args.kv_dtype,
    };
    let report = ModelReport::of(facts, choices)
        .map_err(|problems| Failure::invalid("the split asked for", problems))?;
    emit(format, &report, || {
        text::report(&texts.name, &report, choices, args.sources)
    })
}

/// What was read, and under which name it is shown.
struct Texts {
    name: String,
    config: String,
    side_file: Option<String>,
}

impl Texts {
    fn read(args: &ShowArgs) -> anyhow::Result<Self> {
        let path = config_path(&args.config);
        let (name, config) = if path.as_os_str() == "-" {
            let text = bounded(std::io::stdin().lock(), "standard input")?;
            ("standard input".to_owned(), text)
        } else if let Some(known) = known(&path) {
            (known.name.clone(), known.config_json().to_owned())
        } else {
            (path.display().to_string(), read_file(&path)?)
        };
        let beside = path.with_file_name("hf_quant_config.json");
        let side = match &args.hf_quant {
            Some(given) => Some(given.clone()),
            None => Some(beside).filter(|p| path.is_file() && p.is_file()),
        };
        let side_file = side.map(|p| read_file(&p)).transpose()?;
        Ok(Self {
            name,
            config,
            side_file,
        })
    }
}

/// The config.json of a checkpoint's folder, or the path itself.
fn config_path(path: &Path) -> PathBuf {
    if path.is_dir() {
        path.join("config.json")
    } else {
        path.to_path_buf()
    }
}

/// A known model, where no file has that name.
fn known(path: &Path) -> Option<&'static KnownModel> {
    if path.exists() {
        return None;
    }
    KnownModel::find(path.to_str()?)
}

fn read_file(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let file = std::fs::File::open(path).map_err(|error| {
        let mut failure = Failure::unreadable(path, &error);
        let hint = "; `koi model list` shows the names that need no file";
        failure.message.push_str(hint);
        failure
    })?;
    bounded(file, &shown.to_string())
}

/// The text of a stream, never more than a config may have.
fn bounded(stream: impl std::io::Read, name: &str) -> anyhow::Result<String> {
    let mut bytes = vec![];
    let limit = MAX_CONFIG_BYTES as u64 + 1;
    stream
        .take(limit)
        .read_to_end(&mut bytes)
        .with_context(|| format!("read {name}"))?;
    if bytes.len() > MAX_CONFIG_BYTES {
        let message =
            format!("{name} is longer than {MAX_CONFIG_BYTES} bytes; a config.json is not");
        return Err(Failure::new(ExitCode::Invalid, message).into());
    }
    let text = String::from_utf8(bytes);
    Ok(text.map_err(|_| Failure::new(ExitCode::Invalid, format!("{name} is not UTF-8 text")))?)
}

fn list(format: Format) -> anyhow::Result<()> {
    let models = KnownModel::all();
    let rows: Vec<serde_json::Value> = models
        .iter()
        .map(|m| {
            serde_json::json!({
                "name": m.name, "aliases": m.aliases, "published_as": m.published_as,
                "params_b": m.params_b, "config": m.config, "note": m.note,
            })
        })
        .collect();
    emit(format, &rows, || {
        let mut grid = Grid::new(&["NAME", "PARAMS", "PUBLISHED AS"]).numbers(&[1]);
        for m in models {
            grid.row([
                m.name.clone(),
                format!("{:.2}B", m.params_b),
                m.published_as.clone(),
            ]);
        }
        grid.text()
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    /// The failure of `koi model show` with these words.
    fn failure(words: &[&str]) -> Failure {
        let line = ["koi", "model", "show"].iter().chain(words);
        let Command::Model(command) = Cli::try_parse_from(line).unwrap().command else {
            panic!("not a model command");
        };
        let error = run(Format::Json, &command).unwrap_err();
        error.downcast_ref::<Failure>().unwrap().clone()
    }

    /// A file of this text in a folder of its own.
    fn file(name: &str, text: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("koi-model-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("config.json");
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn refusals_are_invalid_and_list_every_problem() {
        let missing = failure(&["no-such-file-or-model"]);
        assert_eq!(missing.code, ExitCode::NotFound);
        assert!(
            missing.message.contains("koi model list"),
            "{}",
            missing.message
        );
        let path = file("broken", r#"{"model_type": "llama", "hidden_size": -1}"#);
        let broken = failure(&[path.to_str().unwrap()]);
        assert_eq!(broken.code, ExitCode::Invalid);
        assert!(broken.violations.len() > 3, "{broken:?}");
        // A checkpoint's folder means the config.json in it.
        let folder = failure(&[path.parent().unwrap().to_str().unwrap()]);
        assert_eq!(folder.violations, broken.violations);
        let split = failure(&["llama-3.1-8b", "--tp", "3"]);
        assert_eq!(split.code, ExitCode::Invalid);
        assert!(split.violations[0].message.contains("query heads"));
        let dtype = failure(&["gpt-oss-20b", "--weight-dtype", "fp8"]);
        assert!(dtype.violations[0].message.contains("mxfp4"));
    }

    #[test]
    fn endless_input_is_cut_off() {
        let long = file("long", &" ".repeat(MAX_CONFIG_BYTES + 10));
        assert!(
            failure(&[long.to_str().unwrap()])
                .message
                .contains("longer")
        );
        let text = bounded(std::io::repeat(b' '), "endless").unwrap_err();
        assert!(text.to_string().contains("longer"));
    }
}
