//! `idempotent` and `output`: whether an attempt may be repeated, and the output directory of a
//! fenced stage.

use std::path::{Component, Path};

use toml::Spanned;

use super::spec::Idempotent;
use super::template::{Placeholder, PlaceholderTemplate};
use crate::toml_reader::{self, TomlSection, hint, parsed};

/// Maximum length of the directory; names of tasks are appended to it.
const LONGEST: usize = 3000;

/// Reads both keys; `words` may contain `{output}`. A stage has an output if, and only if, it is
/// fenced.
pub(super) fn read<'t>(
    s: &mut TomlSection<'_>,
    words: impl IntoIterator<Item = &'t PlaceholderTemplate>,
) -> (Idempotent, Option<String>) {
    let repeat = hint(
        "a task that must not run twice is never retried, and a fenced task has one output for any number of runs",
        "write idempotent = \"yes\", \"fenced\" or \"no\"",
    );
    let directory = hint(
        "each attempt writes into its own directory below it, and one of these directories becomes the task's output",
        "write an absolute directory that all nodes and the master see, such as output = \"/data/out\"",
    );
    let output = s.read("output", directory, |v| absolute(&toml_reader::text(v)?));
    let usual = if s.has("output") {
        Idempotent::Fenced
    } else {
        Idempotent::Yes
    };
    let written = s.read("idempotent", repeat, parsed);
    let idempotent = written.map_or(usual, Spanned::into_inner);
    match idempotent {
        Idempotent::Fenced if !s.has("output") => {
            let what = "idempotent = \"fenced\" without output";
            s.add(
                s.place("idempotent"),
                "output",
                what,
                directory.why,
                directory.fix,
            );
        }
        Idempotent::Yes | Idempotent::No if output.is_some() => {
            let why = "Headroom commits only the outputs of fenced stages";
            let fix = "write idempotent = \"fenced\", or remove output";
            s.reject("output", "output in a stage that is not fenced", why, fix);
        }
        Idempotent::Yes | Idempotent::Fenced | Idempotent::No => {}
    }
    if !s.has("output")
        && words
            .into_iter()
            .any(|word| word.contains(Placeholder::Output))
    {
        let why = "only the attempts of a fenced stage have their own directories";
        let fix = "add idempotent = \"fenced\" and output = \"/a/directory\", or remove {output}";
        s.add(
            s.place("command"),
            "output",
            "{output} is used in a stage without output",
            why,
            fix,
        );
    }
    (
        idempotent,
        output
            .map(Spanned::into_inner)
            .filter(|_| idempotent == Idempotent::Fenced),
    )
}

/// Parses an absolute directory path in its only valid spelling.
fn absolute(text: &str) -> Result<String, String> {
    let path = Path::new(text);
    if text.contains('\0') {
        return Err("a NUL character cannot be part of a path".to_owned());
    }
    if text.len() > LONGEST {
        return Err(format!("{} bytes are longer than {LONGEST}", text.len()));
    }
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if !path.is_absolute() || !path.components().all(plain) {
        return Err(format!("{text:?} is not an absolute path without . and .."));
    }
    let names: Vec<&str> = text
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    if names.is_empty() {
        Err("/ cannot be an output".to_owned())
    } else {
        Ok(format!("/{}", names.join("/")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_directory_is_normalized() {
        assert_eq!(absolute("/data//out/./x/"), Ok("/data/out/x".to_owned()));
        for wrong in [
            "",
            "/",
            "out",
            "./out",
            "/data/../out",
            "/a\0b",
            &format!("/{}", "x".repeat(LONGEST)),
        ] {
            assert!(absolute(wrong).is_err(), "{wrong:?}");
        }
    }
}
