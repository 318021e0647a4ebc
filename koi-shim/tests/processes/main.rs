//! The shim with real processes: what survives which death, and that nothing is left behind.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step of a test is a failed test"
)]

mod adoption;
mod bench;
mod endings;
mod output;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use koi_shim::control::socket_path;
use koi_shim::files::{EXIT_FILE, IDENTITY_FILE, SPEC_FILE, read_json, write_json};
use koi_shim::process::is_alive;
use koi_shim::record::{
    ExitRecord, Identity, Member, Operation, ProcessRef, Reply, Request, ShimStatus,
};
use koi_shim::spec::{FORMAT, ShimSpec};
use koi_shim::tree::{Depth, OwnedTree, signal_exactly};
use rustix::process::Signal;

pub(crate) const SHIM: &str = env!("CARGO_BIN_EXE_koi-shim");

/// A state folder that takes its processes with it.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) nonce: String,
}

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("koi-shim-test-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self {
            path,
            nonce: format!("{:016x}{n:016x}", std::process::id()),
        }
    }

    pub(crate) fn spec(&self, argv: &[&str]) -> ShimSpec {
        ShimSpec {
            format: FORMAT,
            replica_id: "chat.g1.r0.0".parse().unwrap(),
            nonce: self.nonce.clone(),
            argv: argv.iter().map(|w| (*w).to_owned()).collect(),
            env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            cwd: self.path.clone(),
            log_file: "engine.log".into(),
            log_max_bytes: 1 << 20,
            grace_s: 5,
            agent_note: String::new(),
        }
    }

    pub(crate) fn shim(&self, action: &str) -> Output {
        Command::new(SHIM)
            .arg(action)
            .arg("--state-dir")
            .arg(&self.path)
            .output()
            .unwrap()
    }

    /// Starts `sh -c script` under a shim.
    pub(crate) fn run_script(&self, script: &str) -> Identity {
        self.run(&self.spec(&["/bin/sh", "-c", script]))
    }

    pub(crate) fn run(&self, spec: &ShimSpec) -> Identity {
        write_json(&self.path.join(SPEC_FILE), spec).unwrap();
        let out = self.shim("run");
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        self.identity()
    }

    pub(crate) fn identity(&self) -> Identity {
        read_json(&self.path.join(IDENTITY_FILE)).unwrap().unwrap()
    }

    pub(crate) fn exit(&self) -> Option<ExitRecord> {
        read_json(&self.path.join(EXIT_FILE)).unwrap()
    }

    pub(crate) fn finished(&self) -> ExitRecord {
        wait_for("exit.json with an empty tree", || {
            self.exit().filter(|e| e.group_gone_at.is_some())
        })
    }

    pub(crate) fn connect(&self) -> std::io::Result<BufReader<UnixStream>> {
        let (_folder, path) = socket_path(&self.path).map_err(std::io::Error::other)?;
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(BufReader::new(stream))
    }

    pub(crate) fn ask(&self, operation: Operation) -> Reply {
        self.ask_as(operation, &self.nonce)
    }

    pub(crate) fn ask_as(&self, operation: Operation, nonce: &str) -> Reply {
        let mut stream = self.connect().unwrap();
        let request = Request {
            operation,
            nonce: nonce.to_owned(),
        };
        let line = serde_json::to_string(&request).unwrap() + "\n";
        stream.get_mut().write_all(line.as_bytes()).unwrap();
        read_reply(&mut stream).unwrap()
    }

    pub(crate) fn watch(&self) -> BufReader<UnixStream> {
        let mut stream = self.connect().unwrap();
        // The plain text of the protocol, so that a change of it shows.
        writeln!(
            stream.get_mut(),
            r#"{{"op":"watch","nonce":"{}"}}"#,
            self.nonce
        )
        .unwrap();
        assert_eq!(read_reply(&mut stream), Some(Reply::Ok));
        stream
    }

    pub(crate) fn status(&self) -> ShimStatus {
        match self.ask(Operation::Status) {
            Reply::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// Members of the tree once there are `n` of them.
    pub(crate) fn members(&self, n: usize) -> Vec<Member> {
        let tree = OwnedTree::of(&self.identity());
        wait_for("the tree to grow", || {
            Some(tree.members(Depth::Marked).unwrap()).filter(|m| m.len() == n)
        })
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path.join("engine.log")).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Ok(Some(identity)) = read_json::<Identity>(&self.path.join(IDENTITY_FILE)) {
            let _sent = signal_exactly(identity.shim, Signal::KILL);
            for member in OwnedTree::of(&identity)
                .members(Depth::Marked)
                .unwrap_or_default()
            {
                let _sent = signal_exactly(member.process, Signal::KILL);
            }
        }
        drop(std::fs::remove_dir_all(&self.path));
    }
}

pub(crate) fn read_reply(stream: &mut BufReader<UnixStream>) -> Option<Reply> {
    let mut line = String::new();
    let n = stream.read_line(&mut line).unwrap();
    (n > 0).then(|| serde_json::from_str(&line).unwrap())
}

pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "waited 20 s for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn gone(process: ProcessRef) {
    wait_for("a process to be gone", || {
        (!is_alive(process)).then_some(())
    });
}

pub(crate) fn kill9(process: ProcessRef) {
    assert!(signal_exactly(process, Signal::KILL), "{process:?}");
    gone(process);
}

pub(crate) fn file_exists(path: &Path) {
    wait_for("a file", || path.exists().then_some(()));
}
