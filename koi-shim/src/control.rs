//! The control socket: JSON lines, at most 8 clients, answers that never wait for a slow reader.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::error::ShimError;
use crate::files::SOCKET_FILE;
use crate::record::{Reply, Request};

/// Most clients at a time; the oldest makes room.
const MAX_CLIENTS: usize = 8;
/// Longest request in bytes.
const MAX_REQUEST_BYTES: usize = 4096;

/// The socket's path by way of an open folder: the plain path may be longer than a socket address.
///
/// # Errors
/// When the folder cannot be opened.
pub fn socket_path(state_dir: &Path) -> Result<(OwnedFd, PathBuf), ShimError> {
    let folder = rustix::fs::open(
        state_dir,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|errno| ShimError::File {
        path: state_dir.to_owned(),
        source: errno.into(),
    })?;
    let path = PathBuf::from(format!(
        "/proc/self/fd/{}/{SOCKET_FILE}",
        folder.as_raw_fd()
    ));
    Ok((folder, path))
}

/// One connected client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    pending: Vec<u8>,
    pub(crate) watching: bool,
    pub(crate) closed: bool,
}

impl Client {
    /// Sends one line; a client that does not take it is dropped.
    pub(crate) fn send(&mut self, reply: &Reply) {
        let Ok(mut line) = serde_json::to_vec(reply) else {
            self.closed = true;
            return;
        };
        line.push(b'\n');
        if self.stream.write_all(&line).is_err() {
            self.closed = true;
        }
    }

    /// Whole requests that arrived; an oversized or broken one closes the client.
    pub(crate) fn requests(&mut self) -> Vec<Result<Request, String>> {
        let mut chunk = [0u8; MAX_REQUEST_BYTES];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.closed = true,
            Ok(n) => self.pending.extend_from_slice(&chunk[..n]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.closed = true,
        }
        let mut found = Vec::new();
        while let Some(end) = self.pending.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            found.push(serde_json::from_slice(&line[..end]).map_err(|error| error.to_string()));
        }
        if self.pending.len() > MAX_REQUEST_BYTES {
            found.push(Err(format!(
                "a request is longer than {MAX_REQUEST_BYTES} bytes"
            )));
            self.pending.clear();
        }
        found
    }
}

/// The listening socket and its clients.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    pub(crate) listener: UnixListener,
    pub(crate) clients: Vec<Client>,
    state_dir: PathBuf,
}

impl ControlSocket {
    /// Replaces a dead shim's socket; the caller holds the folder's lock.
    pub(crate) fn bind(state_dir: &Path) -> Result<Self, ShimError> {
        let wrap = |source| ShimError::File {
            path: state_dir.join(SOCKET_FILE),
            source,
        };
        match fs::remove_file(state_dir.join(SOCKET_FILE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(wrap(error)),
            _ => {}
        }
        let (_folder, path) = socket_path(state_dir)?;
        let listener = UnixListener::bind(path).map_err(wrap)?;
        listener.set_nonblocking(true).map_err(wrap)?;
        Ok(Self {
            listener,
            clients: Vec::new(),
            state_dir: state_dir.to_owned(),
        })
    }

    /// Takes in waiting clients of the same user or root.
    pub(crate) fn accept(&mut self) {
        for _ in 0..MAX_CLIENTS {
            let Ok((stream, _)) = self.listener.accept() else {
                return;
            };
            let allowed = rustix::net::sockopt::socket_peercred(&stream)
                .is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid());
            if !allowed || stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.clients.len() >= MAX_CLIENTS {
                self.clients.remove(0);
            }
            self.clients.push(Client {
                stream,
                pending: Vec::new(),
                watching: false,
                closed: false,
            });
        }
    }

    /// Tells everybody who watches.
    pub(crate) fn announce(&mut self, reply: &Reply) {
        for client in self.clients.iter_mut().filter(|c| c.watching) {
            client.send(reply);
        }
        self.drop_closed();
    }

    /// Forgets clients that are gone.
    pub(crate) fn drop_closed(&mut self) {
        self.clients.retain(|c| !c.closed);
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // The lock says who serves, so a file left behind misleads nobody.
        drop(fs::remove_file(self.state_dir.join(SOCKET_FILE)));
    }
}
