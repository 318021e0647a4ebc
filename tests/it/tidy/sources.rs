//! How sources look: length, names, first line, and words that have one place.

use super::{Source, refuse, rust_sources};

/// Lines of a file; tests and generated code are excluded.
const MAX_LINES: usize = 800;
/// File names that say nothing about what is inside.
const BANNED_NAMES: [&str; 8] = [
    "utils.rs",
    "util.rs",
    "helpers.rs",
    "helper.rs",
    "common.rs",
    "misc.rs",
    "mod.rs",
    "prelude.rs",
];

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || file_name(path) == "tests.rs"
}

/// The line without its comment; good enough for words that never stand in string literals.
fn code_of(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word).any(|(at, _)| {
        !is_part(text[..at].chars().next_back()) && !is_part(text[at + word.len()..].chars().next())
    })
}

fn complain(problem: impl Fn(&Source) -> Option<String>) -> Vec<String> {
    rust_sources()
        .iter()
        .filter_map(|s| problem(s).map(|p| format!("{}: {p}", s.path)))
        .collect()
}

#[test]
fn files_stay_short() {
    let too_long = complain(|s| {
        let lines = s.text.lines().count();
        (!is_test(&s.path) && lines > MAX_LINES)
            .then(|| format!("{lines} lines, at most {MAX_LINES}"))
    });
    refuse("split these files", &too_long);
}

#[test]
fn file_names_say_what_is_inside() {
    let banned = complain(|s| {
        BANNED_NAMES
            .contains(&file_name(&s.path))
            .then(|| "name the thing".to_owned())
    });
    refuse("file names that say nothing", &banned);
}

#[test]
fn every_file_says_what_it_is() {
    let silent =
        complain(|s| (!s.text.starts_with("//! ")).then(|| "start with a //! line".to_owned()));
    refuse(
        "files without a first line that says what they are",
        &silent,
    );
}

#[test]
fn only_the_store_speaks_sql() {
    let allowed =
        |path: &str| path.starts_with("koi-server/src/store") || path.starts_with("tests/");
    let speaks = complain(|s| {
        let line = s.text.lines().position(|l| has_word(code_of(l), "sqlx"));
        line.filter(|_| !allowed(&s.path))
            .map(|l| format!("line {}: sqlx outside koi-server/src/store", l + 1))
    });
    refuse("SQL outside the store", &speaks);
}

#[test]
fn nothing_is_left_to_do_in_comments() {
    let marks = ["TODO", "FIXME", "XXX"];
    let left = complain(|s| {
        let found = |l: &str| marks.iter().any(|m| has_word(l, m));
        let line = s
            .text
            .lines()
            .position(found)
            .filter(|_| !s.path.starts_with("tests/it/tidy"));
        line.map(|l| format!("line {}", l + 1))
    });
    refuse(
        "unfinished business in comments; finish it or file it",
        &left,
    );
}

#[test]
fn words_are_found_whole() {
    assert!(has_word("use sqlx::PgPool;", "sqlx"));
    assert!(!has_word("let sqlxish = 1;", "sqlx"));
    assert!(!has_word(code_of("x(); // sqlx lives elsewhere"), "sqlx"));
    assert!(is_test("koi-core/src/a/tests.rs"));
    assert!(!is_test("koi-core/src/latests.rs"));
}
