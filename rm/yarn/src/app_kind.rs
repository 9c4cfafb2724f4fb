//! Name, type and tags of an application in YARN's sense. A submission keeps them as environment
//! variables of the master; reports contain them.

use headroom_rm_reports::ApplicationReport;

/// Type of an application that was submitted without one.
pub(crate) const TYPE: &str = "HEADROOM";
/// Environment variable of a master with the application name of a YARN submission. YARN allows
/// names that this resource manager does not.
pub(crate) const NAME_VARIABLE: &str = "HEADROOM_YARN_NAME";
/// Environment variable with the application type.
pub(crate) const TYPE_VARIABLE: &str = "HEADROOM_YARN_TYPE";
/// Environment variable with the tags, joined by commas.
pub(crate) const TAGS_VARIABLE: &str = "HEADROOM_YARN_TAGS";

/// Name, type and tags of an application.
#[derive(Debug)]
pub(crate) struct AppKind {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) tags: Vec<String>,
}

impl AppKind {
    pub(crate) fn of(app: &ApplicationReport) -> Self {
        let said = |name: &str| {
            app.environment
                .as_ref()
                .and_then(|env| env.get(name))
                .cloned()
        };
        let tags = said(TAGS_VARIABLE).unwrap_or_default();
        AppKind {
            name: said(NAME_VARIABLE).unwrap_or_else(|| app.id.name().to_string()),
            kind: said(TYPE_VARIABLE).unwrap_or_else(|| TYPE.to_owned()),
            tags: tags
                .split(',')
                .filter(|tag| !tag.is_empty())
                .map(str::to_owned)
                .collect(),
        }
    }
}
