//! Which jobs are driven, by which trace, at which pace.

use std::path::{Path, PathBuf};

use koi_core::document::of_toml;
use koi_core::ids::JobName;
use koi_core::job::draft::reader::Reader;
use koi_core::violation::{FieldViolation, Violations};
use serde::Serialize;

use super::args::LoadArgs;
use super::prompt::{DEFAULT_VOCABULARY, MIN_VOCABULARY};
use crate::failure::{ExitCode, Failure};
use crate::job_file::read_text;

const MAX_SETTINGS_BYTES: usize = 64 * 1024;
const MAX_JOBS: usize = 32;
/// Requests in flight of one job; more would measure this process and not the engine.
pub(super) const MAX_IN_FLIGHT: u32 = 1024;
const MAX_RATE_RPS: f64 = 1000.0;
const MAX_SPEED: f64 = 1000.0;

/// How requests of a job follow each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// At the trace's arrival times, so many times as fast.
    Recorded {
        /// Factor on the rate.
        speed: f64,
    },
    /// At the trace's arrival times, stretched to this mean rate.
    Rate {
        /// Mean requests per second.
        rate_rps: f64,
    },
    /// Always so many in flight.
    Closed {
        /// Requests in flight.
        concurrency: u32,
    },
}

/// The load on one job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobLoad {
    /// Job.
    pub name: JobName,
    /// Trace file.
    pub trace: PathBuf,
    /// Pace.
    pub pace: Pace,
    /// True when a session's requests go to one endpoint.
    pub session_affinity: bool,
    /// Largest token id, exclusive.
    pub vocabulary: u32,
    /// Prompt and answer are cut to so many tokens together.
    pub max_context_tokens: Option<u32>,
}

/// The jobs that the options name, directly or by a settings file.
///
/// # Errors
/// A [`Failure`] with every problem.
pub fn resolve(args: &LoadArgs) -> anyhow::Result<Vec<JobLoad>> {
    let mut jobs = match &args.config {
        Some(path) => read(path)?,
        None => from_options(args)?,
    };
    let mut bad = Violations::default();
    check_options(args, &mut bad);
    bad.finish(())
        .map_err(|problems| Failure::invalid("koi load", problems))?;
    for job in &mut jobs {
        job.vocabulary = args.vocabulary.unwrap_or(job.vocabulary);
        job.max_context_tokens = args.max_context_tokens.or(job.max_context_tokens);
        job.session_affinity |= args.session_affinity;
        job.pace = match (args.concurrency, job.pace) {
            (Some(concurrency), _) => Pace::Closed { concurrency },
            (None, Pace::Recorded { speed }) => Pace::Recorded {
                speed: speed * args.rate,
            },
            (None, Pace::Rate { rate_rps }) => Pace::Rate {
                rate_rps: rate_rps * args.rate,
            },
            (None, closed @ Pace::Closed { .. }) => closed,
        };
    }
    Ok(jobs)
}

fn check_options(args: &LoadArgs, bad: &mut Violations) {
    if !(args.rate.is_finite() && args.rate > 0.0 && args.rate <= MAX_SPEED) {
        bad.add(
            "--rate",
            format!("must be above 0, at most {MAX_SPEED}, got {}", args.rate),
        );
    }
    if args
        .concurrency
        .is_some_and(|n| !(1..=MAX_IN_FLIGHT).contains(&n))
    {
        bad.add(
            "--concurrency",
            format!("must be from 1 to {MAX_IN_FLIGHT}"),
        );
    }
    if args.vocabulary.is_some_and(|n| n < MIN_VOCABULARY) {
        bad.add("--vocabulary", format!("must be at least {MIN_VOCABULARY}"));
    }
    if args.max_context_tokens.is_some_and(|n| n < 2) {
        bad.add("--max-context-tokens", "must be at least 2");
    }
}

fn from_options(args: &LoadArgs) -> anyhow::Result<Vec<JobLoad>> {
    if args.jobs.is_empty() {
        let message =
            "name a job and its trace with --job NAME=TRACE, or a settings file with --config";
        return Err(Failure::new(ExitCode::Invalid, message).into());
    }
    let mut bad = Violations::default();
    let mut jobs = vec![];
    for text in &args.jobs {
        match parse_job(text) {
            Ok((name, trace)) => jobs.push(JobLoad {
                name,
                trace,
                pace: Pace::Recorded { speed: 1.0 },
                session_affinity: false,
                vocabulary: DEFAULT_VOCABULARY,
                max_context_tokens: None,
            }),
            Err(problem) => bad.add("--job", problem),
        }
    }
    Ok(bad
        .finish(jobs)
        .map_err(|problems| Failure::invalid("koi load", problems))?)
}

/// The job and file of `NAME=FILE`.
///
/// # Errors
/// What would be right.
pub fn parse_job(text: &str) -> Result<(JobName, PathBuf), String> {
    let (name, file) = text
        .split_once('=')
        .ok_or_else(|| format!("write NAME=TRACE, got {text:?}"))?;
    let name = name.parse::<JobName>().map_err(|e| e.to_string())?;
    Ok((name, PathBuf::from(file)))
}

/// Reads a settings file; traces are looked up beside it.
///
/// # Errors
/// A [`Failure`] with every problem of the file.
pub fn read(path: &Path) -> anyhow::Result<Vec<JobLoad>> {
    let text = read_text(path, MAX_SETTINGS_BYTES)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    parse(&text, folder)
        .map_err(|problems| Failure::invalid(&path.display().to_string(), problems).into())
}

/// Checks the text of a settings file.
///
/// # Errors
/// Every problem, by field.
pub fn parse(text: &str, folder: &Path) -> Result<Vec<JobLoad>, Vec<FieldViolation>> {
    let document = of_toml(text)?;
    let mut bad = Violations::default();
    let mut top = Reader::new(Some(&document), "", &mut bad);
    let readers = top.sections("job", &mut bad);
    top.finish(&mut bad);
    if !(1..=MAX_JOBS).contains(&readers.len()) {
        bad.add(
            "job",
            format!("has {} entries, must have 1 to {MAX_JOBS}", readers.len()),
        );
    }
    let jobs: Vec<JobLoad> = readers
        .into_iter()
        .take(MAX_JOBS)
        .filter_map(|r| job(r, folder, &mut bad))
        .collect();
    let mut names: Vec<&JobName> = jobs.iter().map(|j| &j.name).collect();
    names.sort();
    if names.windows(2).any(|w| w[0] == w[1]) {
        bad.add("job", "two entries have the same name");
    }
    bad.finish(jobs)
}

fn job(mut r: Reader<'_>, folder: &Path, bad: &mut Violations) -> Option<JobLoad> {
    let name = r.parsed::<JobName>("name", "1 to 63 of a-z, 0-9 and '-'", bad);
    let name = r.required("name", name, "the job's name", bad);
    let trace = r.text("trace", bad);
    let trace = r.required("trace", trace, "a trace file", bad);
    let pace = pace(&mut r, bad);
    let session_affinity = r.flag("session_affinity", bad).unwrap_or(false);
    let vocabulary = r
        .whole::<u32>("vocabulary", bad)
        .unwrap_or(DEFAULT_VOCABULARY);
    if vocabulary < MIN_VOCABULARY {
        bad.add(
            r.field("vocabulary"),
            format!("must be at least {MIN_VOCABULARY}"),
        );
    }
    let max_context_tokens = r.whole::<u32>("max_context_tokens", bad);
    if max_context_tokens.is_some_and(|n| n < 2) {
        bad.add(r.field("max_context_tokens"), "must be at least 2");
    }
    r.finish(bad);
    Some(JobLoad {
        name: name?,
        trace: folder.join(trace?),
        pace: pace?,
        session_affinity,
        vocabulary,
        max_context_tokens,
    })
}

fn pace(r: &mut Reader<'_>, bad: &mut Violations) -> Option<Pace> {
    let rate = r.number("rate_rps", bad);
    let concurrency = r.whole::<u32>("concurrency", bad);
    match (rate, concurrency) {
        (Some(_), Some(_)) => bad.add(
            r.field("rate_rps"),
            "and concurrency exclude each other; keep one",
        ),
        (Some(rate_rps), None)
            if rate_rps.is_finite() && rate_rps > 0.0 && rate_rps <= MAX_RATE_RPS =>
        {
            return Some(Pace::Rate { rate_rps });
        }
        (Some(rate), None) => bad.add(
            r.field("rate_rps"),
            format!("must be above 0, at most {MAX_RATE_RPS}, got {rate}"),
        ),
        (None, Some(n)) if (1..=MAX_IN_FLIGHT).contains(&n) => {
            return Some(Pace::Closed { concurrency: n });
        }
        (None, Some(_)) => bad.add(
            r.field("concurrency"),
            format!("must be from 1 to {MAX_IN_FLIGHT}"),
        ),
        (None, None) => return Some(Pace::Recorded { speed: 1.0 }),
    }
    None
}

#[derive(Serialize)]
struct JobEntry<'a> {
    name: &'a str,
    trace: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_rps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    session_affinity: bool,
    vocabulary: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_context_tokens: Option<u32>,
}

#[derive(Serialize)]
struct File<'a> {
    job: Vec<JobEntry<'a>>,
}

impl<'a> From<&'a JobLoad> for JobEntry<'a> {
    fn from(j: &'a JobLoad) -> Self {
        let (rate_rps, concurrency) = match j.pace {
            Pace::Recorded { .. } => (None, None),
            Pace::Rate { rate_rps } => (Some(rate_rps), None),
            Pace::Closed { concurrency } => (None, Some(concurrency)),
        };
        Self {
            name: j.name.as_str(),
            trace: std::path::absolute(&j.trace).unwrap_or_else(|_| j.trace.clone()),
            rate_rps,
            concurrency,
            session_affinity: j.session_affinity,
            vocabulary: j.vocabulary,
            max_context_tokens: j.max_context_tokens,
        }
    }
}

/// The settings file of these jobs, traces by absolute path.
///
/// # Errors
/// When a path is not UTF-8.
pub fn text(jobs: &[JobLoad]) -> anyhow::Result<String> {
    Ok(toml::to_string(&File {
        job: jobs.iter().map(JobEntry::from).collect(),
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_settings_stay_below_thirty_requests_a_second() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/traces");
        let jobs = read(&folder.join("load.toml")).unwrap();
        let rates: f64 = jobs
            .iter()
            .map(|j| {
                if let Pace::Rate { rate_rps } = j.pace {
                    rate_rps
                } else {
                    0.0
                }
            })
            .sum();
        assert!(rates > 10.0 && rates <= 20.0, "{rates}");
        assert!(jobs.iter().all(|j| j.trace.exists()));
        let again = parse(&text(&jobs).unwrap(), Path::new("/")).unwrap();
        assert_eq!(
            again.iter().map(|j| j.pace).collect::<Vec<_>>(),
            jobs.iter().map(|j| j.pace).collect::<Vec<_>>()
        );
        assert!(again.iter().all(|j| j.trace.is_absolute()));
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let text = "[[job]]\nname = \"A b\"\nrate_rps = 1.0\nconcurrency = 2\n[[job]]\nname = \"x\"\ntrace = \"t\"\nrate = 1\nvocabulary = 3\n";
        let fields: Vec<String> = parse(text, Path::new("."))
            .unwrap_err()
            .into_iter()
            .map(|v| v.field)
            .collect();
        assert_eq!(
            fields,
            [
                "job[0].name",
                "job[0].trace",
                "job[0].rate_rps",
                "job[1].vocabulary",
                "job[1].rate"
            ]
        );
    }
}
