//! What gateways are told: the endpoint set of every job whenever it changes, and a last, empty one.

use super::{Effect, ServerMachine};
use crate::ids::JobId;
use crate::rollout::EndpointSet;
use crate::rollout::endpoints::endpoints_of;

impl ServerMachine {
    /// Sets that are due; derived from state, so none can be forgotten.
    pub(super) fn publish(&mut self, effects: &mut Vec<Effect>) {
        let mut due = Vec::new();
        for (id, job) in &self.state.jobs {
            let endpoints = endpoints_of(&self.state, &self.live, *id);
            let before = self.published.get(id);
            let twin = self.state.job_named(job.spec.name.as_str());
            // The set of a name belongs to the live job of that name, not to one that is over.
            let is_anothers = twin.is_some_and(|t| t.id != *id);
            let is_known = before.is_some_and(|b| b.endpoints == endpoints);
            // The last word about a job is said even if it never had an endpoint.
            let is_last_word = job.state.is_finished() && endpoints.is_empty();
            let is_news = !is_known || (is_last_word && !self.retired.contains(id));
            if is_anothers || !is_news {
                continue;
            }
            if is_last_word {
                self.retired.insert(*id);
            }
            let set = EndpointSet {
                job: job.spec.name.as_str().to_owned(),
                version: 0,
                served_model_name: job.spec.model.id.clone(),
                endpoints,
            };
            due.push((*id, set));
        }
        due.extend(self.last_words());
        for (id, mut set) in due {
            self.endpoint_version = self.endpoint_version.saturating_add(1);
            set.version = self.endpoint_version;
            self.published.insert(id, set.clone());
            effects.push(Effect::Publish(set));
        }
        // A job is forgotten after it finished, and a finished one has no endpoints.
        let jobs = &self.state.jobs;
        self.published.retain(|id, _| jobs.contains_key(id));
        self.retired.retain(|id| jobs.contains_key(id));
    }

    /// Empty sets of jobs that were forgotten in the step that ended them: without a replica there is
    /// nothing to wait for.
    fn last_words(&self) -> Vec<(JobId, EndpointSet)> {
        let state = &self.state;
        let is_over = |id: &JobId, set: &EndpointSet| {
            !state.jobs.contains_key(id)
                && !self.retired.contains(id)
                && state.job_named(&set.job).is_none()
        };
        let over = self.published.iter().filter(|(id, set)| is_over(id, set));
        over.map(|(id, set)| {
            let mut set = set.clone();
            set.endpoints.clear();
            (*id, set)
        })
        .collect()
    }
}
