//! `input`: how much each task of a stage reads.

use headroom_types::Bytes;
use toml::Spanned;
use toml::de::DeValue;

use super::spec::Input;
use super::template::{Placeholder, Template};
use crate::problem::Report;
use crate::raw::{self, Hint, Section, hint};

const INPUT: Hint = hint(
    "learned sizes go by the size of the input",
    "write the file that a task reads, input = \"part-{index}.csv\", or a list with a size for each task",
);

pub(super) fn read(s: &mut Section<'_>, r: &mut Report<'_>, count: u32) -> Option<Input> {
    let input = s.read(r, "input", INPUT, |v| if v.as_array().is_some() { sizes(v) } else { file(v) })?;
    if let Input::Told(sizes) = input.get_ref()
        && u32::try_from(sizes.len()).ok() != Some(count)
    {
        let what = format!("{} sizes for {count} task{}", sizes.len(), if count == 1 { "" } else { "s" });
        r.add(input.span(), &s.path_of("input"), what, "each task has an input of its own", "write one size for each index");
        return None;
    }
    Some(input.into_inner())
}

fn file(value: &DeValue<'_>) -> Result<Input, String> {
    let file: Template = raw::parsed(value)?;
    if file.is_empty() {
        return Err("the path is empty".to_owned());
    }
    let known = |place: &Placeholder| matches!(place, Placeholder::Index | Placeholder::Stage | Placeholder::Job);
    let unknown = file.places().find(|place| !known(place));
    match unknown {
        Some(place) => {
            Err(format!("{{{}}} is not known before a task runs; use {{index}}, {{stage}} or {{job}}", place.as_str()))
        }
        None => Ok(Input::File(file)),
    }
}

fn sizes(value: &DeValue<'_>) -> Result<Input, String> {
    let items = value.as_array().ok_or_else(|| format!("this is {}, not a list of sizes", raw::kind(value)))?;
    let one = |item: &Spanned<DeValue<'_>>| raw::size(item.get_ref());
    items.iter().map(one).collect::<Result<Vec<Bytes>, _>>().map(Input::Told)
}
