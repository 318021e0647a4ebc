//! Results: what was promised against what was seen.

use serde::Serialize;

use super::scenarios::{Figure, Scenario};

/// One run of a scenario.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Requests sent to the busy job meanwhile.
    pub(super) sent: u64,
    /// Of those, failed.
    pub(super) failed: u64,
    /// Of those, sent a second time.
    pub(super) retried: u64,
    /// Requests of the busy job in flight at the kill.
    pub(super) in_flight: u64,
    /// Times, or what went wrong.
    pub(super) result: Result<Vec<Figure>, String>,
}

impl Outcome {
    /// The times in words, or what went wrong.
    pub(super) fn times(&self) -> String {
        let line = |f: &Figure| format!("{} {:.2} s", f.name, f.seconds);
        match &self.result {
            Ok(figures) => figures.iter().map(line).collect::<Vec<_>>().join(", "),
            Err(problem) => problem.clone(),
        }
    }
}

/// All runs of a scenario.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// What was done.
    pub(crate) scenario: &'static str,
    /// How often.
    pub(crate) repeats: usize,
    /// Requests sent to the busy job, over all runs.
    pub(crate) sent: u64,
    /// Requests failed, run by run.
    pub(crate) failed: Vec<u64>,
    /// Requests in flight at the kill, run by run; as many may fail where `may_lose_in_flight`.
    pub(crate) in_flight: Vec<u64>,
    /// True where requests in flight in the killed engine may fail.
    pub(crate) may_lose_in_flight: bool,
    /// Requests sent a second time, run by run.
    pub(crate) retried: Vec<u64>,
    /// Times.
    pub(crate) figures: Vec<FigureRow>,
    /// Everything that is not as promised.
    pub(crate) problems: Vec<String>,
}

/// One time over all runs.
#[derive(Debug, Serialize)]
pub(crate) struct FigureRow {
    /// What happened.
    pub(crate) name: &'static str,
    /// Seconds, run by run.
    pub(crate) seconds: Vec<f64>,
    /// Longest it may take, where that is promised.
    pub(crate) bound_s: Option<f64>,
}

impl Row {
    /// Sums up and judges.
    pub(super) fn of(scenario: Scenario, outcomes: &[Outcome]) -> Self {
        let mut row = Self {
            scenario: scenario.name(),
            repeats: outcomes.len(),
            sent: outcomes.iter().map(|o| o.sent).sum(),
            failed: outcomes.iter().map(|o| o.failed).collect(),
            in_flight: outcomes.iter().map(|o| o.in_flight).collect(),
            may_lose_in_flight: scenario.may_lose_in_flight(),
            retried: outcomes.iter().map(|o| o.retried).collect(),
            figures: Vec::new(),
            problems: Vec::new(),
        };
        for (i, outcome) in outcomes.iter().enumerate() {
            row.judge(i + 1, outcome);
        }
        row
    }

    fn judge(&mut self, run: usize, outcome: &Outcome) {
        let allowed = if self.may_lose_in_flight {
            outcome.in_flight
        } else {
            0
        };
        if outcome.failed > allowed {
            let problem = format!(
                "run {run}: {} requests failed, {allowed} may",
                outcome.failed
            );
            self.problems.push(problem);
        }
        if !self.may_lose_in_flight && outcome.retried > 0 {
            let problem = format!("run {run}: {} requests were sent twice", outcome.retried);
            self.problems.push(problem);
        }
        match &outcome.result {
            Ok(figures) => figures.iter().for_each(|f| self.add(run, f)),
            Err(problem) => self.problems.push(format!("run {run}: {problem}")),
        }
    }

    fn add(&mut self, run: usize, figure: &Figure) {
        if let Some(bound) = figure.bound_s.filter(|bound| figure.seconds > *bound) {
            self.problems.push(format!(
                "run {run}: {} after {:.1} s, {bound} s are promised",
                figure.name, figure.seconds
            ));
        }
        match self.figures.iter_mut().find(|f| f.name == figure.name) {
            Some(row) => row.seconds.push(figure.seconds),
            None => self.figures.push(FigureRow {
                name: figure.name,
                seconds: vec![figure.seconds],
                bound_s: figure.bound_s,
            }),
        }
    }
}

fn list<T>(values: &[T], show: impl Fn(&T) -> String) -> String {
    values.iter().map(show).collect::<Vec<_>>().join(" ")
}

/// A table for people, with every problem below it.
pub(super) fn table(rows: &[Row]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header([
        "KILL", "RUNS", "SENT", "FAILED", "ALLOWED", "RETRIED", "FIGURE", "SECONDS", "BOUND",
        "VERDICT",
    ]);
    for row in rows {
        let allowed = if row.may_lose_in_flight {
            list(&row.in_flight, u64::to_string)
        } else {
            "0".to_owned()
        };
        let mut head = vec![
            row.scenario.to_owned(),
            row.repeats.to_string(),
            row.sent.to_string(),
            list(&row.failed, u64::to_string),
            allowed,
            list(&row.retried, u64::to_string),
        ];
        let mut verdict = if row.problems.is_empty() {
            "ok"
        } else {
            "MISSED"
        };
        for figure in &row.figures {
            let bound = figure.bound_s.map_or("-".to_owned(), |b| format!("{b:.0}"));
            head.extend([
                figure.name.to_owned(),
                list(&figure.seconds, |s| format!("{s:.2}")),
                bound,
                std::mem::take(&mut verdict).to_owned(),
            ]);
            table.add_row(std::mem::replace(&mut head, vec![String::new(); 6]));
        }
        if row.figures.is_empty() {
            head.extend(["", "", "", verdict].map(str::to_owned));
            table.add_row(head);
        }
    }
    let problems = rows.iter().flat_map(|row| {
        let scenario = row.scenario;
        row.problems
            .iter()
            .map(move |p| format!("\n{scenario}: {p}"))
    });
    format!("{table}\n{}", problems.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(failed: u64, retried: u64, seconds: f64) -> Outcome {
        let figure = Figure {
            name: "unpublished",
            seconds,
            bound_s: Some(3.0),
        };
        Outcome {
            sent: 100,
            failed,
            retried,
            in_flight: 10,
            result: Ok(vec![figure]),
        }
    }

    #[test]
    fn a_lost_engine_may_lose_what_was_in_flight_and_no_more() {
        let fine = Row::of(
            Scenario::EngineChild,
            &[outcome(10, 3, 0.1), outcome(0, 0, 2.9)],
        );
        assert_eq!(fine.problems, Vec::<String>::new());
        let bad = Row::of(Scenario::EngineChild, &[outcome(11, 0, 3.1)]);
        assert_eq!(bad.problems.len(), 2, "{:?}", bad.problems);
    }

    #[test]
    fn elsewhere_nothing_may_fail_or_be_sent_twice() {
        let bad = Row::of(Scenario::Server, &[outcome(1, 0, 0.1), outcome(0, 1, 0.1)]);
        assert_eq!(bad.problems.len(), 2, "{:?}", bad.problems);
        let text = table(&[bad]);
        assert!(text.contains("MISSED") && text.contains("run 2: 1 requests were sent twice"));
    }
}
