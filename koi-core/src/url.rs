//! Addresses as text: how a server's address protects a token, and percent-encoding.
//!
//! Not a URL library: clients parse addresses again before they connect. Reliability K12.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How well what is sent to an address is protected on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// `https://`.
    Tls,
    /// `http://` to this very machine.
    PlainLoopback,
    /// `http://` to anywhere else: whoever is on the way reads the token.
    PlainRemote,
}

/// The transport of a server's address such as `http://127.0.0.1:7410`. Loopback is judged by the
/// parsed host, never by how the text begins: `http://127.0.0.1.example` is a remote host.
///
/// # Errors
/// What would be right.
pub fn transport_of(address: &str) -> Result<Transport, String> {
    let bad = |why: &str| {
        let shown: String = address.chars().take(100).collect();
        Err(format!(
            "{shown:?} is not an address such as http://127.0.0.1:7410: {why}"
        ))
    };
    let Some((scheme, rest)) = address.split_once("://") else {
        return bad("it must start with http:// or https://");
    };
    let is_tls = match scheme.to_ascii_lowercase().as_str() {
        "https" => true,
        "http" => false,
        _ => return bad("it must start with http:// or https://"),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains(['@', '\\']) || authority.chars().any(char::is_whitespace) {
        return bad("its host holds characters that no host has");
    }
    match host_of(authority) {
        None => bad("it names no host"),
        Some(_) if is_tls => Ok(Transport::Tls),
        Some(host) if is_loopback(host) => Ok(Transport::PlainLoopback),
        Some(_) => Ok(Transport::PlainRemote),
    }
}

/// The host of `host`, `host:port` or `[v6]:port`, without brackets.
fn host_of(authority: &str) -> Option<&str> {
    let host = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            let is_port = after.is_empty() || after.starts_with(':');
            return (is_port && host.parse::<Ipv6Addr>().is_ok()).then_some(host);
        }
        None => authority.split(':').next().unwrap_or_default(),
    };
    (!host.is_empty()).then_some(host)
}

fn is_loopback(host: &str) -> bool {
    let ip = host.parse::<IpAddr>().map(|ip| ip.to_canonical());
    ip.map_or_else(
        |_| host.eq_ignore_ascii_case("localhost"),
        |ip| match ip {
            IpAddr::V4(v4) => Ipv4Addr::is_loopback(&v4),
            IpAddr::V6(v6) => Ipv6Addr::is_loopback(&v6),
        },
    )
}

/// Every byte but letters, digits and `/-_.~` as `%XX`, for a value within a URL.
#[must_use]
pub fn percent_encoded(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(byte) {
            out.push(char::from(*byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_judged_by_the_host_and_not_by_how_the_text_begins() {
        for address in [
            "http://127.0.0.1:7410",
            "http://127.9.8.7",
            "http://localhost:1/",
            "HTTP://LocalHost:1",
            "http://[::1]:7592",
            "http://[::ffff:127.0.0.1]:1",
        ] {
            assert_eq!(
                transport_of(address),
                Ok(Transport::PlainLoopback),
                "{address}"
            );
        }
        for address in [
            "http://127.0.0.1.evil:7666",
            "http://localhost.evil",
            "http://192.0.2.2:7667",
            "http://[2001:db8::1]:1",
            "http://0.0.0.0:1",
            "http://example.org/127.0.0.1",
        ] {
            assert_eq!(
                transport_of(address),
                Ok(Transport::PlainRemote),
                "{address}"
            );
        }
        assert_eq!(
            transport_of("https://koi.internal:7410"),
            Ok(Transport::Tls)
        );
    }

    #[test]
    fn what_is_no_address_is_refused_with_an_example() {
        for address in [
            "",
            "127.0.0.1:7410",
            "ftp://127.0.0.1",
            "http://",
            "http://:80",
            "http://127.0.0.1@evil:80",
            "http://127.0.0.1\\@evil",
            "http://[::1",
            "http://[evil]:1",
            "http://a b",
        ] {
            let why = transport_of(address).unwrap_err();
            assert!(why.contains("http://127.0.0.1:7410"), "{why}");
        }
    }

    #[test]
    fn a_value_within_a_url_is_encoded_byte_by_byte() {
        assert_eq!(
            percent_encoded(b"/var/lib/koi-1_a.b~"),
            "/var/lib/koi-1_a.b~"
        );
        assert_eq!(
            percent_encoded("/a b&c#%ä".as_bytes()),
            "/a%20b%26c%23%25%C3%A4"
        );
    }
}
