//! The rules of the private cluster, on real processes.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use koi_server::postgres::{PostgresError, PrivateCluster, Settings, run_foreground};
use koi_server::store::Store;

use crate::support::{TestFolder, patient};

fn settings(folder: &Path) -> Settings {
    Settings {
        remove_after: false,
        ..Settings::throwaway(folder.to_path_buf())
    }
}

fn uid_of(pid: u32) -> u32 {
    std::fs::metadata(format!("/proc/{pid}")).unwrap().uid()
}

fn is_running(pid: u32) -> bool {
    // A zombie has no command line.
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "{what} did not happen in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test]
async fn it_runs_as_another_account_than_root_in_closed_folders() {
    let folder = TestFolder::new("account");
    let cluster = PrivateCluster::prepare(&settings(&folder.0)).unwrap();
    let running = cluster.spawn().unwrap();
    assert_ne!(uid_of(running.pid()), 0);
    let base = folder.0.join("postgres");
    for closed in [base.clone(), base.join("data"), base.join("run")] {
        let mode = std::fs::metadata(&closed).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "{}", closed.display());
    }
    let store = Store::connect(&running.url(), patient()).await.unwrap();
    store.ping().await.unwrap();
    store.close().await;
    let pid = running.pid();
    running.stop().unwrap();
    assert!(!is_running(pid));
}

#[test]
fn a_long_data_path_gets_a_short_socket_path() {
    let folder = TestFolder::new("long");
    let deep = folder.0.join("d".repeat(120));
    let cluster = PrivateCluster::prepare(&settings(&deep)).unwrap();
    let running = cluster.spawn().unwrap();
    let (_, host) = running
        .url()
        .split_once("host=")
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    assert!(host.len() < 100, "{host}");
    let mode = std::fs::metadata(&host).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);
    running.stop().unwrap();
    std::fs::remove_dir_all(host).unwrap();
}

#[test]
fn an_interrupted_initdb_is_done_again() {
    let folder = TestFolder::new("initdb");
    let base = folder.0.join("postgres");
    std::fs::create_dir_all(base.join("data.init-1/base")).unwrap();
    std::fs::create_dir_all(base.join("data/half")).unwrap();
    let cluster = PrivateCluster::prepare(&settings(&folder.0)).unwrap();
    assert!(base.join("data/PG_VERSION").is_file());
    assert!(!base.join("data.init-1").exists() && !base.join("data/half").exists());
    cluster.spawn().unwrap().stop().unwrap();
    // Prepared again, it is the same cluster.
    let made = std::fs::metadata(base.join("data/PG_VERSION"))
        .unwrap()
        .modified()
        .unwrap();
    PrivateCluster::prepare(&settings(&folder.0)).unwrap();
    assert_eq!(
        std::fs::metadata(base.join("data/PG_VERSION"))
            .unwrap()
            .modified()
            .unwrap(),
        made
    );
}

#[test]
fn a_stale_lock_file_with_somebody_elses_process_does_not_stop_the_start() {
    let folder = TestFolder::new("stale");
    let cluster = PrivateCluster::prepare(&settings(&folder.0)).unwrap();
    let data = folder.0.join("postgres/data");
    // Ours is a live process, as after a reboot that gave the number to somebody else.
    let text = format!(
        "{}\n{}\n1\n5432\n/run\n\n1 2\nready\n",
        std::process::id(),
        data.display()
    );
    std::fs::write(data.join("postmaster.pid"), text).unwrap();
    cluster.spawn().unwrap().stop().unwrap();
}

#[test]
fn a_second_server_on_the_same_files_is_refused_by_name() {
    let folder = TestFolder::new("second");
    let settings = Settings {
        start_timeout: Duration::from_secs(20),
        ..settings(&folder.0)
    };
    let cluster = PrivateCluster::prepare(&settings).unwrap();
    let running = cluster.spawn().unwrap();
    let hasty = Settings {
        start_timeout: Duration::from_millis(300),
        ..settings
    };
    let error = PrivateCluster::prepare(&hasty)
        .unwrap()
        .spawn()
        .unwrap_err();
    let same = matches!(&error, PostgresError::AlreadyRunning { pid, .. } if *pid == running.pid());
    assert!(same, "{error}");
    running.stop().unwrap();
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let folder = TestFolder::new("broken");
    let cluster = PrivateCluster::prepare(&settings(&folder.0)).unwrap();
    let conf = folder.0.join("postgres/data/postgresql.conf");
    std::fs::write(conf, "no_such_setting = 1\n").unwrap();
    let error = cluster.spawn().unwrap_err().to_string();
    assert!(error.contains("no_such_setting"), "{error}");
}

#[test]
fn missing_binaries_are_one_message_with_what_to_type() {
    let folder = TestFolder::new("nothing");
    let nowhere = Settings {
        pg_bin: Some(folder.0.clone()),
        ..settings(&folder.0)
    };
    let error = PrivateCluster::prepare(&nowhere).unwrap_err().to_string();
    assert!(
        error.contains("apt-get install") && error.contains("pip install --target"),
        "{error}"
    );
}

#[test]
fn files_of_another_version_are_refused_with_the_version_to_get() {
    let folder = TestFolder::new("version");
    PrivateCluster::prepare(&settings(&folder.0)).unwrap();
    std::fs::write(folder.0.join("postgres/data/PG_VERSION"), "9\n").unwrap();
    let error = PrivateCluster::prepare(&settings(&folder.0)).unwrap_err();
    assert!(
        matches!(&error, PostgresError::WrongVersion { stored, .. } if stored == "9"),
        "{error}"
    );
}

#[test]
fn a_data_folder_that_the_account_cannot_reach_is_named() {
    if !runs_as_root() {
        eprintln!("SKIPPED: only root runs PostgreSQL as another account");
        return;
    }
    let folder = TestFolder::new("closed");
    std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o700)).unwrap();
    let error = PrivateCluster::prepare(&settings(&folder.0.join("data"))).unwrap_err();
    let named =
        matches!(&error, PostgresError::Unreachable { blocked, .. } if *blocked == folder.0);
    assert!(named, "{error}");
}

fn runs_as_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Set in the process that plays the owner.
const OWNER_FOLDER: &str = "KOI_TEST_OWNER_FOLDER";

/// The owner's part: starts a throwaway cluster, says its process, and waits to be killed.
#[test]
fn owner_process() {
    let Some(folder) = std::env::var_os(OWNER_FOLDER) else {
        return;
    };
    let settings = Settings::throwaway(folder.into());
    let running = PrivateCluster::prepare(&settings).unwrap().spawn().unwrap();
    std::fs::write(settings.data_dir.join("pid"), running.pid().to_string()).unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn it_ends_when_its_owner_is_killed() {
    let folder = TestFolder::new("owner");
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "store::private_cluster::owner_process",
            "--nocapture",
        ])
        .env(OWNER_FOLDER, &folder.0)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid_file = folder.0.join("pid");
    let read = || {
        std::fs::read_to_string(&pid_file)
            .ok()
            .and_then(|t| t.parse::<u32>().ok())
    };
    wait_until("the start", || read().is_some());
    let pid = read().unwrap();
    assert!(is_running(pid));
    owner.kill().unwrap();
    owner.wait().unwrap();
    wait_until("the end of the server", || !is_running(pid));
    wait_until("the removal of its files", || {
        !folder.0.join("postgres").exists()
    });
}

/// The part of `koi-server postgres`: prints its server's process into a file and serves.
#[test]
fn foreground_process() {
    let Some(folder) = std::env::var_os(FOREGROUND_FOLDER) else {
        return;
    };
    let folder = std::path::PathBuf::from(folder);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let pid_file = folder.join("postgres/data/postmaster.pid");
    let say = || {
        let text = std::fs::read_to_string(&pid_file).unwrap();
        std::fs::write(folder.join("pid"), text.lines().next().unwrap()).unwrap();
    };
    runtime
        .block_on(run_foreground(settings(&folder), |_| say()))
        .unwrap();
}

/// Set in the process that plays `koi-server postgres`.
const FOREGROUND_FOLDER: &str = "KOI_TEST_FOREGROUND_FOLDER";

fn start_foreground(folder: &Path) -> (Child, u32) {
    let pid_file = folder.join("pid");
    let _none_yet = std::fs::remove_file(&pid_file);
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "store::private_cluster::foreground_process",
            "--nocapture",
        ])
        .env(FOREGROUND_FOLDER, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let read = || {
        std::fs::read_to_string(&pid_file)
            .ok()
            .and_then(|t| t.parse::<u32>().ok())
    };
    wait_until("the start", || read().is_some());
    (child, read().unwrap())
}

fn signal(name: &str, pid: u32) {
    let done = Command::new("kill")
        .args([name, &pid.to_string()])
        .status()
        .unwrap();
    assert!(done.success());
}

#[test]
fn in_the_foreground_it_stops_on_request_and_fails_when_the_server_dies() {
    let folder = TestFolder::new("foreground");
    for request in ["-TERM", "-INT"] {
        let (mut child, pid) = start_foreground(&folder.0);
        signal(request, child.id());
        assert!(child.wait().unwrap().success(), "{request}");
        assert!(!is_running(pid));
    }
    let (mut child, pid) = start_foreground(&folder.0);
    signal("-9", pid);
    assert!(
        !child.wait().unwrap().success(),
        "the supervisor must see that the server died"
    );
    // Started again it recovers; killed itself it takes the server along.
    let (mut child, pid) = start_foreground(&folder.0);
    signal("-9", child.id());
    child.wait().unwrap();
    wait_until("the end of the server", || !is_running(pid));
}
