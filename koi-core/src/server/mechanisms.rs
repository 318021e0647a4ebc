//! A proposed mechanism: one write, or none when it is known.

use super::commands::audit;
use super::{Decision, Refusal, Reply, ServerMachine};
use crate::lifecycle::{MechanismRecord, PROPOSALS_MAX};
use crate::store::{Change, RequestRecord, TxKind};
use crate::time::UtcMicros;

impl ServerMachine {
    pub(super) fn propose_mechanism(
        &self,
        now: UtcMicros,
        record: MechanismRecord,
        request: RequestRecord,
    ) -> Result<Decision, Refusal> {
        let reply = Reply::Object(record.id.clone());
        if self.state.mechanisms.contains_key(&record.id) {
            return Ok(Decision { tx: None, reply });
        }
        let proposals = self.state.mechanisms.values().filter(|m| m.draft.is_some());
        if proposals.count() >= PROPOSALS_MAX {
            return Err(Refusal::Conflict(format!(
                "{PROPOSALS_MAX} proposals are kept already; no more are taken"
            )));
        }
        let audit = audit(&request, "propose_mechanism", &record.id, "");
        let request = RequestRecord {
            object: record.id.clone(),
            ..request
        };
        let changes = vec![
            Change::Mechanism(Box::new(record)),
            Change::Request(Box::new(request)),
            audit,
        ];
        let tx = self.tx(now, TxKind::MechanismProposed, changes);
        Ok(Decision {
            tx: Some(tx),
            reply,
        })
    }
}
