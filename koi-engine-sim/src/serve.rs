//! The API server's process: starts the EngineCore child, waits until it is ready, serves, and ends
//! in one of three ways: asked to (0), child failed to start (1), child died (1).

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::serve::ListenerExt;
use tokio::net::{TcpListener, TcpSocket, UnixStream, lookup_host};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::api::{Server, router};
use crate::arguments::ServeSettings;
use crate::engine_client::EngineClient;
use crate::frame::ReadyFacts;
use crate::log::{Speaker, log};

/// Connections waiting to be accepted; load comes in bursts.
const LISTEN_BACKLOG: u32 = 2048;
/// How long the answers to requests of a dead engine may take to reach their clients.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long a drained child may take to exit before it is killed.
const CHILD_EXIT: Duration = Duration::from_secs(5);

fn info(message: &str) {
    log(Speaker::ApiServer, "INFO", message);
}

fn error(message: &str) {
    log(Speaker::ApiServer, "ERROR", message);
}

/// Runs the server until it ends.
pub(crate) fn main(settings: ServeSettings) -> ExitCode {
    info(&format!("version 0.32.0+sim, model {}", settings.model_dir));
    for flag in &settings.inert_flags {
        log(
            Speaker::ApiServer,
            "WARNING",
            &format!("{flag} has no effect in the simulation"),
        );
    }
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(problem) => {
            error(&format!("no runtime: {problem}"));
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(settings)) {
        Ok(code) => code,
        Err(problem) => {
            error(&format!("{problem:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(settings: ServeSettings) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    // The address is taken before the slow start, so that a taken one fails at once, but nobody is
    // let in before the engine is ready.
    let socket = bind(&settings).await?;
    let (mut child, connection) = spawn_core(&settings)?;
    let (engine, ready, gone) = EngineClient::start(connection);
    let facts = tokio::select! {
        facts = ready => facts.ok(),
        () = signals.stop() => {
            child.start_kill()?;
            drop(child.wait().await);
            return Ok(ExitCode::SUCCESS);
        }
    };
    let Some(facts) = facts else {
        drop(child.wait().await);
        error("RuntimeError: Engine core initialization failed. See root cause above.");
        return Ok(ExitCode::FAILURE);
    };
    let listener = socket.listen(LISTEN_BACKLOG).context("listen")?;
    serve(
        settings,
        facts,
        engine,
        Ending {
            child,
            gone,
            signals,
        },
        listener,
    )
    .await
}

/// What can end a serving process.
struct Ending {
    child: Child,
    gone: oneshot::Receiver<()>,
    signals: Signals,
}

async fn serve(
    settings: ServeSettings,
    facts: ReadyFacts,
    engine: EngineClient,
    mut ending: Ending,
    listener: TcpListener,
) -> anyhow::Result<ExitCode> {
    info(&format!(
        "Starting vLLM server on http://{}",
        listener.local_addr()?
    ));
    let grace = Duration::from_secs(settings.shutdown_timeout_s);
    let server = Arc::new(Server::new(settings, facts, engine.clone()));
    let (close, closed) = oneshot::channel::<()>();
    let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
    let app = axum::serve(listener, router(Arc::clone(&server)))
        .with_graceful_shutdown(async { drop(closed.await) });
    let mut serving = tokio::spawn(app.into_future());
    info("Application startup complete.");
    let asked_to_stop = tokio::select! {
        () = ending.signals.stop() => true,
        _ = &mut ending.gone => false,
    };
    if asked_to_stop {
        info("Shutting down: finishing what is in flight");
        let drained = tokio::select! {
            drained = timeout(grace, server.drain()) => drained.is_ok(),
            _ = &mut ending.gone => false,
        };
        if !drained {
            log(Speaker::ApiServer, "WARNING", "requests were cut off");
        }
    } else {
        error("EngineDeadError: EngineCore encountered an issue.");
    }
    drop(close);
    drop(timeout(FAREWELL, &mut serving).await);
    serving.abort();
    engine.drain();
    if timeout(CHILD_EXIT, ending.child.wait()).await.is_err() {
        drop(ending.child.kill().await);
    }
    info("Shutdown complete");
    Ok(if asked_to_stop {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn bind(settings: &ServeSettings) -> anyhow::Result<TcpSocket> {
    let (host, port) = (settings.host.as_str(), settings.port);
    let name = || format!("bind {host}:{port}");
    let address: SocketAddr = lookup_host((host, port))
        .await
        .with_context(name)?
        .next()
        .with_context(name)?;
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address).with_context(name)?;
    Ok(socket)
}

/// Starts this program again as the child, with a socket as its standard input.
fn spawn_core(settings: &ServeSettings) -> anyhow::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = theirs.into_std()?;
    theirs.set_nonblocking(false)?;
    let program = std::env::current_exe().context("find this program")?;
    let child = Command::new(program)
        .arg("engine-core")
        .arg(serde_json::to_string(settings)?)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .spawn()
        .context("start EngineCore")?;
    Ok((child, ours))
}

/// The signals that ask for an end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
