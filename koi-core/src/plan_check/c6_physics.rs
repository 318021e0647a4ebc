//! C6: the chain can exist — legal split, knobs within their domains, flags that the host's engine
//! version has, weights and cache in device memory. A chain lies on one host because a slot names
//! one. Spec §11.

use super::{Checked, Findings};
use crate::catalog::Value;
use crate::configuration::engine_args;
use crate::ladder::Rank;
use crate::plan::PlanAction;
use crate::planner::enumerate::is_known_version;
use crate::store::JobRecord;
use crate::surrogate::MemoryBreakdown;

/// One rank under examination.
struct Exam<'a> {
    checked: &'a Checked<'a>,
    action: &'a PlanAction,
    job: &'a JobRecord,
    rank: (usize, &'a Rank),
}

pub(super) fn check(checked: &Checked<'_>, findings: &mut Findings) {
    for (action, ladder, job) in checked.ladder_actions() {
        for rank in ladder.ranks.iter().enumerate() {
            let exam = Exam {
                checked,
                action,
                job,
                rank,
            };
            exam.split(findings);
            exam.domains(findings);
            exam.applicability(findings);
            exam.memory(findings);
            exam.engines(findings);
        }
    }
}

impl Exam<'_> {
    fn bad(&self, findings: &mut Findings, code: &str, detail: &str) {
        findings.add(
            code,
            self.action.job,
            format!("rank {}: {detail}", self.rank.0),
        );
    }

    fn split(&self, findings: &mut Findings) {
        let model = &self.job.spec.model.facts;
        let shape = self.rank.1.configuration.shape();
        if let Err(reason) = model.legal_split(shape.tp, shape.ep) {
            self.bad(findings, "C6-TP", &reason);
        }
        if let Err(reason) = model.legal_pp(shape.pp) {
            self.bad(findings, "C6-PP", &reason);
        } else if !model.layers.is_multiple_of(shape.pp) {
            let detail = format!(
                "pp={} does not divide the {} layers",
                shape.pp, model.layers
            );
            self.bad(findings, "C6-PP", &detail);
        }
        if let Err(reason) = model.legal_ep(shape.ep, shape.tp) {
            self.bad(findings, "C6-EP", &reason);
        }
    }

    fn domains(&self, findings: &mut Findings) {
        let configuration = &self.rank.1.configuration;
        match self.checked.context.catalog.recheck(configuration) {
            Ok(again) if again == *configuration => {}
            Ok(_) => {
                let detail = "the configuration is not in the catalog's complete form";
                self.bad(findings, "C6-DOMAIN", detail);
            }
            Err(violations) => {
                for v in violations {
                    self.bad(
                        findings,
                        "C6-DOMAIN",
                        &format!("{}: {}", v.field, v.message),
                    );
                }
            }
        }
    }

    /// Knobs that the job's model has no use for, set away from their defaults.
    fn applicability(&self, findings: &mut Findings) {
        let model = &self.job.spec.model.facts;
        let place = &self.rank.1.environment;
        let context = |name: &str| match name {
            "gpu_type" => Some(Value::Text(place.gpu_type.clone())),
            "market" => Some(Value::Text(place.market.name().to_owned())),
            _ => model.feature(name),
        };
        let configuration = &self.rank.1.configuration;
        let catalog = self.checked.context.catalog;
        for v in catalog.inapplicable(configuration, &context) {
            let detail = format!("{}: {}", v.field, v.message);
            self.bad(findings, "C6-APPLIES", &detail);
        }
    }

    fn memory(&self, findings: &mut Findings) {
        let gpu_type = &self.rank.1.environment.gpu_type;
        let Some(gpu) = self.checked.context.catalog.gpu_type(gpu_type) else {
            let detail = format!("the catalog has no GPU type {gpu_type}");
            return self.bad(findings, "C6-GPU-TYPE", &detail);
        };
        let memory = MemoryBreakdown::of(
            &self.job.spec.model.facts,
            gpu,
            &self.rank.1.configuration.shape(),
        );
        if !memory.fits() {
            let detail = format!(
                "the KV pool holds {:.0} tokens of the {:.0} that one longest request needs",
                memory.kv_pool_tokens, memory.needed_tokens
            );
            self.bad(findings, "C6-VRAM", &detail);
        }
    }

    /// Engine versions on the hosts of the rank's slots, each once.
    fn versions(&self) -> std::collections::BTreeSet<&str> {
        let hosts = &self.checked.snapshot.state.hosts;
        let slots = self
            .action
            .slots
            .iter()
            .filter(|s| s.rank as usize == self.rank.0);
        slots
            .filter_map(|s| hosts.get(&s.host))
            .flat_map(|h| {
                h.facts
                    .engines
                    .iter()
                    .filter(|e| e.engine == self.job.spec.engine)
            })
            .map(|e| e.version.as_str())
            .collect()
    }

    fn engines(&self, findings: &mut Findings) {
        let context = self.checked.context;
        let configuration = &self.rank.1.configuration;
        let engine = self.job.spec.engine.name();
        if configuration
            .get("engine_name")
            .is_none_or(|v| v.to_string() != engine)
        {
            let detail = format!("the configuration is not for engine {engine}");
            self.bad(findings, "C6-ENGINE-NAME", &detail);
        }
        for version in self.versions() {
            if !is_known_version(version, context) {
                let shown: String = version.chars().take(40).collect();
                let detail = format!("the catalog does not know engine version {shown:?}");
                self.bad(findings, "C6-ENGINE", &detail);
            } else if let Err(violations) = engine_args(context.catalog, configuration, version) {
                for v in violations {
                    self.bad(findings, "C6-FLAG", &format!("{}: {}", v.field, v.message));
                }
            }
        }
    }
}
