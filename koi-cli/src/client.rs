//! The connection to a server: address, token, deadlines, and errors in words.

use std::path::{Path, PathBuf};
use std::time::Duration;

use koi_core::document::of_toml;
use koi_core::job::draft::reader::Reader;
use koi_core::url::{Transport, transport_of};
use koi_core::violation::{FieldViolation, Violations};
use koi_proto::v1;
use serde::Serialize;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

use crate::args::Global;
use crate::failure::{ExitCode, Failure, lost_connection};
use crate::job_file::read_text;
use crate::paths::DataDir;
use crate::secrets::read_token;

/// Time to make a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest file of certificates.
const MAX_AUTHORITY_BYTES: usize = 1024 * 1024;
/// Largest answer accepted.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// `client.toml`: what `koi up` leaves for the other commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClientSettings {
    /// Address, e.g. `http://127.0.0.1:7410`.
    pub server: String,
    /// Token file; relative to the folder of this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Certificate authority of an https server; relative likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
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
        let ca = ca_file.as_deref().map(read_authority).transpose()?;
        check_transport(
            &server,
            token_file.is_some() && !global.insecure,
            ca.is_some(),
        )?;
        Ok(Self {
            server,
            token: token_file.as_deref().map(read_token).transpose()?,
            ca,
            timeout: Duration::from_secs(u64::from(global.timeout_s)),
        })
    }
}

/// Refuses an address that would carry a token in the clear, or a server that nothing vouches for.
fn check_transport(server: &str, guards_token: bool, has_authority: bool) -> anyhow::Result<()> {
    let refuse = |message| Err(Failure::new(ExitCode::Invalid, message).into());
    match transport_of(server) {
        Err(problem) => refuse(problem),
        Ok(Transport::PlainRemote) if guards_token => refuse(format!(
            "the token would travel in the clear to {server}: use https:// with --ca-file, a tunnel that ends at \
             127.0.0.1, or --insecure where the whole way is trusted"
        )),
        Ok(Transport::Tls) if !has_authority => refuse(format!(
            "{server} needs the certificate of the authority that signed its own: name it with --ca-file or KOI_CA_FILE"
        )),
        Ok(Transport::PlainRemote | Transport::PlainLoopback | Transport::Tls) => Ok(()),
    }
}

fn read_authority(path: &Path) -> anyhow::Result<String> {
    let pem = read_text(path, MAX_AUTHORITY_BYTES)?;
    if pem.contains("-----BEGIN CERTIFICATE-----") {
        return Ok(pem);
    }
    let message = format!(
        "{} holds no certificate: PEM text with BEGIN CERTIFICATE expected",
        path.display()
    );
    Err(Failure::new(ExitCode::Invalid, message).into())
}

fn read_settings(path: &Path) -> anyhow::Result<Option<ClientSettings>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(anyhow::anyhow!("read {}: {e}", path.display())),
    };
    parse_settings(&text)
        .map(Some)
        .map_err(|problems| Failure::invalid(&path.display().to_string(), problems).into())
}

fn parse_settings(text: &str) -> Result<ClientSettings, Vec<FieldViolation>> {
    let document = of_toml(text)?;
    let mut bad = Violations::default();
    let mut top = Reader::new(Some(&document), "", &mut bad);
    let server = top.text("server", &mut bad);
    let server = top.required("server", server, "the server's address", &mut bad);
    let token_file = top.path("token_file", &mut bad);
    let ca_file = top.path("ca_file", &mut bad);
    top.finish(&mut bad);
    match server {
        Some(server) if bad.is_empty() => Ok(ClientSettings {
            server,
            token_file,
            ca_file,
        }),
        _ => Err(bad.into_vec()),
    }
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
            Err(error) => {
                let message = lost_connection(&error, &target.server);
                Err(Failure::new(ExitCode::Unavailable, message).into())
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
        /// Contrasts between deployments.
        contrasts => v1::contrasts_client::ContrastsClient<Service>;
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
mod tests;
