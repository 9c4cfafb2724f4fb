//! The job file of the demonstration, in the form of a user's file.

use std::path::Path;

use headroom_types::Bytes;
use headroom_wire::v1::job::MemoryFailureMode;

/// Number of executors.
pub(crate) const EXECUTORS: u32 = 2;
/// Slots of each executor.
pub(crate) const SLOTS: u32 = 4;
/// Memory of an executor itself.
pub(crate) const RESERVE: Bytes = Bytes::from_mib(32);

/// The text of the job file: `program` groups `DIR/part-N.csv` into `DIR/out-N.csv`.
pub(crate) fn text(
    name: &str,
    mode: MemoryFailureMode,
    share: Bytes,
    partitions: u32,
    program: &Path,
    dir: &Path,
    out: &Path,
) -> String {
    let heap = share.get().saturating_mul(u64::from(SLOTS));
    let reserve = RESERVE.get();
    let last = partitions.saturating_sub(1);
    let part = dir.join("part-{index}.csv");
    let result = out.join("out-{index}.csv");
    let words = [
        quoted(program),
        "\"sample\", \"group-by\"".to_owned(),
        quoted("--input".as_ref()),
    ];
    let command = words
        .into_iter()
        .chain([quoted(&part), quoted("--output".as_ref()), quoted(&result)])
        .collect::<Vec<_>>()
        .join(", ");
    format!(
        "# Groups {partitions} files by key on {EXECUTORS} executors. Each slot's share is {share}.
version = 1
name = \"{name}\"
mode = \"{mode}\"

[profiles.exec]
heap = {heap}            # {SLOTS} slots of {share}
overhead = {reserve}          # the executor's own
cpus = 0.5

[executors.main]
profile = \"exec\"
count = {EXECUTORS}
slots = {SLOTS}
reserve = {reserve}

[[stage]]
name = \"group\"
array = \"0-{last}\"
command = [{command}]
grow = false              # by default a task near its limit grows, and no kill would occur
timeout = \"10m\"
",
        mode = mode.as_str()
    )
}

/// A TOML string. Braces are placeholders in job files, so braces of the path are doubled, except
/// those of `{index}`.
fn quoted(path: &Path) -> String {
    let text = path
        .to_string_lossy()
        .replace('{', "{{")
        .replace('}', "}}")
        .replace("{{index}}", "{index}");
    let text: String = text
        .chars()
        .flat_map(|c| {
            if matches!(c, '"' | '\\') {
                vec!['\\', c]
            } else {
                vec![c]
            }
        })
        .collect();
    format!("\"{text}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(dir: &str) -> String {
        let (program, dir) = (Path::new("/opt/headroom/rmctl"), Path::new(dir));
        text(
            "group-by",
            MemoryFailureMode::Headroom,
            Bytes::from_mib(32),
            20,
            program,
            dir,
            dir,
        )
    }

    #[test]
    fn the_file_compiles_and_has_the_planned_shares() {
        let spec = headroom_config::job::compile(&job("/tmp/demo"), "job.toml").expect("compiles");
        assert_eq!(
            (spec.tasks(), spec.executors[0].slot_memory()),
            (20, Bytes::from_mib(32))
        );
        assert_eq!(spec.stages[0].profile.memory(), Bytes::from_mib(32));
    }

    #[test]
    fn odd_directories_do_no_harm() {
        for dir in ["/tmp/a b", "/tmp/a\"b", "/tmp/{x}", "/tmp/a\\b"] {
            headroom_config::job::compile(&job(dir), "job.toml")
                .unwrap_or_else(|p| panic!("{dir}: {p:?}"));
        }
    }
}
