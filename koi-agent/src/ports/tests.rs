//! Real sockets on loopback.

use std::net::Ipv4Addr;

use super::*;
use crate::test_folder::TestFolder;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn replica(n: u32) -> ReplicaId {
    format!("chat.g1.r0.{n}").parse().unwrap()
}

/// A range of ports that are free now; tests of this file use ranges apart from each other.
fn ledger(folder: &TestFolder, range: RangeInclusive<u16>) -> PortLedger {
    PortLedger::open(&folder.path().join("ports.json"), range, LOOPBACK)
}

#[test]
fn hazard_e11_a_taken_port_is_passed_over_and_none_is_given_twice() {
    let folder = TestFolder::new();
    let mut ledger = ledger(&folder, 21010..=21019);
    let foreign = TcpListener::bind((LOOPBACK, 21011)).unwrap();
    let first = ledger.lease(&replica(0), 2).unwrap();
    assert_eq!(
        first.lease,
        PortLease {
            api: 21010,
            secondary: vec![21012, 21013]
        }
    );
    assert!(!is_free(LOOPBACK, 21010).unwrap(), "held until the launch");
    let lease = first.hand_over();
    assert!(is_free(LOOPBACK, lease.api).unwrap());
    let second = ledger.lease(&replica(1), 2).unwrap();
    assert_eq!(second.lease.api, 21014);
    assert!(matches!(
        ledger.lease(&replica(1), 0),
        Err(PortError::AlreadyLeased(_))
    ));
    assert!(matches!(
        ledger.lease(&replica(2), 3),
        Err(PortError::Exhausted {
            wanted: 4,
            free: 3,
            ..
        })
    ));
    drop(foreign);
}

#[test]
fn an_adopted_replica_keeps_its_ports_after_a_restart() {
    let folder = TestFolder::new();
    let given = ledger(&folder, 21020..=21024)
        .lease(&replica(0), 1)
        .unwrap()
        .hand_over();
    let mut again = ledger(&folder, 21020..=21024);
    assert_eq!(again.of(&replica(0)), Some(&given));
    assert_eq!(again.lease(&replica(1), 1).unwrap().lease.api, 21022);
    let second = again.of(&replica(1)).unwrap().clone();
    let running = BTreeMap::from([(replica(1), second)]);
    again.rebuild(running, BTreeMap::new()).unwrap();
    assert_eq!(again.of(&replica(0)), None);
    again.release(&replica(1)).unwrap();
    again.release(&replica(1)).unwrap();
    assert_eq!(ledger(&folder, 21020..=21024).of(&replica(1)), None);
}

#[test]
fn hazard_d6_a_damaged_ledger_counts_as_empty_and_running_replicas_are_restored() {
    let folder = TestFolder::new();
    std::fs::write(folder.path().join("ports.json"), b"{\"garbage").unwrap();
    let mut ledger = ledger(&folder, 21030..=21032);
    assert!(folder.path().join("ports.json.damaged").exists());
    let running = BTreeMap::from([(replica(0), lease(21030, &[21031]))]);
    ledger.rebuild(running, BTreeMap::new()).unwrap();
    assert_eq!(ledger.lease(&replica(1), 0).unwrap().lease.api, 21032);
    assert!(matches!(
        ledger.lease(&replica(2), 100),
        Err(PortError::TooMany(101))
    ));
}

fn lease(api: u16, secondary: &[u16]) -> PortLease {
    PortLease {
        api,
        secondary: secondary.to_vec(),
    }
}

#[test]
fn a_rebuilt_ledger_believes_what_runs_and_keeps_what_somebody_listens_on() {
    let folder = TestFolder::new();
    let mut ledger = ledger(&folder, 21040..=21049);
    for n in 0..3 {
        drop(ledger.lease(&replica(n), 1).unwrap());
    }
    // Of replica 0 a socket is left; nothing is left of replica 1; replica 2 has others' ports.
    let left = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 21040)).unwrap();
    let lost = TcpListener::bind((LOOPBACK, 21048)).unwrap();
    let running = BTreeMap::from([(replica(7), lease(21044, &[21045, 21046]))]);
    let doubtful = BTreeMap::from([
        (replica(8), lease(21048, &[21049])),
        (replica(9), lease(21046, &[21048])),
    ]);
    ledger.rebuild(running, doubtful).unwrap();
    assert_eq!(ledger.of(&replica(0)), Some(&lease(21040, &[21041])));
    assert_eq!(ledger.of(&replica(8)), Some(&lease(21048, &[21049])));
    for gone in [1, 2, 9] {
        assert_eq!(ledger.of(&replica(gone)), None, "{gone}");
    }
    let fresh = ledger.lease(&replica(3), 2).unwrap().lease;
    assert_eq!(fresh, lease(21042, &[21043, 21047]));
    drop((left, lost));
}

#[test]
fn a_port_is_passed_over_whichever_address_it_is_bound_to() {
    let folder = TestFolder::new();
    let elsewhere = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 9), 21050)).unwrap();
    let mut ledger = ledger(&folder, 21050..=21052);
    assert_eq!(ledger.lease(&replica(0), 0).unwrap().lease.api, 21051);
    drop(elsewhere);
}
