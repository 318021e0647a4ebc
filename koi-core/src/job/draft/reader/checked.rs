//! Fields that are more than a type: required ones, texts that read as something, names of a closed set.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use serde_json::Value;

use super::{Reader, quoted};
use crate::violation::{Violations, choice};

impl Reader<'_> {
    /// What was read of a field, or a problem when the field is absent. One that is there and could not be
    /// read has been reported, and so has a mapping that is none.
    pub fn required<T>(
        &self,
        key: &str,
        value: Option<T>,
        what: &str,
        bad: &mut Violations,
    ) -> Option<T> {
        let given = self.map.and_then(|m| m.get(key));
        if value.is_none() && !self.is_broken && given.is_none_or(Value::is_null) {
            bad.add(self.at(key), format!("is required: {what}"));
        }
        value
    }

    /// A text that reads as a `T`; `what` says what that looks like.
    pub fn parsed<T: FromStr>(
        &mut self,
        key: &'static str,
        what: &str,
        bad: &mut Violations,
    ) -> Option<T> {
        let text = self.text(key, bad)?;
        let value = text.parse().ok();
        if value.is_none() {
            let shown = quoted(&text);
            bad.add(self.at(key), format!("must be {what}, got {shown}"));
        }
        value
    }

    /// A path, which cannot be empty.
    pub fn path(&mut self, key: &'static str, bad: &mut Violations) -> Option<PathBuf> {
        let text = self.text(key, bad)?;
        if text.is_empty() {
            bad.add(self.at(key), "must be a path, got an empty text");
            return None;
        }
        Some(text.into())
    }

    /// The address of a listener that only this machine may reach; any free port where none is named.
    pub fn loopback_listener(&mut self, key: &'static str, bad: &mut Violations) -> SocketAddr {
        let what = "a loopback address such as 127.0.0.1:9410";
        let address = self.parsed::<SocketAddr>(key, what, bad);
        if let Some(open) = address.filter(|a| !a.ip().is_loopback()) {
            bad.add(self.at(key), format!("must be {what}, got {open}"));
        }
        address.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// One of some names.
    pub fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        valid: &[(&str, T)],
        bad: &mut Violations,
    ) -> Option<T> {
        let text = self.text(key, bad)?;
        choice(&self.at(key), &text, valid, bad)
    }

    /// A whole number from `least` to `most`.
    pub fn within(
        &mut self,
        key: &'static str,
        (least, most): (u32, u32),
        bad: &mut Violations,
    ) -> Option<u32> {
        let number: u32 = self.whole(key, bad)?;
        if (least..=most).contains(&number) {
            return Some(number);
        }
        bad.add(
            self.at(key),
            format!("must be from {least} to {most}, got {number}"),
        );
        None
    }
}
