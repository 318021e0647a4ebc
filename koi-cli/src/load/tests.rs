//! The generator against a socket that streams tokens at known times.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::drive::Drive;
use super::minutes::{Minute, newest};
use super::settings::{JobLoad, Pace};

/// How the socket answers.
#[derive(Clone, Copy)]
enum Answer {
    /// All tokens.
    Whole,
    /// Two tokens, then the connection ends.
    Cut,
    /// The connection ends after the request was read.
    Nothing,
}

const FIRST: Duration = Duration::from_millis(40);
const GAP: Duration = Duration::from_millis(15);
const TOKENS: usize = 6;

async fn read_request(socket: &mut TcpStream) -> Option<()> {
    let mut bytes = vec![];
    loop {
        let mut buffer = [0; 4096];
        let n = socket.read(&mut buffer).await.ok().filter(|n| *n > 0)?;
        bytes.extend_from_slice(&buffer[..n]);
        let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length: usize = head
            .split("content-length:")
            .nth(1)?
            .lines()
            .next()?
            .trim()
            .parse()
            .ok()?;
        if bytes.len() >= end + 4 + length {
            return Some(());
        }
    }
}

async fn chunk(socket: &mut TcpStream, text: &str) -> Option<()> {
    let framed = format!("{:x}\r\n{text}\r\n", text.len());
    socket.write_all(framed.as_bytes()).await.ok()
}

async fn serve(mut socket: TcpStream, answer: Answer) -> Option<()> {
    loop {
        read_request(&mut socket).await?;
        if matches!(answer, Answer::Nothing) {
            return None;
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        socket.write_all(head.as_bytes()).await.ok()?;
        for i in 0..TOKENS {
            tokio::time::sleep(if i == 0 { FIRST } else { GAP }).await;
            if i == 2 && matches!(answer, Answer::Cut) {
                return None;
            }
            chunk(
                &mut socket,
                "data: {\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\n",
            )
            .await?;
        }
        chunk(
            &mut socket,
            "data: {\"choices\":[],\"usage\":{\"completion_tokens\":6}}\n\ndata: [DONE]\n\n",
        )
        .await?;
        socket.write_all(b"0\r\n\r\n").await.ok()?;
    }
}

async fn engine(answer: Answer) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket, answer));
        }
    });
    port
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("koi-load-{name}-{}", std::process::id()));
        std::fs::create_dir_all(path.join("endpoints")).unwrap();
        let trace = "t_s,context_tokens,generated_tokens\n0,10,6\n0.05,20,6\n0.1,30,6\n";
        std::fs::write(path.join("trace.csv"), trace).unwrap();
        Self(path)
    }

    fn publish(&self, ports: &[u16]) {
        let list: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(i, port)| format!(r#"{{"replica_id":"chat.g1.r0.{i}","address":"127.0.0.1","port":{port},"weight":0.5}}"#))
            .collect();
        let text = format!(
            r#"{{"job":"chat","version":1,"served_model_name":"m","endpoints":[{}]}}"#,
            list.join(",")
        );
        std::fs::write(self.0.join("endpoints/chat.json"), text).unwrap();
    }

    /// Runs the load for a while and adds up what it wrote.
    async fn run(&self, pace: Pace, time: Duration) -> Minute {
        let job = JobLoad {
            name: "chat".parse().unwrap(),
            trace: self.0.join("trace.csv"),
            pace,
            session_affinity: false,
            vocabulary: 1000,
            max_context_tokens: None,
        };
        let out = self.0.join("out");
        let (stop, mut tasks) = (CancellationToken::new(), tokio::task::JoinSet::new());
        Arc::new(Drive::new(job, &self.0.join("endpoints"), &out).unwrap())
            .start(&mut tasks, &stop);
        tokio::time::sleep(time).await;
        stop.cancel();
        while tasks.join_next().await.is_some() {}
        assert!(out.join("chat.json").exists(), "a live summary");
        let minutes = newest(&out.join("chat"), 3, crate::output::now_us() + 60_000_000).unwrap();
        let mut total = Minute::default();
        minutes.iter().for_each(|m| total.add(m));
        total
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

#[tokio::test]
async fn the_stopwatch_reads_what_the_engine_did() {
    let folder = Folder::new("whole");
    folder.publish(&[engine(Answer::Whole).await]);
    let m = folder
        .run(Pace::Closed { concurrency: 2 }, Duration::from_secs(2))
        .await;
    assert!(
        m.finished >= 8 && m.n_failed() == 0 && m.retried == 0,
        "{m:?}"
    );
    assert_eq!((m.ttft.count(), m.tpot.count()), (m.finished, m.finished));
    let ttft = m.ttft.raw_quantile_ms(0.5).unwrap();
    let tpot = m.tpot.raw_quantile_ms(0.5).unwrap();
    // Sleeps of the engine are lower bounds; a busy machine adds to them.
    assert!((40.0..120.0).contains(&ttft), "{ttft}");
    assert!((15.0..40.0).contains(&tpot), "{tpot}");
    assert_eq!(m.generated_tokens, 6 * m.finished);
}

#[tokio::test]
async fn recorded_times_are_kept_and_looped() {
    let folder = Folder::new("open");
    folder.publish(&[engine(Answer::Whole).await]);
    // Three requests in 0.15 s as recorded; 10 a second asked for.
    let m = folder
        .run(Pace::Rate { rate_rps: 10.0 }, Duration::from_millis(2350))
        .await;
    assert!((15..=22).contains(&m.sent), "{m:?}");
    assert_eq!(m.n_failed(), 0, "{m:?}");
}

#[tokio::test]
async fn an_unanswered_request_is_tried_once_elsewhere() {
    let folder = Folder::new("retry");
    folder.publish(&[engine(Answer::Nothing).await, engine(Answer::Whole).await]);
    let m = folder
        .run(Pace::Closed { concurrency: 1 }, Duration::from_secs(2))
        .await;
    assert!(m.retried >= 2 && m.n_failed() == 0, "{m:?}");
    // The last request may have been retried and not finished when the run ended.
    assert!(m.finished + 1 >= m.retried, "{m:?}");
}

#[tokio::test]
async fn failures_are_counted_by_kind() {
    let cut = Folder::new("cut");
    cut.publish(&[engine(Answer::Cut).await]);
    let m = cut
        .run(Pace::Closed { concurrency: 1 }, Duration::from_millis(1500))
        .await;
    assert!(
        m.failed.get("cut").is_some_and(|n| *n >= 1) && m.failed.len() == 1 && m.finished == 0,
        "{m:?}"
    );
    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let refused = Folder::new("refused");
    refused.publish(&[closed]);
    let m = refused
        .run(Pace::Closed { concurrency: 1 }, Duration::from_millis(1500))
        .await;
    assert!(
        m.failed.get("connect").is_some_and(|n| *n >= 1) && m.retried == 0,
        "{m:?}"
    );
}

fn options(folder: &Folder, endpoints_dir: &str, seconds: u32) -> super::args::LoadArgs {
    super::args::LoadArgs {
        command: None,
        endpoints_dir: Some(folder.0.join(endpoints_dir)),
        jobs: vec![format!("nojob={}", folder.0.join("trace.csv").display())],
        config: None,
        rate: 1.0,
        concurrency: None,
        session_affinity: false,
        vocabulary: None,
        max_context_tokens: None,
        seconds: Some(seconds),
        out: Some(folder.0.join("out")),
    }
}

async fn refused(args: super::args::LoadArgs) -> crate::failure::Failure {
    use clap::Parser as _;
    let cli = crate::args::Cli::try_parse_from(["koi", "status"]).unwrap();
    let error = super::run(&cli.global, args).await.unwrap_err();
    error.downcast().unwrap()
}

#[tokio::test]
async fn a_run_that_can_send_nothing_says_so() {
    use crate::failure::ExitCode;
    let folder = Folder::new("nothing");
    let failure = refused(options(&folder, "nonexistent", 1)).await;
    assert_eq!(failure.code, ExitCode::NotFound);
    assert!(failure.message.contains("nonexistent"), "{failure}");
    let failure = refused(options(&folder, "endpoints", 1)).await;
    assert_eq!(failure.code, ExitCode::Unavailable);
    assert!(failure.message.contains("nothing was sent"), "{failure}");
    let held = super::claim(&folder.0.join("out")).unwrap();
    let failure = refused(options(&folder, "endpoints", 1)).await;
    assert_eq!(failure.code, ExitCode::Conflict);
    assert!(failure.message.contains("--out"), "{failure}");
    drop(held);
    let proc = super::args::LoadArgs {
        out: Some("/proc/x".into()),
        ..options(&folder, "endpoints", 1)
    };
    let cli = {
        use clap::Parser as _;
        crate::args::Cli::try_parse_from(["koi", "status"]).unwrap()
    };
    let error = super::run(&cli.global, proc).await.unwrap_err();
    assert!(format!("{error:#}").contains("/proc/x"), "{error:#}");
}
