//! Nothing is lost silently: every record comes back whole or lies in a gap.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::test_folder::TestFolder;

fn limits() -> SpoolLimits {
    SpoolLimits {
        segment_bytes: 400,
        max_disk_bytes: 1 << 20,
        max_memory_bytes: 2000,
        max_record_bytes: 300,
        sync_interval: Duration::from_secs(1),
    }
}

fn open(folder: &Path, boot: &str) -> Spool {
    Spool::open(folder, boot, limits()).unwrap()
}

fn payload(boot: &str, seq: u64) -> Vec<u8> {
    let n = (seq * 37 % 200) as usize;
    format!("{boot}/{seq}/{}", "x".repeat(n)).into_bytes()
}

fn push(spool: &mut Spool, boot: &str, n: u64) {
    for _ in 0..n {
        let seq = spool.next_seq;
        assert_eq!(
            spool.push(&payload(boot, seq), Duration::ZERO).unwrap(),
            seq
        );
    }
}

fn seqs(entries: &[Entry]) -> Vec<u64> {
    let seq = |e: &Entry| match e {
        Entry::Record { seq, .. } => Some(*seq),
        Entry::Gap(_) => None,
    };
    entries.iter().filter_map(seq).collect()
}

fn all(spool: &mut Spool) -> Vec<Entry> {
    spool.read(usize::MAX, usize::MAX)
}

/// Every record is right, in order, and with the gaps every seq up to `n` is spoken for.
fn check_complete(entries: &[Entry], boot: &str, n: u64) {
    let mut next = 1;
    let mut open_end = false;
    for entry in entries {
        match entry {
            Entry::Record {
                boot: b,
                seq,
                payload: p,
            } if b == boot => {
                assert!(!open_end, "a record after an open gap");
                assert_eq!(*seq, next, "{entries:?}");
                assert_eq!(*p, payload(boot, *seq));
                next += 1;
            }
            Entry::Gap(gap) if gap.boot == boot => {
                assert_eq!(gap.from, next, "{entries:?}");
                match gap.to {
                    Some(to) => next = to + 1,
                    None => open_end = true,
                }
            }
            _ => {}
        }
    }
    assert!(open_end || next == n + 1, "{next} of {n}: {entries:?}");
}

#[test]
fn records_come_back_in_order_once_and_acks_free_them() {
    let folder = TestFolder::new();
    let mut spool = open(folder.path(), "b1");
    push(&mut spool, "b1", 20);
    let first = spool.read(usize::MAX, 7);
    assert_eq!(seqs(&first), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(seqs(&all(&mut spool)), (8..=20).collect::<Vec<_>>());
    assert_eq!(all(&mut spool), []);
    push(&mut spool, "b1", 1);
    assert_eq!(seqs(&all(&mut spool)), [21]);
    let before = spool.stats().n_segments;
    spool.ack("b1", 15);
    assert!(spool.stats().n_segments < before);
    spool.rewind();
    let again = seqs(&all(&mut spool));
    assert!(again[0] <= 16 && again.last() == Some(&21), "{again:?}");
    spool.ack("b1", 21);
    spool.rewind();
    push(&mut spool, "b1", 1);
    assert_eq!(
        all(&mut spool)
            .last()
            .map(|e| seqs(std::slice::from_ref(e))),
        Some(vec![22])
    );
}

#[test]
fn what_is_acknowledged_is_not_sent_again_on_a_new_stream() {
    let folder = TestFolder::new();
    let mut spool = Spool::open(folder.path(), "b1", SpoolLimits::default()).unwrap();
    push(&mut spool, "b1", 400);
    assert_eq!(all(&mut spool).len(), 400);
    spool.ack("b1", 390);
    spool.rewind();
    assert_eq!(seqs(&all(&mut spool)), (391..=400).collect::<Vec<_>>());
    // An ack of an older batch takes nothing back.
    spool.ack("b1", 7);
    spool.rewind();
    assert_eq!(seqs(&all(&mut spool)), (391..=400).collect::<Vec<_>>());
    // In the middle of a read, what an ack covers is left out of the rest.
    spool.rewind();
    assert_eq!(seqs(&spool.read(usize::MAX, 2)), [391, 392]);
    spool.ack("b1", 398);
    assert_eq!(seqs(&all(&mut spool)), [399, 400]);
}

#[test]
fn a_stored_segment_is_given_up_before_it_is_full() {
    let folder = TestFolder::new();
    let mut spool = Spool::open(folder.path(), "b1", SpoolLimits::default()).unwrap();
    let early = SpoolLimits::default().segment_bytes / 16;
    while spool.stats().disk_bytes < early {
        push(&mut spool, "b1", 1);
    }
    let n = all(&mut spool).len() as u64;
    spool.ack("b1", n);
    assert_eq!(spool.stats(), SpoolStats::default());
    push(&mut spool, "b1", 2);
    assert_eq!(seqs(&all(&mut spool)), [n + 1, n + 2]);
    spool.ack("b1", n + 1);
    drop(spool);
    // The next start sends what was not known to be stored, of a small segment.
    let mut again = Spool::open(folder.path(), "b2", SpoolLimits::default()).unwrap();
    assert_eq!(seqs(&all(&mut again)), [n + 1, n + 2]);
    again.ack("b1", n + 2);
    assert_eq!(again.stats(), SpoolStats::default());
    assert!(again.acked.is_empty());
}

#[test]
fn hazard_c12_old_records_replay_under_their_old_boot() {
    let folder = TestFolder::new();
    push(&mut open(folder.path(), "b1"), "b1", 9);
    let mut spool = open(folder.path(), "b2");
    push(&mut spool, "b2", 3);
    let entries = all(&mut spool);
    check_complete(&entries, "b1", 9);
    check_complete(&entries, "b2", 3);
    spool.ack("b1", 9);
    spool.rewind();
    assert_eq!(seqs(&all(&mut spool)), [1, 2, 3]);
    drop(spool);
    assert!(matches!(
        Spool::open(folder.path(), "b2", limits()),
        Err(SpoolError::BadBoot(_))
    ));
    assert!(matches!(
        Spool::open(folder.path(), "../x", limits()),
        Err(SpoolError::BadBoot(_))
    ));
}

#[test]
fn hazard_c4_overflow_drops_the_oldest_and_says_exactly_what() {
    let folder = TestFolder::new();
    let small = SpoolLimits {
        max_disk_bytes: 2000,
        ..limits()
    };
    let mut spool = Spool::open(folder.path(), "b1", small).unwrap();
    push(&mut spool, "b1", 100);
    assert!(spool.stats().disk_bytes <= 2000);
    let entries = all(&mut spool);
    check_complete(&entries, "b1", 100);
    let Entry::Gap(gap) = &entries[0] else {
        panic!("{entries:?}")
    };
    assert_eq!((gap.from, gap.reason), (1, GapReason::Overflow));
    assert_eq!(gap.count().unwrap() as usize + seqs(&entries).len(), 100);
    drop(spool);
    let mut again = Spool::open(folder.path(), "b2", small).unwrap();
    check_complete(&all(&mut again), "b1", 100);
    again.ack("b1", 100);
    assert_eq!(again.stats(), SpoolStats::default());
}

#[test]
fn hazard_c9_without_a_disk_the_memory_ring_goes_on() {
    let folder = TestFolder::new();
    let not_a_folder = folder.path().join("file");
    fs::write(&not_a_folder, b"").unwrap();
    let mut spool = open(&not_a_folder, "b1");
    push(&mut spool, "b1", 100);
    let stats = spool.stats();
    assert!(stats.n_disk_errors > 0 && stats.disk_bytes == 0);
    assert!(
        stats.memory_bytes <= 2000 && stats.memory_bytes > 0,
        "{stats:?}"
    );
    check_complete(&all(&mut spool), "b1", 100);
}

#[test]
fn hazard_c9_a_disk_that_fails_midway_loses_nothing_that_fits_in_memory() {
    let folder = TestFolder::new();
    let path = folder.path().join("spool");
    let mut spool = open(&path, "b1");
    push(&mut spool, "b1", 10);
    fs::remove_dir_all(&path).unwrap();
    fs::write(&path, b"").unwrap();
    push(&mut spool, "b1", 10);
    assert!(spool.stats().memory_bytes > 0);
    check_complete(&all(&mut spool), "b1", 20);
}

#[test]
fn hazard_c9_bit_rot_after_writing_becomes_a_gap_when_read() {
    let folder = TestFolder::new();
    let mut spool = open(folder.path(), "b1");
    push(&mut spool, "b1", 20);
    let mut files: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    for file in [&files[1], files.last().unwrap()] {
        let mut content = fs::read(file).unwrap();
        content[60] ^= 1;
        fs::write(file, content).unwrap();
    }
    let entries = all(&mut spool);
    check_complete(&entries, "b1", 20);
    assert!(entries.iter().any(|e| matches!(e, Entry::Gap(_))));
    push(&mut spool, "b1", 2);
    assert_eq!(seqs(&all(&mut spool)), [21, 22]);
}

#[test]
fn a_record_that_is_too_large_is_refused_and_takes_no_seq() {
    let folder = TestFolder::new();
    let mut spool = open(folder.path(), "b1");
    assert!(matches!(
        spool.push(&[0; 301], Duration::ZERO),
        Err(SpoolError::TooLarge { .. })
    ));
    assert_eq!(spool.push(&[0; 300], Duration::ZERO).unwrap(), 1);
}

#[derive(Debug, Clone)]
enum Damage {
    Truncate { file: usize, share: f64 },
    Flip { file: usize, share: f64, bit: u8 },
    Garbage { file: usize, bytes: Vec<u8> },
}

fn damage() -> impl Strategy<Value = Damage> {
    let share = 0.0..1.0f64;
    prop_oneof![
        (any::<usize>(), share.clone()).prop_map(|(file, share)| Damage::Truncate { file, share }),
        (any::<usize>(), share, 0..8u8).prop_map(|(file, share, bit)| Damage::Flip {
            file,
            share,
            bit
        }),
        (any::<usize>(), prop::collection::vec(any::<u8>(), 1..40))
            .prop_map(|(file, bytes)| Damage::Garbage { file, bytes }),
    ]
}

type Change = Box<dyn Fn(&mut Vec<u8>)>;

fn inflict(folder: &Path, damage: &Damage) {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| segment::index_of(p).is_some())
        .collect();
    files.sort();
    if files.is_empty() {
        return;
    }
    let (file, change): (usize, Change) = match damage.clone() {
        Damage::Truncate { file, share } => (
            file,
            Box::new(move |c| {
                let keep = (c.len() as f64 * share) as usize;
                c.truncate(keep);
            }),
        ),
        Damage::Flip { file, share, bit } => (
            file,
            Box::new(move |c| {
                let at = (c.len() as f64 * share) as usize;
                if let Some(byte) = c.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }),
        ),
        Damage::Garbage { file, bytes } => (file, Box::new(move |c| c.extend(&bytes))),
    };
    let path = &files[file % files.len()];
    let mut content = fs::read(path).unwrap();
    change(&mut content);
    fs::write(path, content).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Torn writes, flips and garbage between starts: no wrong record, none lost silently.
    /// A cut exactly between two records of a boot's last segment cannot be told from its end.
    #[test]
    fn hazard_c9_damage_never_yields_a_wrong_record_and_never_hides_a_loss(
        pushes in prop::collection::vec(1u64..30, 1..4),
        damages in prop::collection::vec(damage(), 0..4),
    ) {
        let folder = TestFolder::new();
        let mut pushed = BTreeMap::new();
        for (i, n) in pushes.iter().enumerate() {
            let boot = format!("b{i}");
            let mut spool = open(folder.path(), &boot);
            push(&mut spool, &boot, *n);
            pushed.insert(boot, *n);
        }
        for damage in &damages {
            inflict(folder.path(), damage);
        }
        let mut spool = open(folder.path(), "last");
        let entries = all(&mut spool);
        for (boot, n) in &pushed {
            check_no_silent_loss(&entries, boot, *n);
        }
        spool.rewind();
        prop_assert_eq!(all(&mut spool), entries);
    }
}

fn check_no_silent_loss(entries: &[Entry], boot: &str, n: u64) {
    let mut next = 1;
    let mut open_end = false;
    for entry in entries {
        match entry {
            Entry::Record {
                boot: b,
                seq,
                payload: p,
            } if b == boot => {
                assert_eq!(*p, payload(boot, *seq), "a wrong record");
                assert!(
                    !open_end && *seq == next,
                    "seq {seq} after {next}: {entries:?}"
                );
                next += 1;
            }
            Entry::Gap(gap) if gap.boot == boot => {
                assert_eq!(gap.from, next, "{entries:?}");
                next = gap.to.map_or(next, |to| to + 1);
                open_end = gap.to.is_none();
            }
            _ => {}
        }
    }
    assert!(next <= n + 1);
}
