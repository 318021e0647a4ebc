//! Server-sent events of a streaming completion, as far as a stopwatch needs them.

use serde::Deserialize;

/// Longest line kept; a longer one is not an event of a completion.
const MAX_LINE_BYTES: usize = 1 << 20;

/// What one event says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// One or more generated tokens.
    Tokens,
    /// The final count of generated tokens.
    Usage(u64),
    /// The stream is complete.
    Done,
    /// The engine reports an error inside the stream, or sends what is no event.
    Broken,
}

/// Splits a byte stream into events.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
}

impl Events {
    /// Takes the next bytes; calls `seen` for every event that they complete.
    pub(super) fn feed(&mut self, bytes: &[u8], mut seen: impl FnMut(Event)) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            self.line.extend_from_slice(&rest[..end]);
            if let Some(event) = event(&self.line) {
                seen(event);
            }
            self.line.clear();
            rest = &rest[end + 1..];
        }
        self.line.extend_from_slice(rest);
        if self.line.len() > MAX_LINE_BYTES {
            self.line.clear();
            seen(Event::Broken);
        }
    }
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<serde::de::IgnoredAny>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Usage {
    completion_tokens: u64,
}

fn event(line: &[u8]) -> Option<Event> {
    let data = line.strip_prefix(b"data:")?.trim_ascii();
    if data == b"[DONE]" {
        return Some(Event::Done);
    }
    // Nearly every event has a choice and no usage yet; those are not parsed.
    let has = |needle: &[u8]| data.windows(needle.len()).any(|w| w == needle);
    if has(b"\"choices\":[{") && !has(b"\"usage\":{") {
        return Some(Event::Tokens);
    }
    Some(match serde_json::from_slice::<Chunk>(data) {
        Ok(Chunk {
            usage: Some(usage),
            choices,
        }) if choices.is_empty() => Event::Usage(usage.completion_tokens),
        Ok(Chunk { choices, .. }) if !choices.is_empty() => Event::Tokens,
        Ok(_) | Err(_) => Event::Broken,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(parts: &[&str]) -> Vec<Event> {
        let (mut parser, mut seen) = (Events::default(), vec![]);
        for part in parts {
            parser.feed(part.as_bytes(), |e| seen.push(e));
        }
        seen
    }

    const TOKEN: &str = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\n";

    #[test]
    fn events_come_out_however_the_bytes_are_cut() {
        let usage = "data: {\"choices\": [], \"usage\": {\"completion_tokens\": 2}}\r\n\r\n";
        let text = format!("{TOKEN}{TOKEN}: ping\n{usage}data: [DONE]\n\n");
        let want = [Event::Tokens, Event::Tokens, Event::Usage(2), Event::Done];
        assert_eq!(events(&[&text]), want);
        let bytes: Vec<String> = text.chars().map(String::from).collect();
        let bytes: Vec<&str> = bytes.iter().map(String::as_str).collect();
        assert_eq!(events(&bytes), want);
    }

    #[test]
    fn errors_and_floods_are_broken() {
        assert_eq!(
            events(&["data: {\"error\":{\"message\":\"died\"}}\n"]),
            [Event::Broken]
        );
        assert_eq!(events(&["data: not json\n"]), [Event::Broken]);
        assert_eq!(events(&[&"x".repeat(MAX_LINE_BYTES + 1)]), [Event::Broken]);
        assert_eq!(
            events(&["data: {\"choices\": [ {\"text\":\"a\"} ]}\n"]),
            [Event::Tokens]
        );
    }
}
