//! Days, list prices, overlays and flags.

mod feed;

use super::*;
use crate::catalog::Catalog;

fn date(text: &str) -> Date {
    text.parse().unwrap()
}

fn key(cloud: &str, region: &str, market: Market, instance: &str) -> PriceKey {
    PriceKey {
        cloud: cloud.to_owned(),
        region: region.to_owned(),
        market,
        instance: instance.to_owned(),
    }
}

fn p5() -> PriceKey {
    key("aws", "us-east-1", Market::OnDemand, "p5.48xlarge")
}

#[test]
fn days_are_counted_from_1970() {
    for (text, days) in [
        ("1970-01-01", 0),
        ("1970-12-31", 364),
        ("1972-03-01", 790),
        ("2000-02-29", 11_016),
        ("2026-11-30", 20_787),
    ] {
        assert_eq!(date(text).days(), days, "{text}");
        assert_eq!(date(text).to_string(), text);
        assert_eq!(Date::from_days(days), Ok(date(text)));
    }
    for bad in [
        "",
        "2026-2-1",
        "2026-02-29",
        "2026-13-01",
        "1969-12-31",
        "2026-01-00",
        "+026-01-01",
    ] {
        assert!(bad.parse::<Date>().is_err(), "{bad}");
    }
}

#[test]
fn the_embedded_prices_load_and_name_known_machines() {
    let book = PriceBook::load(PriceBook::embedded_text()).unwrap_or_else(|p| panic!("{p:#?}"));
    assert!(book.len() > 1000, "{}", book.len());
    let catalog = Catalog::embedded();
    for (key, _) in book.iter() {
        assert!(catalog.instance_type(&key.instance).is_some(), "{key}");
    }
    assert!((book.price(&p5()).unwrap().usd_per_hour - 55.04).abs() < 1e-9);
    let spot = key(
        "nebius",
        "eu-north1",
        Market::Spot,
        "gpu-h100-sxm_8gpu-128vcpu-1600gb",
    );
    assert!((book.price(&spot).unwrap().usd_per_hour - 10.0).abs() < 1e-9);
    assert!(catalog.instance_types().count() >= 60);
}

#[test]
fn the_list_prices_are_not_absurd_and_grow_stale() {
    let book = PriceBook::embedded();
    let flags = |as_of: &str, age: i64| book.flags(Catalog::embedded(), date(as_of), age);
    assert_eq!(flags("2026-11-30", 365), []);
    let stale = flags("2026-11-30", 150);
    assert!(!stale.is_empty());
    for flag in &stale {
        assert_eq!(flag.key.cloud, "azure");
        assert_eq!(flag.problem, PriceProblem::Stale { age_days: 165 });
    }
    assert!(
        flags("2026-06-01", 365)
            .iter()
            .any(|f| matches!(f.problem, PriceProblem::FromTheFuture { .. }))
    );
}

fn book_of(usd: &str) -> PriceBook {
    let text = format!(
        "cloud = \"aws\"\nsource = \"a test\"\ndate = \"2026-11-30\"\ndated = \"read\"\n[on_demand.us-east-1]\n\"p5.48xlarge\" = {usd}\n"
    );
    PriceBook::load([("aws.toml", text.as_str())]).unwrap()
}

#[test]
fn absurd_prices_are_flagged() {
    let problem = |usd: &str| {
        let flags = book_of(usd).flags(Catalog::embedded(), date("2026-11-30"), 30);
        flags.first().map(|f| f.problem)
    };
    assert_eq!(problem("55.04"), None);
    assert_eq!(problem("nan"), Some(PriceProblem::NotAPrice));
    assert_eq!(problem("0.0"), Some(PriceProblem::NotAPrice));
    assert_eq!(problem("-3.0"), Some(PriceProblem::NotAPrice));
    assert!(matches!(problem("5504.0"), Some(PriceProblem::AboveList { ratio }) if ratio > 10.0));
    assert!(matches!(problem("0.5504"), Some(PriceProblem::BelowList { ratio }) if ratio < 0.1));
}

#[test]
fn an_overlay_discounts_first_and_replaces_then() {
    let overlay = PriceOverlay::parse(
        r#"
        source = "contract 7"
        date = "2026-11-01"
        [[discount]]
        cloud = "aws"
        factor = 0.5
        [[price]]
        cloud = "aws"
        region = "us-east-1"
        market = "on_demand"
        instance = "g5.xlarge"
        usd_per_hour = 0.7
        [[price]]
        cloud = "own"
        region = "hall-2"
        market = "reserved"
        instance = "p5.48xlarge"
        usd_per_hour = 21.0
        "#,
    )
    .unwrap();
    let book = PriceBook::embedded().clone().with_overlay(&overlay);
    let halved = book.price(&p5()).unwrap();
    assert!((halved.usd_per_hour - 27.52).abs() < 1e-9);
    assert_eq!(
        halved.date,
        date("2026-07-20"),
        "a discount does not make a price younger"
    );
    assert!(halved.source.contains("contract 7"));
    let g5 = key("aws", "us-east-1", Market::OnDemand, "g5.xlarge");
    assert!((book.price(&g5).unwrap().usd_per_hour - 0.7).abs() < 1e-9);
    let own = key("own", "hall-2", Market::Reserved, "p5.48xlarge");
    assert_eq!(book.price(&own).unwrap().date, date("2026-11-01"));
    let stale = PriceOverlay {
        date: date("2020-01-01"),
        discounts: Vec::new(),
        ..overlay
    };
    let kept = book.clone().with_overlay(&stale);
    assert_eq!(
        kept.price(&own),
        book.price(&own),
        "an older price replaces no newer one"
    );
}

#[test]
fn bad_overlays_are_refused_row_by_row() {
    let text = |row: &str| format!("source = \"x\"\ndate = \"2026-11-01\"\n{row}");
    for (row, word) in [
        (
            "[[discount]]\ncloud = \"aws\"\nfactor = 0.0",
            "discount[0].factor",
        ),
        (
            "[[discount]]\ncloud = \"aws\"\nfactor = nan",
            "discount[0].factor",
        ),
        (
            "[[price]]\ncloud = \"a\"\nregion = \"b\"\nmarket = \"spot\"\ninstance = \"c\"\nusd_per_hour = inf",
            "price[0]",
        ),
        ("[[price]]\ncloud = \"a\"", "price[0].region: is required"),
        ("extra = 1", "extra: unknown key"),
    ] {
        let problems = PriceOverlay::parse(&text(row)).unwrap_err();
        let shown: String = problems
            .iter()
            .map(|p| format!("{}: {}", p.field, p.message))
            .collect();
        assert!(shown.contains(word), "{word} in {shown}");
    }
    assert!(PriceOverlay::parse("date = \"soon\"").is_err());
}

#[test]
fn files_that_price_the_same_thing_are_refused() {
    let (name, text) = PriceBook::embedded_text().next().unwrap();
    let problems = PriceBook::load([(name, text), ("again.toml", text)]).unwrap_err();
    assert!(problems.iter().all(|p| p.message == "is priced twice"));
}
