//! The learned member: what measured rows say beyond first principles, as a correction in log
//! space.
//!
//! One boosted forest of small complete trees per quantity over the dimensionless features of
//! [`super::situation`]; numbers live in `configs/calibration/residual.toml`, and training is in
//! koi-bench. Evaluation allocates nothing. Outside the ground that was measured a tree says what
//! its outermost leaf says, so corrections stay bounded. Spec §4, member 3.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::situation::{COUNT, Situation};

/// Decisions on the way to a leaf.
pub const DEPTH: usize = 3;
/// Inner nodes of a tree, root first, children of node i at 2i + 1 and 2i + 2.
pub const NODES: usize = (1 << DEPTH) - 1;
/// Leaves of a tree.
pub const LEAVES: usize = 1 << DEPTH;
/// Largest correction, as a logarithm: a factor of about twenty.
const LARGEST_CORRECTION: f64 = 3.0;

/// A quantity that is corrected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Mean time per output token.
    Tpot,
    /// Mean time to first token.
    Ttft,
    /// Generated tokens per second.
    Throughput,
}

impl Quantity {
    /// Every quantity.
    pub const ALL: [Self; 3] = [Self::Tpot, Self::Ttft, Self::Throughput];

    /// Position in [`Self::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in `configs/calibration`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tpot => "tpot",
            Self::Ttft => "ttft",
            Self::Throughput => "throughput",
        }
    }
}

/// One complete binary tree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tree {
    /// Feature of each inner node.
    pub features: [usize; NODES],
    /// A feature above its threshold goes to the right.
    pub thresholds: [f64; NODES],
    /// Value of each leaf, left to right.
    pub leaves: [f64; LEAVES],
}

impl Tree {
    /// The leaf that a situation reaches.
    #[must_use]
    pub fn leaf(&self, situation: &Situation) -> usize {
        let mut node = 0;
        for _ in 0..DEPTH {
            let feature = self.features.get(node).copied().unwrap_or(0);
            let threshold = self.thresholds.get(node).copied().unwrap_or(f64::INFINITY);
            let value = situation.get(feature).copied().unwrap_or(0.0);
            node = 2 * node + 1 + usize::from(value > threshold);
        }
        node - NODES
    }

    /// Its value.
    #[must_use]
    pub fn value(&self, situation: &Situation) -> f64 {
        self.leaves
            .get(self.leaf(situation))
            .copied()
            .unwrap_or(0.0)
    }
}

/// The trees of one quantity; their values add up.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Forest {
    /// Correction before any tree.
    pub base: f64,
    /// Trees.
    pub trees: Vec<Tree>,
}

impl Forest {
    /// ln(measured / analytic) as learned.
    #[must_use]
    pub fn correction(&self, situation: &Situation) -> f64 {
        let sum: f64 = self.trees.iter().map(|tree| tree.value(situation)).sum();
        (self.base + sum).clamp(-LARGEST_CORRECTION, LARGEST_CORRECTION)
    }
}

/// The learned member.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Residuals {
    /// How and when the numbers were found.
    pub fitted: String,
    /// Forests by [`Quantity::index`].
    pub forests: [Forest; 3],
}

/// As written to disk: a tree a line, features and thresholds, then leaves.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForestText {
    base: f64,
    trees: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResidualsText {
    fitted: String,
    tpot: ForestText,
    ttft: ForestText,
    throughput: ForestText,
}

const EMBEDDED: &str = include_str!("../../../configs/calibration/residual.toml");

impl Residuals {
    /// The forests that this build carries.
    #[must_use]
    pub fn embedded() -> &'static Self {
        static RESIDUALS: LazyLock<Residuals> = LazyLock::new(|| {
            Residuals::parse(EMBEDDED).expect("invariant: a test parses the embedded forests")
        });
        &RESIDUALS
    }

    /// The forest of a quantity.
    #[must_use]
    pub const fn forest(&self, quantity: Quantity) -> &Forest {
        let [tpot, ttft, throughput] = &self.forests;
        match quantity {
            Quantity::Tpot => tpot,
            Quantity::Ttft => ttft,
            Quantity::Throughput => throughput,
        }
    }

    /// Reads forests from TOML.
    ///
    /// # Errors
    /// What is malformed, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: ResidualsText = toml::from_str(text).map_err(|e| e.to_string())?;
        let read = |name: &str, forest: ForestText| {
            if !forest.base.is_finite() {
                return Err(format!("{name}: base is not a number"));
            }
            let trees = forest.trees.iter().enumerate().map(|(i, line)| {
                parse_tree(line).ok_or_else(|| format!("{name}: tree {i} is malformed"))
            });
            Ok(Forest {
                base: forest.base,
                trees: trees.collect::<Result<_, String>>()?,
            })
        };
        Ok(Self {
            fitted: file.fitted,
            forests: [
                read("tpot", file.tpot)?,
                read("ttft", file.ttft)?,
                read("throughput", file.throughput)?,
            ],
        })
    }

    /// The forests as TOML.
    ///
    /// # Errors
    /// When a number cannot be written.
    pub fn to_toml(&self) -> Result<String, String> {
        let [tpot, ttft, throughput] = &self.forests;
        let text = |forest: &Forest| ForestText {
            base: forest.base,
            trees: forest.trees.iter().map(tree_text).collect(),
        };
        let file = ResidualsText {
            fitted: self.fitted.clone(),
            tpot: text(tpot),
            ttft: text(ttft),
            throughput: text(throughput),
        };
        toml::to_string(&file).map_err(|e| e.to_string())
    }
}

fn tree_text(tree: &Tree) -> String {
    let nodes = tree.features.iter().zip(&tree.thresholds);
    let mut words: Vec<String> = nodes.map(|(f, t)| format!("{f}>{t}")).collect();
    words.extend(tree.leaves.iter().map(ToString::to_string));
    words.join(" ")
}

fn parse_tree(line: &str) -> Option<Tree> {
    let mut words = line.split_ascii_whitespace();
    let (mut features, mut thresholds) = ([0; NODES], [0.0; NODES]);
    for (feature, threshold) in features.iter_mut().zip(&mut thresholds) {
        let (f, t) = words.next()?.split_once('>')?;
        *feature = f.parse().ok().filter(|f| *f < COUNT)?;
        *threshold = t.parse().ok().filter(|t: &f64| !t.is_nan())?;
    }
    let mut leaves = [0.0; LEAVES];
    for leaf in &mut leaves {
        *leaf = words.next()?.parse().ok().filter(|v: &f64| v.is_finite())?;
    }
    words.next().is_none().then_some(Tree {
        features,
        thresholds,
        leaves,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        Tree {
            features: [0, 1, 1, 2, 2, 2, 2],
            thresholds: [0.0, -1.0, 1.0, 0.0, 0.0, 0.0, f64::INFINITY],
            leaves: [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7],
        }
    }

    fn situation(values: &[f64]) -> Situation {
        let mut out = [0.0; COUNT];
        out[..values.len()].copy_from_slice(values);
        out
    }

    #[test]
    fn a_tree_is_walked_to_the_leaf_of_its_decisions() {
        for (values, leaf) in [
            ([-1.0, -2.0, -1.0], 0),
            ([-1.0, -2.0, 1.0], 1),
            ([-1.0, 0.0, 1.0], 3),
            ([1.0, 0.0, -1.0], 4),
            ([1.0, 2.0, 9.0], 6),
        ] {
            assert_eq!(tree().leaf(&situation(&values)), leaf, "{values:?}");
        }
    }

    #[test]
    fn forests_survive_the_file_and_stay_bounded() {
        let forest = Forest {
            base: 0.5,
            trees: vec![tree(); 9],
        };
        let residuals = Residuals {
            fitted: "a test".to_owned(),
            forests: [forest, Forest::default(), Forest::default()],
        };
        let text = residuals.to_toml().unwrap();
        assert_eq!(Residuals::parse(&text).unwrap(), residuals);
        let most = residuals
            .forest(Quantity::Tpot)
            .correction(&situation(&[1.0, 2.0, 9.0]));
        assert!(
            (most - LARGEST_CORRECTION).abs() < 1e-12,
            "0.5 + 9 · 0.6 is cut off"
        );
        let broken = text.replacen("0>0", "99>0", 1);
        assert!(Residuals::parse(&broken).unwrap_err().contains("tree 0"));
    }

    #[test]
    fn embedded_forests_parse() {
        assert!(!Residuals::parse(EMBEDDED).unwrap().fitted.is_empty());
    }
}
