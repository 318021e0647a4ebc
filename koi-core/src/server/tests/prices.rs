//! A price feed through the machine: what the next snapshot and plan see of it.

use super::super::*;
use super::is_conflict;
use super::sim::Sim;
use crate::catalog::price::{OverlayPrice, PriceFilter, PriceOverlay};
use crate::environment::Market;
use crate::planner::plan;
use crate::planner::test_world::context;
use crate::snapshot::Snapshot;

fn overlay(usd_per_hour: f64, date: &str) -> PriceOverlay {
    PriceOverlay {
        source: "a feed".to_owned(),
        date: date.parse().unwrap(),
        discounts: Vec::new(),
        prices: vec![OverlayPrice {
            cloud: "dc".to_owned(),
            region: "region".to_owned(),
            market: Market::Reserved,
            instance: "h100x4".to_owned(),
            usd_per_hour,
        }],
    }
}

impl Sim {
    fn price(&mut self, usd_per_hour: f64, date: &str) -> String {
        let today = "2026-11-30".parse().unwrap();
        let update = overlay(usd_per_hour, date)
            .into_update(Catalog::embedded(), today, 180)
            .unwrap();
        let request = self.request();
        let command = Command::UpdatePrices {
            update: Box::new(update),
            request,
            remember: false,
        };
        match self.ask(command).unwrap() {
            Reply::Object(counts) => counts,
            other => panic!("{other:?}"),
        }
    }

    /// The snapshot of a fresh tick, which is closed again.
    fn frozen(&mut self) -> Snapshot {
        let snapshot = self.open_tick().unwrap();
        self.close_tick(snapshot.tick).unwrap();
        snapshot
    }
}

/// USD per hour and device promised to the one waiting job.
fn planned(snapshot: &Snapshot) -> f64 {
    let draft = plan(snapshot, &context());
    let action = &draft.actions[0];
    let promise = action.promise.as_ref().expect("it is placed");
    let n_gpus = action.ladder.as_ref().unwrap().n_gpus();
    promise.usd_per_hour.expect("it is priced") / f64::from(n_gpus)
}

#[test]
fn the_next_tick_plans_with_the_new_price_and_says_which() {
    let mut sim = Sim::new(&[("a", 4)]);
    sim.submit(1, "chat").unwrap();
    let before = sim.frozen();
    assert_eq!(
        sim.price(8.0, "2026-11-30"),
        "1 added, 0 replaced, 0 unchanged, 0 older"
    );
    let after = sim.frozen();
    // The host states 4 USD/h of 2025; the feed is later.
    assert!((planned(&before) - 1.0).abs() < 1e-9);
    assert!((planned(&after) - 2.0).abs() < 1e-9);
    assert_ne!(before.hash(), after.hash());
    let told = &after.state.tick.as_ref().unwrap().prices;
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].price.usd_per_hour, told[0].n_hosts), (8.0, 1));
    assert_eq!(told[0].price.source, "a feed (feed)");
    // The same snapshot gives the same plan, whatever the feed says meanwhile.
    sim.price(2.0, "2026-11-30");
    let text = serde_json::to_string(&after).unwrap();
    let replayed: Snapshot = serde_json::from_str(&text).unwrap();
    assert_eq!(plan(&replayed, &context()), plan(&after, &context()));
    assert!((planned(&sim.frozen()) - 0.5).abs() < 1e-9);
}

#[test]
fn prices_outlive_the_server_and_meet_new_hosts() {
    let mut sim = Sim::new(&[("a", 4)]);
    sim.price(8.0, "2026-11-30");
    sim.restart_server();
    assert_eq!(sim.server.state().prices.len(), 1);
    sim.reconnect_all();
    let host = "a".parse().unwrap();
    let usd = |sim: &Sim| {
        let state = sim.server.state();
        state.price_of(&state.hosts[&host]).unwrap().usd_per_hour
    };
    assert!((usd(&sim) - 8.0).abs() < 1e-9);
    // A host that comes with a later price of its own is believed.
    let mut facts = sim.server.state().hosts[&host].facts.clone();
    let own = facts.price.as_mut().unwrap();
    (own.usd_per_hour, own.date) = (5.0, "2026-12-24".to_owned());
    let hello = Command::HostHello {
        facts: Box::new(facts),
        highest: crate::rollout::DesiredVersion::default(),
    };
    sim.ask(hello).unwrap();
    assert!((usd(&sim) - 5.0).abs() < 1e-9);
}

#[test]
fn what_is_known_or_older_writes_nothing() {
    let mut sim = Sim::new(&[("a", 4)]);
    sim.price(8.0, "2026-11-30");
    let writes = sim.n_writes;
    assert_eq!(
        sim.price(8.0, "2026-11-30"),
        "0 added, 0 replaced, 1 unchanged, 0 older"
    );
    assert_eq!(
        sim.price(9.0, "2026-11-29"),
        "0 added, 0 replaced, 0 unchanged, 1 older"
    );
    assert_eq!(sim.n_writes, writes);
    sim.is_away = true;
    let update = overlay(7.0, "2026-11-30").into_update(
        Catalog::embedded(),
        "2026-11-30".parse().unwrap(),
        180,
    );
    let request = sim.request();
    let refused = sim.ask(Command::UpdatePrices {
        update: Box::new(update.unwrap()),
        request,
        remember: false,
    });
    assert!(refused.is_err() && !is_conflict(&refused));
    let kept = sim
        .server
        .state()
        .prices
        .iter()
        .next()
        .unwrap()
        .1
        .usd_per_hour;
    assert!((kept - 8.0).abs() < 1e-9, "nothing is half-stored");
}

#[test]
fn an_answer_under_a_key_is_kept_even_when_nothing_changed() {
    let mut sim = Sim::new(&[("a", 4)]);
    sim.price(8.0, "2026-11-30");
    let today = "2026-11-30".parse().unwrap();
    let same = overlay(8.0, "2026-11-30").into_update(Catalog::embedded(), today, 180);
    let (writes, request) = (sim.n_writes, sim.request());
    let answer = sim.ask(Command::UpdatePrices {
        update: Box::new(same.unwrap()),
        request,
        remember: true,
    });
    let counts = "0 added, 0 replaced, 1 unchanged, 0 older";
    assert_eq!(answer.unwrap(), Reply::Object(counts.to_owned()));
    assert_eq!(sim.n_writes, writes + 1);
    assert_eq!(sim.server.state().prices.len(), 1);
}

#[test]
fn prices_that_are_taken_out_hold_no_longer() {
    let mut sim = Sim::new(&[("a", 4)]);
    sim.submit(1, "chat").unwrap();
    sim.price(8.0, "2026-11-30");
    assert!((planned(&sim.frozen()) - 2.0).abs() < 1e-9);
    let remove = |sim: &mut Sim, instance: &str| {
        let request = sim.request();
        sim.ask(Command::RemovePrices {
            filter: PriceFilter {
                cloud: Some("dc".to_owned()),
                instance: Some(instance.to_owned()),
                ..PriceFilter::default()
            },
            reason: "a slip".to_owned(),
            request,
        })
    };
    let none = remove(&mut sim, "h100x8").unwrap();
    assert_eq!(none, Reply::Object("0".to_owned()));
    assert_eq!(sim.server.state().prices.len(), 1);
    let one = remove(&mut sim, "h100x4").unwrap();
    assert_eq!(one, Reply::Object("1".to_owned()));
    assert!(sim.server.state().prices.is_empty());
    // What the host states holds again.
    assert!((planned(&sim.frozen()) - 1.0).abs() < 1e-9);
    sim.restart_server();
    assert!(sim.server.state().prices.is_empty());
}
