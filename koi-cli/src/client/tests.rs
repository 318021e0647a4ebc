//! Which credentials go where, and what a connection that fails means.

use super::*;

fn global(dir: &Path) -> Global {
    Global {
        server: None,
        token_file: None,
        ca_file: None,
        data_dir: Some(dir.to_path_buf()),
        output: crate::output::Format::Table,
        timeout_s: 5,
        insecure: false,
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

#[test]
fn a_token_goes_in_the_clear_to_this_machine_only() {
    let dir = std::env::temp_dir().join(format!("koi-clear-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let token_file = dir.join("t");
    std::fs::write(&token_file, "secret\n").unwrap();
    let to = |server: &str, insecure| Global {
        server: Some(server.to_owned()),
        token_file: Some(token_file.clone()),
        insecure,
        ..global(&dir)
    };
    for server in ["http://192.0.2.2:7667", "http://127.0.0.1.evil:7666"] {
        let error = Target::resolve(&to(server, false)).unwrap_err();
        let failure = error.downcast_ref::<Failure>().unwrap();
        assert_eq!(failure.code, ExitCode::Invalid);
        assert!(failure.message.contains("--insecure"), "{failure}");
        assert!(Target::resolve(&to(server, true)).is_ok());
    }
    for server in ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1"] {
        let target = Target::resolve(&to(server, false)).unwrap();
        assert_eq!(target.token.as_deref(), Some("secret"), "{server}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn an_https_server_needs_an_authority_that_is_one() {
    let dir = std::env::temp_dir().join(format!("koi-authority-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let with = |ca_file: Option<PathBuf>| Global {
        server: Some("https://127.0.0.1:1".to_owned()),
        ca_file,
        ..global(&dir)
    };
    let failure = |global: &Global| {
        let error = Target::resolve(global).unwrap_err();
        error.downcast::<Failure>().unwrap()
    };
    assert!(failure(&with(None)).message.contains("--ca-file"));
    let path = dir.join("ca.pem");
    assert!(
        failure(&with(Some(path.clone())))
            .message
            .contains("ca.pem")
    );
    std::fs::write(&path, "no PEM\n").unwrap();
    let none = failure(&with(Some(path)));
    assert!(none.message.contains("holds no certificate"), "{none}");
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Answers the first bytes of every connection with these.
async fn stranger(answer: &'static [u8]) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut first = [0; 16];
            stream.read_exact(&mut first).await.ok();
            stream.write_all(answer).await.ok();
        }
    });
    address.to_string()
}

async fn failure_at(server: String) -> Failure {
    const AUTHORITY: &str = include_str!("authority.pem");
    let target = Target {
        ca: server.starts_with("https").then(|| AUTHORITY.to_owned()),
        server,
        token: None,
        timeout: Duration::from_secs(5),
    };
    let client = match Client::connect(&target).await {
        Ok(client) => client,
        Err(error) => return error.downcast::<Failure>().unwrap(),
    };
    let reply = client.admin().get_status(v1::GetStatusRequest {}).await;
    let error = client.answer(reply).unwrap_err();
    error.downcast::<Failure>().unwrap()
}

#[tokio::test]
async fn a_tls_server_and_a_plain_one_are_told_from_none() {
    // An alert record: what a TLS server says to a client that speaks plain HTTP.
    let tls = stranger(b"\x15\x03\x03\x00\x02\x02\x0a").await;
    let failure = failure_at(format!("http://{tls}")).await;
    assert_eq!(failure.code, ExitCode::Unavailable);
    assert!(failure.message.contains("https://"), "{failure}");
    let plain = stranger(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let failure = failure_at(format!("https://{plain}")).await;
    assert!(failure.message.contains("does not speak TLS"), "{failure}");
    assert!(!failure.message.contains("koi up"), "{failure}");
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
