//! Updates of a feed, tables, and which price holds.

use super::super::*;
use super::{date, key};
use crate::catalog::Catalog;
use crate::host::{HostFacts, HostPrice};

fn row(instance: &str, usd_per_hour: f64) -> OverlayPrice {
    OverlayPrice {
        cloud: "aws".to_owned(),
        region: "us-east-1".to_owned(),
        market: Market::Spot,
        instance: instance.to_owned(),
        usd_per_hour,
    }
}

fn feed(day: &str, prices: Vec<OverlayPrice>) -> PriceOverlay {
    PriceOverlay {
        source: "a feed".to_owned(),
        date: date(day),
        discounts: Vec::new(),
        prices,
    }
}

fn update(overlay: PriceOverlay) -> Result<PriceUpdate, Vec<FieldViolation>> {
    overlay.into_update(Catalog::embedded(), date("2026-11-30"), 180)
}

fn fields(problems: &[FieldViolation]) -> Vec<&str> {
    problems.iter().map(|p| p.field.as_str()).collect()
}

#[test]
fn every_problem_of_an_update_is_said_at_once() {
    let rows = vec![
        row("p5.48xlarge", f64::NAN),
        row("g5.xlarge", -1.0),
        row("g6.xlarge", 1e9),
        row("g6.xlarge", 1.0),
        row("", 1.0),
        row("g5.2xlarge", f64::INFINITY),
        row("g5.4xlarge", 0.0),
    ];
    let mut overlay = feed("2026-12-02", rows);
    overlay.source = String::new();
    overlay.discounts.push(Discount {
        cloud: "aws".to_owned(),
        region: None,
        market: None,
        instance: None,
        factor: 0.5,
    });
    let problems = update(overlay).unwrap_err();
    assert_eq!(
        fields(&problems),
        [
            "discount",
            "date",
            "source",
            "price[0].usd_per_hour",
            "price[1].usd_per_hour",
            "price[2].usd_per_hour",
            "price[3]",
            "price[4]",
            "price[5].usd_per_hour",
            "price[6].usd_per_hour",
        ]
    );
}

#[test]
fn a_price_of_nothing_and_a_name_that_does_not_show_are_refused_with_the_fix() {
    let rows = vec![
        row("g5.xlarge", 0.0),
        row("g6.xlarge", 1e-300),
        row("g5.2xlarge", 0.000_999),
        row("g5.4\u{202e}xlarge", 1.0),
        row("g5.8\u{200b}xlarge", 1.0),
        row("g5.16xlarge", MIN_USD_PER_HOUR),
    ];
    let mut overlay = feed("2026-11-30", rows);
    overlay.source = "a \u{202e}feed".to_owned();
    let problems = update(overlay).unwrap_err();
    assert_eq!(
        fields(&problems),
        [
            "source",
            "price[0].usd_per_hour",
            "price[1].usd_per_hour",
            "price[2].usd_per_hour",
            "price[3]",
            "price[4]",
        ]
    );
    assert!(problems[0].message.contains("U+202E"), "{problems:?}");
    assert!(problems[1].message.contains("0.001"), "{problems:?}");
    assert!(problems[1].message.contains("leave the row out"));
}

#[test]
fn floods_and_nothing_are_refused_with_one_sentence() {
    let many = vec![row("g5.xlarge", f64::NAN); 100_000];
    let problems = update(feed("2026-11-30", many)).unwrap_err();
    assert_eq!(fields(&problems), ["price"]);
    assert!(update(feed("2026-11-30", Vec::new())).is_err());
}

#[test]
fn doubtful_prices_are_accepted_with_a_flag() {
    let rows = vec![
        row("p5.48xlarge", 9_000.0),
        row("g5.xlarge", 0.001),
        row("own-machine", 3.0),
        row("g6.xlarge", 0.3),
    ];
    let accepted = update(feed("2026-11-30", rows.clone())).unwrap();
    assert_eq!(accepted.rows.len(), 4);
    let mut names: Vec<_> = accepted.flags.iter().map(|f| f.problem.name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["above_list", "below_list", "unknown_instance"]);
    let old = update(feed("2024-01-01", rows)).unwrap();
    let n_stale = old.flags.iter().filter(|f| f.problem.name() == "stale");
    assert_eq!(n_stale.count(), 4);
    // A feed's clock may be one day ahead.
    let ahead = update(feed("2026-12-01", vec![row("g6.xlarge", 0.3)])).unwrap();
    assert_eq!(
        ahead.flags[0].problem,
        PriceProblem::FromTheFuture { days: 1 }
    );
}

fn merge(book: &mut PriceBook, day: &str, rows: Vec<OverlayPrice>) -> [u32; 4] {
    let merged = book.merged(&update(feed(day, rows)).unwrap()).unwrap();
    for row in merged.changed.clone() {
        book.put(row.key, row.price);
    }
    [
        merged.n_added,
        merged.n_replaced,
        merged.n_unchanged,
        merged.n_older,
    ]
}

#[test]
fn a_feed_never_goes_back_in_time_and_says_what_it_did() {
    let mut book = PriceBook::default();
    let (a, b) = (|usd| row("g5.xlarge", usd), |usd| row("g6.xlarge", usd));
    assert_eq!(
        merge(&mut book, "2026-11-20", vec![a(0.5), b(0.4)]),
        [2, 0, 0, 0]
    );
    assert_eq!(
        merge(&mut book, "2026-11-20", vec![a(0.5), b(0.3)]),
        [0, 1, 1, 0]
    );
    assert_eq!(merge(&mut book, "2026-11-19", vec![a(9.0)]), [0, 0, 0, 1]);
    let kept = book.price(&key("aws", "us-east-1", Market::Spot, "g5.xlarge"));
    assert!((kept.unwrap().usd_per_hour - 0.5).abs() < 1e-12);
    let json = serde_json::to_string(&book).unwrap();
    assert_eq!(serde_json::from_str::<PriceBook>(&json).unwrap(), book);
}

fn facts(own: Option<(f64, &str)>) -> HostFacts {
    HostFacts {
        host: "h".parse().unwrap(),
        environment: "spot/aws/us-east-1/us-east-1a/A10G".parse().unwrap(),
        instance_type: "g5.xlarge".to_owned(),
        gpus: Vec::new(),
        nvlink: false,
        price: own.map(|(usd_per_hour, day)| HostPrice {
            usd_per_hour,
            source: "its agent".to_owned(),
            date: day.to_owned(),
        }),
        address: "127.0.0.1".to_owned(),
        boot_id: "b".to_owned(),
        build_id: "b".to_owned(),
        engines: Vec::new(),
        simulated: true,
    }
}

#[test]
fn the_latest_statement_holds_and_the_list_only_where_nobody_states() {
    let none = PriceBook::default();
    let mut list = PriceBook::default();
    let listed = Price {
        usd_per_hour: 0.7,
        source: "the list".to_owned(),
        date: date("2026-11-29"),
        dated: Dated::Read,
        origin: PriceOrigin::List,
    };
    list.put(PriceKey::of_host(&facts(None)), listed);
    let mut fed = PriceBook::default();
    merge(&mut fed, "2026-11-20", vec![row("g5.xlarge", 0.5)]);
    let overlaid = list
        .clone()
        .with_overlay(&feed("2026-11-25", vec![row("g5.xlarge", 0.6)]));
    let usd = |own, base: &PriceBook, feed: &PriceBook| {
        price_of_host(&facts(own), base, feed).map(|p| p.usd_per_hour)
    };
    assert_eq!(usd(None, &none, &none), None);
    assert_eq!(usd(None, &list, &none), Some(0.7));
    assert_eq!(usd(Some((0.9, "2020-01-01")), &list, &none), Some(0.9));
    assert_eq!(usd(None, &list, &fed), Some(0.5));
    assert_eq!(usd(Some((0.9, "2026-11-20")), &list, &fed), Some(0.5));
    assert_eq!(usd(Some((0.9, "2026-11-21")), &list, &fed), Some(0.9));
    assert_eq!(
        usd(Some((0.9, "")), &list, &fed),
        Some(0.5),
        "an undated price"
    );
    assert_eq!(usd(None, &overlaid, &fed), Some(0.6), "a later overlay");
    let shown = price_of_host(&facts(None), &list, &fed).unwrap();
    assert_eq!(
        (shown.source.as_str(), shown.date.as_str()),
        ("a feed (feed)", "2026-11-20")
    );
}

#[test]
fn tables_are_read_line_by_line() {
    let origin = || CsvOrigin {
        source: "a table".to_owned(),
        date: date("2026-11-30"),
    };
    let text = "\u{feff}usd_per_hour, cloud,region,market,instance\n0.5,aws,us-east-1,spot,g5.xlarge\n\n0.4,aws,us-east-1,spot,g6.xlarge\n";
    let overlay = PriceOverlay::parse_csv(text, origin()).unwrap();
    assert_eq!(
        overlay.prices,
        [row("g5.xlarge", 0.5), row("g6.xlarge", 0.4)]
    );
    let bad = "cloud,region,market,instance,usd_per_hour\naws,r,spot,x\naws,r,sometimes,x,1\naws,r,spot,x,one\naws,r,spot,x,NaN\n";
    let problems = PriceOverlay::parse_csv(bad, origin()).unwrap_err();
    assert_eq!(
        fields(&problems),
        ["line 2", "line 3", "line 4", "price[0].usd_per_hour"]
    );
    let quoted = "cloud,\"region\",market,instance,usd_per_hour\r\n\"aws\",\"us-east-1\",spot,\"g5.xlarge\",\"0.5\"\r\n\r\n  \r\naws,us-east-1,spot,\"g6,x\",x\n";
    let problems = PriceOverlay::parse_csv(quoted, origin()).unwrap_err();
    assert_eq!(fields(&problems), ["line 5"], "only the last is no number");
    assert!(PriceOverlay::parse_csv("cloud,region\n", origin()).is_err());
    assert!(PriceOverlay::parse_csv("", origin()).is_err());
    let flood = "cloud,region,market,instance,usd_per_hour\n".to_owned() + &"x\n".repeat(100_000);
    assert_eq!(
        PriceOverlay::parse_csv(&flood, origin()).unwrap_err().len(),
        100
    );
}

#[test]
fn a_full_feed_says_how_to_make_room_and_takes_prices_again_then() {
    let mut book = PriceBook::default();
    for i in 0..MAX_PRICES {
        let junk = OverlayPrice {
            region: format!("mars-{}", i % 2),
            ..row(&format!("junk-{i}"), 1.0)
        };
        let update = PricedRow {
            key: junk.key(),
            price: Price {
                usd_per_hour: 1.0,
                source: "a feed".to_owned(),
                date: date("2026-11-30"),
                dated: Dated::Published,
                origin: PriceOrigin::Feed,
            },
        };
        book.put(update.key, update.price);
    }
    let fresh = update(feed("2026-11-30", vec![row("g5.xlarge", 0.5)])).unwrap();
    let refused = book.merged(&fresh).unwrap_err();
    assert_eq!(fields(&refused), ["price"]);
    let told = &refused[0].message;
    assert!(
        told.contains("holds 200000") && told.contains("adds 1"),
        "{told}"
    );
    assert!(told.contains("koi prices remove"), "{told}");
    assert!(told.len() < 400, "an answer has no room for more: {told}");
    let half = PriceFilter {
        region: Some("mars-1".to_owned()),
        ..PriceFilter::default()
    };
    assert_eq!(book.n_matching(&half), MAX_PRICES / 2);
    book.remove_matching(&half);
    assert_eq!(book.len(), MAX_PRICES / 2);
    assert_eq!(book.merged(&fresh).unwrap().n_added, 1);
    assert_eq!(half.to_string(), "*/mars-1/*/*");
}

#[test]
fn a_price_of_a_place_that_nothing_has_is_flagged() {
    let list = PriceBook::embedded();
    let strange = |cloud: &str, region: &str| {
        let sent = OverlayPrice {
            cloud: cloud.to_owned(),
            region: region.to_owned(),
            ..row("p5.48xlarge", 30.0)
        };
        let update = update(feed("2026-11-30", vec![sent])).unwrap();
        PriceBook::from(update.rows).in_unknown_places(&list.places())
    };
    assert_eq!(strange("aws", "us-east-1"), []);
    for (cloud, region) in [("AWS", "us-east-1"), ("aws", "mars-1")] {
        let flags = strange(cloud, region);
        assert_eq!(flags.len(), 1);
        assert_eq!(flags[0].problem, PriceProblem::UnknownPlace);
    }
}
