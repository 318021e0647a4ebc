//! Writing the Prometheus text format.

use koi_sim::histogram::Histogram;

/// Label names and values of one series.
pub(crate) type Labels<'a> = Vec<(&'a str, &'a str)>;

/// A page under construction.
pub(crate) struct Page {
    text: String,
    created_s: f64,
}

impl Page {
    pub(crate) fn new(created_s: f64) -> Self {
        Self {
            text: String::with_capacity(64 << 10),
            created_s,
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }

    /// A gauge family.
    pub(crate) fn gauge(&mut self, name: &str, help: &str, series: Vec<(Labels<'_>, f64)>) {
        self.head(name, help, "gauge");
        for (labels, value) in &series {
            self.sample(name, labels, *value);
        }
    }

    /// A counter without labels and without a time of creation.
    pub(crate) fn plain_counter(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, "counter");
        self.sample(name, &vec![], value);
    }

    /// A counter family; the name is without `_total`.
    pub(crate) fn counter(&mut self, name: &str, help: &str, series: Vec<(Labels<'_>, f64)>) {
        let total = format!("{name}_total");
        self.head(&total, help, "counter");
        for (labels, value) in &series {
            self.sample(&total, labels, *value);
        }
        self.created(name, help, series.iter().map(|(labels, _)| labels));
    }

    /// A histogram family.
    pub(crate) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        series: Vec<(Labels<'_>, &Histogram)>,
    ) {
        self.head(name, help, "histogram");
        let bucket = format!("{name}_bucket");
        for (labels, histogram) in &series {
            let edges = histogram.edges.iter().map(|edge| format!("{edge:?}"));
            let edges = edges.chain(std::iter::once("+Inf".to_owned()));
            let mut below = 0;
            for (edge, count) in edges.zip(&histogram.counts) {
                below += count;
                let mut with_edge = labels.clone();
                with_edge.push(("le", edge.as_str()));
                self.sample(&bucket, &with_edge, below as f64);
            }
            self.sample(&format!("{name}_count"), labels, below as f64);
            self.sample(&format!("{name}_sum"), labels, histogram.sum);
        }
        self.created(name, help, series.iter().map(|(labels, _)| labels));
    }

    /// A summary family without quantiles.
    pub(crate) fn summary(&mut self, name: &str, help: &str, series: Vec<(Labels<'_>, u64, f64)>) {
        self.head(name, help, "summary");
        for (labels, count, sum) in &series {
            self.sample(&format!("{name}_count"), labels, *count as f64);
            self.sample(&format!("{name}_sum"), labels, *sum);
        }
        self.created(name, help, series.iter().map(|(labels, ..)| labels));
    }

    fn created<'a>(&mut self, name: &str, help: &str, of: impl Iterator<Item = &'a Labels<'a>>) {
        let name = format!("{name}_created");
        self.head(&name, help, "gauge");
        let created_s = self.created_s;
        for labels in of {
            self.sample(&name, labels, created_s);
        }
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        self.text
            .push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn sample(&mut self, name: &str, labels: &Labels<'_>, value: f64) {
        self.text.push_str(name);
        let mut sorted: Vec<&(&str, &str)> = labels.iter().collect();
        sorted.sort();
        for (index, (label, text)) in sorted.into_iter().enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            self.text.push_str(label);
            self.text.push_str("=\"");
            escape(&mut self.text, text);
            self.text.push('"');
        }
        self.text
            .push_str(if labels.is_empty() { " " } else { "} " });
        self.text.push_str(&format!("{value:?}\n"));
    }
}

fn escape(into: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\\' => into.push_str("\\\\"),
            '"' => into.push_str("\\\""),
            '\n' => into.push_str("\\n"),
            c => into.push(c),
        }
    }
}
