//! Lines of a page: where they end, and what the comment lines among them mean. Not samples
//! (`scan.rs`).

use memchr::{Memchr, memchr, memchr_iter};

use super::{FamilyType, LineProblem, MAX_NAME_BYTES};

/// The lines of a page without their ends.
pub(super) struct Lines<'a> {
    bytes: &'a [u8],
    /// The page as text when all of it is UTF-8, so that lines need no check of their own.
    text: Option<&'a str>,
    ends: Memchr<'a>,
    at: usize,
}

/// One line.
pub(super) struct RawLine<'a> {
    /// Its text, without the line end.
    pub(super) text: Result<&'a str, LineProblem>,
    /// False for a last line without a line end.
    pub(super) terminated: bool,
}

impl<'a> Lines<'a> {
    /// The lines; a byte order mark before the first one is skipped.
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        Self {
            bytes,
            text: std::str::from_utf8(bytes).ok(),
            ends: memchr_iter(b'\n', bytes),
            at: 0,
        }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = RawLine<'a>;

    fn next(&mut self) -> Option<RawLine<'a>> {
        let start = self.at;
        let (end, terminated) = match self.ends.next() {
            Some(end) => (end, true),
            None if start < self.bytes.len() => (self.bytes.len(), false),
            None => return None,
        };
        self.at = end + 1;
        let text = match self.text {
            Some(text) => Ok(&text[start..end]),
            None => std::str::from_utf8(&self.bytes[start..end]).map_err(|_| LineProblem::NotUtf8),
        };
        Some(RawLine { text, terminated })
    }
}

/// What a comment line holds.
#[derive(Debug, PartialEq)]
pub(super) enum Comment<'a> {
    /// Words without meaning for us.
    Nothing,
    /// `# EOF`.
    End,
    /// `# TYPE name type`; no type when it is not a known one.
    Type(&'a str, Option<FamilyType>),
    /// `# HELP name text`.
    Help(&'a str, &'a str),
    /// `# UNIT name unit`.
    Unit(&'a str, &'a str),
}

/// Reads what stands after the `#`. Comments never fail: an unknown one means nothing.
pub(super) fn parse_comment(text: &str) -> Comment<'_> {
    let (keyword, rest) = first_word(text);
    if !matches!(keyword, "TYPE" | "HELP" | "UNIT") {
        let ends = keyword == "EOF" && rest.is_empty();
        return if ends { Comment::End } else { Comment::Nothing };
    }
    let (name, rest) = first_word(rest);
    let name = unquoted(name);
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Comment::Nothing;
    }
    match keyword {
        "TYPE" => Comment::Type(name, FamilyType::from_name(rest)),
        "UNIT" => Comment::Unit(name, rest),
        _ => Comment::Help(name, rest),
    }
}

/// A name that is not a bare one stands in quotes.
fn unquoted(name: &str) -> &str {
    name.strip_prefix('"')
        .and_then(|n| n.strip_suffix('"'))
        .unwrap_or(name)
}

/// The first word, and the rest without the blanks around it.
fn first_word(text: &str) -> (&str, &str) {
    let text = trim_blanks(text);
    let bytes = text.as_bytes();
    let end = match (memchr(b' ', bytes), memchr(b'\t', bytes)) {
        (Some(blank), Some(tab)) => blank.min(tab),
        (blank, tab) => blank.or(tab).unwrap_or(bytes.len()),
    };
    let (word, rest) = text.split_at(end);
    (word, trim_blanks(rest))
}

/// The text without the blanks around it and without the carriage return of a CR LF line end.
pub(super) fn trim_blanks(text: &str) -> &str {
    let bytes = text.as_bytes();
    let blank = |b: &u8| matches!(b, b' ' | b'\t' | b'\r');
    let start = bytes.iter().position(|b| !matches!(b, b' ' | b'\t'));
    let Some(start) = start else { return "" };
    let end = bytes
        .iter()
        .rposition(|b| !blank(b))
        .map_or(start, |i| i + 1);
    &text[start..end.max(start)]
}
