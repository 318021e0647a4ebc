//! Hostile servers on loopback, byte by byte.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use super::*;

/// Serves one connection with `act` after the request was read.
pub(crate) fn server(act: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0u8; 4096];
        let _n = stream.read(&mut request);
        act(stream);
    });
    address
}

fn says(text: &'static str) -> SocketAddr {
    server(move |mut stream| drop(stream.write_all(text.as_bytes())))
}

fn tight() -> FetchLimits {
    FetchLimits {
        max_bytes: 1000,
        total: Duration::from_millis(300),
    }
}

async fn get(address: SocketAddr) -> Result<fetch::Answer, FetchError> {
    fetch(address, Method::GET, "/metrics", None, tight()).await
}

#[tokio::test]
async fn a_plain_answer_is_its_text() {
    let address = says("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 1\n");
    assert_eq!(scrape(address).await.unwrap(), "a 1\n");
}

#[tokio::test]
async fn hazard_e14_an_endless_or_slow_answer_is_cut() {
    let endless = server(|mut stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"));
        while stream.write_all(b"400\r\n").is_ok()
            && stream.write_all(&[b'x'; 0x400]).is_ok()
            && stream.write_all(b"\r\n").is_ok()
        {}
    });
    assert!(matches!(
        get(endless).await,
        Err(FetchError::TooLarge(1000))
    ));
    let trickle = server(|mut stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"));
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let began = Instant::now();
    assert!(matches!(get(trickle).await, Err(FetchError::TooSlow(_))));
    assert!(began.elapsed() < Duration::from_secs(2));
    let silent = server(|stream| {
        std::thread::sleep(Duration::from_secs(2));
        drop(stream);
    });
    assert!(matches!(get(silent).await, Err(FetchError::TooSlow(_))));
}

#[tokio::test]
async fn hazard_e14_a_compressed_answer_is_not_unpacked() {
    let address = says("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc");
    assert!(matches!(scrape(address).await, Err(FetchError::Compressed)));
}

#[tokio::test]
async fn hazard_e13_what_is_not_metrics_text_is_an_error() {
    let broken = says("SSH-2.0-OpenSSH\r\n");
    assert!(matches!(scrape(broken).await, Err(FetchError::Broken(_))));
    let error = says("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n");
    assert!(matches!(scrape(error).await, Err(FetchError::Status(500))));
    let binary = server(|mut stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xfe"));
    });
    assert!(matches!(scrape(binary).await, Err(FetchError::NotText)));
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    assert!(matches!(scrape(nobody).await, Err(FetchError::Connect(_))));
}
