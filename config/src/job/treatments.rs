//! `[treatments]`: treatments of sub-causes in this job that override the defaults.

use std::collections::BTreeMap;

use headroom_types::treatment::usual_treatment;
use headroom_types::{SubCause, Treatment};
use toml::Spanned;

use crate::toml_reader::{TomlSection, hint, parsed};

/// Treatments by sub-cause, as set in the job file.
pub type Treatments = BTreeMap<SubCause, Treatment>;

pub(super) fn read(root: &mut TomlSection<'_>) -> Treatments {
    let table = hint(
        "it sets the treatment of failures",
        "write a table such as [treatments] with own_limit = \"grow\"",
    );
    let Some(mut s) = root.table("treatments", table) else {
        return Treatments::new();
    };
    let value = hint(
        "it is the treatment of failures with this sub-cause",
        "write \"grow\", \"fail\", \"retry\", \"elsewhere\" or \"remedy\", or leave the key out for the default",
    );
    let mut found = Treatments::new();
    for cause in SubCause::ALL {
        let Some(treatment) = s.read(cause.as_str(), value, parsed::<Treatment>) else {
            continue;
        };
        if *treatment.get_ref() == Treatment::Remedy && usual_treatment(cause).remedy.is_none() {
            let key = s.path_of(cause.as_str());
            let what = format!("{key}: there is no remedy for {cause}");
            let with: Vec<&str> = SubCause::ALL
                .iter()
                .filter(|cause| usual_treatment(**cause).remedy.is_some())
                .map(|cause| cause.as_str())
                .collect();
            let fix = format!(
                "write another treatment; there are remedies for {}",
                with.join(", ")
            );
            root.problems().add(
                treatment.span(),
                &key,
                what,
                "a remedy is a change to the environment of the runtime",
                fix,
            );
            continue;
        }
        found.insert(cause, Spanned::into_inner(treatment));
    }
    s.reject_unknown_keys();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::compile;

    const JOB: &str = "version = 1\nname = \"j\"\n[profiles.exec]\nmemory = \"1GiB\"\ncpus = 1\n\
                       [executors.main]\nprofile = \"exec\"\n[[stage]]\nname = \"s\"\ncommand = [\"x\"]\n";

    fn read(keys: &str) -> Result<Treatments, Vec<crate::problem::FileProblem>> {
        compile(&format!("{JOB}[treatments]\n{keys}\n"), "job.toml").map(|job| job.treatments)
    }

    #[test]
    fn sub_causes_and_treatments_are_parsed_by_name() {
        let read = read("own_limit = \"grow\"\nnative_arenas = \"remedy\"").expect("reads");
        let wanted = [
            (SubCause::NativeArenas, Treatment::Remedy),
            (SubCause::OwnLimit, Treatment::Grow),
        ];
        assert_eq!(read, Treatments::from(wanted));
        assert!(
            compile(JOB, "job.toml")
                .expect("reads")
                .treatments
                .is_empty()
        );
    }

    #[test]
    fn an_unknown_name_is_reported_with_its_position_and_a_fix() {
        let one = |keys: &str| read(keys).expect_err("wrong").remove(0);
        let key = one("own_limits = \"grow\"");
        assert_eq!(
            (key.line, key.key.as_str()),
            (Some(12), "treatments.own_limits")
        );
        assert!(key.fix.contains("own_limit"), "{key:?}");
        let value = one("own_limit = \"pray\"");
        assert!(
            value.what.contains("\"pray\" is not one of") && value.fix.contains("elsewhere"),
            "{value:?}"
        );
        let remedy = one("own_data = \"remedy\"");
        assert!(
            remedy.what.contains("no remedy for own_data") && remedy.fix.contains("native_arenas"),
            "{remedy:?}"
        );
    }
}
