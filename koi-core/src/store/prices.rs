//! Which price holds for each host: derived from what hosts state, the feed, and list and overlay.

use super::ServerState;
use crate::catalog::price::{PriceBook, price_of_host};
use crate::host::{HostPrice, HostRecord};
use crate::ids::HostId;

impl ServerState {
    /// Derives the price of every host anew.
    pub fn reprice(&mut self, base: &PriceBook) {
        let hosts: Vec<HostId> = self.hosts.keys().cloned().collect();
        self.priced.clear();
        for host in &hosts {
            self.reprice_host(host, base);
        }
    }

    /// Derives the price of one host anew.
    pub fn reprice_host(&mut self, host: &HostId, base: &PriceBook) {
        self.priced.remove(host);
        let Some(record) = self.hosts.get(host) else {
            return;
        };
        let holds = price_of_host(&record.facts, base, &self.prices);
        if let Some(price) = holds.filter(|p| Some(p) != record.facts.price.as_ref()) {
            self.priced.insert(host.clone(), price);
        }
    }

    /// The price that holds for a host.
    #[must_use]
    pub fn price_of<'a>(&'a self, host: &'a HostRecord) -> Option<&'a HostPrice> {
        let other = self.priced.get(&host.facts.host);
        other.or(host.facts.price.as_ref())
    }

    /// Price of one device of a host for an hour; absent without a price.
    #[must_use]
    pub fn gpu_usd_per_hour(&self, host: &HostRecord) -> Option<f64> {
        let n = host.facts.gpus.len();
        self.price_of(host)
            .filter(|_| n > 0)
            .map(|p| p.usd_per_hour / n as f64)
    }

    /// The state without the feed, for a snapshot: what a tick needs of it is in `priced`.
    #[must_use]
    pub fn without_feed(&self) -> Self {
        Self {
            epoch: self.epoch,
            plan_seq: self.plan_seq,
            tick: self.tick.clone(),
            jobs: self.jobs.clone(),
            hosts: self.hosts.clone(),
            replicas: self.replicas.clone(),
            beliefs: self.beliefs.clone(),
            slow: self.slow.clone(),
            contrasts: self.contrasts.clone(),
            calibration: self.calibration.clone(),
            mechanisms: self.mechanisms.clone(),
            prices: PriceBook::default(),
            priced: self.priced.clone(),
        }
    }
}
