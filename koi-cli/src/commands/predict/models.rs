//! Models by name or by config file; each is read once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use koi_core::model::{KnownModel, MAX_CONFIG_BYTES, ModelFacts};
use koi_core::violation::FieldViolation;
use serde::Deserialize;

use crate::failure::{ExitCode, Failure};

/// A list of more models.
#[derive(Debug, Deserialize)]
struct ModelsFile {
    model: Vec<NamedConfig>,
}

#[derive(Debug, Deserialize)]
struct NamedConfig {
    name: String,
    /// Relative to the list.
    config: PathBuf,
    #[serde(default)]
    aliases: Vec<String>,
}

type Found = Result<Arc<ModelFacts>, Vec<FieldViolation>>;

/// Known models, those of a list, and config files.
pub(super) struct ModelBook {
    listed: BTreeMap<String, PathBuf>,
    read: BTreeMap<String, Found>,
}

impl ModelBook {
    /// The shipped models and those of a list.
    pub(super) fn open(list: Option<&Path>) -> anyhow::Result<Self> {
        let mut listed = BTreeMap::new();
        if let Some(path) = list {
            let refuse =
                |why: String| Failure::new(ExitCode::Invalid, format!("{}: {why}", path.display()));
            let text = std::fs::read_to_string(path).map_err(|e| Failure::unreadable(path, &e))?;
            let file: ModelsFile = toml::from_str(&text).map_err(|e| refuse(e.to_string()))?;
            let folder = path.parent().unwrap_or(Path::new(""));
            for model in file.model {
                let config = folder.join(&model.config);
                for name in model.aliases.into_iter().chain([model.name]) {
                    listed.insert(name.to_lowercase(), config.clone());
                }
            }
        }
        Ok(Self {
            listed,
            read: BTreeMap::new(),
        })
    }

    /// The facts of a model.
    ///
    /// # Errors
    /// What is wrong with its config, or that nobody knows it.
    pub(super) fn find(&mut self, name: &str) -> Found {
        if let Some(found) = self.read.get(name) {
            return found.clone();
        }
        let found = self.load(name);
        self.read.insert(name.to_owned(), found.clone());
        found
    }

    fn load(&self, name: &str) -> Found {
        let listed = self.listed.get(&name.to_lowercase());
        if let Some(path) = listed {
            return read(path);
        }
        if let Some(known) = KnownModel::find(name) {
            return known.facts().map(Arc::new);
        }
        if name.ends_with(".json") {
            return read(Path::new(name));
        }
        let message = format!(
            "{name:?} is not known; `koi model list` has the names, --models FILE adds more, or give a config.json"
        );
        Err(vec![FieldViolation {
            field: "model".to_owned(),
            message,
        }])
    }
}

fn read(path: &Path) -> Found {
    let problem = |message: String| {
        vec![FieldViolation {
            field: "model".to_owned(),
            message: format!("{}: {message}", path.display()),
        }]
    };
    let size = std::fs::metadata(path).map_err(|e| problem(e.to_string()))?;
    if size.len() > MAX_CONFIG_BYTES as u64 {
        return Err(problem(format!("longer than {MAX_CONFIG_BYTES} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| problem(e.to_string()))?;
    ModelFacts::from_config_json(&text).map(Arc::new)
}
