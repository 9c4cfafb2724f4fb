//! `[access]`: users and groups that may view or change the job.

use headroom_identity::role::is_user;
use headroom_wire::v1::acl::AppAccess;
use toml::de::DeValue;

use crate::toml_reader::{TomlSection, read_table, texts};

/// Maximum number of users and groups of one list, equal to the limit of the resource manager.
const MOST: usize = 32;

pub(super) fn read(root: &mut TomlSection<'_>) -> AppAccess {
    read_table!(root, "access" => AppAccess:
        "it shares the job with other users",
        "write a table [access]";
    {
        view: subjects =>
            "they may view the job",
            "write a list of accounts, and of groups with @: view = [\"bob\", \"@etl\"]";
        change: subjects =>
            "they may view, change and end the job",
            "write a list of accounts, and of groups with @: change = [\"@oncall\"]";
    })
}

fn subjects(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let named = texts(value)?;
    if named.len() > MOST {
        return Err(format!(
            "{} accounts and groups are named; the maximum is {MOST}",
            named.len()
        ));
    }
    match named
        .iter()
        .find(|text| !is_user(text.strip_prefix('@').unwrap_or(text)))
    {
        Some(text) => Err(format!(
            "{:?} is neither an account nor a group",
            text.chars().take(40).collect::<String>()
        )),
        None => Ok(named),
    }
}
