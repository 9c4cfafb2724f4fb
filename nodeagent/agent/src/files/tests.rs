//! No path leads out of a container's directory, even if its user makes changes meanwhile.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn place(text: &str) -> ContainerPath {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A container with files, next to a secret file outside of it.
fn container() -> (tempfile::TempDir, std::path::PathBuf) {
    let all = tempfile::tempdir().expect("dir");
    let dir = all.path().join("c1");
    fs::create_dir_all(dir.join("work/deep")).expect("makes");
    fs::create_dir(all.path().join("other")).expect("makes");
    for (name, text) in [
        ("work/a", "alpha"),
        ("work/deep/b", "beta"),
        ("stdout", "said"),
        ("spec", "secret"),
        ("../other/b", "secret"),
    ] {
        fs::write(dir.join(name), text).expect("writes");
    }
    (all, dir)
}

fn text(dir: &Path, at: &str) -> io::Result<String> {
    let (mut file, length) = open(dir, &place(at))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    assert_eq!(text.len() as u64, length);
    Ok(text)
}

#[test]
fn a_path_is_relative_and_inside_the_visible_directories() {
    for wrong in [
        "/etc/passwd",
        "..",
        "work/../spec",
        "spec",
        "order.json",
        "work/..",
        "work/\0",
        "pid",
    ] {
        assert!(wrong.parse::<ContainerPath>().is_err(), "{wrong:?}");
    }
    assert_eq!(
        (place(""), place("./")),
        (ContainerPath::default(), ContainerPath::default())
    );
    assert_eq!(place("work//./deep/"), place("work/deep"));
    assert!("x".repeat(5000).parse::<ContainerPath>().is_err());
}

#[test]
fn existing_files_are_listed_and_read() {
    let (_all, dir) = container();
    symlink("a", dir.join("work/last")).expect("links");
    let rows = list(&dir, &place("work")).expect("lists");
    let seen: Vec<_> = rows
        .iter()
        .map(|r| (r.path.as_str(), r.kind, r.target.as_deref()))
        .collect();
    let expected = [
        ("work/a", FileEntryKind::File, None),
        ("work/deep", FileEntryKind::Directory, None),
        ("work/last", FileEntryKind::Link, Some("a")),
    ];
    assert_eq!(seen, expected);
    assert_eq!(rows[0].bytes, 5);
    let top: Vec<String> = list(&dir, &ContainerPath::default())
        .expect("lists")
        .into_iter()
        .map(|row| row.path)
        .collect();
    assert_eq!(
        top,
        ["stdout", "work"],
        "records of the agent are not listed"
    );
    assert_eq!(list(&dir, &place("work/deep/b")).expect("one row").len(), 1);
    assert_eq!(text(&dir, "work/deep/b").expect("reads"), "beta");
    assert_eq!(
        text(&dir, "work/last").expect("reads"),
        "alpha",
        "a link inside the directory is followed"
    );
    assert_eq!(text(&dir, "stdout").expect("reads"), "said");
    assert_eq!(
        text(&dir, "work/gone")
            .expect_err("the file does not exist")
            .kind(),
        io::ErrorKind::NotFound
    );
}

#[test]
fn no_link_leads_out_of_the_directory() {
    let (all, dir) = container();
    let links = [
        ("abs", all.path().join("other/b")),
        ("up", "../spec".into()),
        ("far", "../../other".into()),
        ("self", "/proc/self".into()),
    ];
    for (name, to) in &links {
        symlink(to, dir.join("work").join(name)).expect("links");
    }
    for at in ["work/abs", "work/up", "work/far/b", "work/self/environ"] {
        assert_eq!(
            text(&dir, at).expect_err(at).kind(),
            io::ErrorKind::PermissionDenied,
            "{at}"
        );
    }
    fs::rename(dir.join("work"), dir.join("elsewhere")).expect("renames");
    symlink("../other", dir.join("work")).expect("links");
    assert!(
        text(&dir, "work/b").is_err(),
        "the first component is not followed as a link"
    );
    assert_eq!(
        list(&dir, &place("work"))
            .expect("the link itself")
            .first()
            .map(|row| row.kind),
        Some(FileEntryKind::Link)
    );
}

#[test]
fn pipes_directories_and_private_hard_links_are_not_opened() {
    let (all, dir) = container();
    nix::unistd::mkfifo(&dir.join("work/pipe"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    fs::hard_link(all.path().join("other/b"), dir.join("work/hard")).expect("links");
    fs::set_permissions(
        all.path().join("other/b"),
        fs::Permissions::from_mode(0o600),
    )
    .expect("closes");
    for at in ["work/pipe", "work/deep", "work/hard", ""] {
        assert_eq!(
            text(&dir, at).expect_err(at).kind(),
            io::ErrorKind::PermissionDenied,
            "{at:?}"
        );
    }
    fs::set_permissions(
        all.path().join("other/b"),
        fs::Permissions::from_mode(0o644),
    )
    .expect("opens");
    assert_eq!(
        text(&dir, "work/hard").expect("a world-readable file is readable"),
        "secret"
    );
}

#[test]
fn a_directory_swapped_for_a_link_does_not_lead_out() {
    let (all, dir) = container();
    symlink(all.path().join("other"), dir.join("work/trap")).expect("links");
    let over = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (deep, trap) = (dir.join("work/deep"), dir.join("work/trap"));
            while !over.load(Ordering::Relaxed) {
                // The directory and the link that leads out swap places repeatedly.
                rustix::fs::renameat_with(
                    CWD,
                    &deep,
                    CWD,
                    &trap,
                    rustix::fs::RenameFlags::EXCHANGE,
                )
                .expect("swaps");
            }
        });
        let mut seen = [0_u32; 2];
        for _ in 0..200_000 {
            match text(&dir, "work/deep/b") {
                Ok(text) => {
                    assert_eq!(text, "beta", "a file outside of the directory was read");
                    seen[0] += 1;
                }
                Err(_) => seen[1] += 1,
            }
            if seen.iter().all(|n| *n >= 200) {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
        seen
    });
    assert!(
        seen.iter().all(|n| *n > 0),
        "the directory and the link were both seen: {seen:?}"
    );
}
