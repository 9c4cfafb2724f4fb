//! All keys of a job file, for `rmctl explain`, read from the tables of `docs/job-file.md`.
//!
//! A test compares them with the keys that the readers accept.

/// The page of the job file. Each of its headings is followed by the table of the keys there.
const PAGE: &str = include_str!("../../../docs/job-file.md");

/// A key of a job file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobFileKey {
    /// Its table as written; empty for the top level, `profiles.NAME`, `stage` …
    pub table: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its value, with the unit.
    pub takes: &'static str,
    /// Its default, or [`REQUIRED`].
    pub usual: &'static str,
    /// Its meaning.
    pub means: &'static str,
}

impl JobFileKey {
    /// Full name with its table: `retry.cap`.
    pub fn path(&self) -> String {
        if self.table.is_empty() {
            self.name.to_owned()
        } else {
            format!("{}.{}", self.table, self.name)
        }
    }

    /// Reads a row of a table; `None` for other lines.
    fn parse(table: &'static str, line: &'static str) -> Option<JobFileKey> {
        let row = line.strip_prefix("| `")?.strip_suffix(" |")?;
        let (name, cells) = row.split_once("` | ")?;
        let (takes, cells) = cells.split_once(" | ")?;
        let (usual, means) = cells.split_once(" | ")?;
        Some(JobFileKey {
            table,
            name,
            takes,
            usual,
            means,
        })
    }
}

/// Marks a required key.
pub const REQUIRED: &str = "required";

/// All keys, in the usual order of a file.
pub fn keys() -> Vec<JobFileKey> {
    let mut table = "";
    let mut keys = Vec::new();
    for line in PAGE.lines() {
        match line.strip_prefix("## ") {
            Some("At the top") => table = "",
            Some("`files` of a stage") => table = "stage.files",
            Some(title) => table = title.trim_matches(['`', '[', ']']),
            None => keys.extend(JobFileKey::parse(table, line)),
        }
    }
    keys
}
