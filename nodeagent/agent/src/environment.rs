//! The environment of a container's program, and the placeholders in its arguments and values.

use std::ffi::OsString;

use headroom_container_shim::record::ProgramSpec;
use headroom_node_cgroup::EnforcedGroup;
use headroom_types::{Bytes, ContainerId};
use headroom_wire::v1::nodes::RunOrder;

use crate::disk::file;
use crate::journals::SharedJournals;
use crate::node_context::NodeContext;

/// Search path for programs if the agent has no PATH.
pub(crate) const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The environment of the program of a container. Variables of the agent override those of the
/// launch.
pub(crate) fn program_environment(
    site: &NodeContext,
    id: &ContainerId,
    order: &RunOrder,
    group: &EnforcedGroup,
    words: &PlaceholderValues,
) -> Vec<(OsString, OsString)> {
    let dir = site.layout.container(id);
    let inherited = std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
    let mut path = site.bin_dir.clone().into_os_string();
    path.push(":");
    path.push(inherited);
    let mut env: Vec<(OsString, OsString)> = vec![
        ("PATH".into(), path),
        ("HOME".into(), dir.join(file::WORK).into()),
        ("LANG".into(), "C.UTF-8".into()),
    ];
    let tmp = if site.has_private_tmp() {
        "/tmp".into()
    } else {
        dir.join(file::TMP).into()
    };
    env.push(("TMPDIR".into(), tmp));
    // The agent's own variables come last and override: a launch cannot change its identity or
    // limit.
    for (name, value) in &order.launch.env {
        set(&mut env, name, words.fill(value).into());
    }
    let mut own = |name: &str, value: OsString| set(&mut env, name, value);
    own("HEADROOM_APP", order.app.to_string().into());
    own("HEADROOM_CONTAINER", id.to_string().into());
    own("HEADROOM_NODE", site.node.to_string().into());
    own("HEADROOM_RM", site.rm.clone().into());
    if site.keys.is_some() {
        own(
            "HEADROOM_CA_FILE",
            dir.join(file::TASKS).join(file::CA).into(),
        );
    }
    if order.token.is_some() {
        own(
            "HEADROOM_TOKEN_FILE",
            dir.join(file::TASKS).join(file::TOKEN).into(),
        );
    }
    if let (None, Some((listen, name))) = (&order.request, &site.for_masters) {
        own("HEADROOM_LISTEN", listen.into());
        own("HEADROOM_ADVERTISE", name.into());
    }
    if let (None, Some(place)) = (&order.request, &site.journal_place) {
        own("HEADROOM_JOURNALS", place.to_string().into());
        let journals = site.journals.as_ref();
        for (name, value) in journals
            .map(SharedJournals::variables)
            .unwrap_or_default()
            .iter()
        {
            own(name, value.into());
        }
    }
    own("HEADROOM_CONTAINER_DIR", dir.clone().into());
    own("HEADROOM_APP_DIR", site.layout.app(&order.app).into());
    own(
        "HEADROOM_MEMORY_BYTES",
        order.resource.memory.get().to_string().into(),
    );
    own("HEADROOM_CPUS", order.resource.cpus.to_string().into());
    own("HEADROOM_ENFORCER", site.kind().as_str().into());
    own(
        "HEADROOM_OOM_MARKER",
        dir.join(file::TASKS).join(file::MARKER).into(),
    );
    own(
        "HEADROOM_CACHED_BYTES",
        dir.join(file::TASKS).join(file::CACHED).into(),
    );
    match order.launch.heap {
        Some(heap) => own("HEADROOM_HEAP_BYTES", heap.get().to_string().into()),
        None => env.retain(|(name, _)| name != "HEADROOM_HEAP_BYTES"),
    }
    match group.path() {
        Some(path) => set(&mut env, "HEADROOM_CGROUP", path.into()),
        None => env.retain(|(name, _)| name != "HEADROOM_CGROUP"),
    }
    env
}

/// Sets the variables with the name of the user.
pub(crate) fn name_user(spec: &mut ProgramSpec, name: Option<String>) {
    if let Some(name) = name {
        set(&mut spec.env, "USER", name.clone().into());
        set(&mut spec.env, "LOGNAME", name.into());
    }
}

/// Sets one variable, and replaces an earlier value.
pub(crate) fn set(env: &mut Vec<(OsString, OsString)>, name: &str, value: OsString) {
    match env.iter_mut().find(|(known, _)| known == name) {
        Some(pair) => pair.1 = value,
        None => env.push((name.into(), value)),
    }
}

/// Placeholders in arguments and environment values, with their values.
pub(crate) struct PlaceholderValues([(&'static str, String); 5]);

impl PlaceholderValues {
    /// The values for one container.
    pub(crate) fn new(site: &NodeContext, id: &ContainerId, order: &RunOrder) -> Self {
        PlaceholderValues([
            ("{memory}", order.resource.memory.get().to_string()),
            (
                "{heap}",
                jvm_size(order.launch.heap.unwrap_or(order.resource.memory)),
            ),
            ("{container}", id.to_string()),
            ("{node}", site.node.to_string()),
            (
                "{app_dir}",
                site.layout.app(&order.app).display().to_string(),
            ),
        ])
    }
    /// The text with the values in place of the placeholders.
    pub(crate) fn fill(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (word, value)| {
            text.replace(word, value)
        })
    }
}

/// A size in the exact form of `-Xmx`: `64m`, `1000k`, or bytes.
fn jvm_size(size: Bytes) -> String {
    let n = size.get();
    match n {
        n if n.is_multiple_of(1 << 20) => format!("{}m", n >> 20),
        n if n.is_multiple_of(1 << 10) => format!("{}k", n >> 10),
        n => n.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_exactly() {
        assert_eq!(jvm_size(Bytes::from_mib(64)), "64m");
        assert_eq!(jvm_size(Bytes::from_kib(1000)), "1000k");
        assert_eq!(jvm_size(Bytes::new(1001)), "1001");
    }

    #[test]
    fn placeholders_of_the_command_are_filled() {
        let words = PlaceholderValues([
            ("{memory}", "9".into()),
            ("{heap}", "8m".into()),
            ("{container}", "c".into()),
            ("{node}", "n".into()),
            ("{app_dir}", "/apps/a.1".into()),
        ]);
        assert_eq!(
            words.fill("-Xmx{heap} {memory}{memory} {other} {app_dir}/x"),
            "-Xmx8m 99 {other} /apps/a.1/x"
        );
    }

    #[test]
    fn a_variable_is_set_once() {
        let mut env = vec![("A".into(), "1".into())];
        set(&mut env, "A", "2".into());
        set(&mut env, "B", "3".into());
        assert_eq!(
            env,
            [("A".into(), OsString::from("2")), ("B".into(), "3".into())]
        );
    }
}
