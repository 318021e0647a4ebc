//! The cluster's folders and files: made once, safely against interruption and a second starter.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use koi_core::url::percent_encoded;
use sha2::{Digest, Sha256};

use super::account::command;
use super::{Account, Binaries, DATABASE, PostgresError, RunningPostgres, Settings};

/// Longest socket path that fits into `sun_path` with room to spare.
const MAX_SOCKET_PATH: usize = 100;
/// A log longer than this is set aside at the next start; one old log is kept.
const MAX_LOG_BYTES: u64 = 4 << 20;

/// An initialised private cluster.
#[derive(Debug, Clone)]
pub struct PrivateCluster {
    pub(super) settings: Settings,
    pub(super) account: Option<Account>,
    pub(super) binaries: Binaries,
    /// `DATA_DIR/postgres`.
    pub(super) base: PathBuf,
    /// The cluster's files.
    pub(super) data: PathBuf,
    /// Folder of the socket, mode 700: whoever can enter is trusted.
    pub(super) socket_dir: PathBuf,
    /// What the server writes to stderr.
    pub(super) log: PathBuf,
}

impl PrivateCluster {
    /// Finds the binaries and makes folders and files that are not there yet. Blocks; call it from a
    /// thread that may.
    ///
    /// # Errors
    /// [`PostgresError`], each with what to do.
    pub fn prepare(settings: &Settings) -> Result<Self, PostgresError> {
        let account = Account::to_switch_to()?;
        let base = make_base(&settings.data_dir, account.as_ref())?;
        let data = base.join("data");
        let stored = stored_major(&data);
        let binaries = Binaries::find(settings, account.as_ref(), stored.as_deref())?;
        if let Some(stored) = stored.filter(|s| *s != binaries.major) {
            return Err(PostgresError::WrongVersion {
                data,
                stored,
                bin: binaries.bin,
                found: binaries.major,
            });
        }
        let socket_dir = make_socket_dir(&base, account.as_ref())?;
        let log = base.join("log");
        let cluster = Self {
            settings: settings.clone(),
            account,
            binaries,
            base,
            data,
            socket_dir,
            log,
        };
        cluster.initialise()?;
        cluster.set_long_log_aside()?;
        Ok(cluster)
    }

    /// Connection URL of the database.
    #[must_use]
    pub fn url(&self) -> String {
        format!(
            "postgres://{DATABASE}@localhost/{DATABASE}?host={}",
            percent_encoded(self.socket_dir.as_os_str().as_encoded_bytes())
        )
    }

    /// Starts the server and waits until it accepts connections. Blocks.
    ///
    /// # Errors
    /// [`PostgresError`] with the end of the server's log.
    pub fn spawn(&self) -> Result<RunningPostgres, PostgresError> {
        RunningPostgres::start(self)
    }

    /// Runs initdb into a temporary folder and renames it: an interrupted run leaves no half cluster.
    fn initialise(&self) -> Result<(), PostgresError> {
        let _lock = self.lock()?;
        if stored_major(&self.data).is_some() {
            return Ok(());
        }
        self.remove_leftovers()?;
        let fresh = self.base.join(format!("data.init-{}", std::process::id()));
        self.initdb(&fresh)?;
        self.create_database(&fresh)?;
        fs::rename(&fresh, &self.data).map_err(PostgresError::io("rename to", &self.data))
    }

    fn initdb(&self, into: &Path) -> Result<(), PostgresError> {
        let mut initdb = command(
            &self.binaries.tool("initdb"),
            self.account.as_ref(),
            &self.base,
        );
        initdb.arg("-D").arg(into);
        initdb.args(["-U", DATABASE, "-A", "trust", "--auth-host=reject"]);
        initdb.args(["-E", "UTF8", "--locale=C"]);
        if !self.settings.durable {
            initdb.arg("--no-sync");
        }
        let out = initdb.stdin(Stdio::null()).output();
        succeeded(
            "initdb",
            &out.map_err(PostgresError::io("run", self.binaries.tool("initdb")))?,
        )
    }

    /// Single-user mode: no server, no socket, no client.
    fn create_database(&self, data: &Path) -> Result<(), PostgresError> {
        let program = self.binaries.tool("postgres");
        let mut single = command(&program, self.account.as_ref(), &self.base);
        single
            .args(["--single", "-D"])
            .arg(data)
            .args(["-c", "exit_on_error=on", "postgres"]);
        single
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = single.spawn().map_err(PostgresError::io("run", &program))?;
        if let Some(mut stdin) = child.stdin.take() {
            let sql = format!("CREATE DATABASE {DATABASE} OWNER {DATABASE};\n");
            stdin
                .write_all(sql.as_bytes())
                .map_err(PostgresError::io("write to", &program))?;
        }
        let out = child
            .wait_with_output()
            .map_err(PostgresError::io("wait for", &program))?;
        succeeded("postgres --single", &out)
    }

    /// One preparer at a time; the lock goes with the file handle.
    fn lock(&self) -> Result<fs::File, PostgresError> {
        let path = self.base.join("lock");
        let file = fs::File::create(&path).map_err(PostgresError::io("open", &path))?;
        let deadline = Instant::now() + self.settings.start_timeout;
        loop {
            use rustix::fs::FlockOperation::NonBlockingLockExclusive;
            match rustix::fs::flock(&file, NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(errno) if Instant::now() > deadline => {
                    return Err(PostgresError::io("lock", &path)(errno.into()));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Under the lock, so nobody works in them.
    fn remove_leftovers(&self) -> Result<(), PostgresError> {
        let entries = fs::read_dir(&self.base).map_err(PostgresError::io("read", &self.base))?;
        for entry in entries.flatten() {
            let interrupted = entry
                .file_name()
                .to_string_lossy()
                .starts_with("data.init-");
            // A data folder without PG_VERSION never was a cluster.
            if interrupted || entry.path() == self.data {
                fs::remove_dir_all(entry.path())
                    .map_err(PostgresError::io("remove", entry.path()))?;
            }
        }
        Ok(())
    }

    fn set_long_log_aside(&self) -> Result<(), PostgresError> {
        if fs::metadata(&self.log).is_ok_and(|m| m.len() > MAX_LOG_BYTES) {
            fs::rename(&self.log, self.base.join("log.old"))
                .map_err(PostgresError::io("rename", &self.log))?;
        }
        Ok(())
    }
}

fn succeeded(tool: &'static str, out: &Output) -> Result<(), PostgresError> {
    // Single-user mode reports errors of its statements on stderr and may still exit with 0.
    let stderr = String::from_utf8_lossy(&out.stderr);
    if out.status.success() && !stderr.contains("ERROR:") && !stderr.contains("FATAL:") {
        return Ok(());
    }
    let tail: String = stderr
        .chars()
        .rev()
        .take(2_000)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .collect();
    Err(PostgresError::ToolFailed {
        tool,
        status: out.status.to_string(),
        tail,
    })
}

fn stored_major(data: &Path) -> Option<String> {
    fs::read_to_string(data.join("PG_VERSION"))
        .ok()
        .map(|text| text.trim().to_owned())
}

/// Makes `DATA_DIR/postgres`, owned by the account, and checks that the account can get there.
fn make_base(data_dir: &Path, account: Option<&Account>) -> Result<PathBuf, PostgresError> {
    let mode = if account.is_some() { 0o711 } else { 0o700 };
    let make = |path: &Path, mode| {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(path)
    };
    make(data_dir, mode).map_err(PostgresError::io("create", data_dir))?;
    let real = data_dir
        .canonicalize()
        .map_err(PostgresError::io("resolve", data_dir))?;
    let base = real.join("postgres");
    if let Some(account) = account
        && let Some(blocked) = account.blocked_at(&real)
    {
        let account = account.name.clone();
        return Err(PostgresError::Unreachable {
            account,
            path: base,
            blocked,
        });
    }
    make(&base, 0o700).map_err(PostgresError::io("create", &base))?;
    own(&base, account)?;
    Ok(base)
}

fn own(path: &Path, account: Option<&Account>) -> Result<(), PostgresError> {
    if let Some(account) = account {
        chown(path, Some(account.uid), Some(account.gid))
            .map_err(PostgresError::io("change the owner of", path))?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
        .map_err(PostgresError::io("change the mode of", path))
}

/// `BASE/run`, or a folder in /tmp when that would make the socket's path too long.
fn make_socket_dir(base: &Path, account: Option<&Account>) -> Result<PathBuf, PostgresError> {
    let near = base.join("run");
    if near.as_os_str().len() + "/.s.PGSQL.5432.lock".len() <= MAX_SOCKET_PATH {
        fs::create_dir_all(&near).map_err(PostgresError::io("create", &near))?;
        own(&near, account)?;
        return Ok(near);
    }
    let uid = rustix::process::geteuid().as_raw();
    let digest = Sha256::digest(base.as_os_str().as_encoded_bytes());
    let short: String = digest.iter().take(6).map(|b| format!("{b:02x}")).collect();
    let far = PathBuf::from(format!("/tmp/koi-pg-{uid}-{short}"));
    make_private(&far, account.map_or(uid, |a| a.uid))?;
    own(&far, account)?;
    Ok(far)
}

/// A folder in a place where everybody may write must be ours before it is trusted.
fn make_private(path: &Path, owner: u32) -> Result<(), PostgresError> {
    let made = fs::DirBuilder::new().mode(0o700).create(path);
    match made {
        Ok(()) => return Ok(()),
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(PostgresError::io("create", path)(e));
        }
        Err(_) => {}
    }
    let meta = fs::symlink_metadata(path).map_err(PostgresError::io("look at", path))?;
    let ours = meta.uid() == owner || meta.uid() == rustix::process::geteuid().as_raw();
    if meta.is_dir() && ours && meta.mode() & 0o077 == 0 {
        return Ok(());
    }
    let problem = format!("is not a folder of user {owner} with mode 700");
    Err(PostgresError::UnsafeFolder {
        path: path.to_path_buf(),
        problem,
    })
}
