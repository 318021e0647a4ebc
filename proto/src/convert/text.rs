//! Words that came over the wire: cut, and without characters that steer a terminal, break a log line
//! or are refused by a database. Not for identities and file contents: those are checked.

/// At most so many characters of a text; line breaks and tabs become spaces, other control
/// characters a visible mark.
pub(super) fn words(text: &str, max_chars: usize) -> String {
    let clean = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        '\u{2028}' | '\u{2029}' => ' ',
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().take(max_chars).map(clean).collect()
}
