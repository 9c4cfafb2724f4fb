//! Check of `grow = true` against the nodes of a cluster, after the file itself was found valid.
//!
//! The caller decides which stages no node can grow; this file finds their positions in the text.

use super::growth::{GrowthRefusal, refuse};
use super::spec::StageSpec;
use super::stages::STAGES;
use crate::problem::{FileProblem, ProblemCollector};
use crate::toml_reader::{self, TomlSection};

/// Errors for the stages of a file with `grow = true` that no node can grow.
pub fn growth_problems(
    text: &str,
    file: &str,
    stages: &[(&StageSpec, GrowthRefusal)],
) -> Vec<FileProblem> {
    let report = ProblemCollector::new(file, text);
    let table = toml_reader::parse(text, &report);
    for mut section in TomlSection::root(&table, &report).table_array("stage", STAGES) {
        let name = section.read_or("name", STAGES, String::new(), toml_reader::text);
        let found = stages.iter().find(|(stage, _)| stage.name.as_str() == name);
        if let Some((stage, why)) = found {
            refuse(
                &report,
                (section.place("grow"), &format!("stage.{}.grow", stage.name)),
                *why,
            );
        }
    }
    report.finish::<()>(None).err().unwrap_or_default()
}
