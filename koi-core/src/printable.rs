//! Characters that do not show, or show as something else.
//!
//! A name that carries one can steer a terminal, pass for another name, or turn a line around. Names
//! with one are refused where they come in; texts for people are escaped where they go out. Not about
//! alphabets: a name may be written in any script. Unicode Technical Report 36, sections 2.5 and 2.10.

/// Whether a character is a control, a bidirectional mark, of no width, a separator of lines or
/// paragraphs, or a tag.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The first character of a name that does not show, as a sentence that says what to do.
///
/// # Errors
/// The sentence.
pub fn check_shown(text: &str) -> Result<(), String> {
    match text.chars().find(|c| is_hidden(*c)) {
        Some(c) => Err(format!(
            "has the character U+{:04X}, which does not show; leave it out",
            u32::from(c)
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_show_is_named_and_every_script_is_welcome() {
        for shown in ["", "g5.xlarge", "Zürich 東京 مثال", "a b", "e\u{301}"] {
            assert_eq!(check_shown(shown), Ok(()), "{shown:?}");
        }
        for (hidden, code) in [
            ("a\u{202e}b", "U+202E"),
            ("\u{200b}", "U+200B"),
            ("a\0", "U+0000"),
            ("\u{1b}[31m", "U+001B"),
            ("a\nb", "U+000A"),
            ("\u{2066}x", "U+2066"),
            ("\u{feff}x", "U+FEFF"),
            ("x\u{e0041}", "U+E0041"),
            ("so\u{ad}ft", "U+00AD"),
        ] {
            let why = check_shown(hidden).unwrap_err();
            assert!(why.contains(code) && why.contains("leave it out"), "{why}");
        }
    }
}
