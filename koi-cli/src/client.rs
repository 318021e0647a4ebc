//! The connection to a server: address, token, deadlines, and errors in words.

use std::path::{Path, PathBuf};
use std::time::Duration;

use koi_proto::v1;
use serde::{Deserialize, Serialize};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

use crate::args::Global;
use crate::failure::{ExitCode, Failure, unreachable_server};
use crate::paths::DataDir;
use crate::secrets::read_token;

/// Time to make a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest answer accepted.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// `client.toml`: what `koi up` leaves for the other commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientSettings {
    /// Address, e.g. `http://127.0.0.1:7410`.
    pub server: String,
    /// Token file; relative to the folder of this file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Certificate authority of an https server; relative likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

/// Where to connect, and with what.
#[derive(Debug, Clone)]
pub struct Target {
    /// Address.
    pub server: String,
    /// Bearer token; absent when nobody named one.
    pub token: Option<String>,
    /// Certificate authority in PEM.
    pub ca: Option<String>,
    /// Deadline of one call.
    pub timeout: Duration,
}

impl Target {
    /// The target that options, environment and `client.toml` name, in this order.
    ///
    /// # Errors
    /// When no server is named anywhere or a named file cannot be read.
    pub fn resolve(global: &Global) -> anyhow::Result<Self> {
        let data = DataDir::resolve(global.data_dir.as_deref());
        let settings = read_settings(&data.client_settings())?;
        let server = global
            .server
            .clone()
            .or_else(|| settings.as_ref().map(|s| s.server.clone()));
        let Some(server) = server else {
            let message = format!(
                "no server is known: start one with `koi up`, or name yours with --server or KOI_SERVER ({} does not exist)",
                data.client_settings().display()
            );
            return Err(Failure::new(ExitCode::Unavailable, message).into());
        };
        // The dev cluster's token is for the dev cluster's server only.
        let own = settings.as_ref().filter(|s| s.server == server);
        let below = |file: &PathBuf| data.path().join(file);
        let token_file = global
            .token_file
            .clone()
            .or_else(|| own.and_then(|s| s.token_file.as_ref().map(below)));
        let ca_file = global
            .ca_file
            .clone()
            .or_else(|| own.and_then(|s| s.ca_file.as_ref().map(below)));
        Ok(Self {
            server,
            token: token_file.as_deref().map(read_token).transpose()?,
            ca: ca_file
                .as_deref()
                .map(std::fs::read_to_string)
                .transpose()?,
            timeout: Duration::from_secs(u64::from(global.timeout_s)),
        })
    }
}

fn read_settings(path: &Path) -> anyhow::Result<Option<ClientSettings>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(anyhow::anyhow!("read {}: {e}", path.display())),
    };
    toml::from_str(&text)
        .map(Some)
        .map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))
}

/// Puts the token into every call.
#[derive(Debug, Clone)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request
                .metadata_mut()
                .insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// The service below every generated client.
pub type Service = InterceptedService<Channel, Bearer>;

/// A connection from which clients of every service are made.
#[derive(Debug, Clone)]
pub struct Client {
    service: Service,
    server: String,
}

macro_rules! services {
    ($($(#[$doc:meta])* $name:ident => $client:path;)+) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(&self) -> $client {
            <$client>::new(self.service.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
        }
    )+};
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// A [`Failure`] that says what to do when nobody answers.
    pub async fn connect(target: &Target) -> anyhow::Result<Self> {
        let client = Self::lazy(target)?;
        let endpoint = endpoint(target)?;
        match endpoint.connect().await {
            Ok(channel) => {
                let bearer = bearer(target)?;
                Ok(Self {
                    service: InterceptedService::new(channel, bearer),
                    ..client
                })
            }
            Err(_) => {
                Err(Failure::new(ExitCode::Unavailable, unreachable_server(&target.server)).into())
            }
        }
    }

    /// A client that connects at its first call and again after a loss.
    ///
    /// # Errors
    /// When the address or the token cannot be used.
    pub fn lazy(target: &Target) -> anyhow::Result<Self> {
        let channel = endpoint(target)?.connect_lazy();
        let service = InterceptedService::new(channel, bearer(target)?);
        Ok(Self {
            service,
            server: target.server.clone(),
        })
    }

    services! {
        /// Jobs.
        jobs => v1::jobs_client::JobsClient<Service>;
        /// Plans.
        plans => v1::plans_client::PlansClient<Service>;
        /// Ticks.
        ticks => v1::ticks_client::TicksClient<Service>;
        /// Beliefs.
        beliefs => v1::beliefs_client::BeliefsClient<Service>;
        /// Nodes.
        fleet => v1::fleet_client::FleetClient<Service>;
        /// Measured performance from outside.
        performance => v1::performance_client::PerformanceClient<Service>;
        /// Status of the server.
        admin => v1::admin_client::AdminClient<Service>;
    }

    /// The answer of a call, or what its status means.
    ///
    /// # Errors
    /// A [`Failure`].
    pub fn answer<T>(&self, result: Result<tonic::Response<T>, Status>) -> anyhow::Result<T> {
        result
            .map(tonic::Response::into_inner)
            .map_err(|s| Failure::from_status(&s, &self.server).into())
    }
}

fn bearer(target: &Target) -> anyhow::Result<Bearer> {
    let value = target
        .token
        .as_ref()
        .map(|t| format!("Bearer {t}").parse::<MetadataValue<Ascii>>());
    let mut value = value
        .transpose()
        .map_err(|_| anyhow::anyhow!("the token has characters that no token has"))?;
    if let Some(value) = &mut value {
        value.set_sensitive(true);
    }
    Ok(Bearer(value))
}

fn endpoint(target: &Target) -> anyhow::Result<Endpoint> {
    let bad = |e: &dyn std::fmt::Display| {
        let message = format!(
            "{:?} is not a server address such as http://127.0.0.1:7410: {e}",
            target.server
        );
        anyhow::Error::from(Failure::new(ExitCode::Invalid, message))
    };
    let mut endpoint = Endpoint::from_shared(target.server.clone())
        .map_err(|e| bad(&e))?
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(target.timeout);
    match endpoint.uri().scheme_str() {
        Some("https") => {
            let mut tls = ClientTlsConfig::new();
            if let Some(ca) = &target.ca {
                tls = tls.ca_certificate(Certificate::from_pem(ca));
            }
            endpoint = endpoint.tls_config(tls)?;
        }
        Some("http") => {}
        _ => return Err(bad(&"it must start with http:// or https://")),
    }
    Ok(endpoint)
}

/// A key for a mutation that should count once.
#[must_use]
pub fn idempotency_key() -> String {
    // Without randomness the time still makes repeated keys unlikely.
    crate::secrets::new_token().unwrap_or_else(|_| format!("t{}", crate::output::now_us()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn global(dir: &Path) -> Global {
        Global {
            server: None,
            token_file: None,
            ca_file: None,
            data_dir: Some(dir.to_path_buf()),
            output: crate::output::Format::Table,
            timeout_s: 5,
        }
    }

    #[test]
    fn the_dev_clusters_token_goes_to_its_own_server_only() {
        let dir = std::env::temp_dir().join(format!("koi-client-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        assert!(
            Target::resolve(&global(&dir))
                .unwrap_err()
                .to_string()
                .contains("koi up")
        );
        std::fs::write(
            dir.join("client.toml"),
            "server = \"http://127.0.0.1:1\"\ntoken_file = \"token\"\n",
        )
        .unwrap();
        std::fs::write(dir.join("token"), "secret\n").unwrap();
        let own = Target::resolve(&global(&dir)).unwrap();
        assert_eq!(
            (own.server.as_str(), own.token.as_deref()),
            ("http://127.0.0.1:1", Some("secret"))
        );
        let other = Global {
            server: Some("http://example.org:80".into()),
            ..global(&dir)
        };
        assert_eq!(Target::resolve(&other).unwrap().token, None);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[tokio::test]
    async fn nobody_listening_is_one_line_with_the_next_step() {
        let target = Target {
            server: "http://127.0.0.1:9".into(),
            token: None,
            ca: None,
            timeout: Duration::from_secs(1),
        };
        let error = Client::connect(&target).await.unwrap_err();
        let failure = error.downcast_ref::<Failure>().unwrap();
        assert_eq!(failure.code, ExitCode::Unavailable);
        assert!(failure.message.contains("koi up") && !failure.message.contains('\n'));
    }
}
