//! The `Admin` service.

use koi_core::host::Liveness;
use koi_core::server::ServerMachine;
use koi_core::store::JobState;
use koi_core::time::UtcMicros;
use koi_proto::v1;
use tonic::{Request, Response, Status};

use super::status::refused;
use crate::auth::TokenTable;
use crate::core_loop::{Core, utc_now};
use crate::pulse::Pulse;
use crate::tick::driver::TickHandle;

/// The `Admin` service.
#[derive(Clone)]
pub struct AdminApi {
    /// Decisions.
    pub core: Core,
    /// Whether the database answers.
    pub pulse: Pulse,
    /// Who may ask.
    pub tokens: TokenTable,
    /// The schedule.
    pub ticks: TickHandle,
    /// When this process started.
    pub started_at: UtcMicros,
    /// Hash of the catalog in use.
    pub catalog_hash: String,
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn status(machine: &ServerMachine) -> v1::GetStatusReply {
    let state = machine.state();
    let liveness = machine.live().liveness(utc_now());
    let jobs =
        |wanted: &JobState| count(state.jobs.values().filter(|j| j.state == *wanted).count());
    let alive = liveness.values().filter(|l| **l == Liveness::Alive).count();
    v1::GetStatusReply {
        build_id: koi_core::build::BUILD_ID.to_owned(),
        epoch: state.epoch.0,
        plan_seq: state.plan_seq.0,
        tick_id: state.tick.as_ref().map_or(0, |t| t.id.0),
        n_jobs_waiting: jobs(&JobState::Waiting),
        n_jobs_running: jobs(&JobState::Running),
        n_nodes_alive: count(alive),
        n_nodes: count(state.hosts.len()),
        n_gpus: count(state.hosts.values().map(|h| h.facts.gpus.len()).sum()),
        n_gpus_reserved: count(state.replicas.values().map(|r| r.gpu_uuids.len()).sum()),
        database_ok: machine.database_error().is_none(),
        database_error: machine.database_error().unwrap_or_default().to_owned(),
        ..v1::GetStatusReply::default()
    }
}

/// Puts what the database's pulse says into a status: who writes nothing notices nothing, so the last
/// write's word holds only while the database answers.
fn tell_pulse(reply: &mut v1::GetStatusReply, problem: Option<String>) {
    if let Some(problem) = problem {
        reply.database_ok = false;
        reply.database_error = problem;
    }
}

#[tonic::async_trait]
impl v1::admin_server::Admin for AdminApi {
    async fn get_status(
        &self,
        request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::GetStatusReply>, Status> {
        self.tokens.operator(&request)?;
        let mut reply = self
            .core
            .read(status)
            .await
            .map_err(|refusal| refused(&refusal))?;
        tell_pulse(&mut reply, self.pulse.problem());
        reply.started_at_us = self.started_at.0;
        reply.tick_interval_s =
            count(usize::try_from(self.ticks.interval().as_secs()).unwrap_or(0));
        reply.seconds_to_next_tick = Some(self.ticks.to_next().as_secs_f64());
        reply.catalog_hash.clone_from(&self.catalog_hash);
        Ok(Response::new(reply))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_of_a_database_that_is_silent_though_nothing_was_written() {
        let well = v1::GetStatusReply {
            database_ok: true,
            ..v1::GetStatusReply::default()
        };
        let told = |mut reply: v1::GetStatusReply, problem: Option<&str>| {
            tell_pulse(&mut reply, problem.map(str::to_owned));
            (reply.database_ok, reply.database_error)
        };
        assert_eq!(told(well.clone(), None), (true, String::new()));
        let silent = Some("no answer for 7 s");
        assert_eq!(
            told(well.clone(), silent),
            (false, "no answer for 7 s".to_owned())
        );
        // A write that failed is told even while the database answers, and its silence replaces it.
        let failed = v1::GetStatusReply {
            database_ok: false,
            database_error: "disk full".to_owned(),
            ..well
        };
        assert_eq!(told(failed.clone(), None), (false, "disk full".to_owned()));
        assert_eq!(
            told(failed, silent),
            (false, "no answer for 7 s".to_owned())
        );
    }
}
