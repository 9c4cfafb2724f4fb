//! The texts about a container whose program was not started: the reason, and the next step for its
//! user. Pure.

/// Words of a failure in lower case, and the next step. The first row whose words occur applies.
const ADVICE: [(&str, &str); 18] = [
    (
        "no such file",
        "check the program's name: an absolute path, a file of the launch as ./NAME, or a name on the node's PATH",
    ),
    (
        "its sha-256 is",
        "write the SHA-256 of the file, as `sha256sum` prints it",
    ),
    (
        "the archive is refused",
        "pack it again: no absolute names, no `..`, no devices, within [cache] of the node's configuration",
    ),
    (
        "did not finish within",
        "check the load of the server, or raise deadline under [cache] in the node's configuration",
    ),
    (
        "is not trusted",
        "name the authority that signed it in ca_file under [cache] in the node's configuration",
    ),
    (
        "ca_file",
        "write a file of certificates in PEM there, or leave ca_file out",
    ),
    (
        "fetching ",
        "check that the URL or path is correct and readable from the node",
    ),
    (
        "is not known on this node",
        "create the user on the node, or map the submitter under [isolation] users in the node's configuration",
    ),
    (
        "run as root",
        "submit as another user, or set allow_root under [isolation] in the node's configuration",
    ),
    (
        "min_uid",
        "submit as another user, or map the submitter under [isolation] users in the node's configuration",
    ),
    (
        "has no submitter",
        "submit with a user, or set run_as under [isolation] in the node's configuration",
    ),
    (
        "private-tmp",
        "the agent may not mount: give it CAP_SYS_ADMIN, or set private_tmp = false under [isolation]",
    ),
    (
        "could not be started: namespaces",
        "allow more namespaces (sysctl user.max_ipc_namespaces, user.max_mnt_namespaces, user.max_user_namespaces), or set \
         ipc = \"host\" under [isolation] in the node's configuration",
    ),
    (
        "permission denied",
        "make the program executable for the user of the node agent",
    ),
    (
        "exec format",
        "use a program for this machine's architecture; a script needs a first line such as #!/bin/sh",
    ),
    (
        "no space",
        "free space on the disk of the node's state directory",
    ),
    (
        "was on this node before",
        "no action: a container never runs twice",
    ),
    (
        "cgroup",
        "see the findings of its enforcer in `GET /v1/doctor` of the node",
    ),
];

/// The shim's report about a program that did not start, as one sentence.
pub(crate) fn refusal(step: &str, errno: i32, detail: &str) -> String {
    let why = std::io::Error::from_raw_os_error(errno);
    let about = if detail.is_empty() {
        String::new()
    } else {
        format!(" {detail}")
    };
    format!("the program could not be started: {step}{about}: {why}")
}

/// The next step for the user whose container could not be started.
pub(crate) fn advice(why: &str) -> &'static str {
    let why = why.to_ascii_lowercase();
    ADVICE
        .iter()
        .find(|(words, _)| why.contains(words))
        .map_or("see the log of the node agent at that time", |(_, fix)| fix)
}
