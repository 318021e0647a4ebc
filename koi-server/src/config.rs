//! Settings of `koi-server serve`: one documented struct, every key checked, units in names.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use koi_core::catalog::price::{PriceBook, PriceOverlay};
use serde::Deserialize;

/// Largest overlay file; one byte more is read, and refused by the parser.
const MAX_OVERLAY_BYTES: u64 = 8 * 1024 * 1024;

/// Everything an operator can set. Hyper-parameters of the method live in `koi_core::params`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// Address of the gRPC listener. Anything but loopback needs `tls`.
    pub listen: SocketAddr,
    /// Address of the Prometheus listener; loopback only.
    #[serde(default = "default_metrics_listen")]
    pub metrics_listen: SocketAddr,
    /// Folder of everything the server keeps outside its database.
    pub data_dir: PathBuf,
    /// Postgres to use. Absent: `KOI_DATABASE_URL`, else a private cluster under `data_dir`.
    #[serde(default)]
    pub database_url: Option<String>,
    /// Seconds between ticks, at least 1.
    #[serde(default = "default_tick_interval_s")]
    pub tick_interval_s: u32,
    /// Seconds that old and new replicas run side by side before the new ones are judged.
    #[serde(default = "default_canary_window_s")]
    pub canary_window_s: u32,
    /// Longest wait for requests in flight before an engine is stopped.
    #[serde(default = "default_drain_grace_s")]
    pub drain_grace_s: u32,
    /// Folder for `<job>.json` endpoint files. Absent: `<data_dir>/endpoints`.
    #[serde(default)]
    pub endpoints_dir: Option<PathBuf>,
    /// File that lists who may connect. Absent: `<data_dir>/tokens.toml`.
    #[serde(default)]
    pub tokens_file: Option<PathBuf>,
    /// Prices and discounts over the list, read at start. Absent: the list alone.
    #[serde(default)]
    pub price_overlay: Option<PathBuf>,
    /// Days of telemetry windows to keep.
    #[serde(default = "default_retention_days")]
    pub window_retention_days: u32,
    /// What learning may cost.
    #[serde(default)]
    pub learning: LearningConfig,
    /// Certificate and key of the gRPC listener.
    #[serde(default)]
    pub tls: Option<TlsConfig>,
    /// Collector for OTLP traces over gRPC, e.g. `http://127.0.0.1:4317`.
    #[serde(default)]
    pub otlp_endpoint: Option<String>,
}

/// What learning may cost.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LearningConfig {
    /// USD a day that probes may cost: swaps made for what they teach. 0 switches them off.
    pub probe_usd_per_day: f64,
}

impl Default for LearningConfig {
    fn default() -> Self {
        Self {
            probe_usd_per_day: koi_core::params::Params::default().probe_usd_per_day,
        }
    }
}

/// Files of the listener's identity.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// PEM certificate chain.
    pub cert_file: PathBuf,
    /// PEM private key.
    pub key_file: PathBuf,
}

fn default_metrics_listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn default_tick_interval_s() -> u32 {
    300
}

fn default_canary_window_s() -> u32 {
    300
}

fn default_drain_grace_s() -> u32 {
    120
}

fn default_retention_days() -> u32 {
    14
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// File.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The file is not what it should be; the message carries line and column.
    #[error("{path}: {message}")]
    Parse {
        /// File.
        path: PathBuf,
        /// Message.
        message: String,
    },
    /// Values that do not go together.
    #[error("{path}: {}", problems.join("; "))]
    Invalid {
        /// File.
        path: PathBuf,
        /// Every problem.
        problems: Vec<String>,
    },
}

impl ConfigError {
    /// True when only another file helps; one that is missing is not there after a restart either.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Parse { .. } | Self::Invalid { .. } => true,
            Self::Read { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        }
    }
}

impl ServerConfig {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// [`ConfigError`] naming the file and the key.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        let config: Self = toml::from_str(&text).map_err(|e| ConfigError::Parse {
            path: path.to_owned(),
            message: e.to_string(),
        })?;
        let problems = config.problems();
        if problems.is_empty() {
            Ok(config)
        } else {
            Err(ConfigError::Invalid {
                path: path.to_owned(),
                problems,
            })
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.tick_interval_s == 0 || self.tick_interval_s > 86_400 {
            problems.push("tick_interval_s must be from 1 to 86400".to_owned());
        }
        if !self.listen.ip().is_loopback() && self.tls.is_none() {
            problems.push(format!(
                "listen = {} is not loopback: set [tls]",
                self.listen
            ));
        }
        if !self.metrics_listen.ip().is_loopback() {
            problems.push("metrics_listen must be a loopback address".to_owned());
        }
        if self.window_retention_days == 0 {
            problems.push("window_retention_days must be at least 1".to_owned());
        }
        let usd = self.learning.probe_usd_per_day;
        if !(0.0..=1e6).contains(&usd) {
            problems.push(format!(
                "learning.probe_usd_per_day = {usd} must be from 0 to 1000000"
            ));
        }
        problems
    }

    /// List prices with the operator's overlay, if there is one.
    ///
    /// # Errors
    /// [`ConfigError`] naming the overlay file and every problem of it.
    pub fn prices(&self) -> Result<PriceBook, ConfigError> {
        let list = PriceBook::embedded().clone();
        let Some(path) = &self.price_overlay else {
            return Ok(list);
        };
        let text = read_bounded(path).map_err(|source| ConfigError::Read {
            path: path.clone(),
            source,
        })?;
        let overlay = PriceOverlay::parse(&text).map_err(|found| ConfigError::Invalid {
            path: path.clone(),
            problems: found
                .iter()
                .map(|p| format!("{}: {}", p.field, p.message))
                .collect(),
        })?;
        Ok(list.with_overlay(&overlay))
    }

    /// Folder for endpoint files.
    #[must_use]
    pub fn endpoints_dir(&self) -> PathBuf {
        self.endpoints_dir
            .clone()
            .unwrap_or_else(|| self.data_dir.join("endpoints"))
    }

    /// File that lists who may connect.
    #[must_use]
    pub fn tokens_file(&self) -> PathBuf {
        self.tokens_file
            .clone()
            .unwrap_or_else(|| self.data_dir.join("tokens.toml"))
    }
}

fn read_bounded(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(MAX_OVERLAY_BYTES + 1)
        .read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(overlay: &Path) -> ServerConfig {
        let text = format!(
            "listen = \"127.0.0.1:0\"\ndata_dir = \"/nowhere\"\nprice_overlay = {overlay:?}"
        );
        toml::from_str(&text).unwrap()
    }

    fn file(name: &str, text: &str) -> PathBuf {
        let name = format!("koi-overlay-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn an_overlay_file_is_laid_over_the_list() {
        let text = "source = \"contract 7\"\ndate = \"2026-11-01\"\n[[discount]]\ncloud = \"aws\"\nfactor = 0.5\n";
        let path = file("good.toml", text);
        let prices = config(&path).prices().unwrap();
        assert_eq!(prices.len(), PriceBook::embedded().len());
        let listed = PriceBook::embedded()
            .iter()
            .filter(|(k, _)| k.cloud == "aws");
        for (key, price) in listed {
            let now = prices.price(key).unwrap();
            assert!(
                (now.usd_per_hour - price.usd_per_hour / 2.0).abs() < 1e-9,
                "{key}"
            );
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_bad_overlay_keeps_the_server_from_starting_and_names_everything() {
        let row =
            "[[price]]\ncloud = \"aws\"\nregion = \"r\"\nmarket = \"spot\"\ninstance = \"x\"\n";
        let text = format!(
            "source = \"\"\ndate = \"2026-11-01\"\n{row}usd_per_hour = -1.0\n{row}usd_per_hour = 1e9\n"
        );
        let path = file("bad.toml", &text);
        let error = config(&path).prices().unwrap_err();
        assert!(error.is_permanent());
        let shown = error.to_string();
        for word in [
            "source",
            "price[0].usd_per_hour",
            "price[1].usd_per_hour",
            "twice",
        ] {
            assert!(shown.contains(word), "{word} in {shown}");
        }
        std::fs::remove_file(path).unwrap();
        let missing = config(Path::new("/nowhere/prices.toml")).prices();
        assert!(matches!(missing, Err(ConfigError::Read { .. })));
    }
}
