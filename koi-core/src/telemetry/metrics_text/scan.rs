//! The walk over one sample line, byte by byte and without a copy. Not the page's limits and counts.

use std::borrow::Cow;

use memchr::memchr2;

use super::labels::Labels;
use super::{Exemplar, LineProblem, MAX_LABEL_VALUE_BYTES, MAX_LABELS, MAX_NAME_BYTES, Sample};

/// Bytes of a label's bare name; digits not first.
const LABEL_BYTE: u8 = 1;
/// Bytes of a metric's bare name: a label's and the colon.
const METRIC_BYTE: u8 = 2;
/// Digits, which may not stand first.
const DIGIT: u8 = 4;

const CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte: u8 = 0;
    loop {
        if byte.is_ascii_alphabetic() || byte == b'_' {
            table[byte as usize] = LABEL_BYTE | METRIC_BYTE;
        } else if byte.is_ascii_digit() {
            table[byte as usize] = LABEL_BYTE | METRIC_BYTE | DIGIT;
        } else if byte == b':' {
            table[byte as usize] = METRIC_BYTE;
        }
        if byte == u8::MAX {
            return table;
        }
        byte += 1;
    }
}

/// Reads a sample line that neither begins nor ends with blanks. `names` is scratch space that is
/// kept between lines.
pub(super) fn parse_sample<'a>(
    line: &'a str,
    number: u32,
    names: &mut Vec<Cow<'a, str>>,
) -> Result<Sample<'a>, LineProblem> {
    let mut cursor = Cursor::new(line);
    let bare = cursor.bare_name(METRIC_BYTE)?;
    cursor.skip_blanks();
    let (name, labels) = if cursor.eat(b'{') {
        cursor.labels(bare, names)?
    } else {
        (Cow::Borrowed(bare), Labels::default())
    };
    if name.is_empty() {
        return Err(LineProblem::BadName);
    }
    cursor.skip_blanks();
    let value = parse_number(cursor.word()).ok_or(LineProblem::BadValue)?;
    let (timestamp, exemplar) = cursor.tail()?;
    Ok(Sample {
        name,
        labels,
        value,
        timestamp,
        exemplar,
        line: number,
    })
}

/// Reads what stands after the `#` of an exemplar.
pub(super) fn parse_exemplar(text: &str) -> Option<Exemplar<'_>> {
    let mut cursor = Cursor::new(text);
    cursor.skip_blanks();
    if !cursor.eat(b'{') {
        return None;
    }
    // A name is not allowed here, which the non-empty stand-in says.
    let (_, labels) = cursor.labels("exemplar", &mut Vec::new()).ok()?;
    cursor.skip_blanks();
    let value = parse_number(cursor.word())?;
    match cursor.tail() {
        Ok((timestamp, None)) => Some(Exemplar {
            labels,
            value,
            timestamp,
        }),
        Ok((_, Some(_))) | Err(_) => None,
    }
}

/// Go's and Python's spellings of a number; hexadecimal and digit separators are refused.
fn parse_number(word: &str) -> Option<f64> {
    word.parse().ok()
}

/// Text that may hold escapes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Escaped<'a> {
    raw: &'a str,
    has_escape: bool,
}

impl<'a> Escaped<'a> {
    /// The text that is meant; copied only when there is an escape in it.
    pub(super) fn resolved(self) -> Cow<'a, str> {
        if self.has_escape {
            Cow::Owned(unescape(self.raw))
        } else {
            Cow::Borrowed(self.raw)
        }
    }
}

/// The escapes `\\`, `\"` and `\n`; an unknown one keeps its backslash, as Prometheus does.
fn unescape(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some(escaped @ ('\\' | '"')) => out.push(escaped),
            Some(other) => out.extend(['\\', other]),
            None => out.push('\\'),
        }
    }
    out
}

/// A place in a line. It only ever stops at ASCII bytes or at the end, so that cuts there are
/// between characters.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub(super) fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
    }

    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// The longest unquoted name of these bytes; empty when there is none.
    fn bare_name(&mut self, class: u8) -> Result<&'a str, LineProblem> {
        let start = self.at;
        let rest = &self.text.as_bytes()[start..];
        let starts = rest
            .first()
            .is_some_and(|b| CLASSES[usize::from(*b)] & (class | DIGIT) == class);
        if !starts {
            return Ok("");
        }
        let length = rest
            .iter()
            .position(|b| CLASSES[usize::from(*b)] & class == 0)
            .unwrap_or(rest.len());
        self.at += length;
        if length > MAX_NAME_BYTES {
            return Err(LineProblem::NameTooLong);
        }
        Ok(&self.text[start..self.at])
    }

    /// The text up to the next blank.
    fn word(&mut self) -> &'a str {
        let start = self.at;
        let rest = &self.text.as_bytes()[start..];
        self.at += rest
            .iter()
            .position(|b| matches!(b, b' ' | b'\t'))
            .unwrap_or(rest.len());
        &self.text[start..self.at]
    }

    /// An optional timestamp, then nothing or the text of an exemplar.
    fn tail(&mut self) -> Result<(Option<f64>, Option<&'a str>), LineProblem> {
        self.skip_blanks();
        let timestamp = match self.peek() {
            None => return Ok((None, None)),
            Some(b'#') => None,
            Some(_) => {
                let at = parse_number(self.word()).filter(|t| t.is_finite());
                Some(at.ok_or(LineProblem::BadTimestamp)?)
            }
        };
        self.skip_blanks();
        if self.eat(b'#') {
            Ok((timestamp, Some(&self.text[self.at..])))
        } else if self.peek().is_none() {
            Ok((timestamp, None))
        } else {
            Err(LineProblem::BadTimestamp)
        }
    }

    /// The list after `{` up to and with `}`. Without a `bare` name the metric's own name may stand
    /// first, in quotes.
    fn labels(
        &mut self,
        bare: &'a str,
        names: &mut Vec<Cow<'a, str>>,
    ) -> Result<(Cow<'a, str>, Labels<'a>), LineProblem> {
        names.clear();
        let mut name = Cow::Borrowed(bare);
        let mut start = self.at;
        loop {
            self.skip_blanks();
            let quoted = self.peek() == Some(b'"');
            if self.eat(b'}') {
                let text = &self.text[start..self.at - 1];
                return Ok((name, Labels::checked(text, names.len())));
            }
            let key = self.label_name()?;
            self.skip_blanks();
            let names_metric = quoted && name.is_empty() && names.is_empty();
            if self.eat(b'=') {
                self.skip_blanks();
                self.label_value()?;
                push_name(names, key.resolved())?;
            } else if names_metric {
                name = key.resolved();
            } else {
                return Err(LineProblem::BadLabels);
            }
            self.skip_blanks();
            if !self.eat(b',') && self.peek() != Some(b'}') {
                return Err(LineProblem::BadLabels);
            }
            if names.is_empty() {
                start = self.at;
            }
        }
    }

    pub(super) fn label_name(&mut self) -> Result<Escaped<'a>, LineProblem> {
        let name = if self.peek() == Some(b'"') {
            self.quoted(MAX_NAME_BYTES, LineProblem::NameTooLong)?
        } else {
            Escaped {
                raw: self.bare_name(LABEL_BYTE)?,
                has_escape: false,
            }
        };
        if name.raw.is_empty() {
            Err(LineProblem::BadLabels)
        } else {
            Ok(name)
        }
    }

    pub(super) fn label_value(&mut self) -> Result<Escaped<'a>, LineProblem> {
        self.quoted(MAX_LABEL_VALUE_BYTES, LineProblem::LabelTooLong)
    }

    /// A string in double quotes.
    fn quoted(&mut self, limit: usize, too_long: LineProblem) -> Result<Escaped<'a>, LineProblem> {
        if !self.eat(b'"') {
            return Err(LineProblem::BadLabels);
        }
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut from = start;
        let end = loop {
            let rest = bytes.get(from..).unwrap_or_default();
            let found = memchr2(b'"', b'\\', rest).ok_or(LineProblem::BadLabels)?;
            if rest[found] == b'"' {
                break from + found;
            }
            from += found + 2;
        };
        self.at = end + 1;
        if end - start > limit {
            return Err(too_long);
        }
        Ok(Escaped {
            raw: &self.text[start..end],
            has_escape: from > start,
        })
    }
}

/// Notes a label's name. The last noted name is the greatest: names that ascend, as most pages
/// write them, need no search.
fn push_name<'a>(names: &mut Vec<Cow<'a, str>>, name: Cow<'a, str>) -> Result<(), LineProblem> {
    if names.len() >= MAX_LABELS {
        return Err(LineProblem::TooManyLabels);
    }
    match names.last() {
        Some(greatest) if name <= *greatest => {
            if names.contains(&name) {
                return Err(LineProblem::RepeatedLabel);
            }
            names.insert(names.len() - 1, name);
        }
        Some(_) | None => names.push(name),
    }
    Ok(())
}
