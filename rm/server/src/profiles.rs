//! Profiles of the cluster: named sizes that administrators maintain.
//!
//! Only the main loop changes and journals them; readers see the durable set. It is outside of the
//! core: the client writes the size of a profile into a job before it submits the job, so submitted
//! jobs do not depend on this set.

use std::collections::BTreeMap;

use headroom_rm_core::DryRun;
use headroom_rm_reports::IfMatch;
use headroom_rm_store::{SavedProfile, SavedProfiles};
use headroom_types::spelling::did_you_mean;
use headroom_types::{Name, Reason, UnixMillis};
use headroom_wire::v1::error::{ProblemDetails, ProblemResult};
use headroom_wire::v1::events::{EventLevel, LoggedEvent};
use headroom_wire::v1::profiles::{ClusterProfile, MAX_ABOUT_BYTES, ProfileSpec};

use crate::eventlog;

/// Limit on profiles.
const MOST: usize = 512;

/// All profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProfileCatalog {
    /// Incremented by every change.
    pub(crate) generation: u64,
    /// Profiles by name.
    pub(crate) known: BTreeMap<Name, ClusterProfile>,
}

/// Requested change of one profile.
#[derive(Clone, Debug)]
pub(crate) struct ProfileChange {
    /// Name of the profile.
    pub(crate) name: Name,
    /// The change.
    pub(crate) action: ProfileAction,
    /// Version that the caller has read.
    pub(crate) matched: IfMatch,
    /// Whether this is a dry run.
    pub(crate) how: DryRun,
}

/// Change of a profile.
#[derive(Clone, Debug)]
pub(crate) enum ProfileAction {
    /// Creates or replaces the profile.
    Set(ProfileSpec),
    /// Deletes the profile.
    Unset,
}

/// Outcome of a change, or the reason for a refusal.
pub(crate) type ProfileChangeResult = ProblemResult<ProfileOutcome>;

/// Outcome of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProfileOutcome {
    /// The profile before the change.
    pub(crate) before: Option<ClusterProfile>,
    /// The profile after the change.
    pub(crate) after: Option<ClusterProfile>,
}

impl ProfileOutcome {
    /// Event of the change, such as `small is 2.5 GiB, 2 cpus; it was 1.5 GiB, 2 cpus`. `None` if
    /// there was no profile before and after.
    pub(crate) fn event(&self, time: UnixMillis) -> Option<LoggedEvent> {
        let words = |p: &ClusterProfile| format!("{}, {}", p.size(), p.cpus.words());
        let (reason, name, message) = match (&self.before, &self.after) {
            (None, None) => return None,
            (None, Some(now)) => (
                Reason::ProfileSet,
                &now.name,
                format!("is {}; it is new", words(now)),
            ),
            (Some(was), Some(now)) => (
                Reason::ProfileSet,
                &now.name,
                format!("is {}; it was {}", words(now), words(was)),
            ),
            (Some(was), None) => (
                Reason::ProfileRemoved,
                &was.name,
                format!("was deleted; it was {}", words(was)),
            ),
        };
        let (level, object) = (EventLevel::Normal, name.to_string());
        let message = format!("profile {name} {message}");
        Some(eventlog::event(time, level, reason, object, message))
    }
}

impl ProfileCatalog {
    /// Restores the profiles that an earlier incarnation saved.
    pub(crate) fn restored(saved: SavedProfiles) -> Self {
        let one = |SavedProfile {
                       name,
                       size,
                       about,
                       revision,
                       changed,
                   }| {
            let (heap, overhead, cpus) = (size.heap, size.overhead, size.cpus);
            (
                Name::clone(&name),
                ClusterProfile {
                    name,
                    heap,
                    overhead,
                    cpus,
                    about,
                    revision,
                    changed,
                },
            )
        };
        ProfileCatalog {
            generation: saved.generation,
            known: saved.profiles.into_iter().map(one).collect(),
        }
    }

    /// Returns the profiles in the form in which they are saved.
    pub(crate) fn saved(&self) -> SavedProfiles {
        let one = |p: &ClusterProfile| {
            let (name, about) = (p.name.clone(), p.about.clone());
            SavedProfile {
                name,
                size: p.size(),
                about,
                revision: p.revision,
                changed: p.changed,
            }
        };
        SavedProfiles {
            generation: self.generation,
            profiles: self.known.values().map(one).collect(),
        }
    }

    /// One profile.
    pub(crate) fn get(&self, name: &Name) -> ProblemResult<&ClusterProfile> {
        self.known.get(name).ok_or_else(|| {
            let near = did_you_mean(name.as_str(), self.known.keys().map(Name::as_str));
            let hint = near.unwrap_or_else(|| "rmctl profile list shows all profiles".to_owned());
            ProblemDetails::not_found(format!("the cluster has no profile {name}")).hint(hint)
        })
    }

    /// Changes a profile. A change to equal values has no effect: the revision stays.
    pub(crate) fn change(&mut self, change: &ProfileChange, at: UnixMillis) -> ProfileChangeResult {
        let before = self.known.get(&change.name).cloned();
        if before.is_none() && matches!(change.action, ProfileAction::Unset) {
            self.get(&change.name)?;
        }
        let current = before
            .as_ref()
            .map_or_else(|| "none".to_owned(), |p| p.revision.to_string());
        change
            .matched
            .check(&format!("profile {}", change.name), &current)?;
        let after = match &change.action {
            ProfileAction::Unset => None,
            ProfileAction::Set(spec) if before.as_ref().is_some_and(|p| p.spec() == *spec) => {
                before.clone()
            }
            ProfileAction::Set(spec) => Some(self.checked(&change.name, spec, at)?),
        };
        if change.how == DryRun::Really && before != after {
            self.generation += 1;
            match &after {
                Some(profile) => drop(self.known.insert(change.name.clone(), profile.clone())),
                None => drop(self.known.remove(&change.name)),
            }
        }
        Ok(ProfileOutcome { before, after })
    }

    fn checked(
        &self,
        name: &Name,
        spec: &ProfileSpec,
        at: UnixMillis,
    ) -> ProblemResult<ClusterProfile> {
        let ProfileSpec {
            heap,
            overhead,
            cpus,
            about,
        } = spec.clone();
        if heap.is_zero() {
            let problem = ProblemDetails::bad_request(format!("profile {name} has no memory"));
            return Err(problem.hint(
                "heap, in bytes, must be above 0; for a native program it is the whole memory",
            ));
        }
        if about.len() > MAX_ABOUT_BYTES {
            return Err(ProblemDetails::too_large(format!(
                "about has {} bytes; at most {MAX_ABOUT_BYTES} are allowed",
                about.len()
            )));
        }
        if !self.known.contains_key(name) && self.known.len() >= MOST {
            let problem =
                ProblemDetails::too_large(format!("the cluster keeps at most {MOST} profiles"));
            return Err(problem.hint("delete one: rmctl profile unset NAME"));
        }
        Ok(ClusterProfile {
            name: name.clone(),
            heap,
            overhead,
            cpus,
            about,
            revision: self.generation + 1,
            changed: at,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Bytes, Cpus};
    use headroom_wire::v1::error::ErrorCode;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn spec(gib: u64) -> ProfileSpec {
        ProfileSpec {
            heap: Bytes::from_gib(gib),
            overhead: Bytes::ZERO,
            cpus: Cpus::from_cores(1),
            about: String::new(),
        }
    }

    fn change(
        profiles: &mut ProfileCatalog,
        what: &str,
        action: ProfileAction,
        version: Option<u64>,
        how: DryRun,
    ) -> ProblemResult<ProfileOutcome> {
        let matched = version.map_or(IfMatch::Absent, |v| IfMatch::Versions(vec![v.to_string()]));
        profiles.change(
            &ProfileChange {
                name: name(what),
                action,
                matched,
                how,
            },
            UnixMillis(7),
        )
    }

    fn set(
        profiles: &mut ProfileCatalog,
        what: &str,
        gib: u64,
        version: Option<u64>,
    ) -> ProblemResult<ProfileOutcome> {
        change(
            profiles,
            what,
            ProfileAction::Set(spec(gib)),
            version,
            DryRun::Really,
        )
    }

    #[test]
    fn each_change_of_a_profile_has_a_new_revision() {
        let mut all = ProfileCatalog::default();
        let made = set(&mut all, "small", 1, None).expect("the profile is new");
        assert_eq!(
            (made.before, made.after.map(|p| p.revision)),
            (None, Some(1))
        );
        assert_eq!(
            set(&mut all, "small", 1, Some(1))
                .expect("an equal value is accepted")
                .after
                .map(|p| p.revision),
            Some(1)
        );
        assert_eq!(
            set(&mut all, "small", 2, Some(1))
                .expect("the version is current")
                .after
                .map(|p| p.revision),
            Some(2)
        );
        assert_eq!(
            set(&mut all, "small", 3, Some(1))
                .expect_err("the profile has changed since")
                .code,
            ErrorCode::HR0409
        );
        change(
            &mut all,
            "small",
            ProfileAction::Unset,
            Some(2),
            DryRun::Really,
        )
        .expect("the profile is deleted");
        assert_eq!(
            set(&mut all, "small", 2, Some(2))
                .expect_err("the profile was deleted")
                .code,
            ErrorCode::HR0409
        );
        assert_eq!(
            set(&mut all, "small", 2, None)
                .expect("the profile is new")
                .after
                .map(|p| p.revision),
            Some(4)
        );
        assert_eq!(ProfileCatalog::restored(all.saved()), all);
    }

    #[test]
    fn a_dry_run_does_not_change_a_profile() {
        let mut all = ProfileCatalog::default();
        let would = change(
            &mut all,
            "small",
            ProfileAction::Set(spec(1)),
            None,
            DryRun::DryRun,
        )
        .expect("the change is possible");
        assert_eq!(
            (would.after.map(|p| p.revision), &all),
            (Some(1), &ProfileCatalog::default())
        );
    }

    #[test]
    fn an_unknown_profile_is_answered_with_the_closest_name() {
        let mut all = ProfileCatalog::default();
        set(&mut all, "jvm-medium", 4, None).expect("the profile is new");
        assert_eq!(
            all.get(&name("jvm-medum"))
                .expect_err("the name is misspelt")
                .hints,
            ["did you mean \"jvm-medium\"?"]
        );
        let gone = change(
            &mut all,
            "spark",
            ProfileAction::Unset,
            None,
            DryRun::Really,
        )
        .expect_err("the profile does not exist");
        assert_eq!(
            (gone.code, gone.hints.as_slice()),
            (
                ErrorCode::HR0404,
                ["rmctl profile list shows all profiles".to_owned()].as_slice()
            )
        );
    }

    #[test]
    fn invalid_profiles_are_refused_and_their_number_is_bounded() {
        let mut all = ProfileCatalog::default();
        assert_eq!(
            set(&mut all, "none", 0, None)
                .expect_err("the profile has no memory")
                .code,
            ErrorCode::HR0400
        );
        let long = ProfileSpec {
            about: "x".repeat(MAX_ABOUT_BYTES + 1),
            ..spec(1)
        };
        assert_eq!(
            change(
                &mut all,
                "long",
                ProfileAction::Set(long),
                None,
                DryRun::Really
            )
            .expect_err("it is too long")
            .code,
            ErrorCode::HR0413
        );
        for i in 0..MOST {
            set(&mut all, &format!("p{i}"), 1, None).expect("the store has room");
        }
        assert_eq!(
            set(&mut all, "more", 1, None)
                .expect_err("the limit is reached")
                .code,
            ErrorCode::HR0413
        );
        set(&mut all, "p0", 2, None).expect("a change adds no profile");
    }
}
