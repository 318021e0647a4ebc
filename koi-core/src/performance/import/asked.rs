//! Rows of the tidy table as questions: only what describes a deployment and its load is read. What
//! was measured is not looked at, so nothing of it can reach a prediction.

use super::quotes;
use super::table::{Cells, Table, file_problem};
use crate::surrogate::measured_row::{LoadKind, MeasuredRow};
use crate::violation::FieldViolation;

const REQUIRED: [&str; 5] = ["row_id", "model", "gpu_type", "isl", "osl"];

/// One row to ask about.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedRow {
    /// The row's id.
    pub row_id: String,
    /// What ran, or why the row cannot be read.
    pub row: Result<MeasuredRow, Vec<FieldViolation>>,
}

/// Reads the rows of a table.
///
/// # Errors
/// When the text is no such table at all; problems of a row stay with the row.
pub fn asked_rows(text: &str) -> Result<Vec<AskedRow>, Vec<FieldViolation>> {
    quotes::check(text.trim_start_matches('\u{feff}')).map_err(file_problem)?;
    let table = Table::read(text, &REQUIRED)?;
    let rows = table.records().map(|cells| AskedRow {
        row_id: cells.text("row_id").to_owned(),
        row: asked(cells),
    });
    Ok(rows.collect())
}

fn asked(mut cells: Cells<'_>) -> Result<MeasuredRow, Vec<FieldViolation>> {
    let notes = cells.text("notes");
    let row = MeasuredRow {
        model: cells.text("model").to_owned(),
        gpu_type: cells.text("gpu_type").to_owned(),
        num_gpus: cells.devices("num_gpus"),
        tp: cells.devices("tp"),
        pp: cells.devices("pp"),
        ep: cells.expert_width(),
        dp: cells.devices("dp"),
        engine: cells.text("engine").to_owned(),
        engine_version: cells.optional("engine_version"),
        year: cells.text("date").get(..4).and_then(|y| y.parse().ok()),
        weight_dtype: cells.optional("weight_dtype"),
        kv_dtype: cells.optional("kv_dtype"),
        isl: cells.positive("isl"),
        osl: cells.positive("osl"),
        load: cells.positive("concurrency_or_rate"),
        load_kind: load_kind(&mut cells),
        is_disaggregated: notes.contains("DISAGGREGATED"),
        n_requests: requests_of_run(notes),
    };
    cells.finish(row)
}

fn load_kind(cells: &mut Cells<'_>) -> Option<LoadKind> {
    let name = cells.text("load_kind");
    let kind = LoadKind::from_name(name);
    if kind.is_none() && !name.is_empty() {
        let shown: String = name.chars().take(40).collect();
        let known = LoadKind::NAMES.join(", ");
        cells.refuse("load_kind", format!("{shown:?} is not known: {known}"));
    }
    kind
}

/// Requests of a whole run, where a row's notes state them.
pub(crate) fn requests_of_run(notes: &str) -> Option<u32> {
    count_before(notes, " requests")
}

/// The number before a word in a text, such as 2000 in "rate inf, 2000 requests".
fn count_before(text: &str, word: &str) -> Option<u32> {
    let (before, _) = text.split_once(word)?;
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::performance::PerformanceRow;
    use crate::performance::import::{Given, import};

    #[test]
    fn measured_columns_change_nothing() {
        let header =
            "row_id,model,gpu_type,isl,osl,load_kind,concurrency_or_rate,tp,ep,notes,ttft_ms\n";
        let with = format!("{header}r,m,H100,100,10,batch,4,2,on,\"a, 200 requests\",55\n");
        let without = with.replace(",55\n", ",\n");
        let rows = asked_rows(&with).unwrap();
        assert_eq!(rows, asked_rows(&without).unwrap());
        let row = rows[0].row.as_ref().unwrap();
        assert_eq!(
            (row.ep, row.n_requests, row.tp),
            (Some(0), Some(200), Some(2))
        );
    }

    #[test]
    fn a_table_that_can_be_read_two_ways_is_refused_by_place() {
        let header = "row_id,model,gpu_type,isl,osl,load_kind,concurrency_or_rate,tp";
        let row = "r,m,H100,100,10,batch,4,2";
        let twice = asked_rows(&format!("{header},isl,osl\n{row},9,9\n")).unwrap_err();
        let shown: Vec<String> = twice
            .iter()
            .map(|p| format!("{}, {}", p.field, p.message))
            .collect();
        assert_eq!(
            shown,
            [
                "line 1, column 9 has the name of column 4: \"isl\"",
                "line 1, column 10 has the name of column 5: \"osl\""
            ]
        );
        let open = asked_rows(&format!("{header}\n{row}\n\"{row}\n")).unwrap_err();
        assert!(open[0].message.contains("line 3, character 1"), "{open:?}");
        let text = format!("{header}\n{row}\n{row},surplus\n{row},,\n");
        let rows = asked_rows(&text).unwrap();
        assert!(rows[0].row.is_ok() && rows[2].row.is_ok());
        let refused = rows[1].row.as_ref().unwrap_err();
        assert_eq!(refused.len(), 1);
        assert!(
            refused[0].message.contains("line 3") && refused[0].message.contains("column 9"),
            "{refused:?}"
        );
    }

    #[test]
    fn a_load_kind_that_is_not_known_comes_back_with_the_known_ones() {
        let text = "row_id,model,gpu_type,isl,osl,load_kind,concurrency_or_rate,tp\n\
            r,m,H100,100,10,sometimes,4,2\n";
        let rows = asked_rows(text).unwrap();
        let why = &rows[0].row.as_ref().unwrap_err()[0].message;
        assert!(
            why.contains("\"sometimes\"") && why.contains("rate_rps"),
            "{why}"
        );
    }

    /// What the database keeps of a row asks the same as the table does.
    #[test]
    fn a_stored_row_asks_what_the_table_asks() {
        let text = "source,row_id,model,gpu_type,date,isl,osl,load_kind,concurrency_or_rate,tp,ep,num_gpus,engine,notes,tpot_ms,tpot_stat\n\
            s,a,m,H100,2024-05,100,10,max_num_seqs,4,8,on,8,vllm,\"rate inf, 200 requests\",20,mean\n\
            s,b,m,H100,2025-05,100,10,concurrency,4,8,8,8,sglang,,20,mean\n\
            s,c,m,H100,,100,10,offline,,8,,8,vllm,DISAGGREGATED,20,mean\n";
        let imported = import(text, None, &Given::default()).unwrap();
        assert_eq!(
            (imported.rows.len(), imported.n_left_out),
            (3, 0),
            "{:?}",
            imported.problems
        );
        assert_eq!(imported.rows[0].ep, Some(0), "on, not over how many");
        for (row, asked) in imported.rows.iter().zip(asked_rows(text).unwrap()) {
            // As it is stored and read back.
            let stored = serde_json::to_string(row).unwrap();
            let row: PerformanceRow = serde_json::from_str(&stored).unwrap();
            assert_eq!(MeasuredRow::from(&row), asked.row.unwrap());
        }
    }

    #[test]
    fn a_bad_row_is_alone_with_its_problems() {
        let text = "row_id,model,gpu_type,isl,osl,load_kind\nr,m,H100,x,10,sometimes\ns,m,H100,9,10,offline\n";
        let rows = asked_rows(text).unwrap();
        let problems = rows[0].row.as_ref().unwrap_err();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(rows[1].row.is_ok());
        assert!(asked_rows("a,b\n1,2").is_err());
    }
}
