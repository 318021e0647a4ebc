//! Reads a job file: size, syntax, `--set`, and the model's config.json named by path.
//!
//! What the fields mean is `koi_core::job::draft`'s business.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use koi_core::document::Document;
use koi_core::job::JobSpec;
use koi_core::job::draft::{JobDraft, MAX_CONFIG_JSON_BYTES, check_document};
use koi_core::time::UtcMicros;
use koi_core::violation::{FieldViolation, Violations};
use serde_json::Value;

use crate::failure::{ExitCode, Failure};

/// Largest job file; the config.json beside it has its own limit.
pub const MAX_JOB_FILE_BYTES: usize = 512 * 1024;

/// What may be changed about a file on the way in.
#[derive(Debug, Default, Clone)]
pub struct Changes<'a> {
    /// `field=value` replacements.
    pub set: &'a [String],
    /// A new name.
    pub name: Option<&'a str>,
}

/// A checked job file.
#[derive(Debug)]
pub struct JobFile {
    /// As the user wrote it: what goes over the wire, so that the server fills in its own defaults.
    pub draft: JobDraft,
    /// As it validates here.
    pub spec: JobSpec,
}

/// Reads and validates a job file; `-` is standard input.
///
/// # Errors
/// A [`Failure`] with every problem of the file.
pub fn read(path: &Path, changes: &Changes<'_>, now: UtcMicros) -> anyhow::Result<JobFile> {
    let shown = path.display().to_string();
    let text = read_text(path, MAX_JOB_FILE_BYTES)?;
    let mut document =
        parse(&text).map_err(|e| Failure::new(ExitCode::Invalid, format!("{shown}: {e}")))?;
    let mut bad = Violations::default();
    for change in changes.set {
        apply(&mut document, change, &mut bad);
    }
    if let (Some(name), Some(map)) = (changes.name, document.as_object_mut()) {
        map.insert("name".to_owned(), Value::from(name));
    }
    let folder = path
        .parent()
        .filter(|_| path != Path::new("-"))
        .unwrap_or(Path::new("."));
    let names_a_file = document.pointer("/model/config").is_some();
    let config_problem = inline_config(&mut document, folder);
    let checked = check_document(&document, now);
    let mut problems = bad.into_vec();
    if let Some(problem) = &config_problem {
        problems.push(problem.clone());
    }
    match checked {
        Ok(spec) if problems.is_empty() => {
            let (draft, _) = JobDraft::from_document(&document);
            Ok(JobFile { draft, spec })
        }
        result => {
            // A config that could not be read is one problem, not also a missing one.
            let rest = result.err().unwrap_or_default();
            let told =
                |v: &FieldViolation| config_problem.is_some() && v.field == "model.config_json";
            let rest = rest.into_iter().filter(|v| !told(v));
            problems.extend(rest.map(|v| if names_a_file { as_written(v) } else { v }));
            Err(Failure::invalid(&shown, problems).into())
        }
    }
}

/// A problem of the text behind `model.config`, under the name that the file has for it.
fn as_written(mut v: FieldViolation) -> FieldViolation {
    if let Some(rest) = v.field.strip_prefix("model.config_json") {
        v.field = format!("model.config{rest}");
    }
    v
}

/// The text of a file that is no longer than `max` bytes.
///
/// # Errors
/// A [`Failure`] when it cannot be read, is longer, or is not text.
pub fn read_text(path: &Path, max: usize) -> anyhow::Result<String> {
    let mut bytes = vec![];
    let limit = max as u64 + 1;
    let result = if path == Path::new("-") {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    let fail = |code, what: String| Failure::new(code, format!("{}: {what}", path.display()));
    result.map_err(|e| Failure::unreadable(path, &e))?;
    if bytes.len() > max {
        return Err(fail(ExitCode::Invalid, format!("longer than {} KiB", max / 1024)).into());
    }
    String::from_utf8(bytes)
        .map_err(|_| fail(ExitCode::Invalid, "not UTF-8 text".to_owned()).into())
}

/// Parses YAML (of which JSON is a part). Numbers that are none, or that are too large for any field, stay
/// in the tree, so that they are refused by name beside everything else that is wrong.
///
/// # Errors
/// Where the syntax is wrong: a key given twice, a key that is no text, or a tag among it.
pub fn parse(text: &str) -> Result<Value, String> {
    let Document(tree) = serde_yaml_ng::from_str(text).map_err(|e| e.to_string())?;
    Ok(tree)
}

/// Applies `a.b.c=value`; the value is read as YAML.
fn apply(document: &mut Value, change: &str, bad: &mut Violations) {
    let shown: String = change.chars().take(60).collect();
    let Some((path, text)) = change.split_once('=').filter(|(path, _)| !path.is_empty()) else {
        bad.add(
            "--set",
            format!("write FIELD=VALUE such as slo.p99_ttft_ms=800, got {shown:?}"),
        );
        return;
    };
    let Ok(value) = parse(text) else {
        bad.add("--set", format!("the value of {shown:?} is not YAML"));
        return;
    };
    let mut at = document;
    for key in path.split('.') {
        if at.is_null() {
            *at = Value::Object(serde_json::Map::new());
        }
        let Some(map) = at.as_object_mut() else {
            bad.add(
                "--set",
                format!("{shown:?} goes below a field that has no fields"),
            );
            return;
        };
        at = map.entry(key).or_insert(Value::Null);
    }
    *at = value;
}

/// Replaces `model.config`, a path, by `model.config_json`, the text behind it.
fn inline_config(document: &mut Value, folder: &Path) -> Option<FieldViolation> {
    let problem = |message: String| {
        Some(FieldViolation {
            field: "model.config".to_owned(),
            message,
        })
    };
    let model = document.get_mut("model")?.as_object_mut()?;
    let config = model.remove("config")?;
    let Value::String(config) = config else {
        return problem("must be the path of a config.json".to_owned());
    };
    if model.contains_key("config_json") {
        return problem("and config_json exclude each other; keep one".to_owned());
    }
    let path: PathBuf = folder.join(&config);
    match read_text(&path, MAX_CONFIG_JSON_BYTES) {
        Ok(text) => {
            model.insert("config_json".to_owned(), Value::String(text));
            None
        }
        Err(e) => problem(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UtcMicros = UtcMicros(1_800_000_000_000_000);

    fn configs() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs")
    }

    fn failure(path: &Path, set: &[&str]) -> Failure {
        let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
        let error = read(
            path,
            &Changes {
                set: &set,
                name: None,
            },
            NOW,
        )
        .unwrap_err();
        error.downcast::<Failure>().unwrap()
    }

    #[test]
    fn every_shipped_job_file_is_valid() {
        let mut names = vec![];
        for entry in std::fs::read_dir(configs().join("jobs")).unwrap() {
            let path = entry.unwrap().path();
            let file = read(&path, &Changes::default(), NOW)
                .unwrap_or_else(|e| panic!("{}: {e:?}", path.display()));
            names.push(file.spec.name.to_string());
        }
        names.sort();
        assert_eq!(names, ["batch-eval", "chat", "rag"]);
    }

    #[test]
    fn set_and_name_replace_fields() {
        let chat = configs().join("jobs/chat.yaml");
        let set = [
            "slo.p99_ttft_ms=800".to_owned(),
            "constraints.denied_gpu_types=[L40S]".to_owned(),
        ];
        let file = read(
            &chat,
            &Changes {
                set: &set,
                name: Some("chat-2"),
            },
            NOW,
        )
        .unwrap();
        assert_eq!(file.spec.name.as_str(), "chat-2");
        assert_eq!(file.draft.slo.p99_ttft_ms, Some(800.0));
        assert!(file.spec.constraints.denied_gpu_types.contains("L40S"));
        let bad = failure(
            &chat,
            &[
                "slo.p99_ttft_ms",
                "name.x=1",
                "slo.p99_ttft_ms=.nan",
                "priority=-1",
            ],
        );
        assert_eq!(bad.violations.len(), 4, "{bad:?}");
        assert_eq!(bad.code, ExitCode::Invalid);
    }

    #[test]
    fn five_mistakes_in_a_file_give_five_messages() {
        let dir = std::env::temp_dir().join(format!("koi-jobfile-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("bad.yaml");
        let text = "name: Bad Name\nclass: online\nmodel: {id: ../x;y, config: missing.json}\n\
                    workload: {arrival_rate_rps: .nan, isl: {mean: 10}, osl: {mean: 10}}\nslo: {p99_ttft_ms: -5}\n";
        std::fs::write(&path, text).unwrap();
        let bad = failure(&path, &[]);
        let fields: Vec<&str> = bad.violations.iter().map(|v| v.field.as_str()).collect();
        for field in [
            "name",
            "model.id",
            "model.config",
            "workload.arrival_rate_rps",
            "slo.p99_ttft_ms",
        ] {
            assert!(fields.contains(&field), "{field} in {fields:?}");
        }
        assert_eq!(fields.len(), 5, "{fields:?}");
        std::fs::write(dir.join("config.json"), "{}").unwrap();
        std::fs::write(&path, text.replace("missing.json", "config.json")).unwrap();
        let bad = failure(&path, &[]);
        let fields: Vec<&str> = bad.violations.iter().map(|v| v.field.as_str()).collect();
        assert!(
            fields.iter().any(|f| f.starts_with("model.config")),
            "{fields:?}"
        );
        assert!(
            fields.iter().all(|f| !f.contains("config_json")),
            "{fields:?}"
        );
        std::fs::write(&path, "x".repeat(10 * 1024 * 1024)).unwrap();
        assert!(failure(&path, &[]).message.contains("longer than 512 KiB"));
        std::fs::write(&path, "name: [unclosed").unwrap();
        assert_eq!(failure(&path, &[]).code, ExitCode::Invalid);
        std::fs::write(&path, "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n").unwrap();
        assert_eq!(
            failure(&path, &[]).code,
            ExitCode::Invalid,
            "a bomb of aliases ends"
        );
        assert_eq!(failure(&dir, &[]).code, ExitCode::Invalid, "a folder");
        assert_eq!(
            failure(&dir.join("none.yaml"), &[]).code,
            ExitCode::NotFound
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }
    #[test]
    fn a_number_too_large_for_its_field_hides_nothing() {
        let dir = std::env::temp_dir().join(format!("koi-jobfile-wide-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("wide.yaml");
        let text = "name: Bad Name\nclass: batch\nmodel: {id: a/b, config: missing.json}\n\
                    workload: {isl: {mean: 10}, osl: {mean: 10}}\n\
                    slo: {total_token_budget: 99999999999999999999, deadline_at_us: -99999999999999999999}\n\
                    priority: 4294967296\nprioritee: 340282366920938463463374607431768211456\n";
        std::fs::write(&path, text).unwrap();
        let bad = failure(&path, &[]);
        let message = |field: &str| {
            let own: Vec<&FieldViolation> =
                bad.violations.iter().filter(|v| v.field == field).collect();
            assert_eq!(own.len(), 1, "{field} in {bad:?}");
            own[0].message.as_str()
        };
        for (field, words) in [
            (
                "slo.total_token_budget",
                "write at most 18446744073709551615",
            ),
            ("slo.deadline_at_us", "write at least -9223372036854775808"),
            ("priority", "write at most 4294967295"),
            ("prioritee", "did you mean priority?"),
            ("name", "a-z"),
            ("model.config", "no such file"),
        ] {
            assert!(
                message(field).contains(words),
                "{field}: {}",
                message(field)
            );
        }
        assert_eq!(bad.violations.len(), 6, "{bad:?}");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn wide_numbers_are_floats_and_sizes_of_floats_stay() {
        let read = |text: &str| parse(text).unwrap();
        assert_eq!(read("18446744073709551615"), Value::from(u64::MAX));
        assert_eq!(read("18446744073709551616"), Value::from(2_f64.powi(64)));
        assert_eq!(read("-9223372036854775809"), Value::from(-2_f64.powi(63)));
        assert_eq!(
            read("[0x10, 1e3, .nan, ~]"),
            serde_json::json!([16, 1e3, ".nan", null])
        );
    }

    #[test]
    fn keys_given_twice_tags_and_keys_of_other_types_are_refused() {
        for (text, words) in [
            ("a: 1\nb: 2\na: 3", "duplicate entry with key \"a\""),
            ("a: {b: 1, b: 2}", "duplicate entry with key \"b\""),
            ("a: !secret x", "tags such as !secret mean nothing here"),
            (
                "a: !secret {b: 1}",
                "tags such as !secret mean nothing here",
            ),
            ("5: x", "keys must be texts, got 5"),
            ("? [a, b]\n: x", "keys must be texts, got [\"a\",\"b\"]"),
            ("~: x", "keys must be texts, got null"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(words), "{text:?}: {error}");
        }
    }
}
