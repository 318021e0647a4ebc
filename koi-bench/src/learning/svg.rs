//! The curves of the beliefs as an SVG: one panel per rule, one colour per kind.

use std::fmt::Write as _;

use super::claims::Kind;
use super::course::Rule;
use super::seeds::Outcome;

const PANEL_WIDTH: f64 = 420.0;
const PANEL_HEIGHT: f64 = 300.0;
const LEFT: f64 = 46.0;
const TOP: f64 = 40.0;
const GAP: f64 = 30.0;
const LEGEND: f64 = 150.0;
/// Most points of one curve: more cannot be told apart.
const MAX_POINTS: usize = 200;

const fn colour(kind: Kind) -> &'static str {
    match kind {
        Kind::True => "#1b7837",
        Kind::NoFeatureEffect => "#b2182b",
        Kind::NoMediatorEffect => "#ef8a62",
        Kind::WrongSign => "#762a83",
        Kind::OnePlace => "#2166ac",
        Kind::OtherMediator => "#8c510a",
    }
}

/// The whole picture.
pub(super) fn picture(outcomes: &[Outcome], ticks: usize) -> String {
    let rules: Vec<Rule> = Rule::ALL
        .into_iter()
        .filter(|r| outcomes.iter().any(|o| o.rule == *r))
        .collect();
    let width = LEFT + rules.len() as f64 * (PANEL_WIDTH + GAP) + LEGEND;
    let height = TOP + PANEL_HEIGHT + 46.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (index, rule) in rules.iter().enumerate() {
        let x = LEFT + index as f64 * (PANEL_WIDTH + GAP);
        axes(&mut svg, x, rule.title(), ticks);
        for outcome in outcomes.iter().filter(|o| o.rule == *rule) {
            curves(&mut svg, x, outcome, ticks);
        }
        medians(&mut svg, x, (outcomes, *rule), ticks);
    }
    legend(&mut svg, width - LEGEND + 10.0);
    svg.push_str("</svg>\n");
    svg
}

fn put(svg: &mut String, element: std::fmt::Arguments<'_>) {
    svg.write_fmt(element)
        .expect("invariant: writing to a String cannot fail");
    svg.push('\n');
}

fn axes(svg: &mut String, x: f64, title: &str, ticks: usize) {
    let bottom = TOP + PANEL_HEIGHT;
    put(
        svg,
        format_args!(
            "<text x=\"{x:.1}\" y=\"{:.1}\" font-weight=\"bold\">{title}</text>",
            TOP - 14.0
        ),
    );
    put(
        svg,
        format_args!(
            "<rect x=\"{x:.1}\" y=\"{TOP:.1}\" width=\"{PANEL_WIDTH:.1}\" height=\"{PANEL_HEIGHT:.1}\" fill=\"none\" stroke=\"#444\"/>"
        ),
    );
    for step in 0..=5 {
        let confidence = f64::from(step) / 5.0;
        let y = bottom - confidence * PANEL_HEIGHT;
        put(
            svg,
            format_args!(
                "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{confidence:.1}</text>",
                x + PANEL_WIDTH,
                x - 5.0,
                y + 4.0
            ),
        );
        let tick = ticks * step as usize / 5;
        let at = x + PANEL_WIDTH * f64::from(step) / 5.0;
        put(
            svg,
            format_args!(
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>",
                bottom + 16.0
            ),
        );
    }
    put(
        svg,
        format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">tick</text>",
            x + PANEL_WIDTH / 2.0,
            bottom + 34.0
        ),
    );
}

fn line(svg: &mut String, x: f64, values: &[f64], ticks: usize, style: &str) {
    let stride = values.len().div_ceil(MAX_POINTS).max(1);
    let last = values.len().saturating_sub(1);
    let mut points = String::new();
    for (tick, value) in values.iter().enumerate() {
        if tick % stride != 0 && tick != last {
            continue;
        }
        let at = x + PANEL_WIDTH * (tick + 1) as f64 / ticks.max(1) as f64;
        let y = TOP + PANEL_HEIGHT * (1.0 - value.clamp(0.0, 1.0));
        put(&mut points, format_args!("{at:.1},{y:.1}"));
    }
    let points = points.replace('\n', " ");
    put(
        svg,
        format_args!(
            "<polyline points=\"{}\" fill=\"none\" {style}/>",
            points.trim_end()
        ),
    );
}

fn curves(svg: &mut String, x: f64, outcome: &Outcome, ticks: usize) {
    for claim in &outcome.claims {
        let Some(values) = outcome.course.beliefs.get(&claim.id) else {
            continue;
        };
        let style = format!(
            "stroke=\"{}\" stroke-width=\"0.7\" opacity=\"0.25\"",
            colour(claim.kind)
        );
        line(svg, x, values, ticks, &style);
    }
}

fn medians(svg: &mut String, x: f64, (outcomes, rule): (&[Outcome], Rule), ticks: usize) {
    for kind in Kind::ALL {
        let series: Vec<&Vec<f64>> = outcomes
            .iter()
            .filter(|o| o.rule == rule)
            .flat_map(|o| {
                let claims = o.claims.iter().filter(move |c| c.kind == kind);
                claims.filter_map(|c| o.course.beliefs.get(&c.id))
            })
            .collect();
        let middle: Vec<f64> = (0..ticks)
            .map_while(|t| {
                let at: Vec<f64> = series.iter().filter_map(|s| s.get(t).copied()).collect();
                crate::statistics::median(&at)
            })
            .collect();
        let style = format!("stroke=\"{}\" stroke-width=\"2.4\"", colour(kind));
        line(svg, x, &middle, ticks, &style);
    }
}

fn legend(svg: &mut String, x: f64) {
    for (index, kind) in Kind::ALL.into_iter().enumerate() {
        let y = TOP + 14.0 + 20.0 * index as f64;
        put(
            svg,
            format_args!(
                "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"{}\" stroke-width=\"2.4\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + 22.0,
                colour(kind),
                x + 28.0,
                y + 4.0,
                kind.title().replace('>', "&gt;")
            ),
        );
    }
}
