//! What can be wrong with a line, and whether the line was lost for it. Not the words of a report.

/// Why a line was not read, or what is odd about one that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineProblem {
    /// Not UTF-8.
    #[error("the line is not UTF-8")]
    NotUtf8,
    /// Does not start with a metric name.
    #[error("the line does not start with a metric name")]
    BadName,
    /// A name is longer than [`MAX_NAME_BYTES`](super::MAX_NAME_BYTES).
    #[error("a name is longer than 256 bytes")]
    NameTooLong,
    /// The braces do not hold `name="value"` pairs.
    #[error("the labels are not a list of name=\"value\"")]
    BadLabels,
    /// The same label twice.
    #[error("a label name is repeated")]
    RepeatedLabel,
    /// More than [`MAX_LABELS`](super::MAX_LABELS).
    #[error("more than 128 labels")]
    TooManyLabels,
    /// A label value is longer than [`MAX_LABEL_VALUE_BYTES`](super::MAX_LABEL_VALUE_BYTES).
    #[error("a label value is longer than 4096 bytes")]
    LabelTooLong,
    /// No number where the value belongs.
    #[error("the value is not a number")]
    BadValue,
    /// Something after the value that is neither a timestamp nor an exemplar.
    #[error("the text after the value is not a timestamp")]
    BadTimestamp,
    /// A carriage return that does not belong to a line end: lines end with LF or CR LF.
    #[error("a carriage return stands inside the line; lines end with LF or CR LF")]
    BareCarriageReturn,
    /// The sample was kept; its exemplar is not `{labels} value [timestamp]`.
    #[error("the exemplar is not {{labels}} value [timestamp]; the sample was kept")]
    BadExemplar,
    /// A TYPE line without a known type; the family counts as unknown.
    #[error("the TYPE line names no known type; the family counts as unknown")]
    BadType,
    /// A second TYPE line of one family; the first one counts.
    #[error("the family has a TYPE line already; the first one counts")]
    RepeatedType,
    /// Text after `# EOF`; it was read all the same.
    #[error("there is text after # EOF; it was read all the same")]
    AfterEnd,
    /// The same series at the same time as on an earlier line.
    #[error("the same series stands on line {first_line} already")]
    RepeatedSeries {
        /// The earlier line.
        first_line: u32,
    },
}

impl LineProblem {
    /// True when the line's sample is gone; false when the line was read and only something about
    /// it is odd.
    #[must_use]
    pub const fn loses_the_line(self) -> bool {
        !matches!(
            self,
            Self::BadExemplar
                | Self::BadType
                | Self::RepeatedType
                | Self::AfterEnd
                | Self::RepeatedSeries { .. }
        )
    }

    /// The problem of a line that also holds a stray carriage return, which explains it better.
    pub(super) fn or_carriage_return(self, line: &str) -> Self {
        let explained = matches!(
            self,
            Self::BadName | Self::BadLabels | Self::BadValue | Self::BadTimestamp
        );
        if explained && line.contains('\r') {
            Self::BareCarriageReturn
        } else {
            self
        }
    }
}

/// One line with a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Problem {
    /// Line number from 1.
    pub line: u32,
    /// What is wrong.
    pub problem: LineProblem,
}
