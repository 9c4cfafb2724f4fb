//! `rmctl profile`: named sizes of the cluster, for job files that define none of their own.

use std::path::Path;

use headroom_client::{Client, DryRunMode};
use headroom_config::job::profiles as written;
use headroom_types::{Name, Profile};
use headroom_wire::v1::profiles::{ClusterProfile, ProfileSpec};

use super::queue::read;
use crate::args::{ListOptions, ProfileSetArgs, ProfileSubcommand};
use crate::context::{CommandContext, now};
use crate::exit::{CommandFailure, CommandResult};
use crate::render::{job_history, json::MachineOutput, profiles};

/// Runs a `profile` verb.
pub(crate) async fn run(context: &CommandContext, what: ProfileSubcommand) -> CommandResult {
    let client = context.client()?;
    match what {
        ProfileSubcommand::List(rows) => list(context, &client, &rows).await,
        ProfileSubcommand::Show { name } => {
            let profile = client.profile(&name).await?;
            print_profile(context, &profile, |p| {
                profiles::one(p, now(), context.term.paint)
            })
        }
        ProfileSubcommand::Set(args) => set(context, &client, args).await,
        ProfileSubcommand::Unset {
            name,
            revision,
            dry_run,
        } => {
            let profile = client
                .unset_profile(&name, revision, DryRunMode::of(dry_run))
                .await?;
            let goes = if dry_run {
                "would be removed"
            } else {
                "is removed"
            };
            print_profile(context, &profile, |p| {
                format!(
                    "{} ({}) {goes}\nnext: rmctl profile list\n",
                    p.name,
                    p.size()
                )
            })
        }
        ProfileSubcommand::Suggest { name, user } => {
            suggest(context, &client, name.as_ref(), user.as_deref()).await
        }
        ProfileSubcommand::Test(args) => super::profile_test::test(context, args).await,
        ProfileSubcommand::Import { file, dry_run } => {
            import(context, &client, &file, DryRunMode::of(dry_run)).await
        }
    }
}

async fn list(context: &CommandContext, client: &Client, rows: &ListOptions) -> CommandResult {
    let context = &context.list(rows);
    let all: Vec<ClusterProfile> = rows.wanted().of(client.profiles().await?, now())?;
    let machine = MachineOutput::list(&all).rows(&context.output);
    Ok(context.show(machine, || profiles::screen(&all, now(), context.look())))
}

async fn set(context: &CommandContext, client: &Client, args: ProfileSetArgs) -> CommandResult {
    let size = match &args.file {
        Some(file) => written::parse_profile(&read(file)?, &file.display().to_string())?,
        None => Profile {
            heap: args.memory.or(args.heap).unwrap_or_default(),
            overhead: args.overhead.unwrap_or_default(),
            cpus: args.cpus.unwrap_or(headroom_types::Cpus::from_cores(1)),
        },
    };
    let spec = spec(size, args.about.unwrap_or_default());
    let profile = client
        .set_profile(
            &args.name,
            &spec,
            args.revision,
            DryRunMode::of(args.dry_run),
        )
        .await?;
    let is = if args.dry_run { "would be" } else { "is" };
    print_profile(context, &profile, |p| {
        format!(
            "{} {is} {}, {} cpus, revision {}\nnext: {}\n",
            p.name,
            p.size(),
            p.cpus,
            p.revision,
            profiles::use_of(&p.name)
        )
    })
}

fn spec(size: Profile, about: String) -> ProfileSpec {
    let Profile {
        heap,
        overhead,
        cpus,
    } = size;
    ProfileSpec {
        heap,
        overhead,
        cpus,
        about,
    }
}

/// Sets the profiles of a file. All of them are compared with the cluster before the first is set.
async fn import(
    context: &CommandContext,
    client: &Client,
    file: &Path,
    how: DryRunMode,
) -> CommandResult {
    let (text, name) = (read(file)?, file.display().to_string());
    let before = client.profiles().await?;
    let known = before.iter().map(|p| (p.name.clone(), p.size())).collect();
    let sizes = written::defined_profiles(&text, &name, &known)?;
    let was = |name: &Name| before.iter().find(|p| p.name == *name);
    let mut rows = Vec::new();
    for (name, size) in sizes {
        // A job file has no description of a profile, so the present description stays.
        let spec = spec(
            size,
            was(&name).map(|p| p.about.clone()).unwrap_or_default(),
        );
        let revision = was(&name).map(|p| p.revision);
        rows.push(client.set_profile(&name, &spec, revision, how).await?);
    }
    let machine = MachineOutput::list(&rows).text(&context.output, |p| p.name.to_string());
    Ok(context.show(machine, || {
        profiles::imported(
            &rows,
            &before,
            how == DryRunMode::DryRun,
            context.term.paint,
        )
    }))
}

/// Shows suggestions, of one name or all. A stage matches a profile of the cluster if it requested
/// that size, because the job history stores sizes and no names.
async fn suggest(
    context: &CommandContext,
    client: &Client,
    name: Option<&Name>,
    user: Option<&str>,
) -> CommandResult {
    let mut found = client.suggestions(user, None).await?;
    if let Some(name) = name {
        let profiles = client.profiles().await?;
        let profile = profiles.iter().find(|p| p.name == *name);
        let size = profile.map(|p| p.size().memory());
        let jobs = found.iter().map(|one| one.job.to_string());
        let known: Vec<String> = jobs
            .chain(profiles.iter().map(|p| p.name.to_string()))
            .collect();
        found.retain(|one| one.job == *name || Some(one.asked) == size);
        if found.is_empty() && profile.is_none() {
            let failure = CommandFailure::not_found(format!(
                "{name} is neither a profile of the cluster nor a job with a history"
            ));
            return Err(failure.near(name.as_str(), known.iter().map(String::as_str)));
        }
    }
    let text = MachineOutput::list(&found)
        .text(&context.output, |one| format!("{}/{}", one.job, one.kind));
    Ok(context.show(text, || {
        job_history::all_suggestions(&found, context.term.paint)
    }))
}

fn print_profile(
    context: &CommandContext,
    profile: &ClusterProfile,
    people: impl Fn(&ClusterProfile) -> String,
) -> CommandResult {
    let machine = MachineOutput::one(profile).text(&context.output, |p| p.name.to_string());
    Ok(context.show(machine, || people(profile)))
}
