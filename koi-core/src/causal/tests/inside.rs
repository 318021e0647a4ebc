//! A legal deployment inside a scope, built from the scope's own conditions.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::catalog::{Catalog, Domain, Operator, SetBy, Value};
use crate::causal::scope::{Comparison, Condition, WorkloadType};
use crate::causal::{FeatureValue, FeatureValues, Mechanism, ScopeMatch};
use crate::configuration::ConfigurationDraft;
use crate::job::JobSpec;
use crate::ladder::Rank;
use crate::model::{KnownModel, ModelFacts};
use crate::planner::test_world::{World, batch, chat};
use crate::tick::judge::features;

static MODELS: LazyLock<Vec<ModelFacts>> = LazyLock::new(|| {
    KnownModel::all()
        .iter()
        .map(|m| m.facts().unwrap())
        .collect()
});

/// The features of a deployment inside the scope, as the server tells them, in which the planner
/// has set `cause`, where that is the planner's to set.
pub(super) fn deployment(mechanism: &Mechanism, cause: &str) -> Result<FeatureValues, String> {
    let mut problems = Vec::new();
    for engine in ["sim", "sglang"] {
        match with_engine(mechanism, cause, engine) {
            Ok(values) => return Ok(values),
            Err(problem) => problems.push(format!("{engine}: {problem}")),
        }
    }
    Err(problems.join("; "))
}

fn with_engine(mechanism: &Mechanism, cause: &str, engine: &str) -> Result<FeatureValues, String> {
    let draft = draft(mechanism, cause, engine);
    let catalog = Catalog::embedded();
    let configuration = catalog
        .configuration(ConfigurationDraft(draft))
        .map_err(|problems| format!("{problems:?}"))?;
    let mut world = World::new();
    let id = world.job(1, spec(mechanism));
    let rank = Rank {
        environment: "reserved/aws/us-east-1/a/H100".parse().unwrap(),
        instance_type: "p5.48xlarge".to_owned(),
        configuration,
        n_replicas: 1,
        mechanism_id: None,
    };
    let mut problem = "no known model is inside".to_owned();
    for facts in MODELS.iter() {
        world.job_mut(id).spec.model.facts = facts.clone();
        let values = features(world.job_mut(id), &rank);
        if mechanism.scope.matches(&values) != ScopeMatch::Exact {
            continue;
        }
        let told = |name: &str| told(&values, name);
        let refused = catalog.inapplicable(&rank.configuration, &told);
        if refused.is_empty() {
            return Ok(values);
        }
        problem = format!("{refused:?}");
    }
    Err(problem)
}

fn told(values: &FeatureValues, name: &str) -> Option<Value> {
    Some(match values.get(name)? {
        FeatureValue::Flag(flag) => Value::Bool(*flag),
        FeatureValue::Number(x) => Value::Float(*x),
        FeatureValue::Text(text) => Value::Text(text.clone()),
    })
}

/// The cause and what the scope asks for, and whatever those need to apply.
fn draft(mechanism: &Mechanism, cause: &str, engine: &str) -> BTreeMap<String, Value> {
    let catalog = Catalog::embedded();
    let is_knob = |id: &str| {
        catalog
            .feature(id)
            .is_some_and(|f| f.set_by == SetBy::Planner)
    };
    let mut draft = BTreeMap::from([("engine_name".to_owned(), Value::from(engine))]);
    for condition in &mechanism.scope.conditions {
        if is_knob(&condition.feature) {
            draft.insert(condition.feature.clone(), meeting(condition));
        }
    }
    if is_knob(cause) && !draft.contains_key(cause) {
        let domain = &catalog.feature(cause).unwrap().domain;
        draft.insert(cause.to_owned(), some_value(domain));
    }
    loop {
        let missing = draft.keys().find_map(|id| needed(id, &draft));
        match missing {
            Some((id, value)) => draft.insert(id, value),
            None => return draft,
        };
    }
}

/// A knob that a knob needs and that the draft gives no value, or a smaller one.
fn needed(id: &str, draft: &BTreeMap<String, Value>) -> Option<(String, Value)> {
    let catalog = Catalog::embedded();
    let row = catalog.feature(id)?;
    row.applies.iter().find_map(|condition| {
        let about = catalog.feature(&condition.feature)?;
        let met = condition.holds_for(draft.get(&about.id));
        let value = match condition.op {
            Operator::Set => some_value(&about.domain),
            _ => condition.value.clone(),
        };
        (about.set_by == SetBy::Planner && !met).then(|| (about.id.clone(), value))
    })
}

fn meeting(condition: &Condition) -> Value {
    let number = |x: f64| match Catalog::embedded()
        .feature(&condition.feature)
        .unwrap()
        .domain
    {
        Domain::Float { .. } => Value::Float(x),
        _ => Value::Int(x as i64),
    };
    match (&condition.value, condition.op) {
        (FeatureValue::Flag(flag), _) => Value::Bool(*flag),
        (FeatureValue::Text(text), _) => Value::Text(text.clone()),
        (FeatureValue::Number(x), Comparison::Greater) => number(x + 1.0),
        (FeatureValue::Number(x), Comparison::Less) => number(x - 1.0),
        (FeatureValue::Number(x), _) => number(*x),
    }
}

fn some_value(domain: &Domain) -> Value {
    match domain {
        Domain::Bool => Value::Bool(true),
        Domain::Int { min, .. } => Value::Int(*min),
        Domain::IntChoice(choices) => Value::Int(choices[0]),
        Domain::Float { min, .. } => Value::Float(*min),
        Domain::Choice(choices) => Value::Text(choices[0].clone()),
        Domain::Text { .. } => Value::from("name"),
    }
}

/// A job whose class and traffic are inside the scope.
fn spec(mechanism: &Mechanism) -> JobSpec {
    let scope = &mechanism.scope;
    let mut spec = match scope.workload_type {
        WorkloadType::Batch => batch("inside", 1_000_000, 3_600),
        WorkloadType::Any | WorkloadType::Online => chat("inside"),
    };
    for condition in &scope.conditions {
        let FeatureValue::Number(bound) = condition.value else {
            continue;
        };
        let workload = &mut spec.workload;
        let value = match condition.feature.as_str() {
            "isl_token_avg" => &mut workload.isl.mean,
            "osl_token_avg" => &mut workload.osl.mean,
            "request_arrival_rate" => &mut workload.arrival_rate_rps,
            "shared_prefix_length_avg" => &mut workload.shared_prefix_tokens,
            _ => continue,
        };
        *value = bound + 1.0;
    }
    spec
}
