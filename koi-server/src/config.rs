//! Settings of `koi-server serve`: one documented struct, every key checked, units in names.

mod read;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use koi_core::catalog::price::{PriceBook, PriceOverlay};
use koi_core::settings::{SettingsError, of_file};

/// Largest overlay file; one byte more is read, and refused by the parser.
const MAX_OVERLAY_BYTES: u64 = 8 * 1024 * 1024;

/// Everything an operator can set. Hyper-parameters of the method live in `koi_core::params`.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Address of the gRPC listener. Anything but loopback needs `tls`.
    pub listen: SocketAddr,
    /// Address of the Prometheus listener; loopback only.
    pub metrics_listen: SocketAddr,
    /// Folder of everything the server keeps outside its database.
    pub data_dir: PathBuf,
    /// Postgres to use. Absent: `KOI_DATABASE_URL`, else a private cluster under `data_dir`.
    pub database_url: Option<String>,
    /// Seconds between ticks, at least 1.
    pub tick_interval_s: u32,
    /// Seconds that old and new replicas run side by side before the new ones are judged.
    pub canary_window_s: u32,
    /// Longest wait for requests in flight before an engine is stopped.
    pub drain_grace_s: u32,
    /// Folder for `<job>.json` endpoint files. Absent: `<data_dir>/endpoints`.
    pub endpoints_dir: Option<PathBuf>,
    /// File that lists who may connect. Absent: `<data_dir>/tokens.toml`.
    pub tokens_file: Option<PathBuf>,
    /// Prices and discounts over the list, read at start. Absent: the list alone.
    pub price_overlay: Option<PathBuf>,
    /// Days of telemetry windows to keep.
    pub window_retention_days: u32,
    /// What learning may cost.
    pub learning: LearningConfig,
    /// Certificate and key of the gRPC listener.
    pub tls: Option<TlsConfig>,
    /// Collector for OTLP traces over gRPC, e.g. `http://127.0.0.1:4317`.
    pub otlp_endpoint: Option<String>,
}

/// What learning may cost.
#[derive(Debug, Clone, Copy, PartialEq)]
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
#[derive(Debug, Clone)]
pub struct TlsConfig {
    /// PEM certificate chain.
    pub cert_file: PathBuf,
    /// PEM private key.
    pub key_file: PathBuf,
}

impl ServerConfig {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// [`SettingsError`] naming the file and every key that is wrong.
    pub fn load(path: &Path) -> Result<Self, SettingsError> {
        of_file(path, std::fs::read_to_string(path), Self::parse)
    }

    /// List prices with the operator's overlay, if there is one.
    ///
    /// # Errors
    /// [`SettingsError`] naming the overlay file and every problem of it.
    pub fn prices(&self) -> Result<PriceBook, SettingsError> {
        let list = PriceBook::embedded().clone();
        let Some(path) = &self.price_overlay else {
            return Ok(list);
        };
        let overlay = of_file(path, read_bounded(path), PriceOverlay::parse)?;
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
        ServerConfig::parse(&text).unwrap()
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
        assert!(matches!(missing, Err(SettingsError::Read { .. })));
    }
}
