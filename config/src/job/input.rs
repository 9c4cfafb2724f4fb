//! `input`, `input_locality`, `input_hosts`: size and location of the input of each task.

use headroom_types::{Bytes, NodeId};
use toml::Spanned;
use toml::de::DeValue;

use super::spec::{InputHosts, InputLocality, InputSizes};
use super::template::{Placeholder, PlaceholderTemplate};
use crate::toml_reader::{self, KeyHint, TomlSection, hint, parsed, size, texts};

const INPUT: KeyHint = hint(
    "learned sizes depend on the size of the input",
    "write the file that a task reads, input = \"part-{index}.csv\", or a list with a size for each task",
);

const LOCALITY: KeyHint = hint(
    "data from the network takes memory on the node",
    "write input_locality = \"local\" with input_hosts, or input_locality = \"remote\"",
);
const HOSTS: KeyHint = hint(
    "tasks prefer the nodes of their input",
    "write names of nodes for all tasks, input_hosts = [\"worker-{index}\"], or a list for each, [[\"a\", \"b\"], [\"c\"]]",
);

pub(super) fn read(s: &mut TomlSection<'_>, count: u32) -> Option<InputSizes> {
    let input = s.read("input", INPUT, |v| {
        if v.as_array().is_some() {
            sizes(v)
        } else {
            file(v)
        }
    })?;
    if let InputSizes::Listed(sizes) = input.get_ref()
        && u32::try_from(sizes.len()).ok() != Some(count)
    {
        let what = format!(
            "{} sizes for {count} task{}",
            sizes.len(),
            if count == 1 { "" } else { "s" }
        );
        s.reject(
            "input",
            what,
            "each task has its own input",
            "write one size for each index",
        );
        return None;
    }
    Some(input.into_inner())
}

fn file(value: &DeValue<'_>) -> Result<InputSizes, String> {
    let file: PlaceholderTemplate = parsed(value)?;
    if file.is_empty() {
        return Err("the path is empty".to_owned());
    }
    let known = |place: &Placeholder| {
        matches!(
            place,
            Placeholder::Index | Placeholder::Stage | Placeholder::Job
        )
    };
    let unknown = file.placeholders().find(|place| !known(place));
    match unknown {
        Some(place) => Err(format!(
            "{{{}}} is not known before a task runs; use {{index}}, {{stage}} or {{job}}",
            place.as_str()
        )),
        None => Ok(InputSizes::File(file)),
    }
}

fn sizes(value: &DeValue<'_>) -> Result<InputSizes, String> {
    let items = value
        .as_array()
        .ok_or_else(|| format!("this is {}, not a list of sizes", toml_reader::kind(value)))?;
    let one = |item: &Spanned<DeValue<'_>>| size(item.get_ref());
    items
        .iter()
        .map(one)
        .collect::<Result<Vec<Bytes>, _>>()
        .map(InputSizes::Listed)
}

/// Reads the location of the input. A local input requires `input_hosts`, and `input_hosts` implies
/// a local input.
pub(super) fn place(
    s: &mut TomlSection<'_>,
    count: u32,
) -> (Option<InputLocality>, Option<InputHosts>) {
    let locality = s.read("input_locality", LOCALITY, parsed);
    let given = s.has("input_hosts");
    let hosts = s.read_value("input_hosts", HOSTS, hosts);
    let locality = match (&locality, given) {
        (Some(local), false) if *local.get_ref() == InputLocality::Local => {
            let what = "input_locality = \"local\" without input_hosts";
            s.reject(
                "input_locality",
                what,
                "the location of the input is unknown",
                HOSTS.fix,
            );
            return (None, None);
        }
        (Some(remote), true) if *remote.get_ref() == InputLocality::Remote => {
            let what = "input_hosts with input_locality = \"remote\"";
            s.reject(
                "input_hosts",
                what,
                "remote input is on no node",
                "keep one of them",
            );
            return (None, None);
        }
        (Some(stated), _) => Some(*stated.get_ref()),
        (None, _) => hosts.as_ref().map(|_| InputLocality::Local),
    };
    if let Some(InputHosts::Each(each)) = &hosts
        && u32::try_from(each.len()).ok() != Some(count)
    {
        let what = format!("input_hosts does not have a list for each of {count} tasks");
        s.reject(
            "input_hosts",
            what,
            "each task has its own input",
            "write one list for each index",
        );
        return (None, None);
    }
    (locality, hosts)
}

fn hosts(value: &DeValue<'_>) -> Result<InputHosts, String> {
    let items = value
        .as_array()
        .ok_or_else(|| format!("this is {}, not a list of nodes", toml_reader::kind(value)))?;
    let lists = items
        .iter()
        .filter(|item| item.get_ref().as_array().is_some())
        .count();
    if lists > 0 {
        let node = |name: String| name.parse::<NodeId>().map_err(|e| e.to_string());
        let one =
            |item: &Spanned<DeValue<'_>>| texts(item.get_ref())?.into_iter().map(node).collect();
        return items
            .iter()
            .map(one)
            .collect::<Result<_, String>>()
            .map(InputHosts::Each);
    }
    texts(value)?
        .iter()
        .map(|name| named(name))
        .collect::<Result<_, String>>()
        .map(InputHosts::Same)
}

/// Parses a name that contains the index. If the name is a valid node id for the first index, it is
/// valid for all.
fn named(name: &str) -> Result<PlaceholderTemplate, String> {
    let template: PlaceholderTemplate = name
        .parse()
        .map_err(|e: super::template::ParseTemplateError| e.to_string())?;
    if let Some(place) = template
        .placeholders()
        .find(|place| *place != Placeholder::Index)
    {
        return Err(format!(
            "{{{}}} is not known before a task runs; use {{index}}",
            place.as_str()
        ));
    }
    template
        .fill(|_| "0".to_owned())
        .parse::<NodeId>()
        .map_err(|e| e.to_string())?;
    Ok(template)
}
