//! The closed world of X, V and Y, the engine's flags and the hardware, loaded from data.
//!
//! Not a settings file and not the causal graph: edges and mechanisms are
//! [`crate::causal`]'s and only resolve their names here. This crate reads no files: a shell hands
//! in the text, or [`Catalog::embedded`] uses the text compiled in. White paper V1, Appendix C;
//! spec §3; layout-and-style 4.2 and 4.3.

mod check;
mod engine;
mod feature;
mod hardware;
mod load;
mod value;
mod variable;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::LazyLock;

pub use engine::{EngineFlags, EngineVersion, FlagRow, FlagWriter, NotAVersion};
pub use feature::{Change, Condition, Feature, Operator, SetBy};
pub use hardware::{Fit, GpuType, InstanceType, Link, PeakFlops};
pub use value::{Domain, Value};
pub use variable::{MediatorRow, Observation, OutcomeRow};

use crate::variables::{Mediator, Outcome, VariableKind};
use crate::violation::{FieldViolation, nearest};

/// The text of the catalog's files.
#[derive(Debug, Clone, Copy)]
pub struct CatalogText<'a> {
    /// `features.toml`.
    pub features: &'a str,
    /// `mediators.toml`.
    pub mediators: &'a str,
    /// `outcomes.toml`.
    pub outcomes: &'a str,
    /// `hardware.toml`.
    pub hardware: &'a str,
    /// `engines/vllm.toml`.
    pub engine_vllm: &'a str,
}

/// The catalog compiled into the binary.
const EMBEDDED: CatalogText<'static> = CatalogText {
    features: include_str!("../../configs/catalog/features.toml"),
    mediators: include_str!("../../configs/catalog/mediators.toml"),
    outcomes: include_str!("../../configs/catalog/outcomes.toml"),
    hardware: include_str!("../../configs/catalog/hardware.toml"),
    engine_vllm: include_str!("../../configs/catalog/engines/vllm.toml"),
};

/// The loaded and checked catalog.
#[derive(Debug, Clone)]
pub struct Catalog {
    /// X rows by id.
    features: BTreeMap<String, Feature>,
    /// V rows in the order of [`Mediator::ALL`].
    mediators: Vec<MediatorRow>,
    /// Y rows in the order of [`Outcome::ALL`].
    outcomes: Vec<OutcomeRow>,
    /// Every id and alias of X, V and Y.
    names: BTreeMap<String, (VariableKind, String)>,
    gpu_types: BTreeMap<String, GpuType>,
    instance_types: BTreeMap<String, InstanceType>,
    engine: EngineFlags,
    hash: String,
}

impl Catalog {
    /// Loads and checks a catalog.
    ///
    /// # Errors
    /// Every problem of every file at once; the field starts with the file's name.
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
            Catalog::load(&EMBEDDED).expect("invariant: a test loads the embedded catalog")
        });
        &CATALOG
    }

    /// The text of the embedded catalog, to start from when one file is replaced.
    #[must_use]
    pub const fn embedded_text() -> CatalogText<'static> {
        EMBEDDED
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

    /// The engine's flag table.
    #[must_use]
    pub const fn engine(&self) -> &EngineFlags {
        &self.engine
    }

    /// The X, V or Y name nearest to a wrong one.
    #[must_use]
    pub fn nearest_name(&self, wrong: &str) -> Option<&str> {
        nearest(wrong, self.names.keys().map(String::as_str))
    }

    /// The planner-set feature nearest to a wrong name.
    #[must_use]
    pub fn nearest_knob(&self, wrong: &str) -> Option<&str> {
        let knobs = self
            .features
            .values()
            .filter(|f| f.set_by == SetBy::Planner);
        nearest(wrong, knobs.flat_map(Feature::names))
    }
}
