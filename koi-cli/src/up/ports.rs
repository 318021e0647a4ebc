//! Free ports: one for the server, a disjoint range for every host's engines.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};

use anyhow::{Context as _, ensure};

/// Port of the server when it is free.
const SERVER_PORT: u16 = 7410;
/// Ports tried for the server before asking the system for any.
const SERVER_TRIES: u16 = 20;
/// Ports of one host: more replicas than devices, and old ones beside new ones.
pub(super) const PORTS_PER_HOST: u16 = 100;
/// Engines' ports lie here, below the system's ephemeral ports.
const FIRST: u16 = 20_000;
const LAST: u16 = 32_000;

fn is_free(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_ok()
}

/// The server's address. Its port is claimed for as long as this value lives: while a cluster's server
/// is down between two starts, another cluster neither takes its port nor sends its token there.
#[derive(Debug)]
pub(super) struct ServerPort {
    /// Address to listen on.
    pub(super) address: SocketAddr,
    _claim: UnixListener,
}

impl ServerPort {
    /// Claims the address if nobody listens there and no cluster has claimed the port. The claim is an
    /// abstract socket: it belongs to the same network namespace as the port and dies with its owner.
    fn claim(address: SocketAddr) -> Option<Self> {
        let name = format!("koi-server-port-{}", address.port());
        let name = UnixAddress::from_abstract_name(name).ok()?;
        let claim = UnixListener::bind_addr(&name).ok()?;
        is_free(address).then_some(Self {
            address,
            _claim: claim,
        })
    }
}

/// The asked address, or a free one on the loopback interface.
pub(super) fn server(asked: Option<SocketAddr>) -> anyhow::Result<ServerPort> {
    if let Some(asked) = asked {
        return ServerPort::claim(asked).with_context(|| {
            format!("{asked} is in use, or another cluster's; name another address with --listen")
        });
    }
    let here = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let known = (SERVER_PORT..SERVER_PORT + SERVER_TRIES).find_map(|p| ServerPort::claim(here(p)));
    if let Some(port) = known {
        return Ok(port);
    }
    let listener = TcpListener::bind(here(0)).context("find a free port")?;
    let address = listener.local_addr()?;
    drop(listener);
    ServerPort::claim(address).context("no free port was found; name an address with --listen")
}

/// The ports of one host's engines. The port after the last is listened on for as long as this value
/// lives, so that another cluster takes another range even while no engine runs in this one.
#[derive(Debug)]
pub(super) struct PortRange {
    /// First and last port.
    pub(super) ports: [u16; 2],
    _claim: TcpListener,
}

/// One range of ports per host, disjoint from each other and from those of other clusters.
pub(super) fn ranges(n_hosts: usize) -> anyhow::Result<Vec<PortRange>> {
    let here = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut ranges = Vec::with_capacity(n_hosts);
    let mut first = FIRST;
    while ranges.len() < n_hosts {
        ensure!(
            first + PORTS_PER_HOST <= LAST,
            "not enough free ports between {FIRST} and {LAST} for {n_hosts} hosts"
        );
        let end = first + PORTS_PER_HOST - 1;
        // A cluster whose supervisor was killed has no claims, but engines, from below.
        if (first..first + 8).all(|p| is_free(here(p)))
            && let Ok(claim) = TcpListener::bind(here(end))
        {
            ranges.push(PortRange {
                ports: [first, end - 1],
                _claim: claim,
            });
        }
        first += PORTS_PER_HOST;
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_port_stays_claimed_while_nobody_listens() {
        let first = server(None).unwrap();
        let second = server(None).unwrap();
        assert_ne!(first.address, second.address);
        let asked = server(Some(first.address)).unwrap_err();
        assert!(asked.to_string().contains("--listen"), "{asked}");
        let port = first.address;
        drop(first);
        assert_eq!(server(Some(port)).unwrap().address, port);
    }

    #[test]
    fn ranges_are_disjoint_and_avoid_what_listens() {
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let asked = held.local_addr().unwrap();
        assert!(
            server(Some(asked))
                .unwrap_err()
                .to_string()
                .contains("--listen")
        );
        assert!(server(None).unwrap().address.ip().is_loopback());
        let of = |ranges: &[PortRange]| ranges.iter().map(|r| r.ports).collect::<Vec<_>>();
        let (one, other) = (ranges(6).unwrap(), ranges(6).unwrap());
        let mut all = of(&one);
        all.extend(of(&other));
        all.sort_unstable();
        assert!(all.windows(2).all(|w| w[0][1] < w[1][0]), "{all:?}");
        assert!(super::ranges(1000).is_err());
    }
}
