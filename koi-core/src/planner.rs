//! S4, the deterministic planner: enumerate, size, select jointly, place. Always there, always
//! runs. Not the language-model planner, which has to beat this one. Spec §10.

pub mod select;

#[cfg(test)]
mod test_world;
