//! Tests of the hyper-parameters: ranges, unknown names, all problems at once.

use super::*;

#[test]
fn defaults_lie_in_their_ranges_and_survive_a_round_trip() {
    let params = Params::default();
    assert_eq!(params.validate(), Ok(()));
    let text = toml::to_string(&params).unwrap();
    assert_eq!(toml::from_str::<Params>(&text).unwrap(), params);
    assert_eq!(toml::from_str::<Params>("").unwrap(), params);
}

#[test]
fn unknown_names_are_refused() {
    assert!(toml::from_str::<Params>("explore_wieght_min = 1.0").is_err());
}

#[test]
fn every_problem_is_reported_at_once() {
    let params = Params {
        dro_band_quantile: f64::NAN,
        regret_target: -1.0,
        churn_price_initial: 3.0,
        swap_budget_min: 11,
        ..Params::default()
    };
    let fields: Vec<String> = params
        .validate()
        .unwrap_err()
        .into_iter()
        .map(|v| v.field)
        .collect();
    assert_eq!(
        fields,
        [
            "regret_target",
            "dro_band_quantile",
            "churn_price_initial",
            "swap_budget_min"
        ]
    );
}

#[test]
fn the_papers_appendix_b_is_in_the_table() {
    let row = |symbol: &str| {
        Params::TABLE
            .iter()
            .find(|r| r.symbol == symbol)
            .map(|r| r.default)
            .unwrap()
    };
    let expected = [
        ("ρ_aug", 1e-3),
        ("γ", 1.0),
        ("B_min", 1.0),
        ("B_max", 10.0),
        ("α_ICP", 0.05),
        ("n_env_min", 3.0),
        ("n_b", 15.0),
        ("δ_CUSUM", 0.5),
        ("h_CUSUM", 4.0),
        ("ε_0", 0.15),
        ("κ*", 0.90),
        ("η_w", 0.10),
        ("η_λ", 0.05),
        ("η_β", 0.10),
        ("W_regret", 20.0),
        ("W_q1", 20.0),
        ("K_P", 1.0),
        ("K_MAX", 64.0),
        ("UTILIZATION", 0.8),
    ];
    for (symbol, default) in expected {
        assert!((row(symbol) - default).abs() < 1e-12, "{symbol}");
    }
}
