//! The real server and agent machines in one process: virtual clock, an in-memory database that can
//! go away, and engines that start, answer, crash and stop as each test wants.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::super::*;
use super::host::{Fate, SimHost};
use crate::agent::AgentInput;
use crate::host::HostFacts;
use crate::ids::{Generation, HostId, ReplicaId};
use crate::planner::test_world::{NOW, World, chat, job_id};
use crate::rollout::{ObservedState, SloTally};
use crate::store::{Change, JobRecord, RequestRecord};

pub(super) struct Sim {
    pub(super) now: UtcMicros,
    pub(super) server: ServerMachine,
    /// What the database holds.
    pub(super) stored: ServerState,
    pub(super) is_away: bool,
    /// A replica whose row the database does not take, and how often it has refused a write with it.
    pub(super) refused: Option<(ReplicaId, u32)>,
    pub(super) hosts: BTreeMap<HostId, SimHost>,
    pub(super) published: BTreeMap<String, EndpointSet>,
    pub(super) stepped_down: bool,
    pub(super) n_writes: u32,
    pub(super) answers: BTreeMap<Ticket, Vec<Result<Reply, Refusal>>>,
    in_flight: Option<StoreTx>,
    queue: VecDeque<Effect>,
    n_requests: u64,
    tallies: BTreeMap<(JobId, Generation), SloTally>,
}

impl Sim {
    /// Connected hosts, each with so many devices.
    pub(super) fn new(hosts: &[(&str, u32)]) -> Self {
        let stored = ServerState::default();
        let mut sim = Self {
            now: NOW,
            server: machine(&stored, Epoch(1)),
            stored,
            is_away: false,
            refused: None,
            hosts: BTreeMap::new(),
            published: BTreeMap::new(),
            stepped_down: false,
            n_writes: 0,
            answers: BTreeMap::new(),
            in_flight: None,
            queue: VecDeque::new(),
            n_requests: 0,
            tallies: BTreeMap::new(),
        };
        for (name, n) in hosts {
            let mut world = World::new();
            world.host(name, "H100", *n, "reserved", 4.0);
            let facts = world.host_mut(name).facts.clone();
            sim.hosts.insert(facts.host.clone(), SimHost::new(facts));
            sim.connect(name);
        }
        sim
    }

    pub(super) fn host(&mut self, name: &str) -> &mut SimHost {
        self.hosts.get_mut(&name.parse().unwrap()).unwrap()
    }

    pub(super) fn job(&self, n: u128) -> &JobRecord {
        &self.server.state().jobs[&job_id(n)]
    }

    pub(super) fn endpoints(&self, job: &str) -> Vec<String> {
        let set = self.published.get(job);
        set.iter()
            .flat_map(|s| &s.endpoints)
            .map(|e| e.replica_id.to_string())
            .collect()
    }

    /// Asks and lets everything that follows from it happen; the answer has to be there then.
    pub(super) fn ask(&mut self, command: Command) -> Result<Reply, Refusal> {
        self.n_requests += 1;
        let ticket = Ticket(self.n_requests);
        self.answers.insert(ticket, Vec::new());
        self.tell(Input::Command(ticket, command));
        self.settle();
        let answers = &self.answers[&ticket];
        assert_eq!(answers.len(), 1, "every command is answered exactly once");
        answers[0].clone()
    }

    pub(super) fn request(&self) -> RequestRecord {
        RequestRecord {
            identity: "test".to_owned(),
            key: self.n_requests.to_string(),
            payload_hash: String::new(),
            object: String::new(),
        }
    }

    pub(super) fn submit(&mut self, n: u128, name: &str) -> Result<Reply, Refusal> {
        let request = self.request();
        self.ask(Command::SubmitJob {
            id: job_id(n),
            spec: Box::new(chat(name)),
            request,
        })
    }

    pub(super) fn cancel(&mut self, n: u128) -> Result<Reply, Refusal> {
        let request = self.request();
        self.ask(Command::CancelJob {
            job: job_id(n),
            reason: "test".to_owned(),
            request,
        })
    }

    pub(super) fn cordon(&mut self, name: &str, cordoned: bool) {
        self.try_cordon(name, cordoned).unwrap();
    }

    pub(super) fn try_cordon(&mut self, name: &str, cordoned: bool) -> Result<Reply, Refusal> {
        let request = self.request();
        let policy = Command::HostPolicy {
            host: name.parse().unwrap(),
            cordoned,
            draining: false,
            reason: "a test".to_owned(),
            request,
        };
        self.ask(policy)
    }

    /// The agent's stream opens: hello, then its observed state. False when it is not let in.
    pub(super) fn connect(&mut self, name: &str) -> bool {
        let host = self.host(name);
        let (facts, highest) = (host.facts.clone(), host.machine.highest());
        let id = facts.host.clone();
        let hello = Command::HostHello {
            facts: Box::new(facts),
            highest,
        };
        let is_known = self.server.state().hosts.contains_key(&id);
        match self.ask(hello) {
            Err(Refusal::Unavailable(_)) if is_known => {}
            Err(_) => return false,
            Ok(_) => {}
        }
        let host = self.host(name);
        host.connected = true;
        let observed = host.observed();
        self.tell(Input::Hello(id, observed));
        self.settle();
        true
    }

    pub(super) fn disconnect(&mut self, name: &str) {
        self.host(name).connected = false;
        self.tell(Input::Gone(name.parse().unwrap()));
        self.settle();
    }

    /// The agent process is replaced; engines go on. The stream is gone until `connect`.
    pub(super) fn restart_agent(&mut self, name: &str) {
        self.disconnect(name);
        self.host(name).restart();
    }

    /// A new server over what the database holds; agents lose their streams.
    pub(super) fn restart_server(&mut self) {
        self.stored.epoch = self.stored.epoch.next();
        self.server = machine(&self.stored, self.stored.epoch);
        self.queue.clear();
        self.in_flight = None;
        self.published.clear();
        self.stepped_down = false;
        for host in self.hosts.values_mut() {
            host.connected = false;
        }
    }

    pub(super) fn reconnect_all(&mut self) {
        let names: Vec<String> = self
            .hosts
            .iter()
            .filter(|(_, host)| !host.connected)
            .map(|(id, _)| id.as_str().to_owned())
            .collect();
        for name in names {
            self.connect(&name);
        }
    }

    /// Judged windows of a generation, as the observatory would count them.
    pub(super) fn tally(&mut self, n: u128, generation: u32, judged: u32, inside: u32) {
        self.tallies.insert(
            (job_id(n), Generation(generation)),
            SloTally { judged, inside },
        );
        self.tell(Input::SloTallies(self.tallies.clone()));
        self.settle();
    }

    pub(super) fn tell(&mut self, input: Input) {
        let effects = self.server.step(self.now, input);
        self.queue.extend(effects);
    }

    /// Performs effects until nothing is left to do at this moment.
    pub(super) fn settle(&mut self) {
        loop {
            if let Some(effect) = self.queue.pop_front() {
                self.perform(effect);
            } else if let Some(tx) = self.in_flight.take() {
                let result = self.commit(&tx);
                self.tell(result);
            } else {
                break;
            }
        }
    }

    fn commit(&mut self, tx: &StoreTx) -> Input {
        if self.is_away {
            return Input::CommitFailed(CommitFailure::Unavailable("away".to_owned()));
        }
        if let Some((id, n)) = &mut self.refused
            && tx
                .changes
                .iter()
                .any(|c| matches!(c, Change::Replica(r) if r.id == *id))
        {
            *n += 1;
            return Input::CommitFailed(CommitFailure::Conflict("a bad row".to_owned()));
        }
        match self.stored.apply(tx) {
            Ok(()) => {
                self.n_writes += 1;
                Input::Committed
            }
            Err(crate::store::TxRefusal::Fenced { .. }) => {
                Input::CommitFailed(CommitFailure::Fenced)
            }
            Err(refusal) => Input::CommitFailed(CommitFailure::Conflict(refusal.to_string())),
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Commit(tx) => {
                assert!(self.in_flight.is_none(), "one write at a time");
                self.in_flight = Some(*tx);
            }
            Effect::Reply(ticket, result) => {
                let answers = self.answers.get_mut(&ticket).expect("nobody asked this");
                answers.push(result);
            }
            Effect::PushDesired(host, set) => {
                if self.hosts[&host].connected {
                    self.feed(&host, AgentInput::Desired(*set));
                }
            }
            Effect::Publish(set) => {
                if let Some(before) = self.published.get(&set.job) {
                    assert!(set.version > before.version, "versions of a set grow");
                }
                self.published.insert(set.job.clone(), set);
            }
            Effect::StepDown => self.stepped_down = true,
        }
    }

    /// Feeds one input to an agent and passes its reports on.
    pub(super) fn feed(&mut self, host: &HostId, input: AgentInput) {
        let sim = self.hosts.get_mut(host).unwrap();
        let reports = sim.step(self.now, input);
        if reports && sim.connected {
            let observed: ObservedState = sim.observed();
            self.tell(Input::Observed(host.clone(), observed));
        }
    }

    /// One second passes everywhere.
    pub(super) fn second(&mut self) {
        self.now = self.now.plus_seconds(1);
        let ids: Vec<HostId> = self.hosts.keys().cloned().collect();
        for id in &ids {
            let inputs = self.hosts.get_mut(id).unwrap().world(self.now);
            for input in inputs.into_iter().chain([AgentInput::Timer]) {
                self.feed(id, input);
                self.settle();
            }
            if self.hosts[id].connected {
                self.tell(Input::Heard(id.clone()));
            }
        }
        self.tell(Input::Timer);
        self.settle();
    }

    pub(super) fn seconds(&mut self, n: u32) {
        for _ in 0..n {
            self.second();
        }
    }

    pub(super) fn engines(&self) -> BTreeSet<ReplicaId> {
        let engines = self.hosts.values().flat_map(|h| h.engines.keys());
        engines.cloned().collect()
    }

    pub(super) fn set_fate(&mut self, fate: Fate) {
        for host in self.hosts.values_mut() {
            host.fate = fate;
        }
    }
}

pub(super) fn machine(stored: &ServerState, epoch: Epoch) -> ServerMachine {
    let settings = ServerSettings::default();
    ServerMachine::new(stored.clone(), epoch, Catalog::embedded(), settings)
}

/// Facts of a host that is not part of a fleet yet.
pub(super) fn facts(name: &str) -> HostFacts {
    let mut world = World::new();
    world.host(name, "H100", 2, "reserved", 4.0);
    world.host_mut(name).facts.clone()
}
