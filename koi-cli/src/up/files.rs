//! Writes what the processes of a dev cluster read: settings, tokens, simulated devices.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use koi_core::url::percent_encoded;
use serde::Serialize;

use super::ports;
use crate::client::ClientSettings;
use crate::failure::{ExitCode, Failure};
use crate::fleet::{Fleet, FleetHost};
use crate::paths::DataDir;
use crate::secrets::{new_token, read_token, write_private, write_whole};

/// Seconds that a changed ladder is watched before it is trusted.
const CANARY_WINDOW_S: u64 = 30;

/// Folder of the database's socket below the data directory.
const SOCKET_DIR: &str = "postgres/run";
/// Longest name of a file in it.
const SOCKET_NAME: &str = ".s.PGSQL.5432.lock";
/// Longest socket path for which `koi-server postgres` puts the socket there.
const MAX_SOCKET_PATH_BYTES: usize = 100;

/// What the files are made from.
pub(super) struct Input<'a> {
    /// Where they go.
    pub(super) data: &'a DataDir,
    /// Hosts.
    pub(super) fleet: &'a Fleet,
    /// Address of the server.
    pub(super) listen: SocketAddr,
    /// Seconds between ticks.
    pub(super) tick_interval_s: u64,
    /// The database: the user's own, or [`private_database`].
    pub(super) database_url: String,
}

/// The private Postgres of a data directory, as `koi-server postgres` runs it. Named explicitly: a
/// server without a database would start one as its own child.
pub(super) fn private_database(data: &DataDir) -> String {
    format!(
        "postgres://koi@localhost/koi?host={}",
        percent_encoded(data.path().join(SOCKET_DIR).as_os_str().as_encoded_bytes())
    )
}

/// Refuses a data directory below which the private Postgres could not make its socket.
pub(super) fn check_socket_path(data: &DataDir) -> anyhow::Result<()> {
    let given = data.path().as_os_str().len();
    // The server resolves links first.
    let real = data
        .path()
        .canonicalize()
        .map_or(0, |p| p.as_os_str().len());
    let max = MAX_SOCKET_PATH_BYTES - SOCKET_DIR.len() - SOCKET_NAME.len() - 2;
    let long = given.max(real);
    if long <= max {
        return Ok(());
    }
    let message = format!(
        "the path of the data directory has {long} bytes; with more than {max} the database's socket below it gets \
         too long for the system: name a shorter one with --data-dir"
    );
    Err(Failure::new(ExitCode::Invalid, message).into())
}

#[derive(Serialize)]
struct ServerSettings {
    listen: String,
    metrics_listen: String,
    data_dir: PathBuf,
    database_url: String,
    tick_interval_s: u64,
    canary_window_s: u64,
    endpoints_dir: PathBuf,
    tokens_file: PathBuf,
}

#[derive(Serialize)]
struct AgentSettings {
    host: String,
    environment: String,
    instance_type: String,
    server: String,
    token_file: PathBuf,
    state_dir: PathBuf,
    advertise_address: String,
    price_usd_per_hour: f64,
    price_source: String,
    price_date: String,
    nvlink: bool,
    port_range: [u16; 2],
    metrics_listen: String,
    gpu: GpuSettings,
    engines: EngineSettings,
    models: ModelSettings,
}

#[derive(Serialize)]
struct GpuSettings {
    probe: String,
    sim_dir: PathBuf,
}

#[derive(Serialize)]
struct EngineSettings {
    sim: bool,
}

#[derive(Serialize)]
struct ModelSettings {
    root: PathBuf,
}

#[derive(Serialize)]
struct Tokens {
    token: Vec<TokenEntry>,
}

#[derive(Serialize)]
struct TokenEntry {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    secret_file: PathBuf,
}

/// Settings files of server and agents.
#[derive(Debug)]
pub(super) struct Written {
    /// `server.toml`.
    pub(super) server: PathBuf,
    /// (host, `agent.toml`), in the order of the fleet.
    pub(super) agents: Vec<(String, PathBuf)>,
    /// Ports of every host, claimed while this is kept.
    pub(super) ranges: Vec<ports::PortRange>,
}

fn make_dir(path: PathBuf) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
    Ok(path)
}

/// Removes endpoint files while no engine of the cluster runs: what they name is gone, and its ports may
/// be somebody else's by now.
pub(super) fn clear_endpoints(data: &DataDir) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(data.endpoints()).into_iter().flatten();
    let paths = entries.filter_map(Result::ok).map(|e| e.path());
    for path in paths.filter(|p| p.extension().is_some_and(|e| e == "json")) {
        std::fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
    }
    Ok(())
}

/// A token file, made once and kept: a restart must not lock out whoever holds the token.
fn token(path: PathBuf) -> anyhow::Result<PathBuf> {
    if !path.exists() {
        write_private(&path, &format!("{}\n", new_token()?))?;
    }
    read_token(&path)?;
    Ok(path)
}

/// Writes everything.
pub(super) fn write(input: &Input<'_>) -> anyhow::Result<Written> {
    let data = input.data;
    for folder in [
        data.logs(),
        data.endpoints(),
        data.load(),
        data.join("models"),
    ] {
        make_dir(folder)?;
    }
    clear_endpoints(data)?;
    let server_url = format!("http://{}", input.listen);
    let mut tokens = vec![TokenEntry {
        role: "operator",
        host: None,
        secret_file: token(data.join("token"))?,
    }];
    let mut agents = vec![];
    let ranges = ports::ranges(input.fleet.hosts.len())?;
    for (host, range) in input.fleet.hosts.iter().zip(&ranges) {
        let folder = make_dir(data.host(host.host.as_str()))?;
        let token_file = token(folder.join("token"))?;
        tokens.push(TokenEntry {
            role: "agent",
            host: Some(host.host.to_string()),
            secret_file: token_file,
        });
        agents.push((
            host.host.to_string(),
            agent(data, host, &server_url, range.ports)?,
        ));
    }
    write_private(
        &data.join("tokens.toml"),
        &toml::to_string(&Tokens { token: tokens })?,
    )?;
    let settings = ServerSettings {
        listen: input.listen.to_string(),
        metrics_listen: "127.0.0.1:0".to_owned(),
        data_dir: data.path().to_path_buf(),
        database_url: input.database_url.clone(),
        tick_interval_s: input.tick_interval_s,
        canary_window_s: CANARY_WINDOW_S,
        endpoints_dir: data.endpoints(),
        tokens_file: data.join("tokens.toml"),
    };
    let server = data.join("server.toml");
    // A database URL may hold a password.
    write_private(&server, &toml::to_string(&settings)?)?;
    let client = ClientSettings {
        server: server_url,
        token_file: Some("token".into()),
        ca_file: None,
    };
    write_private(&data.client_settings(), &toml::to_string(&client)?)?;
    Ok(Written {
        server,
        agents,
        ranges,
    })
}

fn agent(
    data: &DataDir,
    host: &FleetHost,
    server: &str,
    port_range: [u16; 2],
) -> anyhow::Result<PathBuf> {
    let folder = data.host(host.host.as_str());
    let sim_dir = make_dir(folder.join("gpus"))?;
    let inventory = serde_json::to_vec_pretty(&host.inventory())?;
    write_whole(&sim_dir.join("gpus.json"), &inventory, 0o644)?;
    let settings = AgentSettings {
        host: host.host.to_string(),
        environment: host.environment.to_string(),
        instance_type: host.instance_type.clone(),
        server: server.to_owned(),
        token_file: folder.join("token"),
        state_dir: make_dir(folder.join("state"))?,
        advertise_address: "127.0.0.1".to_owned(),
        price_usd_per_hour: host.price.usd_per_hour,
        price_source: host.price.source.clone(),
        price_date: host.price.date.clone(),
        nvlink: host.nvlink,
        port_range,
        metrics_listen: "127.0.0.1:0".to_owned(),
        gpu: GpuSettings {
            probe: "sim".to_owned(),
            sim_dir,
        },
        engines: EngineSettings { sim: true },
        models: ModelSettings {
            root: data.join("models"),
        },
    };
    let path = folder.join("agent.toml");
    write_whole(&path, toml::to_string(&settings)?.as_bytes(), 0o600)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use koi_core::gpu::SimGpuInventory;

    use super::*;
    use crate::fleet;

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_in_one_line() {
        let of = |n: usize| DataDir::resolve(Some(format!("/{}", "x".repeat(n - 1)).as_ref()));
        check_socket_path(&of(68)).unwrap();
        let error = check_socket_path(&of(69)).unwrap_err();
        let failure = error.downcast_ref::<Failure>().unwrap();
        assert_eq!(failure.code, ExitCode::Invalid);
        assert!(failure.message.contains("--data-dir") && !failure.message.contains('\n'));
        let odd = DataDir::resolve(Some("/tmp/a b&c".as_ref()));
        assert!(private_database(&odd).ends_with("?host=/tmp/a%20b%26c/postgres/run"));
    }

    #[test]
    fn every_process_finds_its_files() {
        let dir = std::env::temp_dir().join(format!("koi-files-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let data = DataDir::resolve(Some(&dir));
        let fleet = fleet::parse(include_str!("../../../configs/fleets/demo.toml")).unwrap();
        let input = Input {
            data: &data,
            fleet: &fleet,
            listen: "127.0.0.1:7410".parse().unwrap(),
            tick_interval_s: 30,
            database_url: private_database(&data),
        };
        let written = write(&input).unwrap();
        assert_eq!(written.agents.len(), 6);
        let first = std::fs::read_to_string(data.join("token")).unwrap();
        let stale = data.endpoints().join("chat.json");
        std::fs::write(&stale, "{}").unwrap();
        write(&input).unwrap();
        assert!(!stale.exists(), "no endpoint outlives its cluster");
        assert_eq!(
            std::fs::read_to_string(data.join("token")).unwrap(),
            first,
            "tokens are kept"
        );
        let tokens: toml::Table = std::fs::read_to_string(data.join("tokens.toml"))
            .unwrap()
            .parse()
            .unwrap();
        let entries = tokens["token"].as_array().unwrap();
        assert_eq!(entries.len(), 7);
        for entry in entries {
            let file = entry["secret_file"].as_str().unwrap();
            let mode = std::fs::metadata(file).unwrap().permissions().mode();
            assert_eq!(
                (mode & 0o777, read_token(file.as_ref()).unwrap().len()),
                (0o600, 43),
                "{file}"
            );
        }
        let agent: toml::Table = std::fs::read_to_string(&written.agents[0].1)
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(agent["host"].as_str(), Some("h100-a"));
        assert_eq!(agent["engines"]["sim"].as_bool(), Some(true));
        let inventory =
            std::path::Path::new(agent["gpu"]["sim_dir"].as_str().unwrap()).join("gpus.json");
        let inventory: SimGpuInventory =
            serde_json::from_slice(&std::fs::read(inventory).unwrap()).unwrap();
        assert_eq!(
            (inventory.gpus.len(), inventory.gpu_type.as_str()),
            (8, "H100")
        );
        let server: toml::Table = std::fs::read_to_string(&written.server)
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(server["tick_interval_s"].as_integer(), Some(30));
        assert!(
            server["database_url"]
                .as_str()
                .is_some_and(|u| u.ends_with("/postgres/run"))
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
