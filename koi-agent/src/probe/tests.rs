//! A real HTTP exchange with scripted answers of an engine.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use super::*;

/// Answers `/v1/models` and `/v1/completions`, one connection each.
fn engine(models: &'static str, completion: (u16, &'static str)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(2) {
            let mut stream = stream.unwrap();
            let mut request = [0u8; 4096];
            let n = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..n]).into_owned();
            let (status, body) = if request.starts_with("GET /v1/models") {
                (200, models)
            } else {
                completion
            };
            let head = format!(
                "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            drop(stream.write_all((head + body).as_bytes()));
        }
    });
    address
}

const MODELS: &str = r#"{"object":"list","data":[{"id":"tiny","object":"model"}]}"#;
const TOKEN: &str = r#"{"id":"x","model":"tiny","choices":[{"index":0,"text":"b","finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;

async fn probe(models: &'static str, completion: (u16, &'static str)) -> Result<(), ProbeError> {
    probe_token(engine(models, completion), "tiny", Duration::from_secs(5)).await
}

#[tokio::test]
async fn a_token_of_the_right_model_is_ready() {
    probe(MODELS, (200, TOKEN)).await.unwrap();
}

#[tokio::test]
async fn hazard_e18_another_model_is_not_ready() {
    let other = r#"{"data":[{"id":"old"}]}"#;
    assert!(matches!(
        probe(other, (200, TOKEN)).await,
        Err(ProbeError::WrongModel { .. })
    ));
    let wrong =
        r#"{"model":"old","choices":[{"finish_reason":"length"}],"usage":{"completion_tokens":1}}"#;
    assert!(matches!(
        probe(MODELS, (200, wrong)).await,
        Err(ProbeError::WrongModel { .. })
    ));
}

#[tokio::test]
async fn a_success_without_a_token_is_not_ready() {
    for empty in [
        r#"{"model":"tiny","choices":[]}"#,
        r#"{"model":"tiny","choices":[{"finish_reason":"stop"}],"usage":{"completion_tokens":0}}"#,
        r#"{"model":"tiny","choices":[{"finish_reason":null}],"usage":{"completion_tokens":1}}"#,
        "<html>hello</html>",
    ] {
        assert!(
            matches!(
                probe(MODELS, (200, empty)).await,
                Err(ProbeError::NoToken(_))
            ),
            "{empty}"
        );
    }
    let failed = probe(MODELS, (500, "{}")).await;
    assert!(matches!(
        failed,
        Err(ProbeError::Exchange(FetchError::Status(500)))
    ));
}

#[tokio::test]
async fn hazard_e2_an_engine_that_takes_the_request_and_says_nothing_fails_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let failed = probe_token(address, "tiny", Duration::from_millis(200)).await;
    assert!(matches!(
        failed,
        Err(ProbeError::Exchange(FetchError::TooSlow(_)))
    ));
}
