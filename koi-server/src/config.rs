//! Settings of `koi-server serve`: one documented struct, every key checked, units in names.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

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
    /// Days of telemetry windows to keep.
    #[serde(default = "default_retention_days")]
    pub window_retention_days: u32,
    /// Certificate and key of the gRPC listener.
    #[serde(default)]
    pub tls: Option<TlsConfig>,
    /// Collector for OTLP traces over gRPC, e.g. `http://127.0.0.1:4317`.
    #[serde(default)]
    pub otlp_endpoint: Option<String>,
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
        problems
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
