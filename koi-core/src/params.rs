//! Every hyper-parameter of the paper's Appendix B and of the specification, with symbol, default
//! and range.
//!
//! Not settings: an operator turns `ServerConfig`, a study turns these. One row per number makes the
//! struct, its defaults, its check and the table that the documentation prints.

use serde::{Deserialize, Serialize};

use crate::violation::{FieldViolation, Violations};

#[cfg(test)]
mod tests;

/// One hyper-parameter as the documentation shows it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ParameterRow {
    /// Field of [`Params`].
    pub name: &'static str,
    /// Symbol in the paper, or an empty text.
    pub symbol: &'static str,
    /// Default.
    pub default: f64,
    /// Smallest value accepted.
    pub min: f64,
    /// Largest value accepted.
    pub max: f64,
    /// What it does.
    pub doc: &'static str,
}

/// How the probability of an SLO breach is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreachBound {
    /// Worst case over the Wasserstein-1 ball.
    #[default]
    Wasserstein,
    /// The paper's empirical exceedance plus ε; never used with C7.
    Additive,
}

/// Whether the meta step sets the detector, or the paper's constants do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CalibrationRule {
    /// σ, δ and h from stored residuals.
    #[default]
    On,
    /// The paper's δ = .5σ and h = 4σ with the rank's own σ.
    Off,
}

/// How invariance of residuals across environments is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InvarianceRule {
    /// A difference must matter before it rejects, and be shown not to matter before it accepts;
    /// residuals and effects must both hold.
    #[default]
    Equivalence,
    /// The paper's rule on residuals alone: accept p > 1 − α, reject p < α.
    Tail,
    /// Every edge stays undecided: what a study compares the others with.
    Undecided,
}

/// Whether mechanisms are tested by contrasts between deployments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LearningContrast {
    /// They are: an edge that its contrasts contradict makes its mechanism fail.
    #[default]
    On,
    /// The paper's rule: CUSUM on residuals alone, and every row counts in full.
    Off,
}

macro_rules! hyper_parameters {
    ($($name:ident : $kind:ident = $default:literal, $min:literal ..= $max:literal, $symbol:literal, $doc:literal;)+) => {
        /// All hyper-parameters; absent fields of a document take their defaults.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Params {
            $(#[doc = $doc] pub $name: $kind,)+
            /// How the probability of an SLO breach is bounded.
            pub breach_bound: BreachBound,
            /// Whether the meta step sets σ, δ and h.
            pub calibration: CalibrationRule,
            /// How invariance across environments is decided.
            pub invariance_rule: InvarianceRule,
            /// `learning.contrast`: whether mechanisms are tested by contrasts.
            pub learning_contrast: LearningContrast,
            /// Divide an edge's delta by the number of applicable mechanisms that carry it.
            pub normalize_shared_edges: bool,
        }

        impl Default for Params {
            fn default() -> Self {
                Self {
                    $($name: $default,)+
                    breach_bound: BreachBound::default(),
                    calibration: CalibrationRule::default(),
                    invariance_rule: InvarianceRule::default(),
                    learning_contrast: LearningContrast::default(),
                    normalize_shared_edges: true,
                }
            }
        }

        impl Params {
            /// Every number with its symbol, default and range.
            pub const TABLE: &'static [ParameterRow] = &[$(ParameterRow {
                name: stringify!($name),
                symbol: $symbol,
                default: $default as f64,
                min: $min as f64,
                max: $max as f64,
                doc: $doc,
            },)+];

            fn values(&self) -> [f64; Self::TABLE.len()] {
                [$(f64::from(self.$name),)+]
            }
        }
    };
}

hyper_parameters! {
    tchebycheff_augmentation: f64 = 1e-3, 0.0..=0.1, "ρ_aug", "Weight of the sum term that breaks ties of the max-norm.";
    gap_floor: f64 = -1.0, -10.0..=0.0, "", "Smallest gap to the ideal point counted in J.";
    gap_ceiling: f64 = 5.0, 0.1..=100.0, "", "Largest gap to the ideal point; also the gap of an unbounded latency.";
    slo_risk_weight: f64 = 1.0, 0.0..=100.0, "γ", "Price of the breach probability on J's scale.";
    eig_mechanism_weight: f64 = 1.0, 0.0..=10.0, "w_M", "Weight of mechanisms against edges in the information gain.";
    waiting_penalty: f64 = 20.0, 0.0..=1000.0, "penalty_i", "Loss per tick of a job that does not run, before its priority factor.";
    priority_factor_max: f64 = 4.0, 1.0..=100.0, "", "Priority factor of user priority 10; priority 0 has factor 1.";
    swap_gain_min: f64 = 0.02, 0.0..=10.0, "", "Smallest gain that justifies a swap.";

    explore_weight_initial: f64 = 0.5, 0.0..=10.0, "β_0", "Exploration incentive at the first tick.";
    explore_weight_min: f64 = 0.05, 0.0..=10.0, "β_min", "Lower clip of the exploration incentive.";
    explore_weight_max: f64 = 2.0, 0.0..=10.0, "β_max", "Upper clip of the exploration incentive.";
    explore_step_size: f64 = 0.10, 0.0..=1.0, "η_β", "Mirror-descent step of the exploration incentive.";
    regret_target: f64 = 0.10, 0.0..=1.0, "s*", "Regret below which the loop exploits.";
    regret_window_ticks: u32 = 20, 1..=1000, "W_regret", "Window of the regret.";
    q1_window_ticks: u32 = 20, 1..=1000, "W_q1", "Window of the Q1 rate.";
    swap_budget_min: u32 = 1, 0..=1000, "B_min", "Voluntary swaps a tick when the loop has converged.";
    swap_budget_max: u32 = 10, 1..=10000, "B_max", "Voluntary swaps a tick while it learns, at least.";
    swap_budget_max_fraction: f64 = 0.01, 0.0..=1.0, "", "The same as a share of the active jobs; the larger counts.";
    churn_price_initial: f64 = 0.05, 0.0..=10.0, "λ_0", "Churn price at the first tick.";
    churn_price_min: f64 = 0.05, 0.0..=10.0, "λ_min", "Lower clip of the churn price.";
    churn_price_max: f64 = 1.0, 0.0..=100.0, "λ_max", "Upper clip of the churn price.";
    churn_step_size: f64 = 0.05, 0.0..=1.0, "η_λ", "Mirror-descent step of the churn price.";
    swap_rate_target_initial: f64 = 0.20, 0.0..=1.0, "ρ*_0", "Target share of jobs swapped a tick at the start.";
    swap_rate_target_final: f64 = 0.05, 0.0..=1.0, "ρ*_∞", "The same after the annealing.";
    swap_rate_anneal_ticks: u32 = 500, 1..=100000, "", "Ticks over which the target is annealed.";

    probe_period_ticks: u32 = 24, 1..=10000, "", "Ticks between two probes of one job; the allowance is one probe a tick per so many jobs.";
    probe_regret_max: f64 = 0.02, 0.0..=1.0, "", "Most that a probe may give up against what runs, on J's scale.";
    probe_usd_per_day: f64 = 50.0, 0.0..=1000000.0, "", "USD a day that probes may cost; 0 switches them off.";

    dro_radius_initial: f64 = 0.15, 0.0..=1.0, "ε_0", "Radius at the first tick.";
    dro_radius_min: f64 = 0.02, 0.0..=1.0, "ε_min", "Lower clip of the radius.";
    dro_radius_max: f64 = 0.50, 0.0..=2.0, "ε_max", "Upper clip of the radius.";
    dro_step_size: f64 = 0.05, 0.0..=1.0, "η_ε", "Step of the coverage controller.";
    dro_coverage_target: f64 = 0.90, 0.5..=1.0, "κ*", "Share of outcomes that must fall inside their band.";
    dro_coverage_dead_band: f64 = 0.02, 0.0..=0.5, "d", "Distance from the target at which the radius rests.";
    dro_band_quantile: f64 = 0.95, 0.5..=1.0, "q", "Quantile of the residuals at the band's edges.";
    dro_residuals_min: u32 = 20, 2..=1000, "", "Residual sets below this size are topped up with the cold band.";
    tau_default: f64 = 0.10, 0.0..=1.0, "τ", "Breach probability allowed where a job says nothing.";

    weight_step_size: f64 = 0.10, 0.0..=1.0, "η_w", "Mirror-descent step of the objective weights.";
    weight_floor: f64 = 0.02, 0.0..=0.2, "", "Smallest objective weight.";
    weight_pull: f64 = 0.01, 0.0..=1.0, "", "Share a tick by which weights return to the class default.";
    ideal_slack: f64 = 0.05, 0.0..=1.0, "Δ_j", "Slack of the ideal point in ranges.";
    ideal_rows_min: u32 = 5, 1..=1000, "", "Similar deployments needed before the ideal point is observed.";
    range_rows: u32 = 200, 10..=10000, "", "Most recent similar rows that set the ranges.";
    range_floor_fraction: f64 = 0.10, 0.0..=1.0, "", "Smallest range as a share of the cold range.";

    cusum_slack_sigmas: f64 = 0.5, 0.0..=10.0, "δ_CUSUM", "Slack of the CUSUM in residual standard deviations.";
    cusum_threshold_sigmas: f64 = 4.0, 0.1..=100.0, "h_CUSUM", "Threshold of the CUSUM in residual standard deviations.";
    sigma_floor_fraction: f64 = 0.01, 0.0..=1.0, "", "Smallest residual σ as a share of the variable's median.";
    trajectory_points_min: u32 = 3, 2..=1000, "", "Points a variable needs before it is judged.";
    trajectory_lookback_ticks: u32 = 12, 1..=1000, "", "How far back an unjudged rank's points reach.";
    meta_period_ticks: u32 = 20, 1..=1000, "N", "Ticks between recalibrations of the CUSUM.";
    meta_false_fire: f64 = 0.02, 0.0001..=0.5, "", "False fires of a bundle per tick that calibration allows.";
    meta_threshold_max_sigmas: f64 = 12.0, 1.0..=1000.0, "", "Largest calibrated threshold in residual standard deviations.";
    meta_threshold_cold_sigmas: f64 = 8.0, 1.0..=1000.0, "", "Threshold while too few residual blocks are stored.";
    meta_slack_max_sigmas: f64 = 3.0, 0.1..=10.0, "", "Largest calibrated slack; raised where the largest threshold alone lets noise fire.";
    meta_blocks_min: u32 = 30, 2..=10000, "", "Residual blocks needed before a threshold is calibrated.";
    meta_sigma_blocks_min: u32 = 3, 2..=1000, "", "Residual blocks needed before σ is taken from them instead of the rank.";
    meta_blocks_max: u32 = 480, 30..=10000, "", "Newest residual blocks kept per variable and model class.";
    meta_trim_fraction: f64 = 0.05, 0.0..=0.5, "", "Share of blocks, the most extreme of those that diverged, that calibration leaves out.";
    meta_draws: u32 = 2000, 200..=100000, "", "Resampled paths behind each row of thresholds.";
    icp_window_ticks: u32 = 500, 10..=100000, "", "Ticks of block means that invariance is tested on.";
    icp_margin_sigmas: f64 = 0.5, 0.01..=10.0, "", "Distance from the grand mean, in σ, below which environments are alike.";
    icp_spread_ratio_max: f64 = 2.0, 1.0..=100.0, "", "Scatter of one environment against all together above which it is not alike.";
    icp_significance: f64 = 0.05, 0.0001..=0.5, "α_ICP", "Significance level of the invariance test.";
    icp_environments_min: u32 = 3, 2..=100, "n_env_min", "Environments with enough samples before a verdict.";
    icp_samples_min: u32 = 15, 2..=1000, "n_b", "Samples an environment needs to count.";
    belief_forget_above: f64 = 400.0, 10.0..=1000000.0, "", "Evidence counts above this sum are scaled back to it.";
    unexercised_weight: f64 = 0.05, 0.0..=1.0, "", "Weight of a row that does not exercise the mechanism.";

    canary_seconds: f64 = 300.0, 0.0..=86400.0, "", "Time for which old and new replicas run side by side.";
    kill_usd_per_replica: f64 = 0.02, 0.0..=100.0, "", "Price of tearing a replica down.";
    stake_hours: f64 = 1.0, 0.0..=1000.0, "", "Hours of the job's cost at stake in a transition.";
    utilization_max: f64 = 0.8, 0.05..=1.0, "UTILIZATION", "Share of a replica's capacity that peak demand may use.";
    tick_interval_seconds: u32 = 300, 1..=86400, "", "Cadence of the slow loop.";
    plan_samples: u32 = 1, 1..=64, "K_P", "Model trajectories a tick.";
    plan_turns_max: u32 = 64, 1..=1024, "K_MAX", "Turns of one model trajectory.";

    promote_rows_min: u32 = 30, 1..=100000, "", "Decided rows a mechanism needs for promotion or archiving.";
    promote_deployments_min: u32 = 10, 1..=10000, "", "Deployments those rows must come from.";
    promote_ticks_min: u32 = 20, 1..=10000, "", "Ticks those rows must span.";
    promote_environments_min: u32 = 3, 1..=1000, "", "Environments those rows must come from, for promotion.";
    promote_confidence: f64 = 0.8, 0.5..=1.0, "", "Confidence at which a mechanism is promoted.";
    archive_confidence: f64 = 0.2, 0.0..=0.5, "", "Confidence at which a mechanism is archived.";

    converged_q1: f64 = 0.10, 0.0..=1.0, "ϵ_Q", "Assumption 2: the Q1 rate is at least one minus this.";
    converged_regret: f64 = 0.10, 0.0..=1.0, "ϵ_R", "Assumption 2: largest regret.";
    converged_swap_rate: f64 = 0.05, 0.0..=1.0, "ϵ_swap", "Assumption 2: largest share of jobs swapped.";
    converged_ideal: f64 = 0.02, 0.0..=1.0, "ϵ_z", "Assumption 2: largest movement of the ideal point in ranges.";
    converged_uncertainty: f64 = 0.05, 0.0..=1.0, "ϵ_U", "Assumption 2: largest uncertainty of an exercised mechanism.";
    converged_mechanisms: u32 = 20, 1..=1000, "", "Assumption 2: so many of the most exercised mechanisms count for the uncertainty.";
    converged_radius: f64 = 0.01, 0.0..=1.0, "ϵ_ε", "Assumption 2: largest movement of the radius.";
}

impl Params {
    /// Checks every number against its range and the clips against each other.
    ///
    /// # Errors
    /// All fields that are out of range, together.
    pub fn validate(&self) -> Result<(), Vec<FieldViolation>> {
        let mut violations = Violations::default();
        for (row, value) in Self::TABLE.iter().zip(self.values()) {
            if !(row.min..=row.max).contains(&value) {
                violations.add(
                    row.name,
                    format!(
                        "{value} is outside {}..={}; the default is {}",
                        row.min, row.max, row.default
                    ),
                );
            }
        }
        self.check_clips(&mut violations);
        violations.finish(())
    }

    fn check_clips(&self, violations: &mut Violations) {
        let clips = [
            (
                "explore_weight",
                self.explore_weight_min,
                self.explore_weight_initial,
                self.explore_weight_max,
            ),
            (
                "churn_price",
                self.churn_price_min,
                self.churn_price_initial,
                self.churn_price_max,
            ),
            (
                "dro_radius",
                self.dro_radius_min,
                self.dro_radius_initial,
                self.dro_radius_max,
            ),
        ];
        for (name, min, initial, max) in clips {
            if !(min <= initial && initial <= max) {
                violations.add(
                    format!("{name}_initial"),
                    format!("{initial} must lie between {name}_min = {min} and {name}_max = {max}"),
                );
            }
        }
        if self.swap_budget_min > self.swap_budget_max {
            violations.add("swap_budget_min", "must not exceed swap_budget_max");
        }
    }
}
