//! What a `/metrics` page says.

use std::collections::BTreeMap;

/// The samples of one scrape.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    samples: Vec<Sample>,
}

#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Metrics {
    /// Reads the text format; lines that are not samples are skipped.
    pub fn parse(text: &str) -> Self {
        Self { samples: text.lines().filter_map(Sample::parse).collect() }
    }

    /// Sum of the samples called `name` that carry all of `labels`; 0 when there is none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.samples
            .iter()
            .filter(|sample| sample.name == name)
            .filter(|sample| {
                labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|v| v == value))
            })
            .map(|sample| sample.value)
            .sum()
    }

    /// Whether there is any sample called `name`.
    pub fn has(&self, name: &str) -> bool {
        self.samples.iter().any(|sample| sample.name == name)
    }
}

impl Sample {
    fn parse(line: &str) -> Option<Self> {
        if line.starts_with('#') {
            return None;
        }
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels
            .trim_end_matches('}')
            .split(',')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned()))
            .collect();
        Some(Self { name: name.to_owned(), labels, value: value.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_over_the_labels_that_are_not_named() {
        let metrics = Metrics::parse("# HELP a b\na{x=\"1\",y=\"\"} 2\na{x=\"2\",y=\"\"} 3\nb 4\n");
        assert!((metrics.sum("a", &[("y", "")]) - 5.0).abs() < f64::EPSILON);
        assert!((metrics.sum("a", &[("x", "2")]) - 3.0).abs() < f64::EPSILON);
        assert!((metrics.sum("b", &[]) - 4.0).abs() < f64::EPSILON);
        assert!(metrics.has("b") && !metrics.has("c"));
    }
}
