//! The fleet file of a dev cluster: hosts, their simulated devices, and what they cost.
//!
//! Not the fleet a server knows: that comes from its agents.

use std::collections::BTreeMap;
use std::path::Path;

use koi_core::document::of_toml;
use koi_core::environment::Environment;
use koi_core::gpu::{GpuFacts, SimGpuInventory};
use koi_core::host::MAX_GPUS_PER_HOST;
use koi_core::ids::HostId;
use koi_core::job::draft::reader::Reader;
use koi_core::violation::{FieldViolation, Violations};

use crate::failure::Failure;
use crate::job_file::read_text;

/// Hosts in one dev cluster; each is a process with its own files and ports.
pub const MAX_HOSTS: usize = 64;
const MAX_FLEET_FILE_BYTES: usize = 256 * 1024;
const MIB: u64 = 1 << 20;

/// A checked fleet file.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    /// Hosts in the order of the file.
    pub hosts: Vec<FleetHost>,
}

/// One host of a fleet file.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetHost {
    /// Name.
    pub host: HostId,
    /// Where it is.
    pub environment: Environment,
    /// Instance type as its cloud names it.
    pub instance_type: String,
    /// Devices.
    pub n_gpus: u32,
    /// Facts of its devices.
    pub gpu: GpuModel,
    /// True when the devices talk over NVLink.
    pub nvlink: bool,
    /// Price of the whole host, its origin and date.
    pub price: Price,
}

/// A price as the agent reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct Price {
    /// USD per hour.
    pub usd_per_hour: f64,
    /// Where the number comes from.
    pub source: String,
    /// ISO 8601 date of the source.
    pub date: String,
}

/// Facts of a simulated device type.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuModel {
    /// Name as a driver gives it.
    pub name: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Board power limit in watts.
    pub power_limit_w: f64,
    /// Power of an idle device in watts.
    pub idle_power_w: f64,
}

impl FleetHost {
    /// The inventory file of this host's simulated devices.
    #[must_use]
    pub fn inventory(&self) -> SimGpuInventory {
        let facts = |index| GpuFacts {
            uuid: format!("GPU-{}-{index}", self.host),
            index,
            name: self.gpu.name.clone(),
            memory_bytes: self.gpu.memory_mib * MIB,
            power_limit_w: Some(self.gpu.power_limit_w),
        };
        SimGpuInventory {
            gpu_type: self.environment.gpu_type.clone(),
            environment: self.environment.to_string(),
            gpus: (0..self.n_gpus).map(facts).collect(),
            idle_power_w: self.gpu.idle_power_w,
        }
    }
}

/// Reads and checks a fleet file.
///
/// # Errors
/// A [`Failure`] with every problem of the file.
pub fn read(path: &Path) -> anyhow::Result<Fleet> {
    let text = read_text(path, MAX_FLEET_FILE_BYTES)?;
    parse(&text).map_err(|problems| Failure::invalid(&path.display().to_string(), problems).into())
}

/// Checks the text of a fleet file.
///
/// # Errors
/// Every problem, by field.
pub fn parse(text: &str) -> Result<Fleet, Vec<FieldViolation>> {
    let document = of_toml(text)?;
    let mut bad = Violations::default();
    let mut top = Reader::new(Some(&document), "", &mut bad);
    let mut gpu_models = BTreeMap::new();
    for (name, reader) in top.named_sections("gpu_types", &mut bad) {
        // A broken type stays known, so that its hosts are not reported again for it.
        gpu_models.insert(name, gpu_model(reader, &mut bad));
    }
    let readers = top.sections("host", &mut bad);
    top.finish(&mut bad);
    if !(1..=MAX_HOSTS).contains(&readers.len()) {
        bad.add(
            "host",
            format!("has {} entries, must have 1 to {MAX_HOSTS}", readers.len()),
        );
    }
    let mut hosts: Vec<FleetHost> = vec![];
    for reader in readers.into_iter().take(MAX_HOSTS) {
        let field = reader.field("name");
        let Some(host) = host(reader, &gpu_models, &mut bad) else {
            continue;
        };
        if hosts.iter().any(|h| h.host == host.host) {
            bad.add(field, format!("{} is the name of another host", host.host));
        }
        hosts.push(host);
    }
    bad.finish(Fleet { hosts })
}

fn positive(r: &mut Reader<'_>, key: &'static str, max: f64, bad: &mut Violations) -> Option<f64> {
    let value = r.number(key, bad);
    let value = r.required(key, value, "a number above 0", bad)?;
    if value > 0.0 && value <= max {
        return Some(value);
    }
    bad.add(
        r.field(key),
        format!("must be a number above 0, at most {max}, got {value}"),
    );
    None
}

fn gpu_model(mut r: Reader<'_>, bad: &mut Violations) -> Option<GpuModel> {
    let name = r.text("name", bad);
    let name = r.required("name", name, "the name that a driver gives", bad);
    let memory: Option<u64> = r.whole("memory_mib", bad);
    let memory_mib = r.required("memory_mib", memory, "MiB of one device", bad);
    let in_bounds = memory_mib.filter(|m| (256..=4 * MIB).contains(m));
    if let (Some(m), None) = (memory_mib, in_bounds) {
        bad.add(
            r.field("memory_mib"),
            format!("must be from 256 to {} MiB, got {m}", 4 * MIB),
        );
    }
    let power_limit_w = positive(&mut r, "power_limit_w", 10_000.0, bad);
    let idle_power_w = positive(&mut r, "idle_power_w", 10_000.0, bad);
    r.finish(bad);
    Some(GpuModel {
        name: name?,
        memory_mib: in_bounds?,
        power_limit_w: power_limit_w?,
        idle_power_w: idle_power_w?,
    })
}

fn host(
    mut r: Reader<'_>,
    gpu_models: &BTreeMap<String, Option<GpuModel>>,
    bad: &mut Violations,
) -> Option<FleetHost> {
    let name = r.text("name", bad);
    let name = r.required("name", name, "1 to 63 of a-z, 0-9 and '-'", bad);
    let host = name.and_then(|n| {
        n.parse::<HostId>()
            .map_err(|e| bad.add(r.field("name"), e.to_string()))
            .ok()
    });
    let place = r.text("environment", bad);
    let place = r.required(
        "environment",
        place,
        "market/cloud/region/zone/gpu_type",
        bad,
    );
    let environment = place.and_then(|p| {
        p.parse::<Environment>()
            .map_err(|e| bad.add(r.field("environment"), e.to_string()))
            .ok()
    });
    let instance = r.text("instance_type", bad);
    let instance_type = r.required("instance_type", instance, "as its cloud names it", bad);
    let gpus: Option<u32> = r.whole("gpus", bad);
    let n_gpus = r.required("gpus", gpus, "devices of the host", bad);
    let in_bounds = n_gpus.filter(|n| (1..=MAX_GPUS_PER_HOST as u32).contains(n));
    if let (Some(n), None) = (n_gpus, in_bounds) {
        bad.add(
            r.field("gpus"),
            format!("must be from 1 to {MAX_GPUS_PER_HOST}, got {n}"),
        );
    }
    let nvlink = r.flag("nvlink", bad).unwrap_or(false);
    let price = price(&mut r, bad);
    let gpu = environment
        .as_ref()
        .and_then(|e| match gpu_models.get(&e.gpu_type) {
            Some(model) => model.clone(),
            None => {
                bad.add(
                    r.field("environment"),
                    format!(
                        "names GPU type {}, which [gpu_types] does not describe",
                        e.gpu_type
                    ),
                );
                None
            }
        });
    r.finish(bad);
    Some(FleetHost {
        host: host?,
        environment: environment?,
        instance_type: instance_type?,
        n_gpus: in_bounds?,
        gpu: gpu?,
        nvlink,
        price: price?,
    })
}

fn price(r: &mut Reader<'_>, bad: &mut Violations) -> Option<Price> {
    let usd_per_hour = positive(r, "price_usd_per_hour", 10_000.0, bad);
    let source = r.text("price_source", bad);
    let source = r.required(
        "price_source",
        source,
        "a price without its source is not a price",
        bad,
    );
    let date = r.text("price_date", bad);
    let date = r.required(
        "price_date",
        date,
        "the date of the source, e.g. 2026-07-20",
        bad,
    );
    let is_date = |d: &String| {
        let parts: Vec<&str> = d.split('-').collect();
        let digits = parts.iter().all(|p| p.bytes().all(|c| c.is_ascii_digit()));
        digits && parts.iter().map(|p| p.len()).eq([4, 2, 2])
    };
    let valid = date.clone().filter(is_date);
    if let (Some(_), None) = (&date, &valid) {
        bad.add(r.field("price_date"), "must be a date such as 2026-07-20");
    }
    Some(Price {
        usd_per_hour: usd_per_hour?,
        source: source?,
        date: valid?,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use koi_core::environment::Market;

    use super::*;

    const DEMO: &str = include_str!("../../configs/fleets/demo.toml");

    #[test]
    fn the_demo_fleet_is_mixed() {
        let fleet = parse(DEMO).unwrap();
        assert_eq!(fleet.hosts.len(), 6);
        assert_eq!(fleet.hosts.iter().map(|h| h.n_gpus).sum::<u32>(), 32);
        let types: BTreeSet<&str> = fleet
            .hosts
            .iter()
            .map(|h| h.environment.gpu_type.as_str())
            .collect();
        assert_eq!(types, BTreeSet::from(["A100", "H100", "L40S"]));
        let places: BTreeSet<String> = fleet
            .hosts
            .iter()
            .map(|h| h.environment.to_string())
            .collect();
        assert!(places.len() >= 3, "{places:?}");
        let markets: BTreeSet<Market> = fleet.hosts.iter().map(|h| h.environment.market).collect();
        assert_eq!(markets.len(), 2);
        let inventory = fleet.hosts[0].inventory();
        assert_eq!(inventory.gpus.len() as u32, fleet.hosts[0].n_gpus);
        assert_eq!(inventory.gpus[0].memory_bytes, 81_559 << 20);
        assert!(inventory.gpus.iter().all(|g| {
            g.uuid
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || c == b'-')
        }));
    }

    #[test]
    fn every_problem_of_a_fleet_file_is_reported_at_once() {
        let text = r#"
            [gpu_types.H100]
            name = "H100"
            memory_mib = 1
            power_limit_w = nan
            idle_power_w = 70.0
            [[host]]
            name = "H100 a"
            environment = "on_demand/aws/us-east-1/a/H100"
            instance_typ = "p5"
            gpus = 99
            price_usd_per_hour = -1.0
            price_source = "list"
            price_date = "July 2026"
            [[host]]
            name = "b"
            environment = "rented/aws/us-east-1/a/H100"
            instance_type = "p5"
            gpus = 8
            price_usd_per_hour = 1.0
            price_source = "list"
            price_date = "2026-07-20"
            [[host]]
            name = "c"
            environment = "spot/aws/us-east-1/a/B300"
            instance_type = 5
            gpus = 8
        "#;
        let problems = parse(text).unwrap_err();
        let fields: Vec<&str> = problems.iter().map(|v| v.field.as_str()).collect();
        for field in [
            "gpu_types.H100.memory_mib",
            "gpu_types.H100.power_limit_w",
            "host[0].name",
            "host[0].instance_typ",
            "host[0].gpus",
            "host[0].price_usd_per_hour",
            "host[0].price_date",
            "host[1].environment",
            "host[2].environment",
            "host[2].instance_type",
            "host[2].price_usd_per_hour",
            "host[2].price_source",
            "host[2].price_date",
        ] {
            assert!(fields.contains(&field), "{field} in {problems:#?}");
        }
        assert_eq!(parse("host = []").unwrap_err().len(), 1);
        assert!(
            parse("host = [").unwrap_err()[0]
                .message
                .contains("TOML parse error")
        );
    }

    #[test]
    fn two_hosts_do_not_share_a_name() {
        let twice = DEMO.replace("name = \"h100-b\"", "name = \"h100-a\"");
        let problems = parse(&twice).unwrap_err();
        assert_eq!(
            (problems.len(), problems[0].field.as_str()),
            (1, "host[1].name")
        );
    }
}
