//! `koi up` and `koi down` in the hands of somebody who reads no manual: twice, killed, interrupted, and
//! again on what an earlier run left.

use std::time::Duration;

use rustix::process::Signal;

use super::koi::{Koi, LIMIT};
use super::of_cluster;

#[test]
fn a_cluster_survives_its_user() {
    let koi = Koi::new("stranger");
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
