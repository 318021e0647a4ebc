//! The price feed in both stores: what a removal takes out.

use koi_core::catalog::price::PriceFilter;
use koi_core::environment::Market;
use koi_core::store::Change;

use super::conformance::agree;
use super::records::*;

#[tokio::test]
async fn prices_are_taken_out_by_parts_of_their_key() {
    let of = |cloud: &str, market, instance: &str| {
        let mut row = priced(instance, 2.0);
        (row.key.cloud, row.key.market) = (cloud.to_owned(), market);
        row
    };
    let rows = vec![
        of("aws", Market::Spot, "a"),
        of("aws", Market::OnDemand, "a"),
        of("aws", Market::Spot, "b"),
        of("gcp", Market::Spot, "a"),
        of("gcp", Market::Reserved, "it's"),
    ];
    let remove = |filter| tx(vec![Change::PricesRemoved(filter)]);
    let some = |text: &str| Some(text.to_owned());
    let none = PriceFilter::default;
    let script = [
        tx(vec![Change::Prices(rows)]),
        remove(PriceFilter {
            region: some("nowhere"),
            ..none()
        }),
        remove(PriceFilter {
            cloud: some("aws"),
            market: Some(Market::Spot),
            ..none()
        }),
        // What is refused takes nothing out.
        tx(vec![
            Change::PricesRemoved(none()),
            put_job(&next_version(&job(1, "chat"))),
        ]),
        remove(PriceFilter {
            instance: some("it's"),
            ..none()
        }),
        tx(vec![
            Change::PricesRemoved(none()),
            Change::Prices(vec![priced("own", 1.0)]),
        ]),
    ];
    let (answers, state) = agree(&script).await;
    assert_eq!(answers.iter().filter(|a| a.is_err()).count(), 1);
    let left: Vec<&str> = state
        .prices
        .iter()
        .map(|(k, _)| k.instance.as_str())
        .collect();
    assert_eq!(left, ["own"]);
}
