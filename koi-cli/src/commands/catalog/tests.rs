//! Tables, rows by any of their names, folders with problems, and prices.

use std::path::PathBuf;

use koi_core::catalog::CatalogText;

use super::show::{Shown, row, table};
use super::*;
use crate::args::CatalogShow;

fn args(what: &str) -> CatalogShow {
    CatalogShow {
        what: Some(what.to_owned()),
        catalog: None,
        prices: None,
        engine: None,
        engine_version: None,
        cloud: None,
    }
}

fn configs() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../configs"))
}

/// A fresh folder with the embedded catalog, one file changed.
fn folder_with(name: &str, path: &str, text: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("koi-catalog-{name}-{}", std::process::id()));
    std::fs::remove_dir_all(&dir).ok();
    for (file, content) in CatalogText::embedded().with(path, text).files() {
        let at = dir.join(file);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(at, content).unwrap();
    }
    dir
}

fn failure(error: &anyhow::Error) -> &Failure {
    error.downcast_ref().unwrap_or_else(|| panic!("{error:#}"))
}

#[test]
fn every_table_has_rows_for_people_and_for_programs() {
    let shown = Shown::read(&args("")).unwrap();
    for name in [
        "features",
        "context",
        "mediators",
        "outcomes",
        "gpus",
        "instances",
        "prices",
        "flags",
        "metrics",
        "edges",
        "mechanisms",
    ] {
        let table = table(&shown, name, &args(name)).unwrap().unwrap();
        let n = table.value.as_array().unwrap().len();
        assert!(n >= 5, "{name}: {n}");
        assert!(table.grid.text().lines().count() > n, "{name}");
    }
    assert!(table(&shown, "nothing", &args("")).unwrap().is_none());
}

#[test]
fn filters_narrow_a_table() {
    let shown = Shown::read(&args("")).unwrap();
    let count = |args: CatalogShow| {
        let what = args.what.clone().unwrap();
        table(&shown, &what, &args)
            .unwrap()
            .unwrap()
            .value
            .as_array()
            .unwrap()
            .len()
    };
    let of_version = |version: &str| {
        count(CatalogShow {
            engine: Some("vllm".to_owned()),
            engine_version: Some(version.to_owned()),
            ..args("flags")
        })
    };
    assert!(of_version("0.6.0") < of_version("0.32.0"));
    assert!(of_version("0.32.0") < count(args("flags")));
    let of_aws = CatalogShow {
        cloud: Some("aws".to_owned()),
        ..args("prices")
    };
    assert!(count(of_aws) < count(args("prices")));
}

#[test]
fn rows_are_found_by_any_name() {
    let shown = Shown::read(&args("")).unwrap();
    for (name, key, word) in [
        ("max_num_seq", "feature", "--max-num-seqs"),
        ("pd_inbalance", "mediator", "pd_imbalance"),
        ("p99_ttft_ms", "outcome", "queue_depth"),
        ("nvidia h200", "gpu", "hopper"),
        ("p5.48xlarge", "instance", "us-east-1"),
        ("M_kv_pressure", "mechanism", "block"),
        (
            "vllm:gpu_cache_usage_perc",
            "metric",
            "kv_cache_usage_fraction",
        ),
    ] {
        let (value, text) = row(&shown, name).unwrap_or_else(|| panic!("{name}"));
        assert!(value.get(key).is_some(), "{name}: {value}");
        assert!(text.contains(word), "{word} in {text}");
    }
    assert!(row(&shown, "max_num_seqz").is_none());
    let error = show::run(Format::Json, &args("max_num_seqz")).unwrap_err();
    assert_eq!(failure(&error).code, ExitCode::NotFound);
    assert!(
        failure(&error).message.contains("did you mean max_num_seq"),
        "{error}"
    );
}

fn check_args(dir: PathBuf) -> CatalogCheck {
    CatalogCheck {
        dir: Some(dir),
        prices: None,
        max_age_days: 180,
        as_of: Some("2026-11-30".to_owned()),
        strict: false,
    }
}

/// The repository's catalog with prices of its own.
fn folder_with_prices(name: &str, prices: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("koi-prices-{name}-{}", std::process::id()));
    std::fs::remove_dir_all(&dir).ok();
    for (file, content) in CatalogText::embedded().files() {
        let at = dir.join("catalog").join(file);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(at, content).unwrap();
    }
    std::fs::create_dir_all(dir.join("prices")).unwrap();
    std::fs::write(dir.join("prices/aws.toml"), prices).unwrap();
    dir
}

fn aws_prices(date: &str, rows: &str) -> String {
    format!(
        "cloud = \"aws\"\nsource = \"x\"\ndate = \"{date}\"\ndated = \"read\"\n[on_demand.r]\n{rows}\n"
    )
}

#[test]
fn rows_that_are_no_prices_fail_the_check_and_flags_do_not() {
    let rows =
        "\"g5.xlarge\" = -1.0\n\"g5.2xlarge\" = nan\n\"g5.4xlarge\" = 0.0\n\"no.such\" = 1.0";
    let dir = folder_with_prices("wrong", &aws_prices("2026-11-01", rows));
    let error = check(Format::Json, &check_args(dir.clone())).unwrap_err();
    let refused = failure(&error);
    assert_eq!(
        (refused.code, refused.violations.len()),
        (ExitCode::Invalid, 4)
    );
    let text = refused.text();
    for words in [
        "aws/r/on_demand/g5.xlarge",
        "-1 is not a price",
        "not finite is not a price",
        "0 is not a price",
        "machine that is not in the catalog",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    std::fs::remove_dir_all(dir).ok();
    let ahead = folder_with_prices("ahead", &aws_prices("2199-01-01", "\"g5.xlarge\" = 1.0"));
    let error = check(Format::Json, &check_args(ahead.clone())).unwrap_err();
    assert!(failure(&error).text().contains("days ahead"), "{error}");
    std::fs::remove_dir_all(ahead).ok();
    // Old and far from the list: it may be true.
    let old = folder_with_prices("old", &aws_prices("2020-01-01", "\"g5.xlarge\" = 900.0"));
    assert!(check(Format::Json, &check_args(old.clone())).is_ok());
    let strict = CatalogCheck {
        strict: true,
        ..check_args(old.clone())
    };
    let error = check(Format::Json, &strict).unwrap_err();
    assert!(failure(&error).message.contains("2 flags"), "{error}");
    std::fs::remove_dir_all(old).ok();
    assert_eq!(soundness(0), "sound");
    assert_eq!(soundness(1), "sound, with 1 flag");
}

#[test]
fn the_repository_folder_is_what_is_compiled_in() {
    assert!(check(Format::Json, &check_args(configs())).is_ok());
    let of_repository = load(&configs()).unwrap();
    assert_eq!(differences(Catalog::embedded(), &of_repository), []);
}

#[test]
fn a_folder_with_problems_is_refused_with_all_of_them() {
    let broken = CatalogText::embedded()
        .file("features/batching.toml")
        .unwrap()
        .replacen("default = 256", "default = 0", 1)
        .replacen("unit = \"tokens\"", "unit = \"cubits\"", 1);
    let dir = folder_with("broken", "features/batching.toml", &broken);
    let error = check(Format::Json, &check_args(dir.clone())).unwrap_err();
    let failure = failure(&error);
    assert_eq!(failure.code, ExitCode::Invalid);
    let text = failure.text();
    for word in ["features/batching.toml.max_num_seqs.default", "cubits"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    std::fs::remove_dir_all(dir).ok();
    let missing = check(Format::Json, &check_args("/no/such/folder".into())).unwrap_err();
    assert_eq!(self::failure(&missing).code, ExitCode::NotFound);
}

#[test]
fn a_changed_row_is_a_difference() {
    let text = CatalogText::embedded()
        .file("features/batching.toml")
        .unwrap()
        .replacen("default = 256", "default = 64", 1);
    let dir = folder_with("changed", "features/batching.toml", &text);
    let found = differences(Catalog::embedded(), &load(&dir).unwrap());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        diff(
            Format::Json,
            &CatalogDiff {
                before: "embedded".into(),
                after: dir.clone()
            }
        )
        .is_ok()
    );
    std::fs::remove_dir_all(dir).ok();
}

#[test]
fn absurd_prices_stand_alone_and_stale_ones_are_counted() {
    let book = PriceBook::load([(
        "x.toml",
        "cloud = \"aws\"\nsource = \"x\"\ndate = \"2020-01-01\"\ndated = \"read\"\n[spot.r]\n\"p5.48xlarge\" = 1e6\n\"g5.xlarge\" = 1.0\n",
    )])
    .unwrap();
    let flags = book.flags(Catalog::embedded(), "2026-11-30".parse().unwrap(), 180);
    let text = shown_flags(&flags);
    assert!(text.contains("price aws/r/spot/p5.48xlarge: is"), "{text}");
    assert!(text.contains("2 prices of aws are 2525 days old"), "{text}");
}
