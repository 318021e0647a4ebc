//! Tests of the placement order: vectors, properties, and slots placed one by one.

use proptest::prelude::*;

use super::*;
use crate::placement::candidate::{NodeSignals, Signal};
use crate::telemetry::test_data::vector_cases;
use crate::time::UtcMicros;

const NOW: UtcMicros = UtcMicros(1_800_000_000_000_000);

fn policy(strategy: PlacementStrategy) -> PlacementPolicy {
    PlacementPolicy {
        strategy,
        now: NOW,
        signal_max_age_seconds: 60,
    }
}

fn signal(value: f64) -> Option<Signal> {
    Some(Signal {
        value,
        observed_at: NOW,
    })
}

fn node(name: &str, warmth: Warmth) -> NodeCandidate {
    NodeCandidate {
        name: name.parse().unwrap(),
        warmth,
        free_gpus: 8,
        signals: NodeSignals::default(),
    }
}

fn names(keys: &[PlacementKey]) -> Vec<String> {
    keys.iter().map(|k| k.name.to_string()).collect()
}

/// Numbers, or the texts NaN and Infinity; absent is null.
fn json_signal(value: &serde_json::Value) -> Option<Signal> {
    let value = value
        .as_f64()
        .or_else(|| value.as_str().map(|s| s.parse().expect("a number")))?;
    signal(value)
}

#[test]
fn vector_placement() {
    let Some(cases) = vector_cases("placement") else {
        return;
    };
    for case in &cases {
        let strategy = serde_json::from_value(case["in"]["strategy"].clone()).expect("a strategy");
        let parse = |n: &serde_json::Value| NodeCandidate {
            name: n["name"].as_str().unwrap().parse().unwrap(),
            warmth: serde_json::from_value(n["warmth"].clone()).unwrap(),
            free_gpus: 8,
            signals: NodeSignals {
                kv_cache_hit_rate: json_signal(&n["kv_cache_hit_rate"]),
                tokens_per_joule: json_signal(&n["tokens_per_joule"]),
                gpu_utilization: json_signal(&n["gpu_utilization"]),
                active_service_count: json_signal(&n["active_service_count"]),
            },
        };
        let nodes: Vec<NodeCandidate> = case["in"]["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(parse)
            .collect();
        let want: Vec<String> = serde_json::from_value(case["out"]["order"].clone()).unwrap();
        assert_eq!(
            names(&rank(&nodes, &policy(strategy))),
            want,
            "{}",
            case["name"]
        );
    }
}

#[test]
fn old_signals_count_as_absent() {
    let mut hot = node("hot", Warmth::Warm);
    hot.signals.kv_cache_hit_rate = Some(Signal {
        value: 0.9,
        observed_at: NOW.plus_seconds(-61),
    });
    let mut fresh = node("other", Warmth::Warm);
    fresh.signals.kv_cache_hit_rate = Some(Signal {
        value: 0.1,
        observed_at: NOW.plus_seconds(-60),
    });
    let order = rank(
        &[hot.clone(), fresh.clone()],
        &policy(PlacementStrategy::EfficiencyAware),
    );
    assert_eq!(names(&order), ["other", "hot"]);
    hot.signals.kv_cache_hit_rate = Some(Signal {
        value: 0.9,
        observed_at: NOW.plus_seconds(3600),
    });
    let order = rank(&[hot, fresh], &policy(PlacementStrategy::EfficiencyAware));
    assert_eq!(
        names(&order),
        ["other", "hot"],
        "a value from the future is not believed"
    );
}

#[test]
fn without_a_signal_in_the_top_class_the_order_is_warmth_first() {
    let mut busy = node("a-busy", Warmth::Warm);
    busy.signals.active_service_count = signal(3.0);
    busy.signals.gpu_utilization = signal(0.1);
    let mut idle = node("b-idle", Warmth::Warm);
    idle.signals.active_service_count = signal(0.0);
    idle.signals.gpu_utilization = signal(0.9);
    let mut cold = node("c-cold", Warmth::Cold);
    cold.signals.kv_cache_hit_rate = signal(1.0);
    let nodes = [busy, idle, cold];
    let aware = rank(&nodes, &policy(PlacementStrategy::EfficiencyAware));
    assert_eq!(names(&aware), ["b-idle", "a-busy", "c-cold"]);
    assert_eq!(
        names(&aware),
        names(&rank(&nodes, &policy(PlacementStrategy::WarmthFirst)))
    );
}

#[test]
fn slots_are_placed_against_what_is_left() {
    let mut nodes = [
        node("a", Warmth::Warm),
        node("b", Warmth::Warm),
        node("c", Warmth::Cold),
    ];
    for n in &mut nodes {
        n.free_gpus = 4;
        n.signals.active_service_count = signal(0.0);
    }
    let placed = place_slots(
        &nodes,
        &[Slot { gpus: 2 }; 7],
        &policy(PlacementStrategy::WarmthFirst),
    );
    let hosts: Vec<String> = placed
        .iter()
        .map(|p| {
            p.as_ref()
                .map_or_else(ToString::to_string, ToString::to_string)
        })
        .collect();
    let full = NoHost::NotEnoughGpus {
        needed: 2,
        most_free: 0,
    }
    .to_string();
    assert_eq!(hosts, ["a", "b", "a", "b", "c", "c", full.as_str()]);
}

#[test]
fn a_slot_that_fits_nowhere_does_not_stop_the_others() {
    let nodes = [node("a", Warmth::Cold)];
    let slots = [Slot { gpus: 9 }, Slot { gpus: 0 }, Slot { gpus: 8 }];
    let placed = place_slots(&nodes, &slots, &policy(PlacementStrategy::WarmthFirst));
    assert_eq!(
        placed[0],
        Err(NoHost::NotEnoughGpus {
            needed: 9,
            most_free: 8
        })
    );
    assert_eq!(placed[1], Err(NoHost::EmptySlot));
    assert_eq!(placed[2], Ok("a".parse().unwrap()));
    assert!(
        place_slots(
            &[],
            &[Slot { gpus: 1 }],
            &policy(PlacementStrategy::WarmthFirst)
        )[0]
        .is_err()
    );
}

fn any_signal() -> impl Strategy<Value = Option<Signal>> {
    let value = prop_oneof![
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(-0.0),
        Just(1e308),
        -2.0..2.0,
        any::<f64>(),
    ];
    proptest::option::of((value, -200_i64..200).prop_map(|(value, age)| Signal {
        value,
        observed_at: NOW.plus_seconds(-age),
    }))
}

prop_compose! {
    fn any_node(name: String)(
        warmth in prop_oneof![Just(Warmth::Cold), Just(Warmth::Warming), Just(Warmth::Warm)],
        free_gpus in 0_u32..9,
        kv_cache_hit_rate in any_signal(),
        tokens_per_joule in any_signal(),
        gpu_utilization in any_signal(),
        active_service_count in any_signal(),
    ) -> NodeCandidate {
        let signals = NodeSignals { kv_cache_hit_rate, tokens_per_joule, gpu_utilization, active_service_count };
        NodeCandidate { name: name.parse().expect("a slug"), warmth, free_gpus, signals }
    }
}

fn any_nodes() -> impl Strategy<Value = Vec<NodeCandidate>> {
    (1_usize..8).prop_flat_map(|n| {
        (0..n)
            .map(|i| any_node(format!("n{i}")))
            .collect::<Vec<_>>()
    })
}

fn any_strategy() -> impl Strategy<Value = PlacementStrategy> {
    prop_oneof![
        Just(PlacementStrategy::WarmthFirst),
        Just(PlacementStrategy::EfficiencyAware)
    ]
}

proptest! {
    #[test]
    fn hazard_h13_no_signal_lifts_a_colder_host_over_a_warmer_one(nodes in any_nodes(), strategy in any_strategy()) {
        let order = rank(&nodes, &policy(strategy));
        prop_assert!(order.windows(2).all(|pair| pair[0].warmth >= pair[1].warmth));
    }

    #[test]
    fn the_order_is_total_and_transitive(nodes in any_nodes(), strategy in any_strategy()) {
        let keys = placement_keys(&nodes, &policy(strategy));
        for a in &keys {
            for b in &keys {
                prop_assert_eq!(a.compare(b), b.compare(a).reverse());
                prop_assert_eq!(a.compare(b).is_eq(), a.name == b.name);
                for c in &keys {
                    if a.compare(b).is_ge() && b.compare(c).is_ge() {
                        prop_assert!(a.compare(c).is_ge());
                    }
                }
            }
        }
    }

    #[test]
    fn the_order_does_not_depend_on_the_input_order(nodes in any_nodes(), strategy in any_strategy()) {
        let forward = names(&rank(&nodes, &policy(strategy)));
        let reversed: Vec<NodeCandidate> = nodes.iter().rev().cloned().collect();
        prop_assert_eq!(forward, names(&rank(&reversed, &policy(strategy))));
    }

    #[test]
    fn signals_that_are_not_valid_rank_as_if_absent(nodes in any_nodes(), strategy in any_strategy()) {
        let policy = policy(strategy);
        let cleaned: Vec<NodeCandidate> = nodes
            .iter()
            .map(|n| {
                let valid = n.signals.valid(&policy);
                let keep = |v: Option<f64>| v.map(|value| Signal { value, observed_at: NOW });
                NodeCandidate {
                    signals: NodeSignals {
                        kv_cache_hit_rate: keep(valid.kv_cache_hit_rate),
                        tokens_per_joule: keep(valid.tokens_per_joule),
                        gpu_utilization: keep(valid.gpu_utilization),
                        active_service_count: keep(valid.active_service_count),
                    },
                    ..n.clone()
                }
            })
            .collect();
        prop_assert_eq!(names(&rank(&nodes, &policy)), names(&rank(&cleaned, &policy)));
    }

    #[test]
    fn no_host_gets_more_gpus_than_it_has(
        nodes in any_nodes(), strategy in any_strategy(), sizes in proptest::collection::vec(1_u32..5, 0..20)
    ) {
        let slots: Vec<Slot> = sizes.iter().map(|gpus| Slot { gpus: *gpus }).collect();
        let placed = place_slots(&nodes, &slots, &policy(strategy));
        for n in &nodes {
            let taken: u32 = placed.iter().zip(&sizes).filter(|(p, _)| p.as_ref() == Ok(&n.name)).map(|(_, s)| s).sum();
            prop_assert!(taken <= n.free_gpus);
        }
    }
}
