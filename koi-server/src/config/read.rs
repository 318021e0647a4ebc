//! From the text of `server.toml` to settings: every key that is wrong, missing or unknown, at once.

use std::net::SocketAddr;

use koi_core::document::of_toml;
use koi_core::job::draft::reader::Reader;
use koi_core::violation::{FieldViolation, Violations};

use super::{LearningConfig, ServerConfig, TlsConfig};

/// What an address looks like.
const ADDRESS: &str = "an address such as 127.0.0.1:7410";
const DAY_S: u32 = 86_400;

impl ServerConfig {
    /// The settings that a text spells out.
    ///
    /// # Errors
    /// Every problem, by key.
    pub fn parse(text: &str) -> Result<Self, Vec<FieldViolation>> {
        let document = of_toml(text)?;
        let mut bad = Violations::default();
        let mut top = Reader::new(Some(&document), "", &mut bad);
        let listen = top.parsed("listen", ADDRESS, &mut bad);
        let listen = top.required("listen", listen, ADDRESS, &mut bad);
        let metrics_listen = top.loopback_listener("metrics_listen", &mut bad);
        let data_dir = top.path("data_dir", &mut bad);
        let data_dir = top.required("data_dir", data_dir, "the server's folder", &mut bad);
        let database_url = top.text("database_url", &mut bad);
        let tick_interval_s = top.within("tick_interval_s", (1, DAY_S), &mut bad);
        let canary_window_s = top.whole("canary_window_s", &mut bad);
        let drain_grace_s = top.whole("drain_grace_s", &mut bad);
        let endpoints_dir = top.path("endpoints_dir", &mut bad);
        let tokens_file = top.path("tokens_file", &mut bad);
        let price_overlay = top.path("price_overlay", &mut bad);
        let window_retention_days = top.within("window_retention_days", (1, u32::MAX), &mut bad);
        let learning = learning(&mut top, &mut bad);
        let tls = tls(&mut top, listen, &mut bad);
        let otlp_endpoint = top.text("otlp_endpoint", &mut bad);
        top.finish(&mut bad);
        match (listen, data_dir) {
            (Some(listen), Some(data_dir)) if bad.is_empty() => Ok(Self {
                listen,
                metrics_listen,
                data_dir,
                database_url,
                tick_interval_s: tick_interval_s.unwrap_or(300),
                canary_window_s: canary_window_s.unwrap_or(300),
                drain_grace_s: drain_grace_s.unwrap_or(120),
                endpoints_dir,
                tokens_file,
                price_overlay,
                window_retention_days: window_retention_days.unwrap_or(14),
                learning,
                tls,
                otlp_endpoint,
            }),
            _ => Err(bad.into_vec()),
        }
    }
}

/// What learning may cost.
fn learning(top: &mut Reader<'_>, bad: &mut Violations) -> LearningConfig {
    let mut section = top.section("learning", bad);
    let usd = section.number("probe_usd_per_day", bad);
    if let Some(usd) = usd.filter(|usd| !(0.0..=1e6).contains(usd)) {
        let field = section.field("probe_usd_per_day");
        bad.add(field, format!("{usd} must be from 0 to 1000000"));
    }
    section.finish(bad);
    usd.map_or_else(LearningConfig::default, |probe_usd_per_day| {
        LearningConfig { probe_usd_per_day }
    })
}

/// The listener's identity; needed where others than this machine can reach it.
fn tls(
    top: &mut Reader<'_>,
    listen: Option<SocketAddr>,
    bad: &mut Violations,
) -> Option<TlsConfig> {
    if top.raw("tls").is_none() {
        if let Some(listen) = listen.filter(|l| !l.ip().is_loopback()) {
            bad.add("listen", format!("{listen} is not loopback: set [tls]"));
        }
        return None;
    }
    let mut section = top.section("tls", bad);
    let cert_file = section.path("cert_file", bad);
    let cert_file = section.required("cert_file", cert_file, "a PEM certificate chain", bad);
    let key_file = section.path("key_file", bad);
    let key_file = section.required("key_file", key_file, "a PEM private key", bad);
    section.finish(bad);
    Some(TlsConfig {
        cert_file: cert_file?,
        key_file: key_file?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Vec<String> {
        let found = ServerConfig::parse(text).unwrap_err();
        found.into_iter().map(|v| v.field).collect()
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let config = ServerConfig::parse("listen = \"[::1]:1\"\ndata_dir = \"d\"").unwrap();
        let numbers = (
            config.tick_interval_s,
            config.canary_window_s,
            config.drain_grace_s,
        );
        assert_eq!(numbers, (300, 300, 120));
        assert_eq!(config.metrics_listen.to_string(), "127.0.0.1:0");
        assert_eq!(config.window_retention_days, 14);
        assert!(config.tls.is_none() && config.database_url.is_none());
    }

    #[test]
    fn every_problem_is_told_at_once() {
        let text = "lisen = \"127.0.0.1:1\"\nmetrics_listen = \"0.0.0.0:9410\"\n\
                    database_url = 5\ntick_interval_s = 0\ncanary_window_s = \"long\"\n\
                    drain_grace_s = 99999999999999999999999\nwindow_retention_days = 0\n\
                    [tls]\ncert_file = \"\"\nkeyfile = \"k\"\n";
        let want = [
            "listen",
            "metrics_listen",
            "data_dir",
            "database_url",
            "tick_interval_s",
            "canary_window_s",
            "drain_grace_s",
            "window_retention_days",
            "tls.cert_file",
            "tls.key_file",
            "tls.keyfile",
            "lisen",
        ];
        assert_eq!(fields(text), want);
        let found = ServerConfig::parse(text).unwrap_err();
        let message = |field: &str| {
            let own = found.iter().find(|v| v.field == field);
            own.map(|v| v.message.clone()).unwrap_or_default()
        };
        assert!(message("listen").starts_with("is required"));
        assert!(message("lisen").contains("did you mean listen?"));
        assert!(message("tls.keyfile").contains("did you mean key_file?"));
        assert!(message("drain_grace_s").contains("write at most 4294967295"));
    }

    #[test]
    fn an_open_listener_needs_an_identity() {
        let open = "listen = \"0.0.0.0:7410\"\ndata_dir = \"d\"\n";
        assert_eq!(fields(open), ["listen"]);
        let with = format!("{open}[tls]\ncert_file = \"c\"\nkey_file = \"k\"\n");
        assert!(ServerConfig::parse(&with).unwrap().tls.is_some());
        assert_eq!(fields(&format!("{open}tls = true")), ["tls"]);
        assert_eq!(fields("listen = ["), [""]);
    }
}
