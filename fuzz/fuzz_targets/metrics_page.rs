//! The coverage-guided target: libFuzzer finds the bytes. `README.md` has the command.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| koi_fuzz::check(bytes));
