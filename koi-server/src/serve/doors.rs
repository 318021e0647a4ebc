//! The addresses and the identity of the listeners: everything that can keep a server from serving is
//! tried here, before it takes the lead from one that serves.
//!
//! An address is taken at once and listened on only when the database is there, so that a client of a
//! server that still waits for it is refused and tries again, instead of waiting for an answer.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use koi_core::settings::SettingsError;
use tokio::net::{TcpListener, TcpSocket};
use tonic::transport::{Identity as TlsIdentity, Server, ServerTlsConfig};

use crate::config::{ServerConfig, TlsConfig};

/// Longest time for an ordinary call, whatever the client says.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Addresses that are ours and answer nobody yet.
pub(super) struct Doors {
    server: Server,
    grpc: (TcpSocket, SocketAddr),
    metrics: (TcpSocket, SocketAddr),
}

/// Addresses on which connections wait.
pub(super) struct OpenDoors {
    /// Limits and TLS of the gRPC listener.
    pub(super) server: Server,
    /// For every call.
    pub(super) grpc: TcpListener,
    /// For `/metrics`.
    pub(super) metrics: TcpListener,
}

impl Doors {
    /// Reads the certificate and takes both addresses.
    pub(super) fn take(config: &ServerConfig) -> anyhow::Result<Self> {
        Ok(Self {
            server: server(config.tls.as_ref())?,
            grpc: taken(config.listen)?,
            metrics: taken(config.metrics_listen).context("for /metrics")?,
        })
    }

    /// Lets connections come in; they wait until they are served.
    pub(super) fn open(self) -> anyhow::Result<OpenDoors> {
        let listen = |(socket, address): (TcpSocket, SocketAddr)| {
            let listening = socket.listen(BACKLOG);
            listening.with_context(|| format!("listen on {address}"))
        };
        Ok(OpenDoors {
            server: self.server,
            grpc: listen(self.grpc)?,
            metrics: listen(self.metrics)?,
        })
    }
}

/// An address on which nobody else listens.
fn taken(address: SocketAddr) -> anyhow::Result<(TcpSocket, SocketAddr)> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    };
    let bind = |socket: TcpSocket| {
        // Connections of an earlier server that are still being closed are in nobody's way.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    };
    let socket = socket.and_then(bind);
    Ok((
        socket.with_context(|| format!("listen on {address}"))?,
        address,
    ))
}

fn server(tls: Option<&TlsConfig>) -> anyhow::Result<Server> {
    let server = Server::builder()
        .timeout(CALL_TIMEOUT)
        .max_concurrent_streams(Some(64))
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .http2_keepalive_timeout(Some(Duration::from_secs(5)))
        .http2_max_header_list_size(Some(16 * 1024));
    let Some(tls) = tls else {
        return Ok(server);
    };
    let read = |path: &std::path::Path| {
        std::fs::read(path).map_err(|source| SettingsError::Read {
            path: path.to_owned(),
            source,
        })
    };
    let identity = TlsIdentity::from_pem(read(&tls.cert_file)?, read(&tls.key_file)?);
    server
        .tls_config(ServerTlsConfig::new().identity(identity))
        .with_context(|| {
            let (cert, key) = (tls.cert_file.display(), tls.key_file.display());
            format!("use the certificate {cert} with the private key {key}")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(listen: SocketAddr, metrics: SocketAddr, more: &str) -> ServerConfig {
        let text = format!(
            "listen = \"{listen}\"\nmetrics_listen = \"{metrics}\"\ndata_dir = \"/nowhere\"\n{more}"
        );
        ServerConfig::parse(&text).unwrap()
    }

    fn why(config: &ServerConfig) -> String {
        format!("{:#}", Doors::take(config).err().expect("it is refused"))
    }

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    #[tokio::test]
    async fn an_address_in_use_is_found_out_at_once() {
        let held = TcpListener::bind(ANY).await.unwrap();
        let busy = held.local_addr().unwrap();
        for config in [config(busy, ANY, ""), config(ANY, busy, "")] {
            let why = why(&config);
            assert!(
                why.contains("in use") && why.contains(&busy.to_string()),
                "{why}"
            );
        }
        drop(held);
        Doors::take(&config(busy, ANY, "")).unwrap();
    }

    #[tokio::test]
    async fn nobody_is_answered_before_the_doors_open_and_of_two_servers_one_opens() {
        let free = TcpListener::bind(ANY).await.unwrap().local_addr().unwrap();
        let doors = Doors::take(&config(free, ANY, "")).unwrap();
        let other = Doors::take(&config(free, ANY, ""));
        let refused = tokio::net::TcpStream::connect(free).await;
        assert_eq!(
            refused.unwrap_err().kind(),
            std::io::ErrorKind::ConnectionRefused
        );
        let open = doors.open().unwrap();
        assert_eq!(open.grpc.local_addr().unwrap(), free);
        tokio::net::TcpStream::connect(free).await.unwrap();
        let second = other.and_then(Doors::open).map(drop);
        assert!(format!("{:#}", second.unwrap_err()).contains("in use"));
    }

    #[tokio::test]
    async fn a_certificate_that_cannot_be_used_is_named() {
        let folder = std::env::temp_dir().join(format!("koi-doors-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (cert, key) = (folder.join("c.pem"), folder.join("k.pem"));
        std::fs::write(&cert, "no certificate").unwrap();
        let tls = format!("[tls]\ncert_file = {cert:?}\nkey_file = {key:?}\n");
        let missing = why(&config(ANY, ANY, &tls));
        assert!(missing.contains("k.pem"), "{missing}");
        std::fs::write(&key, "no key").unwrap();
        let useless = why(&config(ANY, ANY, &tls));
        assert!(useless.contains("c.pem"), "{useless}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
