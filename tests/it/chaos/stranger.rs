//! `koi up` and `koi down` in the hands of somebody who reads no manual: twice, killed, interrupted, and
//! again on what an earlier run left.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use koi_tests::workspace_root;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{of_cluster, programs, wait};
use crate::support::TestFolder;

const LIMIT: Duration = Duration::from_secs(150);

struct Koi {
    program: PathBuf,
    folder: TestFolder,
}

struct Answer {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Koi {
    fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Answer {
        let (out, err) = (self.folder.0.join("out.txt"), self.folder.0.join("err.txt"));
        let mut command = Command::new(&self.program);
        command.arg("--data-dir").arg(self.data()).args(args);
        // Files, because the supervisor in the background keeps what it inherits.
        let mut child = command
            .env_remove("KOI_SERVER")
            .env_remove("KOI_DATABASE_URL")
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&out).unwrap())
            .stderr(std::fs::File::create(&err).unwrap())
            .spawn()
            .unwrap();
        let code = wait(&mut child, LIMIT).code();
        let read = |path| std::fs::read_to_string(path).unwrap();
        Answer {
            code,
            out: read(out),
            err: read(err),
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.0.join("data")
    }

    fn up(&self) -> Answer {
        let configs = workspace_root().join("configs");
        let mut args: Vec<std::ffi::OsString> =
            ["up", "--detach", "--no-load"].map(Into::into).to_vec();
        args.extend(["--fleet".into(), configs.join("fleets/demo.toml").into()]);
        args.extend(["--jobs".into(), configs.join("jobs").into()]);
        self.run(args)
    }

    fn json(&self, command: &str) -> Value {
        let answer = self.run(["-o", "json", command]);
        serde_json::from_str(&answer.out).unwrap_or_else(|e| panic!("{e}: {}", answer.err))
    }

    fn state(&self) -> Value {
        let bytes = std::fs::read(self.data().join("up.json")).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    fn cluster_id(&self) -> String {
        self.state()["cluster_id"].as_str().unwrap().to_owned()
    }

    fn signal_supervisor(&self, signal: Signal) {
        let pid = self.state()["supervisor"]["pid"].as_u64().unwrap();
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Names and ids of the jobs.
    fn jobs(&self) -> Vec<(String, String)> {
        let jobs = self.json("jobs");
        let text = |job: &Value, field: &str| job[field].as_str().unwrap().to_owned();
        let mut jobs: Vec<_> = jobs
            .as_array()
            .unwrap()
            .iter()
            .map(|j| (text(&j["spec"], "name"), text(j, "job_id")))
            .collect();
        jobs.sort();
        jobs
    }
}

impl Drop for Koi {
    fn drop(&mut self) {
        if self.data().join("up.json").exists() {
            let answer = self.run(["down"]);
            assert!(
                answer.code == Some(0) || std::thread::panicking(),
                "{}",
                answer.err
            );
        }
    }
}

#[test]
fn a_cluster_survives_its_user() {
    let koi = Koi {
        program: programs().join("koi"),
        folder: TestFolder::new("stranger"),
    };
    let down = koi.run(["down"]);
    assert_eq!(down.code, Some(0), "{}", down.err);
    assert!(down.out.contains("nothing runs"), "{}", down.out);

    let first = koi.up();
    assert_eq!(first.code, Some(0), "{}{}", first.out, first.err);
    let (id, jobs, epoch) = (koi.cluster_id(), koi.jobs(), epoch_of(&koi));
    assert_eq!(jobs.len(), 3, "{jobs:?}");
    assert!(
        of_cluster(&id).len() >= 10,
        "server, database, agents, shims, engines"
    );

    let second = koi.up();
    assert_eq!(second.code, Some(6), "{}", second.out);
    assert!(second.err.contains("koi down"), "{}", second.err);

    koi.signal_supervisor(Signal::KILL);
    let down = koi.run(["down"]);
    assert_eq!(down.code, Some(0), "{}{}", down.out, down.err);
    assert_eq!(of_cluster(&id), Vec::<u32>::new());

    let again = koi.up();
    assert_eq!(again.code, Some(0), "{}{}", again.out, again.err);
    assert_eq!(koi.jobs(), jobs, "the same jobs under the same ids");
    assert!(
        epoch_of(&koi) > epoch,
        "a new server leads under a new epoch"
    );
    let id = koi.cluster_id();

    // Killed and not cleaned up: the next start does that.
    koi.signal_supervisor(Signal::KILL);
    let third = koi.up();
    assert_eq!(third.code, Some(0), "{}{}", third.out, third.err);
    assert_eq!(of_cluster(&id), Vec::<u32>::new());
    let id = koi.cluster_id();

    koi.signal_supervisor(Signal::INT);
    let begun = std::time::Instant::now();
    while koi.data().join("up.json").exists() {
        assert!(begun.elapsed() < LIMIT, "an interrupt does not end it");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(of_cluster(&id), Vec::<u32>::new());
}

/// Epoch of the newest tick.
fn epoch_of(koi: &Koi) -> i64 {
    koi.json("ticks")[0]["epoch"].as_i64().unwrap()
}
