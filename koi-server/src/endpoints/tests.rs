//! What lies in the folder is what should, whatever others do to it.

use std::sync::atomic::{AtomicU32, Ordering};

use koi_core::rollout::PublishedEndpoint;

use super::*;

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("koi-endpoints-test-{}-{n}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn stored(&self, job: &str) -> Option<EndpointSet> {
        let text = fs::read(file_of(&self.0, job)).ok()?;
        Some(serde_json::from_slice(&text).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn set(job: &str, version: i64) -> EndpointSet {
    EndpointSet {
        job: job.to_owned(),
        version,
        served_model_name: "m".to_owned(),
        endpoints: vec![PublishedEndpoint {
            replica_id: format!("{job}.g1.r0.0").parse().unwrap(),
            address: "127.0.0.1".to_owned(),
            port: 9000,
            weight: 1.0,
        }],
    }
}

#[test]
fn files_that_others_remove_or_change_are_put_right() {
    let folder = Folder::new();
    let board = EndpointBoard::open(folder.0.clone()).unwrap();
    for job in ["chat", "rag", "batch"] {
        board.publish(set(job, 1));
    }
    fs::remove_file(file_of(&folder.0, "chat")).unwrap();
    fs::write(file_of(&folder.0, "rag"), "garbage").unwrap();
    // As long as before, only different.
    let mut text = fs::read(file_of(&folder.0, "batch")).unwrap();
    text[20] ^= 1;
    fs::write(file_of(&folder.0, "batch"), text).unwrap();
    board.repair();
    for job in ["chat", "rag", "batch"] {
        assert_eq!(folder.stored(job), Some(set(job, 1)));
    }
    fs::remove_dir_all(&folder.0).unwrap();
    board.repair();
    assert_eq!(folder.stored("chat"), Some(set("chat", 1)));
    // What is right is left alone.
    let written = |job| fs::metadata(file_of(&folder.0, job)).unwrap().modified();
    let before = written("chat").unwrap();
    board.repair();
    assert_eq!(written("chat").unwrap(), before);
}

#[test]
fn a_write_or_a_removal_that_failed_is_made_up_for() {
    let folder = Folder::new();
    let board = EndpointBoard::open(folder.0.clone()).unwrap();
    board.publish(set("chat", 1));
    // No file can be made or removed where the folder is none.
    let aside = folder.0.with_extension("aside");
    fs::rename(&folder.0, &aside).unwrap();
    fs::write(&folder.0, "").unwrap();
    board.publish(set("chat", 2));
    board.repair();
    assert_eq!(board.watch("chat").0, Some(set("chat", 2)));
    fs::remove_file(&folder.0).unwrap();
    fs::rename(&aside, &folder.0).unwrap();
    assert_eq!(folder.stored("chat"), Some(set("chat", 1)));
    board.repair();
    assert_eq!(folder.stored("chat"), Some(set("chat", 2)));
    // A folder in the place of the file.
    fs::remove_file(file_of(&folder.0, "chat")).unwrap();
    fs::create_dir(file_of(&folder.0, "chat")).unwrap();
    board.retire(set("chat", 3));
    fs::remove_dir(file_of(&folder.0, "chat")).unwrap();
    fs::write(file_of(&folder.0, "chat"), "stale").unwrap();
    board.repair();
    assert!(folder.stored("chat").is_none());
    assert!(board.posts().leaving.is_empty() && board.posts().failing.is_empty());
}

#[tokio::test]
async fn the_keeper_looks_again_and_again() {
    let folder = Folder::new();
    let board = Arc::new(EndpointBoard::open(folder.0.clone()).unwrap());
    board.publish(set("chat", 1));
    let shutdown = CancellationToken::new();
    let keeper = keep(board, shutdown.clone());
    for _ in 0..2 {
        fs::remove_file(file_of(&folder.0, "chat")).unwrap();
        let begun = std::time::Instant::now();
        while folder.stored("chat").is_none() {
            assert!(begun.elapsed() < 5 * LOOK_EVERY, "nobody looked");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    shutdown.cancel();
    keeper.await.unwrap();
}
