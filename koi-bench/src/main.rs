//! Binary entry.

mod kills;

use clap::Parser as _;

/// Benchmarks of Koi.
#[derive(clap::Parser)]
enum Bench {
    /// Kill every part of a running cluster under load, and change it by plan.
    Kills(kills::KillsArgs),
}

fn main() -> anyhow::Result<()> {
    match Bench::parse() {
        Bench::Kills(args) => kills::run(&args),
    }
}
