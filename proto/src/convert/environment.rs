//! Environments.

use koi_core::environment::{Environment, NotAnEnvironment};

use crate::v1;

/// Domain to wire.
#[must_use]
pub fn environment_to_wire(e: &Environment) -> v1::Environment {
    v1::Environment {
        market: e.market.name().to_owned(),
        cloud: e.cloud.clone(),
        region: e.region.clone(),
        zone: e.zone.clone(),
        gpu_type: e.gpu_type.clone(),
    }
}

/// Wire to domain.
///
/// # Errors
/// When a part is missing or malformed.
pub fn environment_from_wire(e: &v1::Environment) -> Result<Environment, NotAnEnvironment> {
    [&e.market, &e.cloud, &e.region, &e.zone, &e.gpu_type]
        .map(String::as_str)
        .join("/")
        .parse()
}
