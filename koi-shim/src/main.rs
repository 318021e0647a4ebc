//! Binary entry.
fn main() {}
