//! S4, the deterministic planner: enumerate, size, select jointly, place. Always there, always
//! runs. Not the language-model planner, which has to beat this one. Spec §10.

mod bid;
mod commit;
mod context;
pub mod enumerate;
mod explain;
pub mod exploration;
pub mod forecast;
pub mod learned;
mod learning_money;
mod plan;
pub mod pools;
mod probing;
mod saturation;
pub mod scoring;
pub mod select;
pub mod size;
pub mod slots;
pub mod space;
pub mod standing;
pub mod workload;

#[cfg(test)]
pub(crate) mod test_world;
#[cfg(test)]
mod tests;

pub use context::PlanningContext;
pub use plan::plan;
