//! The price feed: rows by what they are for, replaced whole, taken out by parts of their key.

use sqlx::{PgConnection, Row};

use koi_core::catalog::price::{PriceBook, PriceFilter, PricedRow};
use koi_core::time::UtcMicros;

use super::state::Quarantined;
use super::{StoreError, document};

pub(super) async fn prices_put(
    db: &mut PgConnection,
    rows: &[PricedRow],
    at: UtcMicros,
) -> Result<(), StoreError> {
    let column = |of: fn(&PricedRow) -> &str| -> Vec<String> {
        rows.iter().map(|r| of(r).to_owned()).collect()
    };
    let docs = rows
        .iter()
        .map(document::write)
        .collect::<Result<Vec<_>, _>>()?;
    // Of a machine that stands twice the last price counts, as in memory.
    let sql = "INSERT INTO price (cloud, region, market, instance, doc, updated_at)
               SELECT DISTINCT ON (cloud, region, market, instance)
                      cloud, region, market, instance, doc::json, $6
               FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
                    WITH ORDINALITY AS t (cloud, region, market, instance, doc, place)
               ORDER BY cloud, region, market, instance, place DESC
               ON CONFLICT (cloud, region, market, instance) DO UPDATE SET
                   doc = excluded.doc, updated_at = excluded.updated_at";
    sqlx::query(sql)
        .bind(column(|r| &r.key.cloud))
        .bind(column(|r| &r.key.region))
        .bind(column(|r| r.key.market.name()))
        .bind(column(|r| &r.key.instance))
        .bind(docs)
        .bind(at.0)
        .execute(db)
        .await?;
    Ok(())
}

pub(super) async fn prices_remove(
    db: &mut PgConnection,
    filter: &PriceFilter,
) -> Result<(), StoreError> {
    let sql = "DELETE FROM price WHERE ($1::text IS NULL OR cloud = $1)
               AND ($2::text IS NULL OR region = $2)
               AND ($3::text IS NULL OR market = $3)
               AND ($4::text IS NULL OR instance = $4)";
    sqlx::query(sql)
        .bind(&filter.cloud)
        .bind(&filter.region)
        .bind(filter.market.map(koi_core::environment::Market::name))
        .bind(&filter.instance)
        .execute(db)
        .await?;
    Ok(())
}

/// The whole feed; rows that cannot be read are left out.
pub(super) async fn prices_load(
    db: &mut PgConnection,
    quarantined: &mut Vec<Quarantined>,
) -> Result<PriceBook, StoreError> {
    let sql = "SELECT cloud || '/' || region || '/' || instance || '/' || market, doc::text
               FROM price";
    let mut book = PriceBook::default();
    for row in sqlx::query(sql).fetch_all(db).await? {
        let (key, doc): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        match serde_json::from_str::<PricedRow>(&doc) {
            Ok(priced) => drop(book.put(priced.key, priced.price)),
            Err(e) => quarantined.push(Quarantined {
                table: "price",
                key,
                problem: e.to_string(),
            }),
        }
    }
    Ok(book)
}
