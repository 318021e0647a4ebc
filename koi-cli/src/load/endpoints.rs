//! The endpoint file of a job, read again when it changes, and the choice among its endpoints.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::rng::SplitMix;

/// Time between looks at the file; a change is seen within 1 s.
pub(super) const POLL: Duration = Duration::from_millis(250);
const MAX_FILE_BYTES: u64 = 1 << 20;
const MAX_ENDPOINTS: usize = 1024;

/// One ready endpoint.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Endpoint {
    /// Replica behind it.
    pub(super) replica_id: String,
    /// IP address.
    pub(super) address: std::net::IpAddr,
    /// Port.
    pub(super) port: u16,
    /// Share of the job's capacity.
    pub(super) weight: f64,
}

/// A whole endpoint file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct EndpointFile {
    /// Grows with every change.
    #[serde(default)]
    pub(super) version: i64,
    /// Model name for requests.
    pub(super) served_model_name: String,
    /// Ready endpoints.
    pub(super) endpoints: Vec<Endpoint>,
}

/// What the file said at the last look.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Known {
    /// There is no file: the job does not run, or is over.
    NoFile,
    /// This is ready; possibly nothing.
    Ready(EndpointFile),
}

/// Follows one endpoint file and deals requests out to its endpoints.
#[derive(Debug)]
pub(super) struct Endpoints {
    path: PathBuf,
    stamp: Option<(i64, i64, u64, u64)>,
    known: Known,
    /// Requests dealt to each endpoint since the file changed.
    dealt: Vec<u64>,
}

impl Endpoints {
    /// The endpoints of a job in a folder of endpoint files.
    pub(super) fn new(folder: &Path, job: &str) -> Self {
        let path = folder.join(format!("{job}.json"));
        Self {
            path,
            stamp: None,
            known: Known::NoFile,
            dealt: vec![],
        }
    }

    /// Looks at the file; reads it only when it changed. A file that cannot be read or parsed keeps
    /// what was known: it may be half written by somebody who does not rename.
    pub(super) fn refresh(&mut self) {
        let Ok(meta) = std::fs::metadata(&self.path) else {
            self.stamp = None;
            self.known = Known::NoFile;
            return;
        };
        let stamp = Some((meta.mtime(), meta.mtime_nsec(), meta.len(), meta.ino()));
        if stamp == self.stamp || meta.len() > MAX_FILE_BYTES {
            return;
        }
        let parsed = std::fs::read(&self.path)
            .ok()
            .and_then(|b| serde_json::from_slice::<EndpointFile>(&b).ok());
        if let Some(file) = parsed.filter(|f| f.endpoints.len() <= MAX_ENDPOINTS) {
            self.stamp = stamp;
            self.dealt = vec![0; file.endpoints.len()];
            self.known = Known::Ready(file);
        }
    }

    /// What is known now, for people.
    pub(super) fn in_words(&self) -> String {
        match &self.known {
            Known::NoFile => format!("waits: there is no {}", self.path.display()),
            Known::Ready(file) if file.endpoints.is_empty() => "waits: no endpoint is ready".into(),
            Known::Ready(file) => format!("endpoints ready: {}", file.endpoints.len()),
        }
    }

    /// What is known now.
    pub(super) const fn known(&self) -> &Known {
        &self.known
    }

    /// True when another replica than this one is ready.
    pub(super) fn has_other(&self, replica_id: &str) -> bool {
        let Known::Ready(file) = &self.known else {
            return false;
        };
        file.endpoints.iter().any(|e| e.replica_id != replica_id)
    }

    /// The endpoint for the next request and the model name, or nothing when none is ready. A session
    /// stays with its endpoint as long as that is ready; `avoid` is the replica that did not answer.
    pub(super) fn pick(
        &mut self,
        session: Option<u64>,
        avoid: Option<&str>,
    ) -> Option<(Endpoint, String)> {
        let Known::Ready(file) = &self.known else {
            return None;
        };
        let usable = |e: &&(usize, &Endpoint)| avoid != Some(e.1.replica_id.as_str());
        let all: Vec<(usize, &Endpoint)> = file.endpoints.iter().enumerate().collect();
        let open: Vec<(usize, f64)> = all
            .iter()
            .filter(usable)
            .map(|(i, e)| (*i, weight(e, &all)))
            .collect();
        let best = match session {
            Some(session) => open.iter().min_by(|a, b| {
                let key =
                    |(i, w): &(usize, f64)| rendezvous(session, &file.endpoints[*i].replica_id, *w);
                key(a).total_cmp(&key(b))
            }),
            // The endpoint that is furthest behind its share.
            None => open.iter().filter(|(_, w)| *w > 0.0).min_by(|a, b| {
                let key = |(i, w): &(usize, f64)| (self.dealt[*i] + 1) as f64 / w;
                key(a).total_cmp(&key(b))
            }),
        };
        let index = best?.0;
        self.dealt[index] += 1;
        Some((
            file.endpoints[index].clone(),
            file.served_model_name.clone(),
        ))
    }
}

/// The weight of an endpoint; all count the same where no weight is above 0.
fn weight(endpoint: &Endpoint, all: &[(usize, &Endpoint)]) -> f64 {
    let fine = |w: f64| w.is_finite() && w > 0.0;
    let none = !all.iter().any(|(_, e)| fine(e.weight));
    if none {
        1.0
    } else if fine(endpoint.weight) {
        endpoint.weight
    } else {
        0.0
    }
}

/// Weighted rendezvous hashing: the smallest −ln(u)/w wins, with u from session and replica.
fn rendezvous(session: u64, replica: &str, weight: f64) -> f64 {
    let mut state = session;
    for byte in replica.bytes() {
        state = SplitMix::new(state ^ u64::from(byte)).next();
    }
    let u = ((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    if weight > 0.0 {
        -u.ln() / weight
    } else {
        f64::INFINITY
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn with(weights: &[f64]) -> Endpoints {
        let endpoint = |(i, weight): (usize, &f64)| Endpoint {
            replica_id: format!("chat.g1.r0.{i}"),
            address: [127, 0, 0, 1].into(),
            port: 20_000 + i as u16,
            weight: *weight,
        };
        let endpoints: Vec<Endpoint> = weights.iter().enumerate().map(endpoint).collect();
        let dealt = vec![0; endpoints.len()];
        let known = Known::Ready(EndpointFile {
            version: 1,
            served_model_name: "m".into(),
            endpoints,
        });
        Endpoints {
            path: PathBuf::new(),
            stamp: None,
            known,
            dealt,
        }
    }

    fn deal(
        endpoints: &mut Endpoints,
        sessions: impl Iterator<Item = Option<u64>>,
    ) -> BTreeMap<u16, u32> {
        let mut counts = BTreeMap::new();
        for session in sessions {
            *counts
                .entry(endpoints.pick(session, None).unwrap().0.port)
                .or_default() += 1;
        }
        counts
    }

    #[test]
    fn requests_follow_the_weights() {
        let counts = deal(&mut with(&[0.5, 0.3, 0.2, 0.0]), (0..1000).map(|_| None));
        assert_eq!(
            counts,
            BTreeMap::from([(20_000, 500), (20_001, 300), (20_002, 200)])
        );
        let equal = deal(&mut with(&[0.0, f64::NAN]), (0..10).map(|_| None));
        assert_eq!(equal, BTreeMap::from([(20_000, 5), (20_001, 5)]));
    }

    #[test]
    fn sessions_stay_and_spread() {
        let mut endpoints = with(&[0.75, 0.25]);
        let first = endpoints.pick(Some(7), None).unwrap().0;
        assert!((0..20).all(|_| endpoints.pick(Some(7), None).unwrap().0 == first));
        let counts = deal(&mut with(&[0.75, 0.25]), (0..4000).map(Some));
        assert!((2850..3150).contains(&counts[&20_000]), "{counts:?}");
    }

    #[test]
    fn a_retry_goes_elsewhere_or_nowhere() {
        let mut two = with(&[0.5, 0.5]);
        assert!((0..5).all(|_| two.pick(None, Some("chat.g1.r0.0")).unwrap().0.port == 20_001));
        assert_eq!(with(&[1.0]).pick(None, Some("chat.g1.r0.0")), None);
        assert_eq!(with(&[]).pick(None, None), None);
    }

    #[test]
    fn the_file_is_read_again_when_it_changes() {
        let dir = std::env::temp_dir().join(format!("koi-endpoints-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut endpoints = Endpoints::new(&dir, "chat");
        endpoints.refresh();
        assert_eq!(endpoints.known(), &Known::NoFile);
        assert!(endpoints.in_words().contains("chat.json"));
        let write = |version: i64, list: &str| {
            let text = format!(
                r#"{{"job":"chat","version":{version},"served_model_name":"m","endpoints":[{list}]}}"#
            );
            crate::secrets::write_whole(&dir.join("chat.json"), text.as_bytes(), 0o644).unwrap();
        };
        write(
            1,
            r#"{"replica_id":"chat.g1.r0.0","address":"127.0.0.1","port":20001,"weight":0.5}"#,
        );
        endpoints.refresh();
        assert_eq!(endpoints.in_words(), "endpoints ready: 1");
        assert_eq!(endpoints.pick(None, None).unwrap().0.port, 20_001);
        std::fs::write(dir.join("chat.json"), "{ half").unwrap();
        endpoints.refresh();
        assert!(
            endpoints.pick(None, None).is_some(),
            "a broken file keeps what was known"
        );
        write(2, "");
        endpoints.refresh();
        assert_eq!(endpoints.pick(None, None), None);
        std::fs::remove_dir_all(&dir).unwrap();
        endpoints.refresh();
        assert_eq!(endpoints.known(), &Known::NoFile);
    }
}
