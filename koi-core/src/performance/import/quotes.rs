//! Quotes of a CSV that do not close: a reader would take what follows for one long cell.

/// Where the text stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first character of a cell: only here does a quote open one.
    Start,
    /// In a cell without quotes; those inside are characters.
    Plain,
    /// Behind an opening quote.
    Quoted,
    /// Behind a quote inside a quoted cell: its end, or the first of two.
    Closing,
}

/// Checks that every quoted cell ends, and that nothing follows its end.
///
/// # Errors
/// The line and the character where the first such cell begins.
pub(super) fn check(text: &str) -> Result<(), String> {
    let (mut state, mut line, mut column) = (State::Start, 1_u64, 0_u64);
    let mut opened = (1, 1);
    for c in text.chars() {
        column += 1;
        state = match (state, c) {
            (State::Quoted, '"') => State::Closing,
            (State::Quoted, _) | (State::Closing, '"') => State::Quoted,
            (_, ',' | '\n' | '\r') => State::Start,
            (State::Closing, c) if c.is_whitespace() => State::Closing,
            (State::Closing, _) => {
                return Err(format!(
                    "line {line}, character {column}: text behind the quote that ends the cell of line {}, character {}; a quote inside a cell is written twice",
                    opened.0, opened.1
                ));
            }
            (State::Start, '"') => {
                opened = (line, column);
                State::Quoted
            }
            (State::Start | State::Plain, _) => State::Plain,
        };
        if c == '\n' {
            (line, column) = (line + 1, 0);
        }
    }
    if state == State::Quoted {
        return Err(format!(
            "line {}, character {}: a quote opens here and never closes",
            opened.0, opened.1
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_that_close_are_fine() {
        for text in [
            "",
            "a,b\n1,2\n",
            "a,\"b, c\"\r\n\"1\n2\",3\n",
            "\"a \"\"b\"\"\" ,c\n",
            "5\" disk,c\n",
            " \"a\",b",
            "\"\"",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn quotes_that_do_not_close_are_told_by_place() {
        let open = check("a,b\n1,\"2\n3,4\n").unwrap_err();
        assert!(
            open.starts_with("line 2, character 3: a quote opens"),
            "{open}"
        );
        let swallowed = check("a,b\n1,\"2\n3,\"4\n").unwrap_err();
        for words in ["line 3, character 4", "line 2, character 3"] {
            assert!(swallowed.contains(words), "{swallowed}");
        }
    }
}
