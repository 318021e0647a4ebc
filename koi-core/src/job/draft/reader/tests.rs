//! Each field reports itself, once, with the fix.

use serde_json::json;

use super::*;
use crate::violation::FieldViolation;

/// The problems that a reader of `document` finds.
fn problems<T>(
    document: &Value,
    read: impl Fn(&mut Reader<'_>, &mut Violations) -> T,
) -> Vec<FieldViolation> {
    let mut bad = Violations::default();
    let mut reader = Reader::new(Some(document), "", &mut bad);
    read(&mut reader, &mut bad);
    reader.finish(&mut bad);
    bad.into_vec()
}

/// One problem, of field `x`, with these words.
fn check_one<T>(value: Value, words: &str, read: impl Fn(&mut Reader<'_>, &mut Violations) -> T) {
    let found = problems(&json!({ "x": value }), read);
    assert_eq!(found.len(), 1, "{words}: {found:?}");
    assert_eq!(found[0].field, "x");
    assert!(found[0].message.contains(words), "{words}: {found:?}");
}

#[test]
fn a_number_beyond_its_field_says_how_far_the_field_goes() {
    let u32s = |r: &mut Reader<'_>, bad: &mut Violations| r.whole::<u32>("x", bad);
    let u64s = |r: &mut Reader<'_>, bad: &mut Violations| r.whole::<u64>("x", bad);
    let i64s = |r: &mut Reader<'_>, bad: &mut Violations| r.whole::<i64>("x", bad);
    check_one(
        json!(4_294_967_296_u64),
        "too large; write at most 4294967295",
        u32s,
    );
    check_one(
        json!(1e20),
        "too large; write at most 18446744073709551615",
        u64s,
    );
    check_one(
        json!(u64::MAX),
        "too large; write at most 9223372036854775807",
        i64s,
    );
    check_one(
        json!(1e30),
        "too large; write at most 9223372036854775807",
        i64s,
    );
    check_one(
        json!(-1e30),
        "too low; write at least -9223372036854775808",
        i64s,
    );
    check_one(json!(-1e30), "must not be negative", u64s);
    check_one(json!(1.5), "must be a whole number", u64s);
}

#[test]
fn required_fields_are_missed_once() {
    let read = |r: &mut Reader<'_>, bad: &mut Violations| {
        let x = r.text("x", bad);
        r.required("x", x, "a name", bad);
    };
    let absent = problems(&json!({}), read);
    assert_eq!(absent[0].message, "is required: a name");
    check_one(json!(5), "must be a text", read);
    assert_eq!(problems(&json!({"x": "a"}), read), []);
    assert_eq!(
        problems(&json!([]), read).len(),
        1,
        "a list has no fields to miss"
    );
}

#[test]
fn texts_are_read_as_what_they_stand_for() {
    let parsed = |r: &mut Reader<'_>, bad: &mut Violations| {
        r.parsed::<std::net::IpAddr>("x", "an IP address", bad)
    };
    check_one(json!("here"), "must be an IP address, got \"here\"", parsed);
    let choice =
        |r: &mut Reader<'_>, bad: &mut Violations| r.choice("x", &[("nvml", 1), ("sim", 2)], bad);
    check_one(
        json!("nmvl"),
        "one of nvml, sim, got \"nmvl\"; did you mean nvml?",
        choice,
    );
    let within = |r: &mut Reader<'_>, bad: &mut Violations| r.within("x", (1, 9), bad);
    check_one(json!(10), "must be from 1 to 9, got 10", within);
    check_one(json!(""), "must be a path", |r, bad| r.path("x", bad));
    let listener = |r: &mut Reader<'_>, bad: &mut Violations| r.loopback_listener("x", bad);
    check_one(json!("0.0.0.0:1"), "must be a loopback address", listener);
    check_one(json!("localhost"), "must be a loopback address", listener);
    assert_eq!(problems(&json!({"x": "[::1]:9410"}), listener), []);
}
