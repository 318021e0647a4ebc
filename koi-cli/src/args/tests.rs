//! Examples parse, limits hold, and the command line is consistent.

use clap::CommandFactory as _;

use super::*;

/// Calls `visit` for every command below `command`, by its full name.
fn walk(command: &clap::Command, path: &str, visit: &mut dyn FnMut(&str, &clap::Command)) {
    for sub in command.get_subcommands() {
        let name = format!("{path} {}", sub.get_name());
        visit(&name, sub);
        walk(sub, &name, visit);
    }
}

#[test]
fn every_command_has_an_example_that_parses() {
    let mut examples = vec![EXIT_CODES.to_owned()];
    walk(&Cli::command(), "koi", &mut |name, command| {
        let help = command
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        assert!(
            help.contains("Example:") && help.contains(name),
            "no example in `{name} --help`"
        );
        examples.push(help);
    });
    assert!(examples.len() > 20);
    let lines = examples
        .iter()
        .flat_map(|e| e.lines())
        .filter_map(|l| l.strip_prefix("  koi "));
    for line in lines {
        let first = line
            .split(" && ")
            .next()
            .unwrap()
            .split(" > ")
            .next()
            .unwrap();
        let words = std::iter::once("koi".to_owned()).chain(words(first));
        assert!(
            Cli::try_parse_from(words).is_ok(),
            "the example `koi {first}` does not parse"
        );
    }
}

/// Splits at blanks outside single quotes.
fn words(line: &str) -> Vec<String> {
    let parts: Vec<&str> = line.split('\'').collect();
    let mut words = vec![];
    for (i, part) in parts.iter().enumerate() {
        if i % 2 == 1 {
            words.push((*part).to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
    let help = Cli::command().render_long_help().to_string();
    assert!(help.contains("Exit codes"), "{help}");
}

#[test]
fn limits_in_the_help_are_those_of_the_parser() {
    let parses = |words: &[&str]| Cli::try_parse_from([&["koi"], words].concat()).is_ok();
    assert!(parses(&["inspect", "job", "chat", "--over", "20m"]));
    assert!(!parses(&["inspect", "job", "chat", "--over", "21m"]));
    assert!(parses(&["ticks", "--limit", "500"]));
    assert!(!parses(&["ticks", "--limit", "0"]));
    assert!(!parses(&["ticks", "--limit", "501"]));
}

#[test]
fn spans_have_units_and_bounds() {
    assert_eq!(parse_span("30s"), Ok(Duration::from_secs(30)));
    assert_eq!(parse_span("5m"), Ok(Duration::from_secs(300)));
    for bad in [
        "",
        "30",
        "0s",
        "25h",
        "-1s",
        "1e3s",
        "99999999999999999999h",
        "5 m",
    ] {
        assert!(parse_span(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_negative_number_is_a_number_out_of_range_and_no_option() {
    let parse = |words: &str| {
        let line = format!("koi predict llama-3.1-8b --gpu H100 {words}");
        Cli::try_parse_from(line.split(' ')).map_err(|e| e.to_string())
    };
    // Fractions are judged together with the rest of the question.
    for words in ["--rate -1", "--isl -5 --osl -0.5", "--price -2"] {
        assert!(parse(words).is_ok(), "{words}");
    }
    for (words, range) in [
        ("--concurrency -1", "1..=1000000"),
        ("--batch-size 0", "1..=1000000"),
        ("--tp -1", "1..=1024"),
        ("--replicas -2", "1..=10000"),
    ] {
        let why = parse(words).err().unwrap_or_else(|| panic!("{words}"));
        let option = words.split(' ').next().unwrap();
        assert!(why.contains(option) && why.contains(range), "{why}");
    }
}
