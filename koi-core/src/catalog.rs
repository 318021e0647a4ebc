//! The closed world of X, V and Y, the engines' flags and metric names, the hardware and its prices,
//! loaded from data.
//!
//! Not a settings file and not the causal graph: edges and mechanisms are
//! [`crate::causal`]'s and only resolve their names here. This crate reads no files: a shell hands
//! in the text, or [`Catalog::embedded`] uses the text compiled in. White paper V1, Appendix C;
//! spec §3; layout-and-style 4.2 and 4.3.

mod check;
mod difference;
mod document;
mod effect;
mod engine;
mod feature;
mod graph;
mod hardware;
mod load;
mod metric;
pub mod price;
mod text;
mod value;
mod variable;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

pub use difference::{Difference, DifferenceKind, differences};
pub use document::document;
pub use effect::{Basis, Effect, EffectRow, Formula};
pub use engine::{Checked, EngineFlags, EngineVersion, FlagRow, FlagWriter, NotAVersion};
pub use feature::{Change, Condition, Feature, Operator, SetBy, Status};
pub use graph::check_all;
pub use hardware::{Fit, GpuType, InstanceType, Link, MigSlice, PeakFlops, ScaleUp};
pub use metric::{CanonicalSeries, MetricFile, MetricKind, MetricName, MetricNames, MetricRow};
pub use text::CatalogText;
pub use value::{Domain, Value};
pub use variable::{MediatorRow, Observation, OutcomeRow};

use hardware::GpuRow;

use crate::variables::{Mediator, Outcome, VariableKind};
use crate::violation::{FieldViolation, nearest};

/// The engine whose table must exist.
const VLLM: &str = "vllm";

/// The engine family whose flags and metrics a family has: the simulated engine speaks as vLLM.
fn speaks_as(engine: &str) -> &str {
    if engine == "sim" { VLLM } else { engine }
}

/// The loaded and checked catalog.
#[derive(Debug, Clone)]
pub struct Catalog {
    /// X rows by id.
    features: BTreeMap<String, Feature>,
    /// What knobs do to the analytic member, by id.
    effects: BTreeMap<String, Vec<Effect>>,
    /// Defaults of the knobs that every configuration has.
    defaults: BTreeMap<String, Value>,
    /// V rows in the order of [`Mediator::ALL`].
    mediators: Vec<MediatorRow>,
    /// Y rows in the order of [`Outcome::ALL`].
    outcomes: Vec<OutcomeRow>,
    /// Every id and alias of X, V and Y.
    names: BTreeMap<String, (VariableKind, String)>,
    gpu_types: BTreeMap<String, GpuType>,
    instance_types: BTreeMap<String, InstanceType>,
    /// Flag tables by engine family.
    engines: BTreeMap<String, EngineFlags>,
    /// Features that some version of an engine can be told, by engine family.
    spoken: BTreeMap<String, BTreeSet<String>>,
    metrics: MetricNames,
    hash: String,
}

impl Catalog {
    /// Loads and checks a catalog.
    ///
    /// # Errors
    /// Every problem of every file at once; the field starts with the file's path and the row.
    /// Checks between rows run only when every file could be read.
    pub fn load(text: &CatalogText<'_>) -> Result<Self, Vec<FieldViolation>> {
        load::load(text)
    }

    /// The catalog compiled into the binary.
    ///
    /// # Panics
    /// Never in a released build: a test loads the same text.
    #[must_use]
    pub fn embedded() -> &'static Self {
        static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
            Catalog::load(&CatalogText::embedded())
                .expect("invariant: a test loads the embedded catalog")
        });
        &CATALOG
    }

    /// The text of the embedded catalog, to start from when one file is replaced.
    #[must_use]
    pub fn embedded_text() -> CatalogText<'static> {
        CatalogText::embedded()
    }

    /// Content hash: 16 hexadecimal digits of SHA-256 over all files.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The layer of a name or alias.
    #[must_use]
    pub fn kind_of(&self, name: &str) -> Option<VariableKind> {
        self.names.get(name).map(|(kind, _)| *kind)
    }

    /// The id behind a name or alias.
    #[must_use]
    pub fn canonical(&self, name: &str) -> Option<&str> {
        self.names.get(name).map(|(_, id)| id.as_str())
    }

    /// The mediator of a name or alias.
    #[must_use]
    pub fn mediator_named(&self, name: &str) -> Option<Mediator> {
        Mediator::from_name(self.canonical(name)?)
    }

    /// The outcome of a name or alias.
    #[must_use]
    pub fn outcome_named(&self, name: &str) -> Option<Outcome> {
        Outcome::from_name(self.canonical(name)?)
    }

    /// The X row of a name or alias.
    #[must_use]
    pub fn feature(&self, name: &str) -> Option<&Feature> {
        self.features.get(self.canonical(name)?)
    }

    /// All X rows in order of id.
    pub fn features(&self) -> impl Iterator<Item = &Feature> {
        self.features.values()
    }

    /// The row of a mediator.
    #[must_use]
    pub fn mediator(&self, mediator: Mediator) -> &MediatorRow {
        &self.mediators[mediator.index()]
    }

    /// The row of an outcome.
    #[must_use]
    pub fn outcome(&self, outcome: Outcome) -> &OutcomeRow {
        &self.outcomes[outcome.index()]
    }

    /// The GPU type of an id or of a name that a driver reports; letter case does not matter.
    #[must_use]
    pub fn gpu_type(&self, name: &str) -> Option<&GpuType> {
        self.gpu_types
            .get(name)
            .or_else(|| self.gpu_types.values().find(|g| g.is_called(name)))
    }

    /// All GPU types in order of id.
    pub fn gpu_types(&self) -> impl Iterator<Item = &GpuType> {
        self.gpu_types.values()
    }

    /// The instance type of this id.
    #[must_use]
    pub fn instance_type(&self, id: &str) -> Option<&InstanceType> {
        self.instance_types.get(id)
    }

    /// All instance types in order of id.
    pub fn instance_types(&self) -> impl Iterator<Item = &InstanceType> {
        self.instance_types.values()
    }

    /// The flag table of vLLM, which the simulated engine shares.
    ///
    /// # Panics
    /// Never: loading refuses a catalog without it.
    #[must_use]
    pub fn engine(&self) -> &EngineFlags {
        self.engines
            .get(VLLM)
            .expect("invariant: the load check refuses a catalog without the table of vllm")
    }

    /// The flag table of an engine family, as `engine_name` spells it.
    #[must_use]
    pub fn engine_named(&self, engine: &str) -> Option<&EngineFlags> {
        self.engines.get(speaks_as(engine))
    }

    /// Whether any version of an engine family can be told a feature; an engine without a table can
    /// be told nothing.
    #[must_use]
    pub fn speaks(&self, engine: &str, feature: &str) -> bool {
        self.spoken
            .get(speaks_as(engine))
            .is_some_and(|features| features.contains(feature))
    }

    /// All flag tables in order of engine.
    pub fn engines(&self) -> impl Iterator<Item = &EngineFlags> {
        self.engines.values()
    }

    /// Metric names of all engines.
    #[must_use]
    pub const fn metrics(&self) -> &MetricNames {
        &self.metrics
    }

    /// The knobs: X rows that the planner may set, in order of id.
    pub fn knobs(&self) -> impl Iterator<Item = &Feature> {
        self.features.values().filter(|row| row.is_knob())
    }

    /// Defaults of the knobs that every configuration has.
    pub(crate) const fn defaults(&self) -> &BTreeMap<String, Value> {
        &self.defaults
    }

    /// The X, V or Y name nearest to a wrong one.
    #[must_use]
    pub fn nearest_name(&self, wrong: &str) -> Option<&str> {
        nearest(wrong, self.names.keys().map(String::as_str))
    }

    /// The planner-set feature nearest to a wrong name.
    #[must_use]
    pub fn nearest_knob(&self, wrong: &str) -> Option<&str> {
        nearest(wrong, self.knobs().flat_map(Feature::names))
    }
}
