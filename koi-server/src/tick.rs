//! The tick as a shell: when to run one, and the effects of each phase. The phases themselves are
//! pure functions of koi-core.

pub mod driver;
pub mod housekeeping;
pub mod points;
pub mod recent;
pub mod run;
