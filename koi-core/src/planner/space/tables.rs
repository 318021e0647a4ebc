//! What one setting decides alone, worked out once per value instead of once per candidate: whether
//! the catalog allows it, and which mechanisms hold there.
//!
//! A condition of a mechanism that hangs on several axes at once (or a variable that applies only
//! beside another axis' value) cannot be tabled: the space is then *entangled*, and every shape is
//! looked up in full. Spec §5, §10.1.

use super::axes::{AXES, Axes, Knob, VARIABLES, axis_of};
use crate::causal::{BeliefKey, FeatureValues, Mechanism, MechanismStatus, Scope, ScopeMatch};
use crate::configuration::{Configuration, EngineShape};
use crate::environment::{Environment, Market};
use crate::ladder::Rank;
use crate::planner::forecast::JobView;
use crate::planner::pools::PoolKey;
use crate::planner::scoring::Scorer;
use crate::tick::judge::features;
use crate::violation::FieldViolation;

/// Longest chain of variables that apply only beside each other.
const DEPTH_MAX: u32 = 8;
/// Axes as bits; all of them.
const EVERY_AXIS: u32 = (1 << AXES) - 1;

/// Mechanisms as bits, the most believed one lowest.
pub(super) type Mask = u128;

/// A value with the mechanisms whose conditions on its axis hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Value {
    pub(super) knob: Knob,
    pub(super) mechanisms: Mask,
}

/// Everything about settings that holds on every device with the same fixed settings.
#[derive(Debug)]
pub(super) struct Tables<'a> {
    /// What is not searched.
    pub(super) base: EngineShape,
    /// Legal values by axis.
    pub(super) axes: [Vec<Value>; AXES],
    /// Lines about values that the catalog refuses.
    pub(super) refused: Vec<String>,
    /// Active mechanisms, the most believed first.
    pub(super) mechanisms: Vec<&'a Mechanism>,
    /// Something hangs on several axes at once.
    pub(super) is_entangled: bool,
    /// Settings with nothing varied.
    configuration: Option<Configuration>,
}

impl<'a> Tables<'a> {
    pub(super) fn of(
        view: &JobView<'_>,
        scorer: &Scorer<'a>,
        base: EngineShape,
        axes: &Axes,
    ) -> Self {
        let mechanisms = by_confidence(scorer);
        let conditions = mechanisms.iter().flat_map(|m| &m.scope.conditions);
        let hang_together = |name: &str| axes_behind(scorer, name, DEPTH_MAX).count_ones() > 1;
        let is_entangled = mechanisms.len() > Mask::BITS as usize
            || conditions.clone().any(|c| hang_together(&c.feature))
            || VARIABLES.iter().any(|id| hang_together(id));
        let mut tables = Self {
            base,
            axes: Default::default(),
            refused: Vec::new(),
            mechanisms,
            is_entangled,
            configuration: None,
        };
        let engine = view.record.spec.engine;
        let settings = |shape: &EngineShape| {
            Configuration::from_shape_in(scorer.context.catalog, shape, engine)
        };
        for (axis, knobs) in axes.values().into_iter().enumerate() {
            let mut legal = Vec::with_capacity(knobs.len());
            for knob in knobs {
                let mut shape = base;
                knob.apply(&mut shape);
                match settings(&shape) {
                    Ok(configuration) => {
                        let values = features(view.record, &anywhere(configuration));
                        let mechanisms = tables.mask(scorer, 1 << axis, &values);
                        legal.push(Value { knob, mechanisms });
                    }
                    Err(violations) => tables.refused.extend(violations.iter().map(line)),
                }
            }
            if let Some(slot) = tables.axes.get_mut(axis) {
                *slot = legal;
            }
        }
        tables.configuration = settings(&base).ok();
        tables
    }

    /// Mechanisms whose conditions on exactly these axes hold.
    fn mask(&self, scorer: &Scorer<'_>, axes: u32, values: &FeatureValues) -> Mask {
        let holds = |mechanism: &Mechanism| {
            let mut conditions = mechanism.scope.conditions.iter();
            conditions.all(|c| {
                axes_behind(scorer, &c.feature, DEPTH_MAX) != axes || c.holds(values) == Some(true)
            })
        };
        self.bits(holds)
    }

    /// Mechanisms whose class, model and conditions on no axis hold in a pool.
    pub(super) fn mask_at(&self, view: &JobView<'_>, scorer: &Scorer<'_>, key: &PoolKey) -> Mask {
        let Some(configuration) = self.configuration.clone() else {
            return 0;
        };
        let mut rank = anywhere(configuration);
        rank.environment = key.environment.clone();
        let values = features(view.record, &rank);
        let speaks = |mechanism: &Mechanism| {
            let bare = Scope {
                conditions: Vec::new(),
                ..mechanism.scope.clone()
            };
            bare.matches(&values) == ScopeMatch::Exact
        };
        self.mask(scorer, 0, &values) & self.bits(speaks)
    }

    fn bits(&self, holds: impl Fn(&Mechanism) -> bool) -> Mask {
        let mechanisms = self.mechanisms.iter().take(Mask::BITS as usize);
        mechanisms.enumerate().fold(0, |mask, (bit, mechanism)| {
            mask | (Mask::from(holds(mechanism)) << bit)
        })
    }
}

fn line(violation: &FieldViolation) -> String {
    format!("{} {}", violation.field, violation.message)
}

/// A rank about which nothing but its settings is known.
fn anywhere(configuration: Configuration) -> Rank {
    Rank {
        environment: Environment {
            market: Market::Reserved,
            cloud: String::new(),
            region: String::new(),
            zone: String::new(),
            gpu_type: String::new(),
        },
        instance_type: String::new(),
        configuration,
        n_replicas: 1,
        mechanism_id: None,
    }
}

/// Active mechanisms as [`Scorer::mechanism`] prefers them.
fn by_confidence<'a>(scorer: &Scorer<'a>) -> Vec<&'a Mechanism> {
    let confidence = |m: &Mechanism| {
        let belief = scorer.beliefs.get(&BeliefKey::Mechanism(m.id.clone()));
        belief.map_or(0.0, |b| b.mean())
    };
    let is_active = |m: &&Mechanism| m.status == MechanismStatus::Active;
    let mut active: Vec<_> = scorer
        .context
        .causal
        .mechanisms()
        .filter(is_active)
        .collect();
    active.sort_by(|a, b| {
        let by_confidence = confidence(b).total_cmp(&confidence(a));
        by_confidence.then_with(|| a.id.cmp(&b.id))
    });
    active
}

/// Axes, as bits, on which a variable's value or presence hangs.
fn axes_behind(scorer: &Scorer<'_>, name: &str, depth: u32) -> u32 {
    if depth == 0 {
        return EVERY_AXIS;
    }
    let Some(row) = scorer.context.catalog.feature(name) else {
        return 0;
    };
    let own = axis_of(&row.id).map_or(0, |axis| 1 << axis);
    let beside = row.applies.iter();
    beside.fold(own, |bits, c| {
        bits | axes_behind(scorer, &c.feature, depth - 1)
    })
}
