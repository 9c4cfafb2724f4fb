//! Unpacks archives: no entry leaves the target directory, and sizes are limited.
//!
//! The author of an archive is not trusted. Names and links are checked as texts first, and sizes
//! are counted during unpacking. Entries other than files, directories and links are refused.
//! Owners and special mode bits are ignored.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

/// Maximum length of an entry's name. Bytes.
const LONGEST: u64 = 4096;
/// Maximum size of the extension of one tar header. Bytes.
const EXTENSION: u64 = 64 << 10;
/// Maximum depth of directories.
const DEEPEST: usize = 64;

/// The target of an archive, with its remaining limits.
#[derive(Debug)]
pub(crate) struct ArchiveTarget<'a> {
    into: &'a Path,
    bytes_left: u64,
    entries_left: u32,
    links: BTreeSet<PathBuf>,
    taken: u64,
}

/// Unpacks `archive` into the new directory `into`. Returns the total size of its files. Bytes.
pub(crate) fn unpack(
    archive: &mut File,
    into: &Path,
    bytes: u64,
    entries: u32,
) -> anyhow::Result<u64> {
    fs::create_dir(into).with_context(|| format!("cannot make {}", into.display()))?;
    let mut out = ArchiveTarget {
        into,
        bytes_left: bytes,
        entries_left: entries,
        links: BTreeSet::new(),
        taken: 0,
    };
    let mut head = [0; 262];
    archive.rewind()?;
    let n = read_up_to(archive, &mut head)?;
    archive.rewind()?;
    let starts = |magic: &[u8]| head.get(..n).is_some_and(|h| h.starts_with(magic));
    if starts(&[0x1f, 0x8b]) {
        out.tar(flate2::bufread::MultiGzDecoder::new(BufReader::new(
            archive,
        )))?;
    } else if starts(b"PK\x03\x04") || starts(b"PK\x05\x06") {
        out.zip(archive)?;
    } else if head.get(257..262) == Some(b"ustar") {
        out.tar(BufReader::new(archive))?;
    } else {
        bail!("the file is neither tar, tar.gz nor zip");
    }
    Ok(out.taken)
}

fn read_up_to(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(room) = into.get_mut(filled..).filter(|r| !r.is_empty()) {
        match from.read(room)? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}

impl ArchiveTarget<'_> {
    /// Parses extensions here, because the library would read a name of any length into memory.
    #[allow(clippy::wildcard_enum_match_arm)] // the library's enum of kinds is non-exhaustive
    fn tar(&mut self, from: impl Read) -> anyhow::Result<()> {
        let mut archive = tar::Archive::new(from);
        let (mut name, mut link) = (None::<PathBuf>, None::<PathBuf>);
        for entry in archive
            .entries()
            .context("the file is not a tar archive")?
            .raw(true)
        {
            let mut entry = entry.context("the archive is damaged")?;
            let kind = entry.header().entry_type();
            match kind {
                tar::EntryType::GNULongName => name = Some(long_text(&mut entry)?),
                tar::EntryType::GNULongLink => link = Some(long_text(&mut entry)?),
                tar::EntryType::XHeader => {
                    let (path, target) = extension(&mut entry)?;
                    (name, link) = (path.or(name), target.or(link));
                }
                tar::EntryType::XGlobalHeader => self.count("a global header")?,
                _ => {
                    let path = name
                        .take()
                        .map_or_else(|| entry.path().map(std::borrow::Cow::into_owned), Ok)?;
                    let target = match link.take() {
                        Some(target) => Some(target),
                        None => entry.link_name()?.map(std::borrow::Cow::into_owned),
                    };
                    let executable = entry.header().mode().unwrap_or(0) & 0o111 != 0;
                    self.tar_entry(kind, &path, target, executable, &mut entry)?;
                }
            }
        }
        Ok(())
    }

    fn tar_entry(
        &mut self,
        kind: tar::EntryType,
        path: &Path,
        target: Option<PathBuf>,
        executable: bool,
        from: &mut impl Read,
    ) -> anyhow::Result<()> {
        if kind.is_dir() {
            self.directory(path)
        } else if kind.is_file() || kind.is_contiguous() {
            self.file(path, executable, from)
        } else if let (true, Some(target)) = (kind.is_symlink(), &target) {
            self.link(path, target)
        } else if let (true, Some(target)) = (kind.is_hard_link(), &target) {
            let source = self.place(target)?;
            ensure!(
                source.symlink_metadata().is_ok_and(|m| m.is_file()),
                "the hard link {} has no target",
                path.display()
            );
            self.file(path, executable, &mut File::open(source)?)
        } else {
            bail!(
                "{} is neither a file, a directory nor a link",
                path.display()
            )
        }
    }

    fn zip(&mut self, from: &mut File) -> anyhow::Result<()> {
        let length = from.seek(SeekFrom::End(0))?;
        from.rewind()?;
        let mut archive =
            zip::ZipArchive::new(BufReader::new(from)).context("the zip archive is damaged")?;
        ensure!(archive.len() as u64 <= length, "the zip archive is damaged");
        for n in 0..archive.len() {
            let mut entry = archive
                .by_index(n)
                .context("the zip archive is damaged, encrypted or of an unknown format")?;
            let path = PathBuf::from(
                entry
                    .name()
                    .context("a name in the archive cannot be read")?
                    .into_owned(),
            );
            let mode = entry.unix_mode().unwrap_or(0o644);
            if entry.is_dir() {
                self.directory(&path)?;
            } else if mode & 0o170_000 == 0o120_000 {
                let mut target = Vec::new();
                entry.by_ref().take(LONGEST).read_to_end(&mut target)?;
                self.link(&path, Path::new(std::ffi::OsStr::from_bytes(&target)))?;
            } else {
                self.file(&path, mode & 0o111 != 0, &mut entry)?;
            }
        }
        Ok(())
    }

    fn count(&mut self, entry: impl std::fmt::Display) -> anyhow::Result<()> {
        let left = self.entries_left.checked_sub(1);
        self.entries_left =
            left.with_context(|| format!("{entry}: more files and directories than allowed"))?;
        Ok(())
    }

    /// The target path of an archive path: below the directory, and not behind a link.
    fn place(&self, path: &Path) -> anyhow::Result<PathBuf> {
        let mut inside = PathBuf::new();
        for part in path.components() {
            match part {
                Component::Normal(part) => inside.push(part),
                Component::CurDir => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    bail!("{} leads out of the archive", path.display())
                }
            }
        }
        let depth = inside.components().count();
        ensure!(
            depth <= DEEPEST && inside.as_os_str().len() as u64 <= LONGEST,
            "the path {} is too long",
            path.display()
        );
        let behind = inside
            .ancestors()
            .skip(1)
            .find(|above| self.links.contains(*above));
        ensure!(behind.is_none(), "{} is behind a link", path.display());
        Ok(self.into.join(inside))
    }

    fn directory(&mut self, path: &Path) -> anyhow::Result<()> {
        self.count(path.display())?;
        let place = self.place(path)?;
        self.make(&place)
    }

    fn make(&mut self, place: &Path) -> anyhow::Result<()> {
        let missing: Vec<&Path> = place
            .ancestors()
            .take_while(|dir| *dir != self.into && !dir.is_dir())
            .collect();
        for dir in missing.into_iter().rev() {
            self.count(dir.display())?;
            fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        Ok(())
    }

    fn fresh(&mut self, path: &Path) -> anyhow::Result<PathBuf> {
        self.count(path.display())?;
        let place = self.place(path)?;
        ensure!(
            place != self.into,
            "{} is the root of the archive",
            path.display()
        );
        if let Some(parent) = place.parent() {
            self.make(parent)?;
        }
        // Of two entries with the same name, the later one counts.
        match fs::remove_file(&place) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e).with_context(|| {
                format!("the earlier entry {} cannot be replaced", path.display())
            })?,
            Ok(()) | Err(_) => {}
        }
        self.links
            .remove(place.strip_prefix(self.into).unwrap_or(&place));
        Ok(place)
    }

    fn file(&mut self, path: &Path, executable: bool, from: &mut impl Read) -> anyhow::Result<()> {
        let place = self.fresh(path)?;
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&place)
            .context("cannot create a file")?;
        let copied = io::copy(&mut from.take(self.bytes_left.saturating_add(1)), &mut file)
            .with_context(|| format!("{} cannot be unpacked", path.display()))?;
        let left = self.bytes_left.checked_sub(copied);
        self.bytes_left =
            left.with_context(|| format!("{}: more bytes than allowed", path.display()))?;
        self.taken += copied;
        file.flush()?;
        file.set_permissions(fs::Permissions::from_mode(if executable {
            0o555
        } else {
            0o444
        }))?;
        Ok(())
    }

    /// Creates a link. Its target may first go up and then down, within the archive. The components
    /// on the way down are files of the archive, or links under the same rule.
    fn link(&mut self, path: &Path, target: &Path) -> anyhow::Result<()> {
        let out = || {
            format!(
                "the link {} to {} leads out of the archive",
                path.display(),
                target.display()
            )
        };
        let place = self.fresh(path)?;
        let inside = place.strip_prefix(self.into).unwrap_or(&place).to_owned();
        let (mut depth, mut down) = (inside.components().count().saturating_sub(1), false);
        for part in target.components() {
            match part {
                Component::Normal(_) => down = true,
                Component::CurDir => {}
                Component::ParentDir => {
                    ensure!(!down, out());
                    depth = depth.checked_sub(1).with_context(out)?;
                }
                Component::RootDir | Component::Prefix(_) => bail!(out()),
            }
        }
        ensure!(
            !target.as_os_str().is_empty(),
            "the link {} has no target",
            path.display()
        );
        symlink(target, &place)
            .with_context(|| format!("cannot make the link {}", path.display()))?;
        self.links.insert(inside);
        Ok(())
    }
}

fn long_text(entry: &mut impl Read) -> anyhow::Result<PathBuf> {
    let mut bytes = Vec::new();
    entry.take(LONGEST + 2).read_to_end(&mut bytes)?;
    let text = bytes.split(|b| *b == 0).next().unwrap_or_default();
    ensure!(
        text.len() as u64 <= LONGEST,
        "a name is longer than {LONGEST} bytes"
    );
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(text)))
}

/// `path` and `linkpath` of a pax header: lines of `LENGTH KEY=VALUE`.
fn extension(entry: &mut impl Read) -> anyhow::Result<(Option<PathBuf>, Option<PathBuf>)> {
    let mut bytes = Vec::new();
    entry.take(EXTENSION + 1).read_to_end(&mut bytes)?;
    ensure!(
        bytes.len() as u64 <= EXTENSION,
        "a header is longer than {EXTENSION} bytes"
    );
    let (mut path, mut link) = (None, None);
    let mut rest = bytes.as_slice();
    while let Some(space) = rest.iter().position(|b| *b == b' ') {
        let length = std::str::from_utf8(rest.get(..space).unwrap_or_default())
            .ok()
            .and_then(|t| t.parse::<usize>().ok());
        let Some((line, after)) = length
            .filter(|n| *n > space)
            .and_then(|n| rest.split_at_checked(n))
        else {
            break;
        };
        let pair = line
            .get(space + 1..line.len().saturating_sub(1))
            .unwrap_or_default();
        if let Some(at) = pair.iter().position(|b| *b == b'=') {
            let value = || {
                Some(PathBuf::from(std::ffi::OsStr::from_bytes(
                    pair.get(at + 1..).unwrap_or_default(),
                )))
            };
            match pair.get(..at) {
                Some(b"path") => path = value(),
                Some(b"linkpath") => link = value(),
                Some(_) | None => {}
            }
        }
        rest = after;
    }
    Ok((path, link))
}

#[cfg(test)]
mod tests;
