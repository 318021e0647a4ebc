//! Taking prices out of the feed: a mistyped machine, a contract that ended, room for others.

use koi_core::catalog::price::PriceFilter;
use koi_core::server::{Command, Reply};
use koi_core::violation::FieldViolation;
use koi_proto::v1;
use tonic::Status;

use super::filter;
use crate::api::fleet::{FleetApi, MAX_REASON_BYTES};
use crate::api::idempotency::Asked;
use crate::api::status::{invalid, refused, searchable};
use crate::auth::Identity;

impl FleetApi {
    pub(in crate::api) async fn take_prices_out(
        &self,
        identity: &Identity,
        request: v1::RemovePricesRequest,
    ) -> Result<v1::RemovePricesReply, Status> {
        let filter = checked(&request).map_err(|found| invalid(&found))?;
        if request.validate_only {
            let asked = self
                .core
                .read(move |m| m.state().prices.n_matching(&filter));
            let n_removed = asked.await.map_err(|refusal| refused(&refusal))? as u64;
            return Ok(v1::RemovePricesReply { n_removed });
        }
        let payload = format!("remove prices {filter:?}").into_bytes();
        let key = &request.idempotency_key;
        let count = match self.requests.ask(identity, key, &payload).await? {
            Asked::Before(count) => count,
            Asked::Now(turn) => {
                let command = Command::RemovePrices {
                    filter,
                    reason: request.reason,
                    request: turn.record.clone(),
                };
                let core = self.core.clone();
                let done = turn.run(async move { core.command(command).await });
                match done.await?.map_err(|refusal| refused(&refusal))? {
                    Reply::Object(count) => count,
                    Reply::TickOpened(_) | Reply::Done => String::new(),
                }
            }
        };
        let unknown = |_| Status::internal("no count came back");
        let n_removed = count.parse().map_err(unknown)?;
        Ok(v1::RemovePricesReply { n_removed })
    }
}

/// Everything that is wrong with a request, or what it means.
fn checked(request: &v1::RemovePricesRequest) -> Result<PriceFilter, Vec<FieldViolation>> {
    let parts = [&request.cloud, &request.region, &request.instance];
    let mut problems = Vec::new();
    let mut add = |field: &str, message: String| {
        let field = field.to_owned();
        problems.push(FieldViolation { field, message });
    };
    for (field, part) in ["cloud", "region", "instance"].into_iter().zip(parts) {
        if let Err(why) = searchable(part) {
            add(field, why);
        }
    }
    if request.reason.len() > MAX_REASON_BYTES {
        add("reason", format!("at most {MAX_REASON_BYTES} bytes"));
    }
    let filter = filter(parts, &request.market).unwrap_or_else(|(field, message)| {
        add(field, message);
        PriceFilter::default()
    });
    match (filter.is_everything(), request.all) {
        (true, false) if request.market.is_empty() => add(
            "all",
            "name a cloud, region, market or instance, or say that the whole feed is meant"
                .to_owned(),
        ),
        (false, true) => add("all", "is said together with a part of the key".to_owned()),
        _ => {}
    }
    if problems.is_empty() {
        Ok(filter)
    } else {
        Err(problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(request: &v1::RemovePricesRequest) -> Vec<String> {
        let found = checked(request).err().unwrap_or_default();
        found.into_iter().map(|v| v.field).collect()
    }

    #[test]
    fn the_whole_feed_goes_only_when_that_is_said() {
        let mut request = v1::RemovePricesRequest::default();
        assert_eq!(fields(&request), ["all"]);
        request.all = true;
        assert!(checked(&request).unwrap().is_everything());
        request.cloud = "aws".to_owned();
        assert_eq!(fields(&request), ["all"]);
        request.all = false;
        let filter = checked(&request).unwrap();
        assert_eq!(filter.to_string(), "aws/*/*/*");
    }

    #[test]
    fn every_problem_is_named() {
        let request = v1::RemovePricesRequest {
            cloud: "a\0b".to_owned(),
            region: "r".repeat(500),
            market: "sometimes".to_owned(),
            reason: "x".repeat(2_000),
            ..v1::RemovePricesRequest::default()
        };
        assert_eq!(fields(&request), ["cloud", "region", "reason", "market"]);
    }
}
