//! Devices to replicas within one transaction. Not state: the replicas are.

use std::collections::BTreeMap;

use super::{ReplicaRecord, TxRefusal};
use crate::ids::ReplicaId;

/// Which replica holds which device, built once per transaction and only if it reserves: looking
/// through all replicas for every device of a plan would be quadratic in the fleet.
#[derive(Default)]
pub(super) struct Holders(Option<BTreeMap<String, ReplicaId>>);

impl Holders {
    pub(super) fn of(&mut self, replicas: &BTreeMap<ReplicaId, ReplicaRecord>) -> &mut Self {
        self.0.get_or_insert_with(|| {
            let devices = |r: &ReplicaRecord| {
                let id = r.id.clone();
                r.gpu_uuids
                    .clone()
                    .into_iter()
                    .map(move |uuid| (uuid, id.clone()))
            };
            replicas.values().flat_map(devices).collect()
        });
        self
    }

    /// Gives the replica its devices and takes back those it no longer lists.
    pub(super) fn reserve(
        &mut self,
        before: Option<&ReplicaRecord>,
        replica: &ReplicaRecord,
    ) -> Result<(), TxRefusal> {
        let map = self.0.get_or_insert_default();
        for uuid in &replica.gpu_uuids {
            if let Some(holder) = map.get(uuid).filter(|h| **h != replica.id) {
                return Err(TxRefusal::DeviceTaken {
                    uuid: uuid.clone(),
                    holder: holder.clone(),
                    wanted: replica.id.clone(),
                });
            }
        }
        for uuid in before.into_iter().flat_map(|r| &r.gpu_uuids) {
            map.remove(uuid);
        }
        map.extend(
            replica
                .gpu_uuids
                .iter()
                .map(|uuid| (uuid.clone(), replica.id.clone())),
        );
        Ok(())
    }

    pub(super) fn release(&mut self, replica: &ReplicaRecord) {
        if let Some(map) = &mut self.0 {
            for uuid in &replica.gpu_uuids {
                map.remove(uuid);
            }
        }
    }
}
