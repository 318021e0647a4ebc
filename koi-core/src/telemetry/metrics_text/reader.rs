//! The walk over a page's lines: what is kept, what is counted, what is reported. Not the reading of
//! one line (`scan.rs`, `line.rs`).

use std::borrow::Cow;

use super::line::{Comment, RawLine, parse_comment, trim_blanks};
use super::scan::parse_sample;
use super::{
    Family, FamilyType, Limits, LineProblem, MAX_REPORTED_PROBLEMS, Page, Problem, Sample,
};

/// The state of the walk.
pub(super) struct Reader<'a, F> {
    /// What was read so far.
    pub(super) page: Page<'a>,
    limits: Limits,
    keep: F,
    /// The last name that `keep` was asked for, and its answer.
    kept_name: Option<(&'a str, bool)>,
    /// Label names of the line at hand, kept for its memory.
    names: Vec<Cow<'a, str>>,
    /// Text after the end mark was reported.
    told_of_the_end: bool,
}

impl<'a, F: Fn(&str) -> bool> Reader<'a, F> {
    pub(super) const fn new(page: Page<'a>, limits: Limits, keep: F) -> Self {
        Self {
            page,
            limits,
            keep,
            kept_name: None,
            names: Vec::new(),
            told_of_the_end: false,
        }
    }

    pub(super) fn read(&mut self, line: &RawLine<'a>) {
        self.page.lines = self.page.lines.saturating_add(1);
        let text = match line.text {
            Ok(text) => trim_blanks(text),
            Err(problem) => {
                self.page.unterminated = !line.terminated;
                return self.note(problem);
            }
        };
        self.page.unterminated = !line.terminated && !text.is_empty();
        if text.is_empty() {
            return;
        }
        if let Some(comment) = text.strip_prefix('#') {
            return self.comment(comment);
        }
        if self.page.ended && !self.told_of_the_end {
            self.told_of_the_end = true;
            self.note(LineProblem::AfterEnd);
        }
        match parse_sample(text, self.page.lines, &mut self.names) {
            Ok(sample) => self.sample(sample),
            Err(problem) => self.note(problem.or_carriage_return(text)),
        }
    }

    fn comment(&mut self, text: &'a str) {
        if memchr::memchr(b'\r', text.as_bytes()).is_some() {
            // Most likely lines that end with it alone, so more than a comment is lost.
            return self.note(LineProblem::BareCarriageReturn);
        }
        match parse_comment(text) {
            Comment::Nothing => {}
            Comment::End => {
                self.page.ended = true;
                self.page.unterminated = false;
            }
            Comment::Type(name, kind) => self.declare_type(name, kind),
            Comment::Help(name, text) => {
                if let Some(family) = self.family(name) {
                    family.help = Some(text);
                }
            }
            Comment::Unit(name, unit) => {
                if let Some(family) = self.family(name) {
                    family.unit = Some(unit);
                }
            }
        }
    }

    fn declare_type(&mut self, name: &'a str, kind: Option<FamilyType>) {
        if kind.is_none() {
            self.note(LineProblem::BadType);
        }
        let Some(family) = self.family(name) else {
            return;
        };
        if family.kind.is_some() {
            self.note(LineProblem::RepeatedType);
        } else {
            family.kind = kind.or(Some(FamilyType::Unknown));
        }
    }

    /// The family that the comment lines at hand speak of; `None` past the limit.
    fn family(&mut self, name: &'a str) -> Option<&mut Family<'a>> {
        let same = self.page.families.last().is_some_and(|f| f.name == name);
        if !same {
            if self.page.families.len() >= self.limits.max_series {
                return None;
            }
            let line = self.page.lines;
            self.page.families.push(Family::new(name, line));
        }
        self.page.families.last_mut()
    }

    fn sample(&mut self, sample: Sample<'a>) {
        if sample.exemplar.is_some() && sample.exemplar().is_none() {
            self.note(LineProblem::BadExemplar);
        }
        if self.is_created_companion(&sample.name) {
            self.page.created_dropped += 1;
        } else if !self.keeps(&sample) {
            self.page.unselected += 1;
        } else if self.page.samples.len() >= self.limits.max_series {
            self.page.over_limit += 1;
        } else {
            self.page.samples.push(sample);
            self.page.whole += usize::from(!self.page.unterminated);
        }
    }

    /// True for a `_created` series of the family declared last or of the one before it: the classic
    /// format declares the companion as a family of its own.
    fn is_created_companion(&self, name: &str) -> bool {
        name.strip_suffix("_created").is_some_and(|stem| {
            let families = self.page.families.iter().rev().take(2);
            families.into_iter().any(|f| f.is_created_companion(stem))
        })
    }

    fn keeps(&mut self, sample: &Sample<'a>) -> bool {
        match (&sample.name, self.kept_name) {
            (Cow::Borrowed(name), Some((last, kept))) if *name == last => kept,
            (Cow::Borrowed(name), _) => {
                let kept = (self.keep)(name);
                self.kept_name = Some((name, kept));
                kept
            }
            (Cow::Owned(name), _) => (self.keep)(name),
        }
    }

    fn note(&mut self, problem: LineProblem) {
        if problem.loses_the_line() {
            self.page.bad_lines += 1;
        } else {
            self.page.remarks += 1;
        }
        if self.page.problems.len() < MAX_REPORTED_PROBLEMS {
            let line = self.page.lines;
            self.page.problems.push(Problem { line, problem });
        }
    }
}
