//! Model folders: the operator's own where they exist, else one with just the config.json that
//! the job brought. The simulated engine needs no more; a real one then fails with a clear reason.

use std::path::{Path, PathBuf};

/// Where a model lies.
#[derive(Debug, Clone)]
pub struct ModelFolders {
    /// The operator's folder, `owner--name` per model.
    pub root: PathBuf,
    /// Folder for config.json files that jobs brought.
    pub brought: PathBuf,
}

/// The name of a model's folder. Ids hold only letters, digits and `._-/@`, so it is one plain part.
fn folder_name(model_id: &str) -> Option<String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '@');
    let fine = !model_id.is_empty()
        && model_id.len() <= 200
        && model_id.chars().all(legal)
        && model_id
            .split('/')
            .all(|part| !part.is_empty() && !part.starts_with('.'));
    fine.then(|| model_id.replace('/', "--"))
}

impl ModelFolders {
    /// The folder to launch from.
    ///
    /// # Errors
    /// When the id is not a model's name or the folder cannot be written.
    pub fn locate(&self, model_id: &str, config_json: &str) -> std::io::Result<PathBuf> {
        let name = folder_name(model_id)
            .ok_or_else(|| std::io::Error::other(format!("{model_id:?} is not a model id")))?;
        let own = self.root.join(&name);
        if own.join("config.json").is_file() {
            return Ok(own);
        }
        let brought = self.brought.join(&name);
        write_if_changed(&brought, config_json)?;
        Ok(brought)
    }
}

fn write_if_changed(folder: &Path, config_json: &str) -> std::io::Result<()> {
    let path = folder.join("config.json");
    if std::fs::read_to_string(&path).is_ok_and(|text| text == config_json) {
        return Ok(());
    }
    std::fs::create_dir_all(folder)?;
    let temporary = folder.join(".config.json.new");
    std::fs::write(&temporary, config_json)?;
    std::fs::rename(&temporary, &path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_never_leave_their_folder() {
        for bad in [
            "", "../x", "a/../b", "/etc", "a//b", ".hidden", "a;b", "a/.b",
        ] {
            assert!(folder_name(bad).is_none(), "{bad}");
        }
        assert_eq!(
            folder_name("meta-llama/Llama-3.1-8B").as_deref(),
            Some("meta-llama--Llama-3.1-8B")
        );
    }
}
