//! Small texts for wire values, shared by the commands.

use koi_proto::v1;

use crate::output::number;

/// `market/cloud/region/zone/gpu_type`.
pub(super) fn place(e: Option<&v1::Environment>) -> String {
    e.map_or_else(
        || "-".to_owned(),
        |e| {
            [&e.market, &e.cloud, &e.region, &e.zone, &e.gpu_type]
                .map(String::as_str)
                .join("/")
        },
    )
}

/// The value of a name; absent is absent.
pub(super) fn named(values: &[v1::NamedValue], name: &str) -> Option<f64> {
    values.iter().find(|v| v.name == name).map(|v| v.value)
}

/// `name=value` pairs, values to four significant digits.
pub(super) fn pairs(values: &[v1::NamedValue]) -> String {
    values
        .iter()
        .map(|v| format!("{}={}", v.name, short(v.value)))
        .collect::<Vec<_>>()
        .join("  ")
}

/// A number to about four significant digits.
pub(super) fn short(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => "-".to_owned(),
        s if s > 0.0 && s < 1e-3 => format!("{value:.2e}"),
        s if s < 10.0 => format!("{value:.3}"),
        s if s < 1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn setting(s: &v1::Setting) -> String {
    use v1::setting::Value;
    let value = match &s.value {
        Some(Value::BoolValue(b)) => b.to_string(),
        Some(Value::IntValue(i)) => i.to_string(),
        Some(Value::FloatValue(f)) => short(*f),
        Some(Value::TextValue(t)) => t.clone(),
        None => "-".to_owned(),
    };
    format!("{}={value}", s.name)
}

fn width(rank: &v1::Rank, name: &str) -> i64 {
    rank.settings
        .iter()
        .find(|s| s.name == name)
        .and_then(|s| match s.value {
            Some(v1::setting::Value::IntValue(i)) => Some(i),
            _ => None,
        })
        .unwrap_or(1)
}

/// `2 × H100 tp2 pp1 spot` for each rank.
pub(super) fn ladder(ladder: Option<&v1::Ladder>) -> String {
    let Some(ladder) = ladder.filter(|l| !l.ranks.is_empty()) else {
        return "-".to_owned();
    };
    let rank = |r: &v1::Rank| {
        let (gpu, market) = r
            .environment
            .as_ref()
            .map_or(("?", "?"), |e| (e.gpu_type.as_str(), e.market.as_str()));
        format!(
            "{} × {gpu} tp{} pp{} {market}",
            r.n_replicas,
            width(r, "tp"),
            width(r, "pp")
        )
    };
    ladder
        .ranks
        .iter()
        .map(rank)
        .collect::<Vec<_>>()
        .join(" + ")
}

/// Every rank with its environment and settings, one line each.
pub(super) fn ladder_lines(ladder: Option<&v1::Ladder>, indent: &str) -> String {
    let ranks = ladder.map(|l| l.ranks.as_slice()).unwrap_or_default();
    let line = |(i, r): (usize, &v1::Rank)| {
        let settings: Vec<String> = r.settings.iter().map(setting).collect();
        format!(
            "{indent}rank {i}: {} × {} on {} ({} GPUs each), mechanism {}\n{indent}  {}",
            r.n_replicas,
            if r.instance_type.is_empty() {
                "-"
            } else {
                &r.instance_type
            },
            place(r.environment.as_ref()),
            r.gpus_per_replica,
            if r.mechanism_id.is_empty() {
                "-"
            } else {
                &r.mechanism_id
            },
            settings.join(" "),
        )
    };
    ranks
        .iter()
        .enumerate()
        .map(line)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Every term of σ; a term that was not computed says so.
pub(super) fn sigma_terms(s: &v1::SigmaTerms) -> String {
    let term = |name: &str, value: Option<f64>| {
        format!(
            "{name} {}",
            value.map_or_else(|| "not computed".to_owned(), short)
        )
    };
    [
        term("σ", s.sigma),
        term("J", s.exploit_score),
        term("EIG", s.information_gain),
        term("Pr(breach)", s.breach_probability),
        term("switch cost", s.switch_cost),
        term("gain", s.gain),
    ]
    .join(", ")
}

/// Measured value and target, `312/2000`.
pub(super) fn against(measured: Option<f64>, target: Option<f64>, digits: usize) -> String {
    match target {
        None => number(measured, digits),
        Some(target) => format!("{}/{}", number(measured, digits), number(Some(target), 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_that_were_not_computed_say_so() {
        let text = sigma_terms(&v1::SigmaTerms {
            sigma: Some(-0.25),
            ..Default::default()
        });
        assert!(
            text.starts_with("σ -0.250, J not computed, EIG not computed"),
            "{text}"
        );
    }

    #[test]
    fn numbers_keep_four_digits() {
        assert_eq!(
            [0.0, 1.0e-6, 0.1234, 12.34, 1234.5].map(short),
            ["0.000", "1.00e-6", "0.123", "12.3", "1234"].map(str::to_owned)
        );
    }
}
