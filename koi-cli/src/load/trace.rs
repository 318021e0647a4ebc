//! Reads request traces: arrival times, lengths, and which prefixes requests share.

use std::io::{BufReader, Read as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

use crate::failure::{ExitCode, Failure};

/// Requests kept of one trace.
const MAX_ROWS: usize = 2_000_000;
/// Bytes read of one trace.
const MAX_TRACE_BYTES: u64 = 512 * 1024 * 1024;
/// Longest prompt or answer in tokens.
const MAX_TOKENS: u32 = 1_000_000;
/// Tokens behind one hash id of a Mooncake trace.
pub(super) const HASH_BLOCK_TOKENS: u32 = 512;

/// What a request shares with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shared {
    /// Nothing.
    Nothing,
    /// Its first tokens, with everybody who names the same id.
    Prefix { id: u64, tokens: u32 },
    /// Block by block, with everybody whose ids are the same up to there.
    Blocks(Arc<[u64]>),
}

/// One request of a trace.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// Seconds after the first request.
    pub(super) at_s: f64,
    /// Prompt tokens, at least 1.
    pub(super) prompt_tokens: u32,
    /// Tokens to generate, at least 1.
    pub(super) generated_tokens: u32,
    /// What the prompt shares with others.
    pub(super) shared: Shared,
    /// Session, for affinity.
    pub(super) session: Option<u64>,
}

/// A whole trace, in order of arrival.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Trace {
    /// Requests; never empty.
    pub(super) rows: Vec<Row>,
}

impl Trace {
    /// Seconds from one start of the trace to the next when it loops: the last arrival and one mean
    /// gap.
    pub(super) fn period_s(&self) -> f64 {
        let last = self.rows.last().map_or(0.0, |r| r.at_s);
        let n = self.rows.len() as f64;
        if n > 1.0 && last > 0.0 {
            last * n / (n - 1.0)
        } else {
            1.0
        }
    }

    /// Mean arrivals in requests per second as recorded.
    pub(super) fn rate_rps(&self) -> f64 {
        self.rows.len() as f64 / self.period_s()
    }
}

/// Reads a trace; `.jsonl` is the Mooncake form, everything else CSV.
///
/// # Errors
/// A [`Failure`] with the file, the line and what is wrong there.
pub(crate) fn read(path: &Path) -> anyhow::Result<Trace> {
    let fail = |code, what: String| {
        anyhow::Error::from(Failure::new(
            code,
            format!("trace {}: {what}", path.display()),
        ))
    };
    let file = open_regular(path).map_err(|e| Failure::unreadable(path, &e))?;
    let reader = BufReader::new(file.take(MAX_TRACE_BYTES));
    let is_json = path.extension().is_some_and(|e| e == "jsonl");
    let rows = if is_json {
        read_json_lines(reader)
    } else {
        read_csv(reader)
    };
    let mut rows = rows.map_err(|e| fail(ExitCode::Invalid, format!("{e:#}")))?;
    if rows.is_empty() {
        return Err(fail(ExitCode::Invalid, "it has no requests".to_owned()));
    }
    rows.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    let first = rows[0].at_s;
    for row in &mut rows {
        row.at_s -= first;
    }
    Ok(Trace { rows })
}

/// A folder can be opened, and a pipe would wait for a writer; neither is a trace.
fn open_regular(path: &Path) -> std::io::Result<std::fs::File> {
    if std::fs::metadata(path)?.is_file() {
        std::fs::File::open(path)
    } else {
        Err(std::io::Error::other("not a file"))
    }
}

fn line_of(number: usize, line: std::io::Result<String>) -> anyhow::Result<String> {
    line.with_context(|| format!("line {number}"))
}

struct Columns {
    at: usize,
    prompt: usize,
    generated: usize,
    prefix: Option<(usize, usize)>,
    session: Option<usize>,
}

impl Columns {
    fn of(header: &str) -> anyhow::Result<Self> {
        let names: Vec<&str> = header
            .trim_start_matches('\u{feff}')
            .split(',')
            .map(str::trim)
            .collect();
        let find = |name: &str| names.iter().position(|n| *n == name);
        let missing: Vec<&str> = ["t_s", "context_tokens", "generated_tokens"]
            .into_iter()
            .filter(|n| find(n).is_none())
            .collect();
        ensure!(
            missing.is_empty(),
            "the header lacks {}",
            missing.join(", ")
        );
        Ok(Self {
            at: find("t_s").unwrap_or(0),
            prompt: find("context_tokens").unwrap_or(0),
            generated: find("generated_tokens").unwrap_or(0),
            prefix: find("prefix_id").zip(find("prefix_tokens")),
            session: find("session"),
        })
    }

    fn row(&self, line: &str) -> anyhow::Result<Row> {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let cell = |i: usize| cells.get(i).copied().filter(|c| !c.is_empty());
        let number = |i: usize, name: &str| -> anyhow::Result<f64> {
            let text = cell(i).with_context(|| format!("{name} is missing"))?;
            text.parse::<f64>()
                .with_context(|| format!("{name} is not a number"))
        };
        let shared = match self.prefix.and_then(|(id, n)| cell(id).zip(cell(n))) {
            None => Shared::Nothing,
            Some((id, tokens)) => Shared::Prefix {
                id: id.parse().context("prefix_id is not a whole number")?,
                tokens: tokens
                    .parse()
                    .context("prefix_tokens is not a whole number")?,
            },
        };
        let session = self
            .session
            .and_then(cell)
            .map(str::parse)
            .transpose()
            .context("session is not a whole number")?;
        let prompt = number(self.prompt, "context_tokens")?;
        let generated = number(self.generated, "generated_tokens")?;
        row(number(self.at, "t_s")?, prompt, generated, shared, session)
    }
}

/// A request with zero tokens is one with one token: an engine accepts no other.
fn row(
    at_s: f64,
    prompt: f64,
    generated: f64,
    shared: Shared,
    session: Option<u64>,
) -> anyhow::Result<Row> {
    ensure!(
        at_s.is_finite() && (0.0..1e9).contains(&at_s),
        "the arrival time must be from 0 to 1e9 seconds"
    );
    let tokens = |x: f64| -> anyhow::Result<u32> {
        ensure!(
            x.is_finite() && (0.0..=f64::from(MAX_TOKENS)).contains(&x),
            "lengths must be from 0 to {MAX_TOKENS}"
        );
        Ok((x as u32).max(1))
    };
    Ok(Row {
        at_s,
        prompt_tokens: tokens(prompt)?,
        generated_tokens: tokens(generated)?,
        shared,
        session,
    })
}

fn read_csv(reader: impl std::io::BufRead) -> anyhow::Result<Vec<Row>> {
    let mut lines = reader.lines().enumerate();
    let Some((_, header)) = lines.next() else {
        bail!("the file is empty")
    };
    let columns = line_of(1, header).and_then(|h| Columns::of(&h).context("line 1"))?;
    let mut rows = vec![];
    for (i, line) in lines {
        let line = line_of(i + 1, line)?;
        if line.trim().is_empty() {
            continue;
        }
        ensure!(rows.len() < MAX_ROWS, "more than {MAX_ROWS} requests");
        rows.push(
            columns
                .row(&line)
                .with_context(|| format!("line {}", i + 1))?,
        );
    }
    Ok(rows)
}

#[derive(Deserialize)]
struct MooncakeRow {
    timestamp: f64,
    input_length: f64,
    output_length: f64,
    #[serde(default)]
    hash_ids: Vec<u64>,
}

fn read_json_lines(reader: impl std::io::BufRead) -> anyhow::Result<Vec<Row>> {
    let mut rows = vec![];
    for (i, line) in reader.lines().enumerate() {
        let line = line_of(i + 1, line)?;
        if line.trim().is_empty() {
            continue;
        }
        ensure!(rows.len() < MAX_ROWS, "more than {MAX_ROWS} requests");
        let m: MooncakeRow =
            serde_json::from_str(&line).with_context(|| format!("line {}", i + 1))?;
        let shared = if m.hash_ids.is_empty() {
            Shared::Nothing
        } else {
            Shared::Blocks(m.hash_ids.into())
        };
        let parsed = row(
            m.timestamp / 1000.0,
            m.input_length,
            m.output_length,
            shared,
            None,
        );
        rows.push(parsed.with_context(|| format!("line {}", i + 1))?);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_with_and_without_prefixes() {
        let text = "t_s,context_tokens,generated_tokens,prefix_id,prefix_tokens,session\n\
                    5.0,10,0,3,8,77\n5.5,20,4,,,\n";
        let rows = read_csv(text.as_bytes()).unwrap();
        assert_eq!(rows[0].shared, Shared::Prefix { id: 3, tokens: 8 });
        assert_eq!((rows[0].generated_tokens, rows[0].session), (1, Some(77)));
        assert_eq!(
            (rows[1].shared.clone(), rows[1].session),
            (Shared::Nothing, None)
        );
        for bad in [
            "",
            "t_s,context_tokens\n1,2\n",
            "t_s,context_tokens,generated_tokens\nnan,1,1\n",
            "t_s,context_tokens,generated_tokens\n1,-1,1\n",
            "t_s,context_tokens,generated_tokens\n1,1\n",
        ] {
            assert!(read_csv(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn mooncake_lines_carry_their_blocks() {
        let text =
            "{\"timestamp\":2000,\"input_length\":700,\"output_length\":5,\"hash_ids\":[0,9]}\n";
        let rows = read_json_lines(text.as_bytes()).unwrap();
        assert_eq!((rows[0].at_s, rows[0].prompt_tokens), (2.0, 700));
        assert_eq!(rows[0].shared, Shared::Blocks([0, 9].into()));
        assert!(read_json_lines("{\"timestamp\":0}\n".as_bytes()).is_err());
    }

    #[test]
    fn a_file_that_is_no_trace_is_wrong_input_and_says_where() {
        let dir = std::env::temp_dir().join(format!("koi-trace-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("t.csv");
        let refused = |path: &Path| read(path).unwrap_err().downcast::<Failure>().unwrap();
        for (text, where_) in [
            ("# Readme\n\ntext\n", "line 1"),
            (
                "t_s,context_tokens,generated_tokens\n0,1,1\n1,x,1\n",
                "line 3",
            ),
            ("t_s,context_tokens,generated_tokens\n", "no requests"),
        ] {
            std::fs::write(&path, text).unwrap();
            let failure = refused(&path);
            assert_eq!(failure.code, ExitCode::Invalid);
            assert!(failure.message.contains(where_), "{failure}");
            assert!(failure.message.contains("t.csv"), "{failure}");
        }
        assert!(refused(&dir).message.contains("not a file"));
        assert!(refused(&dir.join("none.csv")).message.contains("none.csv"));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn shipped_traces_have_the_rates_their_jobs_state() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/traces");
        let rate = |name: &str| read(&folder.join(name)).unwrap().rate_rps();
        assert!(
            (rate("chat.csv") - 12.0).abs() < 0.6,
            "{}",
            rate("chat.csv")
        );
        assert!((rate("rag.csv") - 1.5).abs() < 0.15, "{}", rate("rag.csv"));
        assert!(read(&folder.join("batch-eval.csv")).unwrap().rows.len() == 800);
    }
}
