//! Harmless and malicious archives.

use super::*;

/// A tar archive of raw headers, as an attacker would write it.
fn tar_of(entries: &[(&str, u8, &str, &[u8])]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, kind, link, data) in entries {
        let mut header = tar::Header::new_ustar();
        let old = header.as_old_mut();
        old.name[..name.len()].copy_from_slice(name.as_bytes());
        old.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(tar::EntryType::new(*kind));
        header.set_mode(0o4755);
        header.set_size(data.len() as u64);
        header.set_cksum();
        archive.extend_from_slice(header.as_bytes());
        archive.extend_from_slice(data);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.extend_from_slice(&[0; 1024]);
    archive
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).expect("packs");
    out.finish().expect("packs")
}

fn try_unpack(bytes: &[u8], most: u64, entries: u32) -> (tempfile::TempDir, anyhow::Result<u64>) {
    let dir = tempfile::tempdir().expect("dir");
    let mut file = tempfile::tempfile().expect("file");
    file.write_all(bytes).expect("writes");
    let result = unpack(&mut file, &dir.path().join("tree"), most, entries);
    (dir, result)
}

fn refusal(entries: &[(&str, u8, &str, &[u8])]) -> String {
    let (dir, result) = try_unpack(&tar_of(entries), 1 << 20, 100);
    let names: Vec<_> = fs::read_dir(dir.path())
        .expect("lists")
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(
        names,
        ["tree"],
        "a file was written outside of the directory"
    );
    format!("{:#}", result.expect_err("refused"))
}

#[test]
fn a_valid_archive_is_unpacked_without_special_mode_bits() {
    let plain = tar_of(&[
        ("bin/", b'5', "", b""),
        ("bin/run", b'0', "", b"#!/bin/sh\n"),
        ("lib/deep/data", b'0', "", b"12345"),
        ("run", b'2', "bin/run", b""),
        ("lib/deep/up", b'2', "../../bin", b""),
        ("again", b'1', "bin/run", b""),
    ]);
    for bytes in [plain.clone(), gz(&plain)] {
        let (dir, result) = try_unpack(&bytes, 1 << 20, 100);
        assert_eq!(result.expect("unpacks"), 25, "two files and a copy");
        let tree = dir.path().join("tree");
        assert_eq!(
            fs::read_to_string(tree.join("lib/deep/up/run")).expect("reads"),
            "#!/bin/sh\n"
        );
        assert_eq!(
            fs::metadata(tree.join("run"))
                .expect("facts")
                .permissions()
                .mode()
                & 0o7777,
            0o555
        );
        assert_eq!(
            fs::read_to_string(tree.join("again")).expect("reads"),
            "#!/bin/sh\n"
        );
    }
}

#[test]
fn no_entry_leaves_the_directory() {
    assert!(refusal(&[("../out", b'0', "", b"x")]).contains("leads out"));
    assert!(refusal(&[("/etc/out", b'0', "", b"x")]).contains("leads out"));
    assert!(refusal(&[("a/../../out", b'0', "", b"x")]).contains("leads out"));
    assert!(refusal(&[("l", b'2', "/etc", b"")]).contains("leads out"));
    assert!(refusal(&[("l", b'2', "../out", b"")]).contains("leads out"));
    assert!(refusal(&[("a/l", b'2', "../../out", b"")]).contains("leads out"));
    // A link upwards, and a path through it: each entry alone looks harmless.
    assert!(
        refusal(&[("d/e/l", b'2', "../..", b""), ("m", b'2', "d/e/l/..", b"")])
            .contains("leads out")
    );
    assert!(refusal(&[("l", b'2', "d", b""), ("l/f", b'0', "", b"x")]).contains("behind a link"));
    assert!(
        refusal(&[("l", b'2', "d", b""), ("copy", b'1', "l/f", b"")]).contains("behind a link")
    );
    assert!(refusal(&[("copy", b'1', "../../etc/passwd", b"")]).contains("leads out"));
    assert!(refusal(&[("null", b'3', "", b"")]).contains("neither a file"));
    assert!(refusal(&[("pipe", b'6', "", b"")]).contains("neither a file"));
}

#[test]
fn long_names_follow_the_same_rules() {
    assert!(
        refusal(&[
            ("././@LongLink", b'L', "", b"../../far/out\0"),
            ("x", b'0', "", b"x")
        ])
        .contains("leads out")
    );
    assert!(
        refusal(&[
            ("././@LongLink", b'L', "", &[b'a'; 9000]),
            ("x", b'0', "", b"x")
        ])
        .contains("longer than")
    );
    assert!(
        refusal(&[
            ("pax", b'x', "", b"19 path=../../out/x\n"),
            ("x", b'0', "", b"x")
        ])
        .contains("leads out")
    );
    assert!(
        refusal(&[
            ("pax", b'x', "", &vec![b' '; 70_000]),
            ("x", b'0', "", b"x")
        ])
        .contains("longer than")
    );
}

#[test]
fn archive_bombs_are_refused() {
    let zeros = gz(&tar_of(&[("big", b'0', "", &vec![0; 4 << 20])]));
    assert!(zeros.len() < 64 << 10);
    let (_dir, result) = try_unpack(&zeros, 1 << 20, 100);
    assert!(format!("{:#}", result.expect_err("refused")).contains("more bytes"));
    let names: Vec<String> = (0..50).map(|n| format!("f{n}")).collect();
    let many: Vec<(&str, u8, &str, &[u8])> = names
        .iter()
        .map(|n| (n.as_str(), b'0', "", b"".as_slice()))
        .collect();
    assert!(
        format!(
            "{:#}",
            try_unpack(&tar_of(&many), 1 << 20, 49)
                .1
                .expect_err("refused")
        )
        .contains("more files")
    );
    assert!(try_unpack(&tar_of(&many), 1 << 20, 50).1.is_ok());
    assert!(
        try_unpack(b"hello, this is no archive at all", 1 << 20, 50)
            .1
            .is_err()
    );
    let cut = tar_of(&[("big", b'0', "", &[1; 2000])]);
    assert!(
        try_unpack(&cut[..1500], 1 << 20, 50).1.is_err(),
        "a truncated archive is refused"
    );
}

#[test]
fn zip_archives_follow_the_same_rules() {
    let pack = |name: &str, text: &[u8]| {
        let mut out = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        out.start_file(
            name,
            zip::write::SimpleFileOptions::default().unix_permissions(0o755),
        )
        .expect("starts");
        out.write_all(text).expect("writes");
        out.finish().expect("packs").into_inner()
    };
    let (dir, result) = try_unpack(&pack("bin/run", b"hello"), 1 << 20, 10);
    assert_eq!(result.expect("unpacks"), 5);
    assert_eq!(
        fs::metadata(dir.path().join("tree/bin/run"))
            .expect("facts")
            .permissions()
            .mode()
            & 0o7777,
        0o555
    );
    assert!(try_unpack(&pack("../out", b"x"), 1 << 20, 10).1.is_err());
    assert!(
        try_unpack(&pack("big", &vec![0; 4 << 20]), 1 << 20, 10)
            .1
            .is_err()
    );
}
