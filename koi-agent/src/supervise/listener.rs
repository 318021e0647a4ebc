//! Who listens on a port: an old or foreign process may answer in our replica's place.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use koi_shim::record::Member;

/// State of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// True when every socket that listens on `port` is held by one of these processes.
///
/// # Errors
/// When the kernel's tables cannot be read.
pub fn listens(members: &[Member], port: u16) -> io::Result<bool> {
    let mut wanted = BTreeSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match fs::read_to_string(table) {
            Ok(text) => wanted.extend(listening_inodes(&text, port)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let held: BTreeSet<u64> = members
        .iter()
        .flat_map(|m| socket_inodes(m.process.pid))
        .collect();
    Ok(!wanted.is_empty() && wanted.is_subset(&held))
}

fn listening_inodes(table: &str, port: u16) -> Vec<u64> {
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (_, local_port) = fields.get(1)?.rsplit_once(':')?;
        let here = u16::from_str_radix(local_port, 16).ok()? == port && *fields.get(3)? == LISTEN;
        here.then(|| fields.get(9)?.parse().ok()).flatten()
    };
    table.lines().skip(1).filter_map(parse).collect()
}

fn socket_inodes(pid: u32) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|target| {
            let text = target
                .to_str()?
                .strip_prefix("socket:[")?
                .strip_suffix(']')?;
            text.parse().ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use koi_shim::process::reference;

    use super::*;

    fn member(pid: u32) -> Member {
        Member {
            process: reference(pid).unwrap(),
            ppid: 0,
            name: String::new(),
        }
    }

    #[test]
    fn hazard_e12_a_foreign_listener_is_told_from_ours() {
        let ours = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = ours.local_addr().unwrap().port();
        assert!(listens(&[member(std::process::id())], port).unwrap());
        let mut stranger = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        assert!(!listens(&[member(stranger.id())], port).unwrap());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        drop(ours);
        assert!(!listens(&[member(std::process::id())], port).unwrap());
    }
}
