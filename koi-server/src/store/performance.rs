//! Measured performance from outside: rows by source and id, replaced when they change.

use koi_core::performance::PerformanceRow;
use koi_core::time::UtcMicros;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::document::plain;
use super::{Page, PageRequest, Store, StoreError, document};

/// A row and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedRow {
    /// What was measured.
    pub row: PerformanceRow,
    /// When it was imported, or last changed by an import.
    pub imported_at: UtcMicros,
    /// By whom.
    pub imported_by: String,
}

/// What an import did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImportCounts {
    /// New rows.
    pub n_added: u32,
    /// Rows that were there and differed.
    pub n_replaced: u32,
    /// Rows that were there already.
    pub n_unchanged: u32,
}

/// Rows wanted; `None` matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PerformanceFilter {
    /// Source.
    pub source: Option<String>,
    /// Model, as the source writes it.
    pub model: Option<String>,
    /// GPU type, as the source writes it.
    pub gpu_type: Option<String>,
}

/// A source in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerformanceSource {
    /// Its name.
    pub source: String,
    /// Rows.
    pub n_rows: u64,
    /// Different models.
    pub n_models: u64,
    /// Different GPU types.
    pub n_gpu_types: u64,
    /// Newest import.
    pub newest_import: UtcMicros,
}

fn imported_of(row: &PgRow) -> Result<ImportedRow, StoreError> {
    let (source, row_id): (String, String) = (row.try_get("source")?, row.try_get("row_id")?);
    let doc: &str = row.try_get("doc")?;
    Ok(ImportedRow {
        row: document::read("performance", format!("{source} {row_id}"), doc)?,
        imported_at: UtcMicros(row.try_get("imported_at")?),
        imported_by: row.try_get("imported_by")?,
    })
}

fn source_of(row: &PgRow) -> Result<PerformanceSource, StoreError> {
    let count = |i: usize| -> Result<u64, StoreError> {
        Ok(u64::try_from(row.try_get::<i64, _>(i)?).unwrap_or_default())
    };
    Ok(PerformanceSource {
        source: row.try_get(0)?,
        n_rows: count(1)?,
        n_models: count(2)?,
        n_gpu_types: count(3)?,
        newest_import: UtcMicros(row.try_get(4)?),
    })
}

impl Store {
    /// Adds or replaces rows, all in one statement. Ids must be unique within the call.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn performance_import(
        &self,
        rows: &[PerformanceRow],
        (at, by): (UtcMicros, &str),
    ) -> Result<ImportCounts, StoreError> {
        let column = |of: fn(&PerformanceRow) -> &String| -> Vec<String> {
            rows.iter().map(|r| plain(of(r))).collect()
        };
        let docs = rows
            .iter()
            .map(document::write)
            .collect::<Result<Vec<_>, _>>()?;
        let sql = "INSERT INTO performance
                       (source, row_id, model, gpu_type, doc, imported_at, imported_by)
                   SELECT source, row_id, model, gpu_type, doc::json, $6, $7
                   FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
                        AS t (source, row_id, model, gpu_type, doc)
                   ON CONFLICT (source, row_id) DO UPDATE SET
                       model = excluded.model, gpu_type = excluded.gpu_type, doc = excluded.doc,
                       imported_at = excluded.imported_at, imported_by = excluded.imported_by
                   WHERE performance.doc::text <> excluded.doc::text
                   RETURNING xmax = 0";
        let written = sqlx::query(sql)
            .bind(column(|r| &r.source))
            .bind(column(|r| &r.row_id))
            .bind(column(|r| &r.model))
            .bind(column(|r| &r.gpu_type))
            .bind(docs)
            .bind(at.0)
            .bind(plain(by))
            .fetch_all(&self.shared)
            .await?;
        let mut counts = ImportCounts::default();
        for row in &written {
            let is_new: bool = row.try_get(0)?;
            counts.n_added += u32::from(is_new);
            counts.n_replaced += u32::from(!is_new);
        }
        let n_rows = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        counts.n_unchanged = n_rows - counts.n_added - counts.n_replaced;
        Ok(counts)
    }

    /// Rows by source and id.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn performance_rows(
        &self,
        filter: &PerformanceFilter,
        page: &PageRequest,
    ) -> Result<Page<ImportedRow>, StoreError> {
        let sql = "SELECT source, row_id, doc::text AS doc, imported_at, imported_by
                   FROM performance
                   WHERE (source, row_id) > ($1, $2)
                     AND ($3::text IS NULL OR source = $3)
                     AND ($4::text IS NULL OR model = $4)
                     AND ($5::text IS NULL OR gpu_type = $5)
                   ORDER BY source, row_id LIMIT $6";
        let first = (String::new(), String::new());
        let (source, row_id) = page.after("performance", first)?;
        let rows = sqlx::query(sql)
            .bind(source)
            .bind(row_id)
            .bind(&filter.source)
            .bind(&filter.model)
            .bind(&filter.gpu_type)
            .bind(page.sql_limit())
            .fetch_all(&self.shared)
            .await?;
        let items = rows.iter().map(imported_of).collect::<Result<_, _>>()?;
        Ok(Page::cut(items, page, "performance", |i: &ImportedRow| {
            (i.row.source.clone(), i.row.row_id.clone())
        }))
    }

    /// Rows for a planner: of every model on every GPU type, as sources name them, the newest imports
    /// and no more than `per_scope`; no more than `most` in all. A row that cannot be read is left out.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn performance_by_scope(
        &self,
        per_scope: u32,
        most: u32,
    ) -> Result<Vec<PerformanceRow>, StoreError> {
        let sql = "SELECT source, row_id, doc::text AS doc, imported_at, imported_by
                   FROM (SELECT *, row_number() OVER (
                             PARTITION BY model, gpu_type
                             ORDER BY imported_at DESC, source, row_id) AS place
                         FROM performance) AS placed
                   WHERE place <= $1
                   ORDER BY place, source, row_id LIMIT $2";
        let rows = sqlx::query(sql)
            .bind(i64::from(per_scope))
            .bind(i64::from(most))
            .fetch_all(&self.shared)
            .await?;
        // One row that cannot be read must not keep plans from all the others.
        let readable = |row: &PgRow| match imported_of(row) {
            Ok(imported) => Some(imported.row),
            Err(error) => {
                tracing::warn!(%error, "a measured row was left out");
                None
            }
        };
        Ok(rows.iter().filter_map(readable).collect())
    }

    /// Every source in numbers, by name.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn performance_sources(&self) -> Result<Vec<PerformanceSource>, StoreError> {
        let sql = "SELECT source, count(*), count(DISTINCT model), count(DISTINCT gpu_type),
                          max(imported_at)
                   FROM performance GROUP BY source ORDER BY source LIMIT 1000";
        let rows = sqlx::query(sql).fetch_all(&self.shared).await?;
        rows.iter().map(source_of).collect()
    }
}
