//! The embedded migrations are read at compile time; a new file is a reason to compile again.

fn main() {
    println!("cargo::rerun-if-changed=../migrations");
}
