//! A calendar day as text and as a number of days.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A day of the Gregorian calendar, years 1970 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

/// The text is not a day.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a day of the form 2026-11-30")]
pub struct NotADate {
    /// What was offered, cut to 40 characters.
    pub text: String,
}

const fn is_leap(year: u16) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const fn days_in(year: u16, month: u8) -> u8 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Date {
    /// Days since 1970-01-01.
    ///
    /// # Formula
    /// 365 · years + leap days before the year + days of the earlier months + day − 1
    #[must_use]
    pub fn days(self) -> i64 {
        let before = |y: u16| i64::from(y / 4) - i64::from(y / 100) + i64::from(y / 400);
        let leap_days = before(self.year - 1) - before(1969);
        let months: i64 = (1..self.month)
            .map(|m| i64::from(days_in(self.year, m)))
            .sum();
        365 * i64::from(self.year - 1970) + leap_days + months + i64::from(self.day) - 1
    }
}

impl Date {
    /// The day that lies so many days after 1970-01-01.
    ///
    /// # Errors
    /// Days before 1970 and after 9999.
    pub fn from_days(days: i64) -> Result<Self, NotADate> {
        let bad = || NotADate {
            text: format!("day {days}"),
        };
        let mut rest = u32::try_from(days).map_err(|_| bad())?;
        for year in 1970..=9999_u16 {
            for month in 1..=12_u8 {
                let length = u32::from(days_in(year, month));
                if rest < length {
                    let day = u8::try_from(rest + 1).map_err(|_| bad())?;
                    return Ok(Self { year, month, day });
                }
                rest -= length;
            }
        }
        Err(bad())
    }
}

impl FromStr for Date {
    type Err = NotADate;
    fn from_str(text: &str) -> Result<Self, NotADate> {
        let bad = || NotADate {
            text: text.chars().take(40).collect(),
        };
        let is_digits =
            |part: &str, n: usize| part.len() == n && part.bytes().all(|c| c.is_ascii_digit());
        let parts: Vec<&str> = text.split('-').collect();
        let [year, month, day] = parts.as_slice() else {
            return Err(bad());
        };
        if !(is_digits(year, 4) && is_digits(month, 2) && is_digits(day, 2)) {
            return Err(bad());
        }
        let date = Self {
            year: year.parse().map_err(|_| bad())?,
            month: month.parse().map_err(|_| bad())?,
            day: day.parse().map_err(|_| bad())?,
        };
        let is_day = date.year >= 1970
            && (1..=12).contains(&date.month)
            && (1..=days_in(date.year, date.month)).contains(&date.day);
        is_day.then_some(date).ok_or_else(bad)
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl TryFrom<String> for Date {
    type Error = NotADate;
    fn try_from(text: String) -> Result<Self, NotADate> {
        text.parse()
    }
}

impl From<Date> for String {
    fn from(date: Date) -> Self {
        date.to_string()
    }
}
