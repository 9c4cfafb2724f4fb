//! Validation of messages beyond serde. Each error names the field and the correction.

use std::collections::BTreeSet;

use headroom_types::{FetchedFile, LaunchSpec, Name, Sha256, UPLOAD_SCHEME};

use super::application_master::PlacementRequest;
use super::apps::{ApplicationMaster, SubmitApplicationRequest};
use super::error::{ErrorCode, ProblemDetails};

/// Maximum number of containers of one request that have not ended. Those that have ended do not
/// count: a master that replaces containers for months may keep its request.
pub const MAX_CONTAINERS: u32 = 100_000;
/// Maximum size of the small files of one launch. Bytes.
pub const MAX_SMALL_FILE_BYTES: usize = 256 << 10;
/// Maximum number of fetched files and archives of one launch.
pub const MAX_FETCHED_FILES: usize = 64;
/// Maximum number of auxiliary services of one launch.
pub const MAX_AUX_SERVICES: usize = 8;
/// Maximum number of arguments and environment variables of one launch.
pub const MAX_ARGS_AND_VARIABLES: usize = 1024;

fn bad(detail: impl Into<String>) -> ProblemDetails {
    ProblemDetails::new(ErrorCode::HR0400, detail)
}

/// Checks a launch. A file name must be one plain path component.
pub fn check_launch(launch: &LaunchSpec) -> Result<(), ProblemDetails> {
    if launch.command.first().is_none_or(String::is_empty) {
        return Err(
            bad("launch.command is empty").hint("name the program to run as its first element")
        );
    }
    if launch.command.len() > MAX_ARGS_AND_VARIABLES || launch.env.len() > MAX_ARGS_AND_VARIABLES {
        return Err(ProblemDetails::new(
            ErrorCode::HR0413,
            format!("launch has more than {MAX_ARGS_AND_VARIABLES} arguments or variables"),
        ));
    }
    if launch
        .command
        .iter()
        .chain(launch.env.keys())
        .chain(launch.env.values())
        .any(|w| w.contains('\0'))
    {
        return Err(bad(
            "launch.command and launch.env cannot contain a NUL character",
        ));
    }
    if let Some(key) = launch.env.keys().find(|k| k.is_empty() || k.contains('=')) {
        return Err(bad(format!("launch.env: {key:?} is not a variable name")));
    }
    if let Some(name) = launch.files.keys().find(|n| !is_plain_file_name(n)) {
        return Err(
            bad(format!("launch.files: {name:?} is not a plain file name"))
                .hint("a file goes into the working directory itself"),
        );
    }
    if launch.files.values().map(String::len).sum::<usize>() > MAX_SMALL_FILE_BYTES {
        return Err(ProblemDetails::new(
            ErrorCode::HR0413,
            format!("launch.files hold more than {MAX_SMALL_FILE_BYTES} bytes"),
        ));
    }
    if launch.fetch.len() > MAX_FETCHED_FILES {
        return Err(ProblemDetails::new(
            ErrorCode::HR0413,
            format!("launch.fetch names more than {MAX_FETCHED_FILES} files"),
        ));
    }
    check_aux_services(&launch.aux_services)?;
    let mut names: BTreeSet<&str> = launch.files.keys().map(String::as_str).collect();
    for file in &launch.fetch {
        check_fetched(file)
            .map_err(|(what, fix)| bad(format!("launch.fetch: {what}")).hint(fix))?;
        if !names.insert(&file.name) {
            return Err(bad(format!("launch.fetch: {:?} is named twice", file.name))
                .hint("give each file its own name"));
        }
    }
    Ok(())
}

fn check_aux_services(services: &[Name]) -> Result<(), ProblemDetails> {
    if services.len() > MAX_AUX_SERVICES {
        return Err(ProblemDetails::new(
            ErrorCode::HR0413,
            format!("launch.aux_services names more than {MAX_AUX_SERVICES} services"),
        ));
    }
    let mut names = BTreeSet::new();
    match services.iter().find(|name| !names.insert(*name)) {
        Some(name) => Err(
            bad(format!("launch.aux_services: \"{name}\" is named twice"))
                .hint("name each service once"),
        ),
        None => Ok(()),
    }
}

/// Checks a file to be fetched. Returns the error and the correction.
pub fn check_fetched(file: &FetchedFile) -> Result<(), (String, &'static str)> {
    let FetchedFile {
        name, from, sha256, ..
    } = file;
    if !is_plain_file_name(name) {
        return Err((
            format!("{name:?} is not a plain file name"),
            "a file goes into the working directory itself",
        ));
    }
    if from.len() > 2048 || from.chars().any(|c| c.is_control() || c == ' ') {
        return Err((
            format!("{name}: `from` is not one word of at most 2048 characters"),
            "write an address or a path",
        ));
    }
    if let Some(digest) = from.strip_prefix(UPLOAD_SCHEME) {
        return check_upload(name, digest, *sha256);
    }
    let address = ["http://", "https://"].iter().any(|scheme| {
        from.strip_prefix(scheme)
            .is_some_and(|rest| !rest.is_empty())
    });
    match (address, sha256) {
        (true, Some(_)) => Ok(()),
        (true, None) => Err((
            format!("{name}: an address without sha256, so its content cannot be verified"),
            "add the SHA-256 of the file, as `sha256sum` prints it",
        )),
        (false, _) if from.starts_with('/') => Ok(()),
        (false, _) => Err((
            format!("{name}: {from:?} is neither an address nor an absolute path"),
            "write http://…, https://…, upload:SHA256 or a path from / that the node can read",
        )),
    }
}

/// Checks the address of an uploaded file.
fn check_upload(
    name: &str,
    digest: &str,
    sha256: Option<Sha256>,
) -> Result<(), (String, &'static str)> {
    match digest.parse::<Sha256>() {
        Ok(sum) if sha256.is_none_or(|named| named == sum) => Ok(()),
        Ok(_) => Err((
            format!("{name}: sha256 differs from the digest in `from`"),
            "leave sha256 out: the address of an upload contains it",
        )),
        Err(_) => Err((
            format!("{name}: \"{UPLOAD_SCHEME}{digest}\" does not name an uploaded file"),
            "upload the file, and write upload: and its SHA-256",
        )),
    }
}

fn is_plain_file_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
        && !name.contains('/')
        && !name.contains('\0')
        && name.len() <= 128
}

/// Checks a container request.
pub fn check_request(ask: &PlacementRequest) -> Result<(), ProblemDetails> {
    if ask.resource.memory.is_zero() {
        return Err(
            bad(format!("request {}: resource.memory is 0", ask.request))
                .hint("request at least the memory that the program needs to start"),
        );
    }
    let open = ask.count.checked_sub(ask.ended);
    if open.is_none_or(|open| open > MAX_CONTAINERS) {
        return Err(bad(format!(
            "request {}: count {} and ended {} are out of range (ended at most count, and at most {MAX_CONTAINERS} less)",
            ask.request, ask.count, ask.ended
        )));
    }
    check_launch(&ask.launch)
}

/// Checks a submission.
pub fn check_submit(app: &SubmitApplicationRequest) -> Result<(), ProblemDetails> {
    if app
        .idempotency_key
        .as_ref()
        .is_some_and(|k| k.is_empty() || k.len() > 64)
    {
        return Err(bad("idempotency_key must have 1 to 64 characters"));
    }
    if app.user.as_ref().is_some_and(|u| u.len() > 64) {
        return Err(bad("user must have at most 64 characters"));
    }
    match &app.master {
        ApplicationMaster::Unmanaged => Ok(()),
        ApplicationMaster::Managed {
            resource,
            launch,
            max_attempts,
            growth,
            first_request,
            start_timeout_ms: _,
        } => {
            if resource.memory.is_zero() || !(1..=20).contains(max_attempts) {
                return Err(bad(
                    "master: resource.memory must be above 0 and max_attempts between 1 and 20",
                ));
            }
            if let Some(growth) = growth
                && growth.max_memory < resource.memory
            {
                return Err(bad(
                    "master: growth.max_memory must be at least resource.memory",
                ));
            }
            check_launch(launch)?;
            first_request.as_deref().map_or(Ok(()), check_request)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Bytes, Cpus, FetchedFileKind, Resource};

    fn launch() -> LaunchSpec {
        LaunchSpec {
            command: vec!["/bin/true".into()],
            ..LaunchSpec::default()
        }
    }

    #[test]
    fn ended_containers_do_not_use_up_a_request() {
        let is_valid = |count, ended| {
            let id = "set-main".parse().expect("an id");
            let size = Resource::new(Bytes::from_mib(64), Cpus::from_milli(100));
            let mut ask = PlacementRequest::new(id, size, launch());
            (ask.count, ask.ended) = (count, ended);
            check_request(&ask).is_ok()
        };
        assert!(is_valid(MAX_CONTAINERS, 0));
        assert!(!is_valid(MAX_CONTAINERS + 1, 0));
        assert!(is_valid(50 * MAX_CONTAINERS, 49 * MAX_CONTAINERS));
        assert!(!is_valid(50 * MAX_CONTAINERS, 49 * MAX_CONTAINERS - 1));
        assert!(!is_valid(1, 2), "more ended than requested");
    }

    #[test]
    fn a_file_cannot_leave_the_working_directory() {
        for name in ["../x", "/etc/passwd", "..", "", "a/b"] {
            let mut l = launch();
            l.files.insert(name.into(), String::new());
            assert_eq!(check_launch(&l).expect_err(name).code, ErrorCode::HR0400);
        }
    }

    #[test]
    fn a_fetched_file_needs_a_source_and_a_checksum() {
        let sum = "ab".repeat(32).parse().ok();
        let problem = |name: &str, from: &str, sha256| {
            let mut l = launch();
            l.fetch = vec![FetchedFile {
                name: name.into(),
                from: from.into(),
                sha256,
                kind: FetchedFileKind::File,
                most: None,
            }];
            l.files.insert("taken".into(), String::new());
            check_launch(&l).err().map(|p| p.detail)
        };
        assert_eq!(problem("a.jar", "https://repo.example/a.jar", sum), None);
        assert_eq!(problem("a.jar", "/srv/a.jar", None), None);
        let upload = |digest: &str| format!("upload:{digest}");
        assert_eq!(problem("a.jar", &upload(&"ab".repeat(32)), None), None);
        assert_eq!(problem("a.jar", &upload(&"ab".repeat(32)), sum), None);
        let other = problem("a.jar", &upload(&"cd".repeat(32)), sum).unwrap_or_default();
        assert!(other.contains("sha256 differs"), "{other}");
        for (name, from, sha256, word) in [
            ("../a", "/srv/a", None, "plain file name"),
            ("taken", "/srv/a", None, "twice"),
            ("a", "http://h/a", None, "without sha256"),
            ("a", "http://", sum, "neither"),
            ("a", "srv/a", None, "neither"),
            (
                "a",
                "upload:data.bin",
                None,
                "does not name an uploaded file",
            ),
            ("a", "upload:", sum, "does not name an uploaded file"),
            ("a", "file:///srv/a", None, "neither"),
            ("a", "/srv/a\nb", None, "one word"),
        ] {
            let text = problem(name, from, sha256).unwrap_or_default();
            assert!(text.contains(word), "{name} {from}: {text}");
        }
    }

    #[test]
    fn a_launch_names_at_most_eight_services_each_once() {
        let with = |names: &[String]| {
            let mut l = launch();
            l.aux_services = names.iter().map(|n| n.parse().expect("a name")).collect();
            check_launch(&l).err().map(|p| (p.code, p.detail))
        };
        let names: Vec<String> = (0..9).map(|n| format!("s{n}")).collect();
        assert_eq!(with(&names[..8]), None);
        let (code, detail) = with(&names).expect("too many");
        assert_eq!(code, ErrorCode::HR0413);
        assert!(detail.contains("more than 8 services"), "{detail}");
        let (code, detail) = with(&["a".into(), "b".into(), "a".into()]).expect("twice");
        assert_eq!(code, ErrorCode::HR0400);
        assert!(detail.contains("\"a\" is named twice"), "{detail}");
    }

    #[test]
    fn a_launch_needs_a_program() {
        assert!(check_launch(&launch()).is_ok());
        assert!(check_launch(&LaunchSpec::default()).is_err());
    }
}
