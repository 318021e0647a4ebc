//! Tests of the quantile behind the intervals; the rules are tested with the window.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::*;

#[test]
fn the_t_quantile_is_right_to_four_digits() {
    for degrees in [10.0, 15.0, 42.0, 200.0, 1e6] {
        let exact = StudentsT::new(0.0, 1.0, degrees).unwrap().inverse_cdf(0.95);
        assert!((student_95(degrees) - exact).abs() < 2e-4, "{degrees}");
    }
}

#[test]
fn residuals_without_any_spread_are_judged_by_the_stored_sigma() {
    let params = Params::default();
    let flat = |mean: f64| EnvironmentSamples {
        levels: Moments {
            n: 20,
            mean,
            squares: 0.0,
        },
        distances: Moments {
            n: 20,
            ..Moments::default()
        },
    };
    let mut settings = LegSettings {
        sigma: None,
        tests: 1,
        params: &params,
    };
    let samples = [flat(0.0), flat(0.01), flat(0.0)];
    assert_eq!(equivalence(&samples, &settings).verdict, Icp::Undecided);
    settings.sigma = Some(0.1);
    assert_eq!(equivalence(&samples, &settings).verdict, Icp::Accept);
    settings.sigma = Some(f64::NAN);
    assert_eq!(equivalence(&samples, &settings).verdict, Icp::Undecided);
}
