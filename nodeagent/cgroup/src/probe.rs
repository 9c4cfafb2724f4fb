//! The open files of a group that are read four times per second.
//!
//! The sampler of a container owns it. Opening a kernel file costs several times more than reading
//! it, so the files stay open. Nothing is allocated except a buffer that grows once. After the
//! removal of the group, each read is an error.
//!
//! The expensive file is `memory.stat`, which the kernel sums over all processors. While the use is
//! unchanged and far from the limit, a few reads reuse its last values. An idle program then costs
//! one number per read. Close to the limit everything is read, because there the use is constant
//! while its kinds change.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use headroom_types::Bytes;
use headroom_types::exit::MemoryStat;

use crate::error::{CgroupError, Result};
use crate::parse;

/// Buffer size for the longest text: `memory.stat` of a recent kernel has two thousand bytes. In
/// bytes.
const ROOM: usize = 8 * 1024;

/// Maximum number of consecutive reads that reuse the last kinds.
const SAME: u32 = 15;
/// Share of the limit above which everything is read each time. In percent.
const FAR: u64 = 75;

/// Open files of one group. A process tree has none; `EnforcedGroup::sample` measures it.
#[derive(Debug)]
pub struct UsageProbe {
    usage: ProbedFile,
    stat: ProbedFile,
    /// v1: the kernel memory, and the kills in `main`.
    v1: Option<(Option<ProbedFile>, ProbedFile)>,
    /// The last complete read, and the number of reads that reused it.
    last: Option<(UsageSample, u32)>,
}

/// The buffer that all probes of one round share.
#[derive(Debug)]
pub struct ReadBuffer(Vec<u8>);

impl Default for ReadBuffer {
    fn default() -> Self {
        ReadBuffer(vec![0; ROOM])
    }
}

/// The result of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageSample {
    /// Memory in use.
    pub current: Bytes,
    /// Memory by kind.
    pub stat: MemoryStat,
    /// v1: processes of `main` that the kernel killed. On v2 it is always 0, because the kernel
    /// kills the whole group.
    pub kills: u64,
}

impl UsageProbe {
    /// Opens the files of a v2 group.
    pub(crate) fn v2(dir: &Path, usage: &str, stat: &str) -> Result<UsageProbe> {
        Ok(UsageProbe {
            usage: ProbedFile::at(dir.join(usage))?,
            stat: ProbedFile::at(dir.join(stat))?,
            v1: None,
            last: None,
        })
    }

    /// Opens the files of a v1 group. `kernel` may be missing; `kills` lies in `main`.
    pub(crate) fn v1(
        dir: &Path,
        usage: &str,
        stat: &str,
        kernel: &str,
        kills: PathBuf,
    ) -> Result<UsageProbe> {
        let v1 = Some((
            ProbedFile::at(dir.join(kernel)).ok(),
            ProbedFile::at(kills)?,
        ));
        Ok(UsageProbe {
            usage: ProbedFile::at(dir.join(usage))?,
            stat: ProbedFile::at(dir.join(stat))?,
            v1,
            last: None,
        })
    }

    /// Reads the files now. `limit` is the limit of the group.
    pub fn look(&mut self, limit: Bytes, room: &mut ReadBuffer) -> Result<UsageSample> {
        let current = self.usage.number(room)?;
        if let Some((look, times)) = &mut self.last
            && look.current == current
            && *times < SAME
            && current < limit.mul_ratio(FAR, 100)
        {
            *times += 1;
            return Ok(*look);
        }
        let look = self.look_at_all(current, room)?;
        self.last = Some((look, 0));
        Ok(look)
    }

    fn look_at_all(&self, current: Bytes, room: &mut ReadBuffer) -> Result<UsageSample> {
        let Some((kernel, kills)) = &self.v1 else {
            let stat = parse::stat_v2(self.stat.text(room)?);
            return Ok(UsageSample {
                current,
                stat,
                kills: 0,
            });
        };
        let kernel = kernel.as_ref().and_then(|file| file.number(room).ok());
        let kills = parse::keyed(kills.text(room)?, "oom_kill").unwrap_or(0);
        let stat = parse::stat_v1(self.stat.text(room)?, kernel);
        Ok(UsageSample {
            current,
            stat,
            kills,
        })
    }
}

#[derive(Debug)]
struct ProbedFile {
    file: File,
    path: PathBuf,
}

impl ProbedFile {
    fn at(path: PathBuf) -> Result<ProbedFile> {
        match File::open(&path) {
            Ok(file) => Ok(ProbedFile { file, path }),
            Err(source) => Err(CgroupError::Read {
                path,
                hint: "; the group is gone, or has no such file",
                source,
            }),
        }
    }

    fn text<'r>(&self, room: &'r mut ReadBuffer) -> Result<&'r str> {
        let read = self.file.read_at(&mut room.0, 0);
        let length = read.map_err(|source| CgroupError::Read {
            path: self.path.clone(),
            hint: "; the group is gone",
            source,
        })?;
        let bytes = room.0.get(..length).unwrap_or_default();
        std::str::from_utf8(bytes)
            .map_err(|_| CgroupError::parse(&self.path, "bytes that are not UTF-8"))
    }

    fn number(&self, room: &mut ReadBuffer) -> Result<Bytes> {
        let text = self.text(room)?;
        parse::number(text)
            .map(Bytes::new)
            .ok_or_else(|| CgroupError::parse(&self.path, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("main")).expect("main");
        files
            .iter()
            .for_each(|(name, text)| std::fs::write(dir.path().join(name), text).expect("writes"));
        dir
    }

    #[test]
    fn each_read_of_the_open_files_returns_the_current_values() {
        let dir = group(&[
            ("usage", "4096\n"),
            ("stat", "total_rss 4000\ntotal_cache 96\n"),
            ("main/oom", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"),
        ]);
        let mut probe = UsageProbe::v1(
            dir.path(),
            "usage",
            "stat",
            "kernel",
            dir.path().join("main/oom"),
        )
        .expect("opens");
        let (mut room, limit) = (ReadBuffer::default(), Bytes::from_kib(12));
        let look = probe.look(limit, &mut room).expect("looks");
        assert_eq!(
            (look.current, look.stat.anon, look.stat.kernel, look.kills),
            (Bytes::new(4096), Some(Bytes::new(4000)), None, 0)
        );
        std::fs::write(dir.path().join("usage"), "8192\n").expect("writes");
        std::fs::write(
            dir.path().join("main/oom"),
            "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        )
        .expect("writes");
        let look = probe.look(limit, &mut room).expect("looks");
        assert_eq!((look.current, look.kills), (Bytes::new(8192), 2));
    }

    #[test]
    fn kinds_are_read_again_after_a_change_near_the_limit_and_periodically() {
        let dir = group(&[("usage", "4096\n"), ("stat", "anon 4000\n")]);
        let mut probe = UsageProbe::v2(dir.path(), "usage", "stat").expect("opens");
        let mut room = ReadBuffer::default();
        let mut anon = |limit| {
            probe
                .look(limit, &mut room)
                .expect("looks")
                .stat
                .anon
                .map(Bytes::get)
        };
        let (far, near) = (Bytes::from_mib(1), Bytes::from_kib(5));
        assert_eq!(anon(far), Some(4000));
        std::fs::write(dir.path().join("stat"), "anon 1\n").expect("writes");
        assert_eq!(
            anon(far),
            Some(4000),
            "far from the limit, an unchanged use is not read again"
        );
        assert_eq!(
            anon(near),
            Some(1),
            "near the limit, kinds are always read again"
        );
        std::fs::write(dir.path().join("stat"), "anon 2\n").expect("writes");
        assert!(
            (0..=SAME).any(|_| anon(far) == Some(2)),
            "kinds are read again after SAME reads"
        );
        std::fs::write(dir.path().join("stat"), "anon 3\n").expect("writes");
        std::fs::write(dir.path().join("usage"), "8192\n").expect("writes");
        assert_eq!(anon(far), Some(3));
    }

    #[test]
    fn an_error_names_a_missing_or_unparsable_file() {
        let dir = group(&[("usage", "many\n"), ("stat", "anon 1\n")]);
        let error = UsageProbe::v2(dir.path(), "other", "stat").expect_err("is not there");
        assert!(error.to_string().contains("other"), "{error}");
        let mut probe = UsageProbe::v2(dir.path(), "usage", "stat").expect("opens");
        assert!(
            probe
                .look(Bytes::from_mib(1), &mut ReadBuffer::default())
                .expect_err("no number")
                .to_string()
                .contains("usage")
        );
    }
}
