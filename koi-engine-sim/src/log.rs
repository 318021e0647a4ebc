//! Log lines on standard error in vLLM's shape, so that an agent's tail of them looks familiar.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// Which process speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// The API server.
    ApiServer,
    /// Its child.
    EngineCore,
}

/// Writes one line; a closed standard error is no reason to stop serving.
pub(crate) fn log(speaker: Speaker, level: &str, message: &str) {
    let name = match speaker {
        Speaker::ApiServer => "APIServer",
        Speaker::EngineCore => "EngineCore",
    };
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    let pid = std::process::id();
    let line = format!(
        "({name} pid={pid}) {level} {} [sim] {message}\n",
        month_to_second(seconds)
    );
    drop(std::io::stderr().write_all(line.as_bytes()));
}

/// `MM-DD hh:mm:ss` in UTC.
fn month_to_second(unix_seconds: u64) -> String {
    let days = unix_seconds / 86_400;
    // Counting years from March puts the leap day last: 400 years have 146,097 days.
    let shifted = days + 719_468;
    let day_of_era = shifted % 146_097;
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let second = unix_seconds % 86_400;
    format!(
        "{month:02}-{day:02} {:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::month_to_second;

    #[test]
    fn dates_are_right() {
        assert_eq!(month_to_second(0), "01-01 00:00:00");
        assert_eq!(month_to_second(1_709_210_096), "02-29 12:34:56");
        assert_eq!(month_to_second(1_796_024_686), "11-30 07:44:46");
    }
}
