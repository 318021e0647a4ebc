//! S2: trajectories to verdicts to evidence rows. It writes evidence and nothing else.
//!
//! White paper V1, Closing the Loop; spec §8.

pub mod contrast;
pub mod cusum;
mod detector;
pub mod evidence;
pub mod icp;
pub mod meta;
pub mod own_bias;
pub mod quadrant;
pub mod residual;
pub mod statistics;
pub mod update_table;

pub use cusum::{Cusum, Verdict, cusum};
pub use evidence::{
    Basis, EvidenceRow, Exercise, MechanismVerdict, RankValidationInput, Stamp, VariableVerdict,
    validate_rank,
};
pub use icp::Icp;
pub use meta::Calibration;
pub use own_bias::OwnBias;
pub use quadrant::Quadrant;
pub use statistics::Statistics;
pub use update_table::UpdateTable;
