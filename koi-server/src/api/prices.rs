//! Prices in the `Fleet` service: a feed's update, removals from it, and what holds.

mod removal;

use std::collections::BTreeSet;

use koi_core::catalog::price::{
    Date, Merged, Place, Price, PriceBook, PriceFilter, PriceKey, PriceOrigin, PriceUpdate,
    PricedRow, holding,
};
use koi_core::environment::Market;
use koi_core::server::{Command, Reply, ServerMachine};
use koi_proto::convert::prices::overlay_from_wire;
use koi_proto::v1;
use prost::Message as _;
use tonic::Status;

use super::fleet::FleetApi;
use super::idempotency::Asked;
use super::status::{invalid, invalid_field, refused};
use crate::auth::Identity;
use crate::core_loop::utc_now;

/// Prices older than this are reported as stale, as by `koi catalog check`.
const MAX_AGE_DAYS: i64 = 180;
/// Most warnings in one answer.
const MAX_WARNINGS: usize = 1000;
/// Size of a page when none is asked for, and the largest.
const PAGE_SIZES: (usize, usize) = (100, 500);
/// Stands between the parts of a page token; names have no such character.
const SEPARATOR: char = '\u{1f}';

pub(super) fn today() -> Result<Date, Status> {
    let days = utc_now().0.div_euclid(86_400_000_000);
    Date::from_days(days).map_err(|e| Status::internal(format!("the clock is wrong: {e}")))
}

impl FleetApi {
    pub(super) async fn set_prices(
        &self,
        identity: &Identity,
        request: v1::UpdatePricesRequest,
    ) -> Result<v1::UpdatePricesReply, Status> {
        let (key, validate_only) = (request.idempotency_key.clone(), request.validate_only);
        let payload = v1::UpdatePricesRequest {
            idempotency_key: String::new(),
            ..request.clone()
        };
        let overlay = overlay_from_wire(request).map_err(|found| invalid(&found))?;
        let mut update = overlay
            .into_update(self.catalog, today()?, MAX_AGE_DAYS)
            .map_err(|found| invalid(&found))?;
        let asked = self.core.read(places).await;
        let known = asked.map_err(|refusal| refused(&refusal))?;
        let sent = PriceBook::from(update.rows.clone());
        update.flags.extend(sent.in_unknown_places(&known));
        let warnings = v1::UpdatePricesReply {
            n_warnings: u32::try_from(update.flags.len()).unwrap_or(u32::MAX),
            warnings: warnings(&update),
            ..v1::UpdatePricesReply::default()
        };
        let counts = if validate_only {
            let asked = self.core.read(move |m| m.state().prices.merged(&update));
            let merged = asked.await.map_err(|refusal| refused(&refusal))?;
            merged.map_err(|found| invalid(&found))?
        } else {
            let payload = payload.encode_to_vec();
            match self.requests.ask(identity, &key, &payload).await? {
                Asked::Before(object) => counted(&object)?,
                Asked::Now(turn) => {
                    let (update, request) = (Box::new(update), turn.record.clone());
                    let command = Command::UpdatePrices {
                        update,
                        request,
                        remember: turn.is_keyed(),
                    };
                    let core = self.core.clone();
                    let done = turn.run(async move { core.command(command).await });
                    match done.await?.map_err(|refusal| refused(&refusal))? {
                        Reply::Object(object) => counted(&object)?,
                        Reply::TickOpened(_) | Reply::Done => {
                            return Err(Status::internal("no counts came back"));
                        }
                    }
                }
            }
        };
        Ok(v1::UpdatePricesReply {
            n_added: counts.n_added,
            n_replaced: counts.n_replaced,
            n_unchanged: counts.n_unchanged,
            n_older: counts.n_older,
            ..warnings
        })
    }

    pub(super) async fn held_prices(
        &self,
        request: v1::ListPricesRequest,
    ) -> Result<v1::ListPricesReply, Status> {
        let wanted = Wanted::of(&request)?;
        let page = request.page.unwrap_or_default();
        let after = after(&page.token)?;
        let size = match page.size as usize {
            0 => PAGE_SIZES.0,
            n => n.min(PAGE_SIZES.1),
        };
        let read = self
            .core
            .read(move |m| held(m, after.as_ref(), size + 1, |key, p| wanted.has(key, p)));
        let mut rows = read.await.map_err(|refusal| refused(&refusal))?;
        let more = rows.len() > size;
        rows.truncate(size);
        let next_token = rows.last().filter(|_| more).map(|r| token(&r.key));
        let flags = PriceBook::from(rows.clone()).flags(self.catalog, today()?, MAX_AGE_DAYS);
        let prices = rows.iter().map(|row| {
            let problems = flags.iter().filter(|f| f.key == row.key);
            v1::HeldPrice {
                price: Some((&row.key, Some(row.price.usd_per_hour)).into()),
                source: row.price.source.clone(),
                date: row.price.date.to_string(),
                origin: row.price.origin.name().to_owned(),
                problems: problems.map(|f| f.problem.to_string()).collect(),
            }
        });
        Ok(v1::ListPricesReply {
            prices: prices.collect(),
            page: Some(v1::PageReply {
                next_token: next_token.unwrap_or_default(),
            }),
        })
    }
}

/// Where listed prices and hosts are.
fn places(machine: &ServerMachine) -> BTreeSet<Place> {
    let mut known = machine.base_prices().places();
    let hosts = machine.state().hosts.values();
    known.extend(hosts.map(|host| {
        let place = &host.facts.environment;
        (place.cloud.clone(), place.region.clone())
    }));
    known
}

fn counted(object: &str) -> Result<Merged, Status> {
    Merged::from_counts(object).ok_or_else(|| Status::internal("no counts came back"))
}

fn warnings(update: &PriceUpdate) -> Vec<v1::PriceWarning> {
    let warning = |flag: &koi_core::catalog::price::PriceFlag| v1::PriceWarning {
        price: Some((&flag.key, flag.usd_per_hour).into()),
        problem: flag.problem.name().to_owned(),
        message: flag.problem.to_string(),
    };
    update
        .flags
        .iter()
        .take(MAX_WARNINGS)
        .map(warning)
        .collect()
}

/// Cloud, region and machine, and a market, where empty means all.
///
/// # Errors
/// The field that is wrong, and why.
fn filter(
    [cloud, region, instance]: [&String; 3],
    market: &str,
) -> Result<PriceFilter, (&'static str, String)> {
    let given = |text: &String| Some(text.clone()).filter(|t| !t.is_empty());
    let market = match market {
        "" => None,
        name => Some(Market::from_name(name).ok_or_else(|| {
            let message = "must be one of reserved, on_demand, spot";
            ("market", message.to_owned())
        })?),
    };
    Ok(PriceFilter {
        cloud: given(cloud),
        region: given(region),
        market,
        instance: given(instance),
    })
}

/// Which prices are asked for; `None` matches all.
struct Wanted {
    key: PriceFilter,
    origin: Option<PriceOrigin>,
}

impl Wanted {
    fn of(request: &v1::ListPricesRequest) -> Result<Self, Status> {
        let parts = [&request.cloud, &request.region, &request.instance];
        let key = filter(parts, &request.market)
            .map_err(|(field, message)| invalid_field(field, message))?;
        let named = Some(&request.origin).filter(|name| !name.is_empty());
        let origin = named.map(|name| {
            let all = [PriceOrigin::List, PriceOrigin::Overlay, PriceOrigin::Feed];
            let found = all.into_iter().find(|o| o.name() == name.as_str());
            found.ok_or_else(|| invalid_field("origin", "must be one of list, overlay, feed"))
        });
        Ok(Self {
            key,
            origin: origin.transpose()?,
        })
    }

    fn has(&self, key: &PriceKey, price: &Price) -> bool {
        self.key.has(key) && self.origin.is_none_or(|o| o == price.origin)
    }
}

/// Prices that hold, in order of key, after one of them.
fn held(
    machine: &ServerMachine,
    after: Option<&PriceKey>,
    limit: usize,
    keep: impl Fn(&PriceKey, &Price) -> bool,
) -> Vec<PricedRow> {
    let (base, feed) = (machine.base_prices(), &machine.state().prices);
    let mut listed = base.after(after).peekable();
    let mut fed = feed.after(after).peekable();
    let mut rows = Vec::new();
    while rows.len() < limit {
        let key = match (listed.peek(), fed.peek()) {
            (Some((a, _)), Some((b, _))) => (*a).min(*b),
            (Some((key, _)), None) | (None, Some((key, _))) => *key,
            (None, None) => break,
        };
        listed.next_if(|(k, _)| *k == key);
        fed.next_if(|(k, _)| *k == key);
        if let Some(price) = holding(base, feed, key).filter(|p| keep(key, p)) {
            rows.push(PricedRow {
                key: key.clone(),
                price: price.clone(),
            });
        }
    }
    rows
}

fn token(key: &PriceKey) -> String {
    let (cloud, region) = (key.cloud.as_str(), key.region.as_str());
    let parts = [cloud, region, key.market.name(), key.instance.as_str()];
    parts.join(&SEPARATOR.to_string())
}

fn after(token: &str) -> Result<Option<PriceKey>, Status> {
    if token.is_empty() {
        return Ok(None);
    }
    let bad = || invalid_field("page.token", "is not a token of this list");
    let parts: Vec<&str> = token.split(SEPARATOR).collect();
    let [cloud, region, market, instance] = parts.as_slice() else {
        return Err(bad());
    };
    Ok(Some(PriceKey {
        cloud: (*cloud).to_owned(),
        region: (*region).to_owned(),
        market: Market::from_name(market).ok_or_else(bad)?,
        instance: (*instance).to_owned(),
    }))
}
