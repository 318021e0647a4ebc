//! What `koi up` starts: fleet, jobs and load, read and checked before the first process starts.

use std::collections::BTreeSet;
use std::path::PathBuf;

use koi_core::job::JobClass;
use koi_core::time::UtcMicros;
use koi_core::violation::{FieldViolation, Violations};

use crate::args::UpArgs;
use crate::failure::{ExitCode, Failure};
use crate::fleet::{self, Fleet};
use crate::job_file::{self, Changes, JobFile};
use crate::load::settings::{self, JobLoad, Pace};
use crate::load::trace;
use crate::output::now_us;
use crate::paths::shipped;

/// Everything that a start needs, read and checked.
pub(super) struct Plan {
    /// Hosts.
    pub(super) fleet: Fleet,
    /// Where they were read.
    pub(super) fleet_path: PathBuf,
    /// Jobs to submit.
    pub(super) jobs: Vec<JobFile>,
    /// Load on them.
    pub(super) load: Vec<JobLoad>,
}

impl Plan {
    /// Reads fleet, jobs and load settings; every problem of every file is reported.
    pub(super) fn read(args: &UpArgs) -> anyhow::Result<Self> {
        let fleet_path = args
            .fleet
            .clone()
            .unwrap_or_else(|| shipped("fleets/demo.toml"));
        let mut bad = Violations::default();
        check_listen(args, &mut bad);
        let fleet = gather(
            fleet::read(&fleet_path).map_err(|e| hinted(e, args.fleet.is_some())),
            &mut bad,
        )?;
        let jobs = if args.no_jobs {
            vec![]
        } else {
            read_jobs(args, &mut bad)?
        };
        let load = if args.no_load || args.no_jobs {
            vec![]
        } else {
            read_load(args, &jobs, &mut bad)?
        };
        match (fleet, bad.is_empty()) {
            (Some(fleet), true) => Ok(Self {
                fleet,
                fleet_path,
                jobs,
                load,
            }),
            _ => Err(Failure::invalid("koi up", bad.into_vec()).into()),
        }
    }
}

fn check_listen(args: &UpArgs, bad: &mut Violations) {
    if let Some(address) = args.listen.filter(|a| !a.ip().is_loopback()) {
        bad.add(
            "--listen",
            format!("{address}: a dev cluster has no TLS; name a loopback address"),
        );
    }
}

/// Says how to name an input that was not found where it is shipped.
fn hinted(error: anyhow::Error, is_asked: bool) -> anyhow::Error {
    match error.downcast::<Failure>() {
        Ok(failure) if failure.code == ExitCode::NotFound && !is_asked => {
            let message = format!(
                "{}; name files of your own with --fleet, --jobs and --load, or set KOI_CONFIGS_DIR to Koi's folder `configs`",
                failure.message
            );
            Failure { message, ..failure }.into()
        }
        Ok(failure) => failure.into(),
        Err(error) => error,
    }
}

/// Takes refused input apart into its problems; other errors end the start.
fn gather<T>(result: anyhow::Result<T>, bad: &mut Violations) -> anyhow::Result<Option<T>> {
    match result.map_err(|e| e.downcast::<Failure>()) {
        Ok(value) => Ok(Some(value)),
        Err(Ok(failure)) if failure.code == ExitCode::Invalid && !failure.violations.is_empty() => {
            let file = failure.message.split(": ").next().unwrap_or_default();
            for FieldViolation { field, message } in failure.violations {
                bad.add(format!("{file}: {field}"), message);
            }
            Ok(None)
        }
        Err(Ok(failure)) => Err(failure.into()),
        Err(Err(error)) => Err(error),
    }
}

fn read_jobs(args: &UpArgs, bad: &mut Violations) -> anyhow::Result<Vec<JobFile>> {
    let folder = args.jobs.clone().unwrap_or_else(|| shipped("jobs"));
    let entries = std::fs::read_dir(&folder).map_err(|e| {
        let message = format!("job files: {}: {e}", folder.display());
        let error = Failure::new(ExitCode::NotFound, message).into();
        hinted(error, args.jobs.is_some())
    })?;
    let is_job = |p: &PathBuf| {
        p.extension()
            .is_some_and(|e| e == "yaml" || e == "yml" || e == "json")
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .map(|e| e.path())
        .filter(is_job)
        .collect();
    paths.sort();
    let mut jobs = vec![];
    for path in paths {
        let read = job_file::read(&path, &Changes::default(), UtcMicros(now_us()));
        jobs.extend(gather(read, bad)?);
    }
    Ok(jobs)
}

/// The load settings, with the traces that the options replace.
fn read_load(
    args: &UpArgs,
    jobs: &[JobFile],
    bad: &mut Violations,
) -> anyhow::Result<Vec<JobLoad>> {
    let path = args
        .load
        .clone()
        .unwrap_or_else(|| shipped("traces/load.toml"));
    let read = settings::read(&path).map_err(|e| hinted(e, args.load.is_some()));
    let Some(mut load) = gather(read, bad)? else {
        return Ok(vec![]);
    };
    load.retain(|l| jobs.iter().any(|j| j.spec.name == l.name));
    for option in &args.trace {
        if let Err(problem) = replace_trace(option, jobs, &mut load) {
            bad.add("--trace", problem);
        }
    }
    // A trace that cannot be replayed would end the load generator again and again, for all jobs.
    let traces: BTreeSet<&PathBuf> = load.iter().map(|l| &l.trace).collect();
    for path in traces {
        if let Err(error) = trace::read(path) {
            let names: Vec<&str> = load
                .iter()
                .filter(|l| l.trace == *path)
                .map(|l| l.name.as_str())
                .collect();
            bad.add(
                format!("load of {}", names.join(", ")),
                format!("{error:#}"),
            );
        }
    }
    Ok(load)
}

/// Applies `JOB=FILE` or `FILE`; a replaced trace is played at the rate that the job states.
fn replace_trace(option: &str, jobs: &[JobFile], load: &mut Vec<JobLoad>) -> Result<(), String> {
    let (names, trace) = if option.contains('=') {
        let (name, file) = settings::parse_job(option)?;
        if !jobs.iter().any(|j| j.spec.name == name) {
            return Err(format!("{name} is not one of the jobs to submit"));
        }
        (vec![name], file)
    } else {
        let online = jobs
            .iter()
            .filter(|j| j.spec.class == JobClass::Online)
            .map(|j| j.spec.name.clone());
        (online.collect(), PathBuf::from(option))
    };
    for name in names {
        let rate = jobs
            .iter()
            .find(|j| j.spec.name == name)
            .map(|j| j.spec.workload.arrival_rate_rps);
        let pace = match rate {
            Some(rate_rps) if rate_rps > 0.0 => Pace::Rate { rate_rps },
            Some(_) | None => Pace::Recorded { speed: 1.0 },
        };
        match load.iter_mut().find(|l| l.name == name) {
            Some(entry) => entry.trace.clone_from(&trace),
            None => load.push(JobLoad {
                name,
                trace: trace.clone(),
                pace,
                session_affinity: false,
                vocabulary: 30_000,
                max_context_tokens: None,
            }),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn args(trace: &[&str]) -> UpArgs {
        let configs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
        UpArgs {
            fleet: Some(configs.join("fleets/demo.toml")),
            jobs: Some(configs.join("jobs")),
            load: Some(configs.join("traces/load.toml")),
            trace: trace.iter().map(|t| (*t).to_owned()).collect(),
            no_load: false,
            no_jobs: false,
            detach: false,
            wait_s: 1,
            tick_interval: Duration::from_secs(30),
            listen: None,
            in_background: false,
        }
    }

    #[test]
    fn the_defaults_make_a_plan() {
        let plan = Plan::read(&args(&[])).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(
            (plan.fleet.hosts.len(), plan.jobs.len(), plan.load.len()),
            (6, 3, 3)
        );
    }

    #[test]
    fn traces_are_replaced_for_one_job_or_for_all_online_ones() {
        let here = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/traces/rag.csv");
        let plan =
            Plan::read(&args(&[&format!("chat={here}")])).unwrap_or_else(|e| panic!("{e:?}"));
        let of = |plan: &Plan, name: &str| {
            plan.load
                .iter()
                .find(|l| l.name.as_str() == name)
                .cloned()
                .unwrap()
        };
        assert_eq!(of(&plan, "chat").trace, PathBuf::from(here));
        assert_eq!(of(&plan, "chat").pace, Pace::Rate { rate_rps: 12.0 });
        let all = Plan::read(&args(&[here])).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(
            (of(&all, "chat").trace, of(&all, "rag").trace),
            (PathBuf::from(here), PathBuf::from(here))
        );
        assert!(
            of(&all, "batch-eval").trace.ends_with("batch-eval.csv"),
            "a batch has no arrival times"
        );
    }

    #[test]
    fn a_trace_that_is_none_is_refused_before_anything_starts() {
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
        let error = Plan::read(&args(&[&format!("chat={readme}")]))
            .err()
            .unwrap();
        let failure = error.downcast::<Failure>().unwrap();
        assert_eq!(failure.code, ExitCode::Invalid);
        let [problem] = failure.violations.as_slice() else {
            panic!("{failure:?}")
        };
        assert_eq!(problem.field, "load of chat");
        assert!(problem.message.contains("README.md: line 1"), "{problem:?}");
    }

    #[test]
    fn what_is_not_shipped_here_can_be_named() {
        let none = UpArgs {
            fleet: None,
            ..args(&[])
        };
        let missing = |asked: bool| {
            let error = Failure::new(ExitCode::NotFound, "x: no such file").into();
            hinted(error, asked).to_string()
        };
        assert!(missing(false).contains("--fleet") && missing(false).contains("KOI_CONFIGS_DIR"));
        assert_eq!(
            missing(true),
            "x: no such file",
            "who named it knows the option"
        );
        let remote = UpArgs {
            listen: Some("192.0.2.2:7410".parse().unwrap()),
            ..none
        };
        let mut bad = Violations::default();
        check_listen(&remote, &mut bad);
        assert_eq!(bad.into_vec()[0].field, "--listen");
    }

    #[test]
    fn problems_of_all_inputs_come_together() {
        let error = Plan::read(&args(&["nosuchjob=x.csv", "chat=/no/such/file.csv"]))
            .err()
            .unwrap();
        let failure = error.downcast::<Failure>().unwrap();
        assert_eq!(
            (failure.code, failure.violations.len()),
            (ExitCode::Invalid, 2),
            "{failure:?}"
        );
    }
}
