//! Words that came over the wire: cut, and without characters that steer a terminal, break a log line
//! or are refused by a database. Not for identities and file contents: those are checked.

use koi_core::printable::is_hidden;

/// At most so many characters of a text; line breaks and tabs become spaces, other
/// characters that do not show a visible mark.
pub(super) fn words(text: &str, max_chars: usize) -> String {
    let clean = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        '\u{2028}' | '\u{2029}' => ' ',
        c if is_hidden(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().take(max_chars).map(clean).collect()
}
