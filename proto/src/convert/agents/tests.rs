//! An agent is not believed: whatever text it sends is cut and clean on this side of the wire.

use super::*;

/// NUL, escape, a line break, delete and a C1 control in one text.
const HOSTILE: &str = "a\0b\u{1b}[2Jc\nd\u{7f}\u{9b}";

fn is_clean(text: &str) -> bool {
    !text.chars().any(char::is_control) && !text.contains(['\u{2028}', '\u{2029}'])
}

fn observed() -> v1::Observed {
    v1::Observed {
        replicas: vec![v1::ObservedReplica {
            replica_id: "chat.g1.r0.0".to_owned(),
            phase: "failed".to_owned(),
            reason: HOSTILE.repeat(1000),
            engine_version: HOSTILE.to_owned(),
            engine_args: vec![HOSTILE.to_owned(), "x".repeat(100_000)],
            ..v1::ObservedReplica::default()
        }],
        gpus: vec![v1::GpuReading {
            uuid: HOSTILE.to_owned(),
            ..v1::GpuReading::default()
        }],
        refusal: HOSTILE.repeat(1000),
        ..v1::Observed::default()
    }
}

#[test]
fn every_text_of_an_observation_is_cut_and_clean() {
    let state = observed_from_wire(observed());
    let replica = &state.replicas[0];
    assert!(replica.reason.starts_with("a\u{fffd}b\u{fffd}[2Jc d"));
    assert_eq!(replica.reason.chars().count(), MAX_REASON);
    let refusal = state.refusal.clone().unwrap();
    assert_eq!(refusal.chars().count(), MAX_REASON);
    let mut texts = vec![
        &replica.reason,
        &replica.engine_version,
        &state.gpus[0].uuid,
    ];
    texts.push(&refusal);
    texts.extend(&replica.engine_args);
    assert!(texts.iter().all(|t| is_clean(t)), "{texts:?}");
    assert!(texts.iter().all(|t| t.chars().count() <= MAX_ARGS.1));
    // Nothing that a database's document operators refuse is left anywhere in it.
    let document = serde_json::to_string(&state).unwrap();
    assert!(!document.contains("\\u00"), "{document}");
}

#[test]
fn facts_hold_no_control_characters() {
    let facts = v1::HostFacts {
        host: "h1".to_owned(),
        environment: Some(v1::Environment {
            market: "reserved".to_owned(),
            cloud: "own".to_owned(),
            region: "r".to_owned(),
            zone: "z".to_owned(),
            gpu_type: "H100".to_owned(),
        }),
        instance_type: "x".to_owned(),
        gpus: vec![v1::GpuFacts {
            uuid: "GPU-1".to_owned(),
            name: HOSTILE.to_owned(),
            memory_bytes: 1 << 36,
            ..v1::GpuFacts::default()
        }],
        price: Some(v1::HostPrice {
            usd_per_hour: 1.0,
            source: HOSTILE.to_owned(),
            date: "2026-11-30".to_owned(),
        }),
        address: "127.0.0.1".to_owned(),
        boot_id: "b".to_owned(),
        build_id: "b".to_owned(),
        engines: vec![v1::EngineInstall {
            engine: "sim".to_owned(),
            version: HOSTILE.to_owned(),
        }],
        ..v1::HostFacts::default()
    };
    let taken = facts_from_wire(facts.clone()).unwrap();
    let document = serde_json::to_string(&taken).unwrap();
    assert!(
        is_clean(&document) && !document.contains("\\u00"),
        "{document}"
    );
    let part = |change: fn(&mut v1::HostFacts)| {
        let mut facts = facts.clone();
        change(&mut facts);
        facts_from_wire(facts)
    };
    assert!(part(|f| f.boot_id = HOSTILE.to_owned()).is_err());
    assert!(part(|f| f.host = HOSTILE.to_owned()).is_err());
    assert!(part(|f| f.price.as_mut().unwrap().date = HOSTILE.to_owned()).is_err());
    assert!(part(|f| f.environment.as_mut().unwrap().zone = HOSTILE.to_owned()).is_err());
}
