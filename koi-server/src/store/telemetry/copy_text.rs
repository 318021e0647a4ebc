//! Rows in the text format of COPY.

use std::fmt::{Display, Write};

use super::StoredWindow;
use crate::store::{Store, StoreError};

/// The columns in the order of [`Store::copy_row`].
pub(super) const COPY_WINDOWS: &str = r#"COPY "window" (host_id, replica_id, job_id, start_us,
    end_us, length_us, received_at, n_scrapes, scalar_series, scalar_value, histogram_series,
    histogram_sum, histogram_count, histogram_sizes, bucket_index, bucket_count, flags)
    FROM STDIN"#;

impl Store {
    /// Appends one row; every series of the window is known.
    pub(super) fn copy_row(
        &self,
        out: &mut String,
        window: &StoredWindow,
    ) -> Result<(), StoreError> {
        let id = |name: &str, edges: &[f64]| {
            let unknown = || StoreError::BadTelemetry(format!("series {name:?} is not known"));
            self.series_id(name, edges).ok_or_else(unknown)
        };
        let mut scalars = Vec::with_capacity(window.scalars.len());
        for (name, value) in window.scalars.iter().filter(|(_, value)| value.is_finite()) {
            scalars.push((id(name, &[])?, *value));
        }
        let mut histograms = Vec::with_capacity(window.histograms.len());
        for histogram in &window.histograms {
            histograms.push((id(&histogram.name, &histogram.edges)?, histogram));
        }
        let text_or_null = |text: Option<String>| text.unwrap_or_else(|| "\\N".to_owned());
        let buckets = || histograms.iter().flat_map(|(_, h)| &h.buckets);
        let fields = [
            window.host.to_string(),
            text_or_null(window.replica_id.as_ref().map(ToString::to_string)),
            text_or_null(window.job.map(|job| job.to_string())),
            window.start.0.to_string(),
            window.end.0.to_string(),
            window.length_us.to_string(),
            window.received_at.0.to_string(),
            window.n_scrapes.to_string(),
            array(scalars.iter().map(|(id, _)| id)),
            array(scalars.iter().map(|(_, value)| value)),
            array(histograms.iter().map(|(id, _)| id)),
            array(histograms.iter().map(|(_, h)| h.sum)),
            array(histograms.iter().map(|(_, h)| h.count)),
            array(histograms.iter().map(|(_, h)| h.buckets.len())),
            array(buckets().map(|(index, _)| index)),
            array(buckets().map(|(_, count)| count)),
            array(window.flags.iter().map(|flag| quoted(flag))),
        ];
        out.push_str(&fields.join("\t"));
        out.push('\n');
        Ok(())
    }
}

/// `{1,2,3}`. Numbers print so that they read back the same.
fn array<T: Display>(values: impl Iterator<Item = T>) -> String {
    let mut text = String::from("{");
    for (i, value) in values.enumerate() {
        if i > 0 {
            text.push(',');
        }
        // Writing to a string cannot fail.
        let _infallible = write!(text, "{value}");
    }
    text.push('}');
    text
}

/// An array element in quotes; flags are names, everything else in them becomes `_`.
fn quoted(flag: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!(
        "\"{}\"",
        flag.chars().take(80).map(plain).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_written_so_that_they_read_back() {
        assert_eq!(array(std::iter::empty::<i32>()), "{}");
        assert_eq!(
            array([0.1, 1e-300, 1e22].iter()),
            format!("{{0.1,{},{}}}", 1e-300, 1e22)
        );
        assert_eq!(
            array(["a\tb\"\n", "x"].iter().map(|f| quoted(f))),
            r#"{"a_b__","x"}"#
        );
    }
}
