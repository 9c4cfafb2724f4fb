//! Treatments of sub-causes: a closed set, recorded with every failed attempt.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Dimension, SubCause};

word_enum! {
    /// The reaction to a failure.
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        ToSchema,
    )]
    #[serde(rename_all = "snake_case")]
    pub enum Treatment: "is not one of" {
        /// Increase the quantity that ran out.
        Grow = "grow",
        /// Fail the task at once; the message names the cure.
        Fail = "fail",
        /// Retry with the same size, in another container or again in the same container.
        Retry = "retry",
        /// Retry with the same size on another node, if there is one.
        Elsewhere = "elsewhere",
        /// Retry with the same size and a changed environment of the runtime.
        Remedy = "remedy";
        /// A treatment of a newer version.
        #[default]
        #[serde(other)]
        Unknown = "unknown",
    }
}

word_enum! {
    /// A change to the environment of the next attempt that needs no more memory.
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        ToSchema,
    )]
    #[serde(rename_all = "snake_case")]
    pub enum Remedy: "is no remedy; use" {
        /// One arena of the native allocator: `MALLOC_ARENA_MAX=1`.
        OneArena = "one_arena",
        /// `TMPDIR` names a directory of this attempt on disk.
        TmpOnDisk = "tmp_on_disk",
        /// As many threads as the task has processors, and small stacks, for runtimes that read these
        /// settings from the environment.
        FewerThreads = "fewer_threads",
        /// A code cache within the overhead: `-XX:ReservedCodeCacheSize`.
        SmallCodeCache = "small_code_cache";
        /// A remedy of a newer version; changes nothing.
        #[default]
        #[serde(other)]
        Unknown = "unknown",
    }
}

impl Remedy {
    /// The change in words for users.
    pub fn sentence(self) -> &'static str {
        match self {
            Remedy::OneArena => "with one arena of the native allocator (MALLOC_ARENA_MAX=1)",
            Remedy::TmpOnDisk => "with TMPDIR on a disk",
            Remedy::FewerThreads => "with as many threads as it has processors, and smaller stacks",
            Remedy::SmallCodeCache => {
                "with a code cache within the overhead (-XX:ReservedCodeCacheSize)"
            }
            Remedy::Unknown => "with a change that this version does not know",
        }
    }
}

/// The row of a sub-cause in the treatment table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsualTreatment {
    /// The first treatment.
    pub first: Treatment,
    /// The remedy, if the first treatment is a remedy.
    pub remedy: Option<Remedy>,
    /// The treatment after the same failure occurs again.
    pub then: Treatment,
}

/// The treatment table: the treatment of a sub-cause unless the job file overrides it.
pub fn usual_treatment(cause: SubCause) -> UsualTreatment {
    let always = |treatment| UsualTreatment {
        first: treatment,
        remedy: None,
        then: treatment,
    };
    let remedy = |remedy, then| UsualTreatment {
        first: Treatment::Remedy,
        remedy: Some(remedy),
        then,
    };
    match cause {
        SubCause::LiveHeap
        | SubCause::HeapFragmented
        | SubCause::GcBound
        | SubCause::CacheBeyondOld
        | SubCause::BudgetNotPassed
        | SubCause::HeapIdle
        | SubCause::DirectBuffers
        | SubCause::Metaspace
        | SubCause::ChildProcesses
        | SubCause::Sockets
        | SubCause::KernelMemory
        | SubCause::BesideHeap
        | SubCause::OwnData
        | SubCause::Thrashing
        | SubCause::Unnamed => always(Treatment::Grow),
        SubCause::OwnLimit | SubCause::ImpossibleRequest | SubCause::Leak => {
            always(Treatment::Fail)
        }
        SubCause::Leftover
        | SubCause::OuterLimit
        | SubCause::HostMemory
        | SubCause::FromOutside
        | SubCause::NotStarted => always(Treatment::Elsewhere),
        SubCause::Code137 => always(Treatment::Retry),
        SubCause::PageCache => UsualTreatment {
            first: Treatment::Retry,
            remedy: None,
            then: Treatment::Grow,
        },
        SubCause::NativeArenas => remedy(Remedy::OneArena, Treatment::Grow),
        SubCause::Tmpfs => remedy(Remedy::TmpOnDisk, Treatment::Grow),
        SubCause::ThreadStacks => remedy(Remedy::FewerThreads, Treatment::Grow),
        SubCause::ThreadLimit => remedy(Remedy::FewerThreads, Treatment::Fail),
        SubCause::CodeCache => remedy(Remedy::SmallCodeCache, Treatment::Grow),
    }
}

/// The treatment of one failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppliedTreatment {
    /// The treated sub-cause.
    #[serde(default)]
    pub cause: SubCause,
    /// The treatment.
    #[serde(default)]
    pub treatment: Treatment,
    /// The increased quantity, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantity: Option<Dimension>,
    /// The applied remedy, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Remedy>,
}

impl fmt::Display for AppliedTreatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match (self.treatment, self.quantity, self.remedy) {
            (Treatment::Grow, Some(Dimension::Heap), _) => " heap".to_owned(),
            (Treatment::Grow, Some(Dimension::Overhead), _) => " overhead".to_owned(),
            (Treatment::Grow, Some(Dimension::Native), _) => " memory".to_owned(),
            (Treatment::Remedy, _, Some(remedy)) => format!(" {remedy}"),
            (Treatment::Grow, None, _) | (Treatment::Remedy, _, None) => String::new(),
            (
                Treatment::Fail | Treatment::Retry | Treatment::Elsewhere | Treatment::Unknown,
                _,
                _,
            ) => String::new(),
        };
        f.pad(&format!("{}{what}", self.treatment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_equal_their_json_names() {
        for treatment in Treatment::ALL {
            assert_eq!(
                serde_json::to_string(&treatment).expect("writes"),
                format!("\"{treatment}\"")
            );
            assert_eq!(treatment.as_str().parse(), Ok(treatment));
        }
        for remedy in Remedy::ALL {
            assert_eq!(
                serde_json::to_string(&remedy).expect("writes"),
                format!("\"{remedy}\"")
            );
        }
        assert!(
            "cure"
                .parse::<Treatment>()
                .is_err_and(|e| e.contains("elsewhere"))
        );
        assert_eq!(
            serde_json::from_str::<Treatment>("\"pray\"").expect("reads"),
            Treatment::Unknown
        );
    }

    #[test]
    fn only_sub_causes_with_a_remedy_are_treated_with_a_remedy() {
        for cause in SubCause::ALL {
            let row = usual_treatment(cause);
            assert_eq!(
                row.remedy.is_some(),
                row.first == Treatment::Remedy,
                "{cause}"
            );
            assert_ne!(
                row.then,
                Treatment::Remedy,
                "{cause}: a remedy that did not help is not tried again"
            );
        }
    }

    #[test]
    fn the_display_form_names_the_quantity_or_the_remedy() {
        let grow = AppliedTreatment {
            cause: SubCause::LiveHeap,
            treatment: Treatment::Grow,
            quantity: Some(Dimension::Heap),
            remedy: None,
        };
        assert_eq!(grow.to_string(), "grow heap");
        let remedy = AppliedTreatment {
            treatment: Treatment::Remedy,
            quantity: None,
            remedy: Some(Remedy::OneArena),
            ..grow
        };
        assert_eq!(remedy.to_string(), "remedy one_arena");
    }
}
