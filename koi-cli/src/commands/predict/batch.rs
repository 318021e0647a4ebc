//! `koi predict --batch`: every row of a table answered, in the order of the table.

use std::io::Write;
use std::path::Path;

use anyhow::Context as _;
use koi_core::performance::import::{AskedRow, asked_rows};
use koi_core::surrogate::EngineProfile;
use koi_core::surrogate::measured_row::{Question, RowAnswer};
use koi_core::surrogate::points::MeasuredPoints;
use koi_core::surrogate::stack::{Calibration, StackPrediction, Stacked};
use serde::Serialize;

use super::models::ModelBook;
use super::target::Target;
use super::{does_not_fit, gpu, price};
use crate::failure::{ExitCode, Failure};
use crate::output::{Format, emit};

/// Largest table.
const MAX_BYTES: u64 = 256 << 20;
/// Columns of the values, each followed by its interval.
const VALUES: [&str; 5] = [
    "out_tok_s_system",
    "ttft_mean_ms",
    "ttft_p99_ms",
    "tpot_mean_ms",
    "tpot_p99_ms",
];

/// What became of one row.
enum Line {
    Predicted {
        stack: Box<StackPrediction>,
        usd_per_million: Option<f64>,
    },
    DoesNotFit(String),
    Unsupported(String),
    Invalid(String),
}

/// Predicts a table.
pub(super) fn run(
    format: Format,
    models: &mut ModelBook,
    (input, output): (&Path, &Path),
    (usd_per_gpu_hour, points): (Option<f64>, &MeasuredPoints),
) -> anyhow::Result<()> {
    let name = input.display().to_string();
    let target = Target::of(input, output)?;
    let text = read(input)?;
    let rows = asked_rows(&text).map_err(|problems| Failure::invalid(&name, problems))?;
    let lines: Vec<(String, Line)> = rows
        .into_iter()
        .map(|row| {
            let id = row.row_id.clone();
            (id, line(models, row, usd_per_gpu_hour, points))
        })
        .collect();
    let to_stdout = matches!(target, Target::Stdout);
    target.put(|to| write(to, &lines))?;
    if to_stdout {
        return Ok(());
    }
    let summary = Summary::of(&lines);
    emit(format, &summary, || summary.text())
}

fn read(input: &Path) -> Result<String, Failure> {
    use std::io::Read as _;
    let mut text = String::new();
    let read = std::fs::File::open(input)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
    read.map_err(|e| Failure::unreadable(input, &e))?;
    if text.len() as u64 > MAX_BYTES {
        let why = format!("{} is longer than {} MiB", input.display(), MAX_BYTES >> 20);
        return Err(Failure::new(ExitCode::Invalid, why));
    }
    Ok(text)
}

fn line(
    models: &mut ModelBook,
    asked: AskedRow,
    usd_per_gpu_hour: Option<f64>,
    points: &MeasuredPoints,
) -> Line {
    let row_id = asked.row_id;
    let row = match asked.row {
        Ok(row) => row,
        Err(problems) => {
            let words: Vec<String> = problems
                .iter()
                .map(|p| format!("{}: {}", p.field, p.message))
                .collect();
            return Line::Invalid(words.join("; "));
        }
    };
    let facts = match models.find(&row.model) {
        Ok(facts) => facts,
        Err(problems) => {
            let words: Vec<String> = problems.iter().map(|p| p.message.clone()).collect();
            return Line::Unsupported(words.join("; "));
        }
    };
    let gpu = match gpu(&row.gpu_type) {
        Ok(gpu) => gpu,
        Err(why) => return Line::Unsupported(why),
    };
    let question = match Question::of(&row, &facts, gpu) {
        Ok(question) => question,
        Err(why) => return Line::Unsupported(why),
    };
    match question.ask(gpu, EngineProfile::embedded(question.generation)) {
        RowAnswer::DoesNotFit(memory) => Line::DoesNotFit(does_not_fit(&memory)),
        RowAnswer::Unsupported(why) => Line::Unsupported(why),
        RowAnswer::Prediction(prediction) => {
            let (generation, ask) = (question.generation, (&question, gpu));
            let voice = |q| points.voice(ask, &prediction.situation, q, Some(&row_id));
            let stack = Calibration::embedded().stack(&prediction, &gpu.id, generation, voice);
            let n_gpus = question.shape.tp * question.shape.pp * question.n_replicas;
            let usd = usd_per_gpu_hour.or_else(|| price::usd_per_gpu_hour(gpu));
            let tokens = stack.out_tok_s_system.map(|s| s.mixed.value);
            Line::Predicted {
                stack: Box::new(stack),
                usd_per_million: price::per_million(usd, n_gpus, tokens),
            }
        }
    }
}

impl Line {
    const fn status(&self) -> &'static str {
        match self {
            Self::Predicted { .. } => "ok",
            Self::DoesNotFit(_) => "does_not_fit",
            Self::Unsupported(_) => "unsupported",
            Self::Invalid(_) => "invalid",
        }
    }

    fn reason(&self) -> &str {
        match self {
            Self::Predicted { .. } => "",
            Self::DoesNotFit(why) | Self::Unsupported(why) | Self::Invalid(why) => why,
        }
    }

    /// In the order of [`VALUES`].
    fn values(&self) -> [Option<Stacked>; 5] {
        match self {
            Self::Predicted { stack, .. } => [
                stack.out_tok_s_system,
                stack.ttft_mean_ms,
                stack.ttft_p99_ms,
                stack.tpot_mean_ms,
                stack.tpot_p99_ms,
            ],
            Self::DoesNotFit(_) | Self::Unsupported(_) | Self::Invalid(_) => [None; 5],
        }
    }

    fn usd_per_million(&self) -> Option<f64> {
        match self {
            Self::Predicted {
                usd_per_million, ..
            } => *usd_per_million,
            Self::DoesNotFit(_) | Self::Unsupported(_) | Self::Invalid(_) => None,
        }
    }
}

fn write(to: impl Write, lines: &[(String, Line)]) -> anyhow::Result<()> {
    let mut out = csv::Writer::from_writer(to);
    let mut header = vec![
        "row_id".to_owned(),
        "status".to_owned(),
        "reason".to_owned(),
    ];
    for value in VALUES {
        header.extend([
            value.to_owned(),
            format!("{value}_lo80"),
            format!("{value}_hi80"),
        ]);
    }
    header.push("usd_per_million_output_tokens".to_owned());
    out.write_record(&header)?;
    let cell = |number: Option<f64>| {
        number
            .filter(|n| n.is_finite())
            .map_or_else(String::new, |n| n.to_string())
    };
    for (row_id, line) in lines {
        let mut record = vec![
            row_id.clone(),
            line.status().to_owned(),
            line.reason().to_owned(),
        ];
        for stacked in line.values() {
            record.push(cell(stacked.map(|s| s.mixed.value)));
            record.push(cell(stacked.map(|s| s.lo80)));
            record.push(cell(stacked.map(|s| s.hi80)));
        }
        record.push(cell(line.usd_per_million()));
        out.write_record(&record)?;
    }
    out.flush().context("write the predictions")
}

/// What became of the rows.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Summary {
    rows: usize,
    predicted: usize,
    does_not_fit: usize,
    unsupported: usize,
    invalid: usize,
}

impl Summary {
    fn of(lines: &[(String, Line)]) -> Self {
        let count = |status: &str| lines.iter().filter(|(_, l)| l.status() == status).count();
        Self {
            rows: lines.len(),
            predicted: count("ok"),
            does_not_fit: count("does_not_fit"),
            unsupported: count("unsupported"),
            invalid: count("invalid"),
        }
    }

    fn text(&self) -> String {
        format!(
            "{} rows: {} predicted, {} do not fit, {} not supported, {} invalid",
            self.rows, self.predicted, self.does_not_fit, self.unsupported, self.invalid
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
row_id,model,gpu_type,num_gpus,tp,pp,engine,isl,osl,load_kind,concurrency_or_rate,out_tok_s_system
a,llama-3.1-8b,H100,1,1,1,vllm,1000,200,concurrency,16,123456
b,llama-3.1-405b,L40S,1,1,1,vllm,1000,200,batch,16,
c,no-such-model,H100,1,1,1,vllm,1000,200,batch,16,
d,llama-3.1-8b,H100,1,1,1,vllm,nan,200,batch,16,
";

    fn predicted(table: &str) -> Vec<(String, Line)> {
        predicted_near(table, &MeasuredPoints::default())
    }

    fn predicted_near(table: &str, points: &MeasuredPoints) -> Vec<(String, Line)> {
        let mut models = ModelBook::open(None).unwrap();
        let rows = asked_rows(table).unwrap();
        rows.into_iter()
            .map(|row| {
                let id = row.row_id.clone();
                (id, line(&mut models, row, Some(2.0), points))
            })
            .collect()
    }

    fn written(lines: &[(String, Line)]) -> String {
        let mut bytes = Vec::new();
        write(&mut bytes, lines).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn every_row_has_its_line_and_status() {
        let lines = predicted(TABLE);
        let statuses: Vec<&str> = lines.iter().map(|(_, l)| l.status()).collect();
        assert_eq!(statuses, ["ok", "does_not_fit", "unsupported", "invalid"]);
        let text = written(&lines);
        assert_eq!(text.lines().count(), 5);
        let columns = text.lines().next().unwrap().split(',').count();
        assert_eq!(columns, 3 + 15 + 1);
    }

    #[test]
    fn nothing_that_a_row_says_is_left_aside() {
        let header = "row_id,model,gpu_type,num_gpus,tp,pp,ep,dp,engine,engine_version,kv_dtype,isl,osl,load_kind,concurrency_or_rate\n";
        let good = "r,llama-3.1-8b,H100,1,1,1,,,vllm,0.9.0,,1000,200,concurrency,16";
        let cases = [
            (",1,1,1,,,", ",0,1,1,,,", "num_gpus"),
            (",1,1,1,,,", ",1,0,1,,,", "tp"),
            (",1,1,1,,,", ",1,1,1,,0,", "dp"),
            (",1,1,1,,,", ",1,1,1,,1000000,", "tp · pp · dp"),
            (",1,1,1,,,", ",,1,1,,1000000,", "tp · pp · dp"),
            (",1,1,1,,,", ",1,1,1,7,,", "ep"),
            ("0.9.0", "banana", "engine_version"),
            ("0.9.0,,", "0.9.0,int1,", "kv_dtype"),
            ("1000,200", "-1,200", "isl"),
            ("1000,200", "1000,0", "osl"),
        ];
        assert_eq!(predicted(&format!("{header}{good}"))[0].1.status(), "ok");
        for (from, to, word) in cases {
            let lines = predicted(&format!("{header}{}", good.replace(from, to)));
            let (status, reason) = (lines[0].1.status(), lines[0].1.reason());
            assert!(
                ["invalid", "unsupported"].contains(&status),
                "{to}: {status}"
            );
            assert!(reason.contains(word), "{to}: {reason}");
        }
        for fine in [
            "nightly-2026-02",
            "gpt-oss-dev",
            "1.x (docs)",
            "0.5.1-rc0.pre1",
            "",
        ] {
            let lines = predicted(&format!("{header}{}", good.replace("0.9.0", fine)));
            assert_eq!(lines[0].1.status(), "ok", "{fine}");
        }
    }

    #[test]
    fn a_measured_value_cannot_leak() {
        let other = TABLE.replace("123456", "9");
        assert_eq!(written(&predicted(TABLE)), written(&predicted(&other)));
    }

    #[test]
    fn measured_points_speak_for_others_and_never_for_themselves() {
        let table = |id: &str, tokens: &str| {
            let header = TABLE.lines().next().unwrap();
            format!(
                "source,{header}\nx,{id},llama-3.1-8b,H100,1,1,1,vllm,1000,200,concurrency,16,{tokens}\n"
            )
        };
        let points = |text: &str| {
            let mut models = ModelBook::open(None).unwrap();
            super::super::perf::read(&mut models, text).unwrap().points
        };
        let (slow, fast) = (points(&table("a", "500")), points(&table("a", "5000")));
        assert_eq!((slow.len(), fast.len()), (1, 1));
        let throughput = |id: &str, points: &MeasuredPoints| {
            let lines = predicted_near(&table(id, ""), points);
            lines[0].1.values()[0].unwrap().mixed
        };
        let (low, high) = (throughput("b", &slow), throughput("b", &fast));
        assert!(low.value < high.value, "{low:?} {high:?}");
        assert!(low.coverage > 0.5);
        let (own, other) = (throughput("a", &slow), throughput("a", &fast));
        assert_eq!(own, other, "no measured value reaches its own row");
    }

    #[test]
    fn below_capacity_what_comes_in_goes_out() {
        let table = TABLE.replace("200,concurrency,16", "200,rate_rps,0.5");
        let lines = predicted(&table);
        let throughput = lines[0].1.values()[0].unwrap();
        assert!(
            (throughput.mixed.value - 100.0).abs() < 1e-6,
            "{throughput:?}"
        );
        assert!(throughput.hi80 < 101.0);
    }

    #[test]
    fn values_lie_inside_their_intervals() {
        let lines = predicted(TABLE);
        for stacked in lines[0].1.values() {
            let s = stacked.unwrap();
            assert!(s.lo80 <= s.mixed.value && s.mixed.value <= s.hi80, "{s:?}");
        }
        assert!(lines[0].1.usd_per_million().unwrap() > 0.0);
    }
}
