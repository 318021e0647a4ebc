//! The `process_*` families, read from `/proc/self`.

use std::fs;

use super::text::Page;

/// Kernel clock ticks per second in `/proc`; 100 on every Linux that we run on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Writes what can be read; a family that cannot is left out.
pub(crate) fn write(page: &mut Page) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<f64> = after_name
        .split_whitespace()
        .map(|f| f.parse().unwrap_or(0.0))
        .collect();
    let mut gauge = |name: &str, help: &str, value: Option<f64>| {
        if let Some(value) = value {
            page.gauge(name, help, vec![(vec![], value)]);
        }
    };
    gauge(
        "process_virtual_memory_bytes",
        "Virtual memory size in bytes.",
        fields.get(20).copied(),
    );
    let resident = fields.get(21).map(|pages| pages * 4096.0);
    gauge(
        "process_resident_memory_bytes",
        "Resident memory size in bytes.",
        resident,
    );
    let started = fields
        .get(19)
        .zip(boot_time_s())
        .map(|(ticks, boot)| boot + ticks / TICKS_PER_SECOND);
    gauge(
        "process_start_time_seconds",
        "Start of the process since the epoch.",
        started,
    );
    let open = fs::read_dir("/proc/self/fd")
        .ok()
        .map(|entries| entries.count() as f64);
    gauge("process_open_fds", "Open file descriptors.", open);
    gauge(
        "process_max_fds",
        "Most file descriptors.",
        max_open_files(),
    );
    if let (Some(user), Some(system)) = (fields.get(11), fields.get(12)) {
        page.plain_counter(
            "process_cpu_seconds_total",
            "User and system CPU time in seconds.",
            (user + system) / TICKS_PER_SECOND,
        );
    }
}

fn boot_time_s() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()
}

fn max_open_files() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}
