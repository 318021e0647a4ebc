//! One host of the simulation: the real agent machine over engines that are plain values.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::agent::{AgentEffect, AgentInput, AgentMachine, AgentParams, LocalReplica};
use crate::host::HostFacts;
use crate::ids::ReplicaId;
use crate::rollout::{DesiredReplica, DesiredSet, ObservedState};
use crate::time::UtcMicros;

/// What becomes of engines that are started here from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Healthy,
    /// Ends while it loads.
    Crashes,
    /// Loads for ever.
    NeverReady,
    /// No process comes up.
    LaunchFails {
        fatal: bool,
    },
}

#[derive(Debug, Clone)]
pub(super) struct Engine {
    pub(super) gpu_uuids: Vec<String>,
    pub(super) is_ready: bool,
    pub(super) in_flight: u64,
    fate: Fate,
    port: u16,
    /// Asked to stop: killed then.
    kill_at: Option<UtcMicros>,
}

pub(super) struct SimHost {
    pub(super) facts: HostFacts,
    pub(super) machine: AgentMachine,
    pub(super) connected: bool,
    pub(super) engines: BTreeMap<ReplicaId, Engine>,
    pub(super) fate: Fate,
    pub(super) n_launches: BTreeMap<ReplicaId, u32>,
    /// Asked to launch, not answered yet.
    launching: BTreeMap<ReplicaId, DesiredReplica>,
    proofs: BTreeSet<ReplicaId>,
    pub(super) persisted: DesiredSet,
}

impl SimHost {
    pub(super) fn new(facts: HostFacts) -> Self {
        let machine = agent(&facts, DesiredSet::default(), Vec::new());
        Self {
            facts,
            machine,
            connected: false,
            engines: BTreeMap::new(),
            fate: Fate::Healthy,
            n_launches: BTreeMap::new(),
            launching: BTreeMap::new(),
            proofs: BTreeSet::new(),
            persisted: DesiredSet::default(),
        }
    }

    pub(super) fn observed(&self) -> ObservedState {
        ObservedState {
            applied: self.machine.highest(),
            replicas: self.machine.observed(),
            gpus: Vec::new(),
            refusal: self.machine.refusal().map(str::to_owned),
        }
    }

    /// A new agent process: what it persisted and the engines it finds are all that is left.
    /// A launch under way has come to its end by the time the new one looks.
    pub(super) fn restart(&mut self) {
        for (id, want) in std::mem::take(&mut self.launching) {
            self.start(id, want);
        }
        self.proofs.clear();
        for engine in self.engines.values_mut() {
            engine.is_ready = false;
        }
        let found = self.engines.iter().map(|(id, e)| {
            LocalReplica::adopted(id.clone(), e.port, "0".to_owned(), vec!["--x".to_owned()])
        });
        self.machine = agent(&self.facts, self.persisted.clone(), found.collect());
    }

    fn start(&mut self, id: ReplicaId, want: DesiredReplica) {
        let engine = Engine {
            gpu_uuids: want.gpu_uuids,
            is_ready: false,
            in_flight: 0,
            fate: self.fate,
            port: 8000,
            kill_at: None,
        };
        self.engines.insert(id, engine);
    }

    /// One step of the agent; performs its effects. True when it wants to report.
    pub(super) fn step(&mut self, now: UtcMicros, input: AgentInput) -> bool {
        let effects = self.machine.step(now, input);
        let mut reports = false;
        for effect in effects {
            match effect {
                AgentEffect::Persist(set) => {
                    assert!(set.version >= self.persisted.version, "never back");
                    self.persisted = *set;
                }
                AgentEffect::Launch(want) => self.launch(*want),
                AgentEffect::Terminate { id, grace_s } => {
                    if let Some(engine) = self.engines.get_mut(&id) {
                        let at = now.plus_seconds(i64::from(grace_s));
                        engine.kill_at = Some(engine.kill_at.map_or(at, |k| k.min(at)));
                    }
                }
                AgentEffect::ProveExit(id) => {
                    self.proofs.insert(id);
                }
                AgentEffect::Forget(id) => assert!(!self.engines.contains_key(&id)),
                AgentEffect::Report => reports = true,
            }
        }
        reports
    }

    fn launch(&mut self, want: DesiredReplica) {
        let held = self.engines.values().map(|e| &e.gpu_uuids);
        let asked = self.launching.values().map(|w| &w.gpu_uuids);
        let taken: BTreeSet<&String> = held.chain(asked).flatten().collect();
        assert!(
            want.gpu_uuids.iter().all(|u| !taken.contains(u)),
            "{} is started on a device that is held",
            want.id
        );
        assert!(
            !want.engine_args.is_empty(),
            "{} without arguments",
            want.id
        );
        *self.n_launches.entry(want.id.clone()).or_default() += 1;
        self.launching.insert(want.id.clone(), want);
    }

    /// What happens on the host by itself until now, as the agent's shell would report it.
    pub(super) fn world(&mut self, now: UtcMicros) -> VecDeque<AgentInput> {
        let mut inputs = VecDeque::new();
        for (id, engine) in &mut self.engines {
            if engine.fate == Fate::Healthy && !engine.is_ready && engine.kill_at.is_none() {
                engine.is_ready = true;
                inputs.push_back(AgentInput::Ready(id.clone()));
            }
            if engine.is_ready {
                inputs.push_back(AgentInput::InFlight(id.clone(), engine.in_flight));
            }
        }
        self.engines.retain(|id, engine| {
            let stopped = engine
                .kill_at
                .is_some_and(|at| now >= at || engine.in_flight == 0);
            let ends = stopped || engine.fate == Fate::Crashes;
            if ends {
                let reason = "exit code 1".to_owned();
                inputs.push_back(AgentInput::Exited {
                    id: id.clone(),
                    reason,
                });
            }
            !ends
        });
        for (id, want) in std::mem::take(&mut self.launching) {
            if let Fate::LaunchFails { fatal } = self.fate {
                let reason = "no such engine".to_owned();
                inputs.push_back(AgentInput::LaunchFailed { id, reason, fatal });
                continue;
            }
            inputs.push_back(AgentInput::Launched {
                id: id.clone(),
                port: 8000,
                engine_version: want.engine_version.clone(),
                engine_args: want.engine_args.clone(),
            });
            self.start(id, want);
        }
        let engines = &self.engines;
        let (proven, open) = std::mem::take(&mut self.proofs)
            .into_iter()
            .partition(|id| !engines.contains_key(id));
        self.proofs = open;
        inputs.extend(proven.into_iter().map(AgentInput::ExitProven));
        inputs
    }

    /// An engine ends by itself; the agent hears of it with the next second.
    pub(super) fn crash(&mut self, id: &ReplicaId) {
        if let Some(engine) = self.engines.get_mut(id) {
            engine.fate = Fate::Crashes;
        }
    }

    /// The machine reboots: nothing runs any more.
    pub(super) fn reboot(&mut self) {
        self.engines.clear();
        self.launching.clear();
        self.restart();
    }
}

fn agent(facts: &HostFacts, cached: DesiredSet, found: Vec<LocalReplica>) -> AgentMachine {
    let uuids = facts.gpus.iter().map(|g| g.uuid.clone()).collect();
    AgentMachine::new(AgentParams::default(), uuids, cached, found)
}
