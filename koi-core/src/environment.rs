//! The environment e = (market, cloud, region, zone, gpu_type): the unit of capacity, price and
//! causal invariance. White paper V1, Problem Formulation.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How the capacity was bought; governs price and reclaim risk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Market {
    /// Owned or committed capacity.
    Reserved,
    /// Pay by the hour.
    OnDemand,
    /// Cheaper, and may be reclaimed with a short notice.
    Spot,
}

impl Market {
    /// The name in JSON and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::OnDemand => "on_demand",
            Self::Spot => "spot",
        }
    }

    /// The market of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Reserved, Self::OnDemand, Self::Spot]
            .into_iter()
            .find(|m| m.name() == name)
    }
}

/// The five-part place. Written as `market/cloud/region/zone/gpu_type`, in JSON as an array in
/// the same order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Environment {
    /// How the capacity was bought.
    pub market: Market,
    /// Cloud or data-centre owner.
    pub cloud: String,
    /// Region.
    pub region: String,
    /// Availability zone or hall.
    pub zone: String,
    /// Catalog id of the GPU type.
    pub gpu_type: String,
}

/// The text is not an environment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not an environment: write market/cloud/region/zone/gpu_type, market one of reserved, on_demand, spot; parts of letters, digits, '-', '_' and '.'"
)]
pub struct NotAnEnvironment {
    /// What was offered, cut to 200 characters.
    pub text: String,
}

fn is_part(part: &str) -> bool {
    (1..=63).contains(&part.len())
        && part
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
}

impl FromStr for Environment {
    type Err = NotAnEnvironment;
    fn from_str(text: &str) -> Result<Self, NotAnEnvironment> {
        let bad = || NotAnEnvironment {
            text: text.chars().take(200).collect(),
        };
        let parts: Vec<&str> = text.split('/').collect();
        let [market, cloud, region, zone, gpu_type] = parts.as_slice() else {
            return Err(bad());
        };
        if ![cloud, region, zone, gpu_type]
            .into_iter()
            .all(|p| is_part(p))
        {
            return Err(bad());
        }
        Ok(Self {
            market: Market::from_name(market).ok_or_else(bad)?,
            cloud: (*cloud).to_owned(),
            region: (*region).to_owned(),
            zone: (*zone).to_owned(),
            gpu_type: (*gpu_type).to_owned(),
        })
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            market,
            cloud,
            region,
            zone,
            gpu_type,
        } = self;
        write!(f, "{}/{cloud}/{region}/{zone}/{gpu_type}", market.name())
    }
}

impl Serialize for Environment {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        [
            self.market.name(),
            &self.cloud,
            &self.region,
            &self.zone,
            &self.gpu_type,
        ]
        .serialize(s)
    }
}

impl<'de> Deserialize<'de> for Environment {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let parts = <[String; 5]>::deserialize(d)?;
        parts.join("/").parse().map_err(serde::de::Error::custom)
    }
}
