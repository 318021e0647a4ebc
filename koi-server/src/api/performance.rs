//! The `Performance` service: rows of measured performance come in checked, and are listed.

use std::sync::Arc;

use koi_core::violation::Violations;
use koi_proto::convert::performance::row_from_wire;
use koi_proto::v1;
use tonic::{Request, Response, Status};

use super::prices::today;
use super::status::{invalid, invalid_field, searchable, store_failed};
use crate::auth::TokenTable;
use crate::core_loop::utc_now;
use crate::store::{ImportedRow, PageRequest, PerformanceFilter, Store};
use crate::tick::points::PointsBoard;

/// Most rows of one import.
const MAX_ROWS: usize = 500;

/// The `Performance` service.
#[derive(Clone)]
pub struct PerformanceApi {
    /// Rows.
    pub store: Store,
    /// Who may ask.
    pub tokens: TokenTable,
    /// What plans read of the rows.
    pub points: Arc<PointsBoard>,
}

#[tonic::async_trait]
impl v1::performance_server::Performance for PerformanceApi {
    async fn import_rows(
        &self,
        request: Request<v1::ImportRowsRequest>,
    ) -> Result<Response<v1::ImportRowsReply>, Status> {
        let identity = self.tokens.operator(&request)?;
        let request = request.into_inner();
        if request.rows.len() > MAX_ROWS {
            return Err(invalid_field("rows", format!("more than {MAX_ROWS}")));
        }
        let rows = checked(request.rows)?;
        if request.validate_only {
            return Ok(Response::new(v1::ImportRowsReply::default()));
        }
        let name = identity.name();
        let stored = self.store.performance_import(&rows, (utc_now(), &name));
        let counts = stored.await.map_err(|e| store_failed(&e))?;
        if counts.n_added + counts.n_replaced > 0 {
            self.points.mark_stale();
        }
        Ok(Response::new(v1::ImportRowsReply {
            n_added: counts.n_added,
            n_replaced: counts.n_replaced,
            n_unchanged: counts.n_unchanged,
        }))
    }

    async fn list_rows(
        &self,
        request: Request<v1::ListRowsRequest>,
    ) -> Result<Response<v1::ListRowsReply>, Status> {
        self.tokens.operator(&request)?;
        let request = request.into_inner();
        let given = |text: String| Some(text).filter(|t| !t.is_empty());
        let filter = filter(&request)?;
        let page = request.page.unwrap_or_default();
        let page = PageRequest {
            limit: page.size.min(MAX_ROWS as u32),
            token: given(page.token),
        };
        let found = self
            .store
            .performance_rows(&filter, &page)
            .await
            .map_err(|e| store_failed(&e))?;
        Ok(Response::new(v1::ListRowsReply {
            rows: found.items.iter().map(imported).collect(),
            page: Some(v1::PageReply {
                next_token: found.next.unwrap_or_default(),
            }),
        }))
    }

    async fn list_sources(
        &self,
        request: Request<v1::ListSourcesRequest>,
    ) -> Result<Response<v1::ListSourcesReply>, Status> {
        self.tokens.operator(&request)?;
        let sources = self.store.performance_sources().await;
        let sources = sources.map_err(|e| store_failed(&e))?.into_iter();
        Ok(Response::new(v1::ListSourcesReply {
            sources: sources
                .map(|s| v1::PerformanceSource {
                    source: s.source,
                    n_rows: s.n_rows,
                    n_models: s.n_models,
                    n_gpu_types: s.n_gpu_types,
                    newest_import_us: s.newest_import.0,
                })
                .collect(),
        }))
    }
}

/// The filter of a request; every text that no row can have is named.
fn filter(request: &v1::ListRowsRequest) -> Result<PerformanceFilter, Status> {
    let mut problems = Violations::default();
    let mut wanted = |field: &str, text: &String| {
        let given = Some(text.clone()).filter(|t| !t.is_empty());
        given.filter(|text| match searchable(text) {
            Ok(()) => true,
            Err(why) => {
                problems.add(field, why);
                false
            }
        })
    };
    let filter = PerformanceFilter {
        source: wanted("source", &request.source),
        model: wanted("model", &request.model),
        gpu_type: wanted("gpu_type", &request.gpu_type),
    };
    problems.finish(filter).map_err(|found| invalid(&found))
}

/// Every row checked, problems of all of them together.
fn checked(
    rows: Vec<v1::PerformanceRow>,
) -> Result<Vec<koi_core::performance::PerformanceRow>, Status> {
    let today = today()?;
    let mut problems = Violations::default();
    let mut seen = std::collections::BTreeSet::new();
    let mut good = Vec::with_capacity(rows.len());
    for (index, row) in rows.into_iter().enumerate() {
        let place = format!("rows[{index}]");
        match row_from_wire(row) {
            Ok(row) if row.is_from_the_future(today) => {
                problems.add(format!("{place}.date"), "is in the future");
            }
            Ok(row) if seen.insert((row.source.clone(), row.row_id.clone())) => good.push(row),
            Ok(_) => problems.add(format!("{place}.row_id"), "stands twice in this call"),
            Err(found) => problems.extend(&place, found),
        }
    }
    problems.finish(good).map_err(|found| invalid(&found))
}

fn imported(row: &ImportedRow) -> v1::ImportedRow {
    v1::ImportedRow {
        row: Some((&row.row).into()),
        imported_at_us: row.imported_at.0,
        imported_by: row.imported_by.clone(),
    }
}
