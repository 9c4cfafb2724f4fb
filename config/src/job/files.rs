//! `files`: files that the node puts into the working directory of a stage's tasks before they
//! start.

use headroom_types::{FetchedFile, FetchedFileKind};
use headroom_wire::v1::validation::{MAX_FETCHED_FILES, check_fetched};
use toml::Spanned;

use super::spec::StageSpec;
use crate::problem::ProblemCollector;
use crate::toml_reader::{self, KeyHint, TomlSection, hint, nonzero_size, parsed, read_keys, some};

const FILES: KeyHint = hint(
    "the files are in the working directory before a task starts",
    "write files = [{ name = \"data\", from = \"https://…\", sha256 = \"…\", kind = \"archive\" }]",
);

/// Reads the `files` of one stage. Invalid entries are recorded as errors and omitted.
pub(super) fn read(s: &mut TomlSection<'_>) -> Vec<FetchedFile> {
    let mut files: Vec<FetchedFile> = Vec::new();
    for section in s.table_array("files", FILES) {
        let (place, path) = (section.span(), section.path_of("name"));
        let Some(file) = one(section) else {
            continue;
        };
        if files.iter().any(|known| known.name == file.name) {
            let what = format!("a second file {:?}", file.name);
            s.problems().add(
                place,
                &path,
                what,
                "two files cannot have the same name",
                "give each file its own name",
            );
            continue;
        }
        files.push(file);
    }
    files
}

fn one(mut s: TomlSection<'_>) -> Option<FetchedFile> {
    let place = s.span();
    let name = hint(
        "the task finds it by that name in its working directory",
        "write name = \"model.bin\"",
    );
    let from = hint(
        "the node fetches it from there",
        "write from = \"https://…\", an absolute path that the node can read, or upload:PATH",
    );
    let sha256 = hint(
        "it identifies the content of the file",
        "write sha256 = \"…\", as `sha256sum` prints it",
    );
    let name = s
        .read_required("name", name, toml_reader::text)
        .map(Spanned::into_inner);
    let from = s
        .read_required("from", from, toml_reader::text)
        .map(Spanned::into_inner);
    let sha256 = s.read("sha256", sha256, parsed);
    let file = FetchedFile {
        name: name.unwrap_or_default(),
        from: from.unwrap_or_default(),
        sha256: sha256.as_ref().map(|sum| *sum.get_ref()),
        kind: FetchedFileKind::File,
        most: None,
    };
    let file = read_keys!(s, file, {
        kind: parsed =>
            "it sets how the file is prepared",
            "write kind = \"file\", \"program\" or \"archive\"";
        most: some(nonzero_size) =>
            "a larger file is refused",
            "write a size such as most = \"2GiB\", or leave it out";
    });
    let unread = file.name.is_empty() && !s.has("name")
        || file.from.is_empty()
        || (s.has("sha256") && sha256.is_none());
    let path = s.path_of("from");
    let problems = s.problems();
    s.reject_unknown_keys();
    if unread {
        return None;
    }
    match check_fetched(&file) {
        Ok(()) => Some(file),
        Err((what, fix)) => {
            problems.add(place, &path, what, "no node would start its executors", fix);
            None
        }
    }
}

/// Checks stages that share executors, and with them the working directory: a name must denote the
/// same file in all, and their total number is limited.
pub(super) fn agree(
    stages: &[StageSpec],
    r: &ProblemCollector<'_>,
    place: impl Fn(usize) -> std::ops::Range<usize>,
) {
    for (n, stage) in stages.iter().enumerate() {
        let before = stages
            .iter()
            .take(n)
            .filter(|other| other.executors == stage.executors);
        for (other, theirs) in before
            .clone()
            .flat_map(|other| other.files.iter().map(move |file| (other, file)))
        {
            if stage
                .files
                .iter()
                .any(|file| file.name == theirs.name && file != theirs)
            {
                let what = format!(
                    "{:?} is another file in stage \"{}\", which runs on the same executors",
                    theirs.name, other.name
                );
                let fix = "give it another name, or give one of the stages executors of its own";
                r.add(
                    place(n),
                    &format!("stage.{}.files", stage.name),
                    what,
                    "two files cannot have the same name",
                    fix,
                );
            }
        }
        let all = before.map(|other| other.files.len()).sum::<usize>() + stage.files.len();
        if all > MAX_FETCHED_FILES {
            let what = format!("{all} files for one set of executors");
            let fix = format!("use at most {MAX_FETCHED_FILES}, or put them into an archive");
            r.add(
                place(n),
                &format!("stage.{}.files", stage.name),
                what,
                "each file is fetched before an executor starts",
                fix,
            );
        }
    }
}
