//! Labels of a sample as a view of the page's text: read when asked for, copied only to resolve an
//! escape. Not their validation, which `scan.rs` does once for each line.

use std::borrow::Cow;

use super::scan::Cursor;

/// One label of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label<'a> {
    /// Label name.
    pub name: Cow<'a, str>,
    /// Value with escapes resolved.
    pub value: Cow<'a, str>,
}

/// The labels of one sample, in the order of the page; names do not repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Labels<'a> {
    text: &'a str,
    count: usize,
}

impl<'a> Labels<'a> {
    /// Text between the braces that was found to be `count` labels.
    pub(super) const fn checked(text: &'a str, count: usize) -> Self {
        Self { text, count }
    }

    /// Number of labels.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// True without labels.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The labels, one after the other.
    #[must_use]
    pub const fn iter(&self) -> LabelIter<'a> {
        LabelIter {
            cursor: Cursor::new(self.text),
        }
    }

    /// The value of one label.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Cow<'a, str>> {
        self.iter().find(|l| l.name == name).map(|l| l.value)
    }
}

impl<'a> IntoIterator for Labels<'a> {
    type Item = Label<'a>;
    type IntoIter = LabelIter<'a>;

    fn into_iter(self) -> LabelIter<'a> {
        self.iter()
    }
}

/// Iterator over [`Labels`].
#[derive(Debug, Clone)]
pub struct LabelIter<'a> {
    cursor: Cursor<'a>,
}

impl<'a> Iterator for LabelIter<'a> {
    type Item = Label<'a>;

    fn next(&mut self) -> Option<Label<'a>> {
        // The text was checked: whatever ends this early is its end.
        self.cursor.skip_blanks();
        let name = self.cursor.label_name().ok()?;
        self.cursor.skip_blanks();
        if !self.cursor.eat(b'=') {
            return None;
        }
        self.cursor.skip_blanks();
        let value = self.cursor.label_value().ok()?;
        self.cursor.skip_blanks();
        self.cursor.eat(b',');
        Some(Label {
            name: name.resolved(),
            value: value.resolved(),
        })
    }
}
