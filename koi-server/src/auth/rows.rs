//! From the text of `tokens.toml` to its rows: every problem at once.

use koi_core::document::of_toml;
use koi_core::ids::HostId;
use koi_core::job::draft::reader::Reader;
use koi_core::violation::{FieldViolation, Violations};

use super::{Role, TokenRow};

/// Most rows of one file: a host each, and some people.
const MAX_TOKENS: usize = 100_000;

/// The rows that a text spells out.
///
/// # Errors
/// Every problem, by key.
pub(super) fn parse(text: &str) -> Result<Vec<TokenRow>, Vec<FieldViolation>> {
    let document = of_toml(text)?;
    let mut bad = Violations::default();
    let mut top = Reader::new(Some(&document), "", &mut bad);
    let readers = top.sections_up_to(MAX_TOKENS, "token", &mut bad);
    top.finish(&mut bad);
    let rows: Vec<TokenRow> = readers
        .into_iter()
        .filter_map(|r| row(r, &mut bad))
        .collect();
    bad.finish(rows)
}

fn row(mut r: Reader<'_>, bad: &mut Violations) -> Option<TokenRow> {
    let roles = [("operator", Role::Operator), ("agent", Role::Agent)];
    let role = r.choice("role", &roles, bad);
    let role = r.required("role", role, "operator or agent", bad);
    let name = r.text("name", bad);
    let host: Option<HostId> = r.parsed("host", "1 to 63 of a-z, 0-9 and '-'", bad);
    if role == Some(Role::Agent) {
        let why = "a token of role agent needs a host";
        r.required("host", host.as_ref(), why, bad);
    }
    let secret_file = r.path("secret_file", bad);
    let secret_file = r.required("secret_file", secret_file, "the file with the token", bad);
    r.finish(bad);
    Some(TokenRow {
        role: role?,
        name,
        host,
        secret_file: secret_file?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_of_every_row_is_told() {
        let text = "[[token]]\nrole = \"operater\"\nname = 5\nsecret_file = \"a\"\n\
                    [[token]]\nrole = \"agent\"\nsecretfile = \"b\"\n\
                    [[token]]\nrole = \"agent\"\nhost = \"No Host\"\nsecret_file = \"\"\n[tokens]\n";
        let found = parse(text).unwrap_err();
        let fields: Vec<&str> = found.iter().map(|v| v.field.as_str()).collect();
        let want = [
            "tokens",
            "token[0].role",
            "token[0].name",
            "token[1].host",
            "token[1].secret_file",
            "token[1].secretfile",
            "token[2].host",
            "token[2].secret_file",
        ];
        assert_eq!(fields, want, "{found:?}");
        assert!(found[1].message.contains("did you mean operator?"));
    }

    #[test]
    fn more_hosts_than_a_job_has_fields_are_fine() {
        let row = "[[token]]\nrole = \"agent\"\nhost = \"h\"\nsecret_file = \"s\"\n";
        assert_eq!(parse(&row.repeat(1000)).unwrap().len(), 1000);
        assert_eq!(parse("").unwrap().len(), 0);
    }
}
