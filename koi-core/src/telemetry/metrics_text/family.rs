//! Metric families: what the comment lines of a page declare. Not the samples.

/// Declared type of a metric family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyType {
    /// Only grows, except at a restart.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Cumulative buckets with sum and count.
    Histogram,
    /// Buckets whose counts go up and down.
    GaugeHistogram,
    /// Precomputed quantiles.
    Summary,
    /// Facts in labels; the value is 1.
    Info,
    /// A set of booleans, one sample each.
    StateSet,
    /// Declared as unknown or untyped, or with a type that does not exist.
    Unknown,
}

impl FamilyType {
    /// The word of a TYPE line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::GaugeHistogram => "gaugehistogram",
            Self::Summary => "summary",
            Self::Info => "info",
            Self::StateSet => "stateset",
            Self::Unknown => "unknown",
        }
    }

    /// The type that a TYPE line's word means; `untyped` is the classic word for unknown.
    #[must_use]
    pub fn from_name(word: &str) -> Option<Self> {
        Some(match word {
            "counter" => Self::Counter,
            "gauge" => Self::Gauge,
            "histogram" => Self::Histogram,
            "gaugehistogram" => Self::GaugeHistogram,
            "summary" => Self::Summary,
            "info" => Self::Info,
            "stateset" => Self::StateSet,
            "unknown" | "untyped" => Self::Unknown,
            _ => return None,
        })
    }

    /// True for the types whose series may have a `_created` companion.
    const fn has_creation_time(self) -> bool {
        matches!(
            self,
            Self::Counter | Self::Histogram | Self::GaugeHistogram | Self::Summary
        )
    }
}

/// What TYPE, HELP and UNIT lines say of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family<'a> {
    /// Name as written there.
    pub name: &'a str,
    /// Declared type; `None` without a TYPE line.
    pub kind: Option<FamilyType>,
    /// Unit of a UNIT line.
    pub unit: Option<&'a str>,
    /// Text of a HELP line, escapes as written.
    pub help: Option<&'a str>,
    /// First of those lines.
    pub line: u32,
}

impl<'a> Family<'a> {
    pub(super) const fn new(name: &'a str, line: u32) -> Self {
        Self {
            name,
            kind: None,
            unit: None,
            help: None,
            line,
        }
    }

    /// True when a sample `<stem>_created` says when a series of this family began: the family is
    /// the stem (OpenMetrics), or its counter with `_total` (classic).
    pub(super) fn is_created_companion(&self, stem: &str) -> bool {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        (self.name == stem || name == stem) && self.kind.is_some_and(FamilyType::has_creation_time)
    }
}
