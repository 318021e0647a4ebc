//! What must hold for every metrics page, whatever its bytes. The drivers find bytes; this judges.
//!
//! A broken property panics with its name. Nothing here knows how the parser works.

use koi_core::telemetry::engine_metrics::{EnginePage, MAX_ENGINES, is_wanted};
use koi_core::telemetry::histogram::CumulativeHistogram;
use koi_core::telemetry::metrics_text::{
    Limits, MAX_LABEL_VALUE_BYTES, MAX_LABELS, MAX_NAME_BYTES, MAX_REPORTED_PROBLEMS, Page, Sample,
    parse, parse_selected, parse_within,
};

/// Checks every property on one page.
///
/// # Panics
/// When one does not hold.
pub fn check(bytes: &[u8]) {
    let page = parse(bytes);
    counts_fit(&page, bytes);
    page.samples.iter().for_each(sample_is_sound);
    selection_loses_nothing(bytes, &page);
    limits_are_kept(bytes);
    good_lines_survive(bytes);
    engines_are_sound(bytes, &page);
    let repeated = page.repeated_series();
    assert!(
        repeated.count < page.samples.len().max(1),
        "a first one is no repetition"
    );
}

fn counts_fit(page: &Page<'_>, bytes: &[u8]) {
    let ends = bytes.iter().filter(|b| **b == b'\n').count();
    let lines = page.lines as usize;
    assert!(
        lines == ends || lines == ends + 1,
        "lines: {lines}, line ends: {ends}"
    );
    assert!(
        page.problems.len() <= MAX_REPORTED_PROBLEMS,
        "reports are bounded"
    );
    assert!(
        page.samples.len() + page.bad_lines + page.created_dropped <= lines,
        "a line is one thing"
    );
    let described =
        page.problems.len() == (page.bad_lines + page.remarks).min(MAX_REPORTED_PROBLEMS);
    assert!(described, "every problem is described or past the bound");
    assert!(
        page.whole_samples().len() + 1 >= page.samples.len(),
        "one line at most is cut"
    );
    let in_order = page
        .samples
        .windows(2)
        .all(|pair| pair[0].line < pair[1].line);
    assert!(in_order, "samples keep the order of the page");
}

fn sample_is_sound(sample: &Sample<'_>) {
    assert!(!sample.name.is_empty(), "a sample has a name");
    let labels: Vec<_> = sample.labels.iter().collect();
    assert_eq!(
        labels.len(),
        sample.labels.len(),
        "all labels are found again"
    );
    assert!(labels.len() <= MAX_LABELS, "labels are bounded");
    let Some(text) = written(sample) else {
        return;
    };
    let again = parse(text.as_bytes());
    assert_eq!(
        (again.bad_lines, again.samples.len()),
        (0, 1),
        "written again: {text:?}"
    );
    let read = &again.samples[0];
    assert_eq!(read.name, sample.name, "{text:?}");
    assert!(read.labels.iter().eq(labels), "{text:?}");
    let same = read.value.to_bits() == sample.value.to_bits();
    assert!(
        same || read.value.is_nan() && sample.value.is_nan(),
        "{text:?}"
    );
}

/// The sample as a line, every name in quotes; `None` when escapes make it too long to be read.
fn written(sample: &Sample<'_>) -> Option<String> {
    let quoted = |text: &str, limit: usize| {
        let escaped = text
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        (escaped.len() <= limit).then(|| format!("\"{escaped}\""))
    };
    let mut parts = vec![quoted(&sample.name, MAX_NAME_BYTES)?];
    for label in sample.labels {
        let name = quoted(&label.name, MAX_NAME_BYTES)?;
        parts.push(format!(
            "{name}={}",
            quoted(&label.value, MAX_LABEL_VALUE_BYTES)?
        ));
    }
    Some(format!("{{{}}} {:?}\n", parts.join(","), sample.value))
}

fn selection_loses_nothing(bytes: &[u8], page: &Page<'_>) {
    let selected = parse_selected(bytes, is_wanted);
    let wanted: Vec<u32> = page
        .samples
        .iter()
        .filter(|s| is_wanted(&s.name))
        .map(|s| s.line)
        .collect();
    let kept: Vec<u32> = selected.samples.iter().map(|s| s.line).collect();
    assert_eq!(kept, wanted, "the selection keeps what it should");
    assert_eq!(
        selected.problems, page.problems,
        "and finds the same problems"
    );
    assert_eq!(
        EnginePage::from_page(&selected),
        EnginePage::from_page(page),
        "and the same engines"
    );
}

fn limits_are_kept(bytes: &[u8]) {
    let limits = Limits {
        max_bytes: bytes.len() / 2,
        max_series: 3,
    };
    let page = parse_within(bytes, limits, |_| true);
    assert!(
        page.samples.len() <= 3 && page.families.len() <= 3,
        "series are bounded"
    );
    assert!(page.bytes_cut * 2 >= bytes.len(), "bytes are bounded");
}

/// A bad line costs that line: what stands before and after is read.
fn good_lines_survive(bytes: &[u8]) {
    let mut text = b"first{a=\"b\"} 1\n".to_vec();
    text.extend_from_slice(bytes);
    text.extend_from_slice(b"\nlast{a=\"b\"} 2\n");
    let page = parse(&text);
    let first = page.samples.first().map(|s| (s.name.as_ref(), s.line));
    assert_eq!(first, Some(("first", 1)), "the line before");
    let last = page.samples.last().map(|s| (s.name.as_ref(), s.line));
    assert_eq!(last, Some(("last", page.lines)), "the line after");
}

fn engines_are_sound(bytes: &[u8], page: &Page<'_>) {
    let engines = EnginePage::from_page(page);
    assert!(engines.engines.len() <= MAX_ENGINES, "engines are bounded");
    for sample in engines.engines.values() {
        assert!(
            sample.gauges.values().all(|v| v.is_finite() && *v >= 0.0),
            "gauges are in range"
        );
        for histogram in sample.histograms.values() {
            quantiles_are_sound(histogram);
            let same = histogram.delta_since(histogram).map(|d| d.count);
            assert_eq!(same, Ok(0), "nothing happens between a page and itself");
        }
    }
    let half = parse(&bytes[..bytes.len() / 2]);
    let change = engines.since(&EnginePage::from_page(&half));
    assert!(
        change
            .engines
            .keys()
            .all(|key| engines.engines.contains_key(key)),
        "changes have engines"
    );
}

fn quantiles_are_sound(histogram: &CumulativeHistogram) {
    let last = histogram.edges().last().copied().unwrap_or(f64::NAN);
    // Beyond, differences of edges overflow and there is no answer.
    if histogram.edges().iter().any(|edge| edge.abs() > 1e300) {
        return;
    }
    let (low, high) = (histogram.quantile(0.5), histogram.quantile(0.99));
    assert_eq!(
        low.is_some(),
        histogram.count() > 0,
        "quantiles need observations"
    );
    if let (Some(low), Some(high)) = (low, high) {
        let rounding = 1e-9 * last.abs();
        assert!(
            low <= high + rounding && high <= last + rounding,
            "{low} {high} {last}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn the_properties_hold_for_pages_of_every_kind() {
        for page in [
            &b""[..],
            b"\n\n",
            b"a 1",
            b"# TYPE a counter\na_total{b=\"c\"} 1 # {t=\"1\"} 1\n# EOF\n",
            b"vllm:num_requests_running 1\nvllm:num_requests_running 2\n",
            b"\xff\xfe\0\r\r\r{{{\"\"\\",
        ] {
            check(page);
        }
    }
}
