//! The shipped world, for tests of this crate's causal parts.

use super::CausalModel;
use super::graph::id_kind;
use crate::catalog::Catalog;
use crate::variables::VariableKind;

/// Layer of a catalog id.
pub(crate) fn kind_of(name: &str) -> Option<VariableKind> {
    id_kind(Catalog::embedded(), name)
}

/// The shipped model.
pub(crate) fn model() -> CausalModel {
    CausalModel::embedded(Catalog::embedded()).unwrap()
}
