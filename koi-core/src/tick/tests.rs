//! An exhaustive walk over all event sequences of the tick's table.

mod definitions;

use super::*;

const EVENTS: [PhaseEvent; 3] = [PhaseEvent::Done, PhaseEvent::Violations, PhaseEvent::Failed];

fn walk(phase: Phase, depth: u32, repairs: u32, seen: &mut Vec<(u32, u32)>) {
    assert!(depth <= 10, "a tick is bounded");
    for event in EVENTS {
        match next(phase, event) {
            None => seen.push((depth, repairs)),
            Some(to) => {
                let repair = matches!(to, Phase::Plan { repair: true });
                walk(to, depth + 1, repairs + u32::from(repair), seen);
            }
        }
    }
}

#[test]
fn every_path_ends_and_repairs_at_most_once() {
    let mut ends = Vec::new();
    walk(Phase::Freeze, 0, 0, &mut ends);
    assert!(
        ends.iter()
            .all(|(depth, repairs)| *depth <= 9 && *repairs <= 1)
    );
    assert!(ends.iter().any(|(_, repairs)| *repairs == 1));
}

#[test]
fn every_failure_before_exit_is_keep_all() {
    let phases = [
        Phase::Freeze,
        Phase::Observe,
        Phase::Validate,
        Phase::SlowUpdate,
        Phase::Plan { repair: false },
        Phase::Plan { repair: true },
        Phase::CheckPlan { repair: false },
        Phase::CheckPlan { repair: true },
        Phase::Deploy,
    ];
    for phase in phases {
        assert_eq!(
            next(phase, PhaseEvent::Failed),
            Some(Phase::Exit { keep_all: true })
        );
    }
    assert_eq!(next(Phase::Exit { keep_all: true }, PhaseEvent::Done), None);
}
