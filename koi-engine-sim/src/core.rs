//! The EngineCore child: owns the simulated engine and the simulated devices' memory, as the child
//! of a real `vllm serve` does. It outlives a killed parent and then only holds its memory.

mod meter;
mod run;
mod startup;

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::ServeSettings;
use crate::frame::{FromCore, ToCore, read_frame};
use crate::log::{Speaker, log};

/// What reaches the engine's thread.
pub(crate) enum Input {
    /// From the API process.
    Message(ToCore),
    /// The API process is gone.
    ParentGone,
    /// Asked to end by a signal.
    Terminate,
}

/// Runs the child; its standard input is the socket to the parent.
pub(crate) fn main(settings_json: &str) -> ExitCode {
    match start(settings_json) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(Speaker::EngineCore, "ERROR", "EngineCore failed to start.");
            log(Speaker::EngineCore, "ERROR", &format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn start(settings_json: &str) -> anyhow::Result<()> {
    let settings: ServeSettings = serde_json::from_str(settings_json)?;
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let (inputs, received) = mpsc::channel();
    let reader = socket.try_clone()?;
    let from_parent = inputs.clone();
    // A signal during start-up ends the process at once: nothing is in flight yet.
    let core = startup::start(&settings)?;
    thread::Builder::new()
        .name("reader".to_owned())
        .spawn(move || read(reader, &from_parent))?;
    let meter = Arc::new(meter::Meter::default());
    let (of_thread, folder) = (Arc::clone(&meter), core.folder.clone());
    let (memory_bytes, truth) = (core.memory_bytes, core.engine.truth().clone());
    thread::Builder::new()
        .name("meter".to_owned())
        .spawn(move || of_thread.run(&folder, memory_bytes, &truth))?;
    let folder = core.folder.clone();
    let (done, finished) = tokio::sync::oneshot::channel::<()>();
    thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || {
            run::Runner::new(core.engine, socket, meter).run(&core.facts, &received);
            drop(done);
        })?;
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?
        .block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            // Ctrl-C reaches the whole group; only the parent decides what it means.
            let mut interrupt = signal(SignalKind::interrupt())?;
            tokio::pin!(finished);
            loop {
                tokio::select! {
                    _ = &mut finished => return std::io::Result::Ok(()),
                    _ = terminate.recv() => drop(inputs.send(Input::Terminate)),
                    _ = interrupt.recv() => {}
                }
            }
        })?;
    folder.remove_holders();
    Ok(())
}

fn read(mut socket: UnixStream, inputs: &mpsc::Sender<Input>) {
    while let Ok(Some(bytes)) = read_frame(&mut socket) {
        let Some(message) = ToCore::decode(&bytes) else {
            log(
                Speaker::EngineCore,
                "ERROR",
                "a frame from the API server makes no sense",
            );
            continue;
        };
        if inputs.send(Input::Message(message)).is_err() {
            return;
        }
    }
    drop(inputs.send(Input::ParentGone));
}

/// Sends a message to the parent; a parent that is gone is noticed by the reader.
pub(crate) fn send(socket: &mut UnixStream, message: &FromCore) {
    drop(std::io::Write::write_all(socket, &message.encode()));
}
