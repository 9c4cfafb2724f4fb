//! Files of the submitter's host that a job file names: `from = "upload:PATH"`.

use std::ops::Range;

use headroom_types::{Sha256, UPLOAD_SCHEME};
use toml::de::{DeTable, DeValue};

/// A file of the submitter's host that a stage names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadPath {
    /// Position of the whole value in the text, with its quotes. Bytes.
    pub span: Range<usize>,
    /// The path, as written.
    pub path: String,
}

/// Lists the files to be uploaded, in the order of the text. An address that already has a digest
/// is not among them.
pub fn upload_paths(text: &str) -> Vec<UploadPath> {
    let (table, _) = DeTable::parse_recoverable(text);
    let stages = tables(table.get_ref(), "stage");
    let files = stages.flat_map(|stage| tables(stage, "files"));
    let sources = files.filter_map(|file| file.get("from"));
    let mut found: Vec<UploadPath> = sources
        .filter_map(|from| upload_path(from.span(), from.get_ref()))
        .collect();
    found.sort_by_key(|upload| upload.span.start);
    found
}

/// The tables in a list.
fn tables<'t, 'i>(table: &'t DeTable<'i>, key: &str) -> impl Iterator<Item = &'t DeTable<'i>> {
    let list = table.get(key).and_then(|value| value.get_ref().as_array());
    let items = list.into_iter().flat_map(|list| list.iter());
    items.filter_map(|item| item.get_ref().as_table())
}

fn upload_path(span: Range<usize>, from: &DeValue<'_>) -> Option<UploadPath> {
    let path = from.as_str()?.strip_prefix(UPLOAD_SCHEME)?;
    let is_path = !path.is_empty() && path.parse::<Sha256>().is_err();
    is_path.then(|| UploadPath {
        span,
        path: path.to_owned(),
    })
}

/// The text with the digests of uploaded files instead of their paths.
pub fn with_digests(text: &str, digests: &[(UploadPath, Sha256)]) -> String {
    let mut whole = text.to_owned();
    // From the end, so that the earlier positions stay valid.
    for (upload, sum) in digests.iter().rev() {
        whole.replace_range(upload.span.clone(), &format!("\"{UPLOAD_SCHEME}{sum}\""));
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_replaced_by_digests() {
        let sum = Sha256::new([0xab; 32]);
        let text = format!(
            "[[stage]]\nname = \"a\" # upload:x\nfiles = [\n\
             {{ name = \"one\", from = 'upload:data/ü.bin' }},\n\
             {{ name = \"two\", from = \"upload:{sum}\" }}, {{ name = \"three\", from = \"/srv/x\" }},\n]\n\
             [[stage]]\n[[stage.files]]\nname = \"four\"\nfrom = \"upload:/tmp/y\"\nkind = \"archive\"\n"
        );
        let found = upload_paths(&text);
        let paths: Vec<_> = found.iter().map(|upload| upload.path.as_str()).collect();
        assert_eq!(paths, ["data/ü.bin", "/tmp/y"]);
        let digests: Vec<_> = found.into_iter().map(|upload| (upload, sum)).collect();
        let expected = text
            .replace("'upload:data/ü.bin'", &format!("\"upload:{sum}\""))
            .replace("upload:/tmp/y", &format!("upload:{sum}"));
        assert_eq!(with_digests(&text, &digests), expected);
        assert_eq!(upload_paths("stage = 1\n[[nothing"), []);
    }
}
