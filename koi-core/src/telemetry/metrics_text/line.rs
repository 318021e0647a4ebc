//! One line of the text format: comment, type, end mark or sample. Not the page's limits and counts.

use std::borrow::Cow;

use super::{
    FamilyType, Label, LineProblem, MAX_LABEL_VALUE_BYTES, MAX_LABELS, MAX_NAME_BYTES, Sample,
};

/// What a line holds.
pub(super) enum Line<'a> {
    /// Blank or a comment without meaning for us.
    Nothing,
    /// `# EOF`.
    End,
    /// `# TYPE name kind`.
    Type(&'a str, FamilyType),
    /// A sample.
    Sample(Sample<'a>),
}

/// Reads one line, with or without its line end.
pub(super) fn parse_line(line: &str) -> Result<Line<'_>, LineProblem> {
    let line = line.trim_matches(is_blank);
    match line.strip_prefix('#') {
        Some(comment) => Ok(parse_comment(comment)),
        None if line.is_empty() => Ok(Line::Nothing),
        None => parse_sample(line).map(Line::Sample),
    }
}

const fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// Comments never fail: an unknown one means nothing.
fn parse_comment(comment: &str) -> Line<'_> {
    let mut words = comment.split(is_blank).filter(|w| !w.is_empty());
    match (words.next(), words.next(), words.next()) {
        (Some("EOF"), None, _) => Line::End,
        (Some("TYPE"), Some(name), Some(kind)) if name.len() <= MAX_NAME_BYTES => {
            Line::Type(name, family_type(kind))
        }
        _ => Line::Nothing,
    }
}

fn family_type(kind: &str) -> FamilyType {
    match kind {
        "counter" => FamilyType::Counter,
        "gauge" => FamilyType::Gauge,
        "histogram" => FamilyType::Histogram,
        "summary" => FamilyType::Summary,
        _ => FamilyType::Other,
    }
}

fn parse_sample(line: &str) -> Result<Sample<'_>, LineProblem> {
    let mut rest = Cursor { text: line };
    let name = match rest.bare_name(true)? {
        "" if rest.text.starts_with('{') => None,
        "" => return Err(LineProblem::BadName),
        name => Some(Cow::Borrowed(name)),
    };
    rest.skip_blanks();
    let (quoted_name, labels) = if rest.eat('{') {
        rest.labels(name.is_none())?
    } else {
        (None, Vec::new())
    };
    let name = name.or(quoted_name).ok_or(LineProblem::BadName)?;
    rest.skip_blanks();
    let value = parse_number(rest.word()).ok_or(LineProblem::BadValue)?;
    rest.skip_blanks();
    let timestamp = rest.timestamp()?;
    Ok(Sample {
        name,
        labels,
        value,
        timestamp,
    })
}

/// Go's and Python's spellings of a number; hexadecimal and digit separators are refused.
fn parse_number(word: &str) -> Option<f64> {
    word.parse().ok()
}

/// The unread part of a line.
struct Cursor<'a> {
    text: &'a str,
}

type NameAndLabels<'a> = (Option<Cow<'a, str>>, Vec<Label<'a>>);

impl<'a> Cursor<'a> {
    fn skip_blanks(&mut self) {
        self.text = self.text.trim_start_matches(is_blank);
    }

    fn eat(&mut self, c: char) -> bool {
        match self.text.strip_prefix(c) {
            Some(rest) => {
                self.text = rest;
                true
            }
            None => false,
        }
    }

    /// The longest unquoted name; empty when there is none. Metric names may hold colons.
    fn bare_name(&mut self, colons: bool) -> Result<&'a str, LineProblem> {
        let fits = |i: usize, b: u8| {
            b.is_ascii_alphabetic()
                || b == b'_'
                || (colons && b == b':')
                || (i > 0 && b.is_ascii_digit())
        };
        let bytes = self.text.as_bytes();
        let end = (0..bytes.len())
            .find(|i| !fits(*i, bytes[*i]))
            .unwrap_or(bytes.len());
        let (name, rest) = self.text.split_at(end);
        self.text = rest;
        if name.len() > MAX_NAME_BYTES {
            Err(LineProblem::NameTooLong)
        } else {
            Ok(name)
        }
    }

    fn word(&mut self) -> &'a str {
        let (word, rest) = self
            .text
            .split_at(self.text.find(is_blank).unwrap_or(self.text.len()));
        self.text = rest;
        word
    }

    /// An optional timestamp, then nothing or an exemplar, which is ignored.
    fn timestamp(&mut self) -> Result<Option<f64>, LineProblem> {
        let starts_exemplar = |text: &str| text.is_empty() || text.starts_with('#');
        if starts_exemplar(self.text) {
            return Ok(None);
        }
        let at = parse_number(self.word()).filter(|t| t.is_finite());
        self.skip_blanks();
        if at.is_some() && starts_exemplar(self.text) {
            Ok(at)
        } else {
            Err(LineProblem::BadTimestamp)
        }
    }

    /// The list after `{` up to and with `}`; `may_name` when the metric's own name may stand first
    /// in quotes.
    fn labels(&mut self, may_name: bool) -> Result<NameAndLabels<'a>, LineProblem> {
        let mut name = None;
        let mut labels: Vec<Label<'a>> = Vec::new();
        loop {
            self.skip_blanks();
            if self.eat('}') {
                return Ok((name, labels));
            }
            let key = self.label_name()?;
            self.skip_blanks();
            if self.eat('=') {
                self.skip_blanks();
                let value = self.quoted(MAX_LABEL_VALUE_BYTES, LineProblem::LabelTooLong)?;
                push_label(&mut labels, Label { name: key, value })?;
            } else if may_name && name.is_none() && labels.is_empty() {
                name = Some(key);
            } else {
                return Err(LineProblem::BadLabels);
            }
            self.skip_blanks();
            if !self.eat(',') && !self.text.starts_with('}') {
                return Err(LineProblem::BadLabels);
            }
        }
    }

    fn label_name(&mut self) -> Result<Cow<'a, str>, LineProblem> {
        let name = if self.text.starts_with('"') {
            self.quoted(MAX_NAME_BYTES, LineProblem::NameTooLong)?
        } else {
            Cow::Borrowed(self.bare_name(false)?)
        };
        if name.is_empty() {
            Err(LineProblem::BadLabels)
        } else {
            Ok(name)
        }
    }

    /// A string in double quotes with the escapes `\\`, `\"` and `\n`; an unknown escape keeps its
    /// backslash, as Prometheus does.
    fn quoted(&mut self, limit: usize, too_long: LineProblem) -> Result<Cow<'a, str>, LineProblem> {
        let body = self.text.strip_prefix('"').ok_or(LineProblem::BadLabels)?;
        let end = closing_quote(body).ok_or(LineProblem::BadLabels)?;
        let (raw, rest) = body.split_at(end);
        self.text = &rest[1..];
        if raw.len() > limit {
            return Err(too_long);
        }
        Ok(if raw.contains('\\') {
            Cow::Owned(unescape(raw))
        } else {
            Cow::Borrowed(raw)
        })
    }
}

fn push_label<'a>(labels: &mut Vec<Label<'a>>, label: Label<'a>) -> Result<(), LineProblem> {
    if labels.len() >= MAX_LABELS {
        return Err(LineProblem::TooManyLabels);
    }
    if labels.iter().any(|l| l.name == label.name) {
        return Err(LineProblem::RepeatedLabel);
    }
    labels.push(label);
    Ok(())
}

/// Index of the first double quote that no backslash escapes.
fn closing_quote(body: &str) -> Option<usize> {
    let mut escaped = false;
    body.bytes().position(|b| {
        let closes = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        closes
    })
}

fn unescape(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, false) => out.push(c),
            (_, true) => match chars.next() {
                Some('n') => out.push('\n'),
                Some(escaped @ ('\\' | '"')) => out.push(escaped),
                Some(other) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
        }
    }
    out
}
