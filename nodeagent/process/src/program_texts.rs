//! Arguments and environment of a program as `execve` takes them, and the exec itself.
//!
//! The caller owns them. They exist before the start, so that the child allocates nothing.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Search path of a program whose environment has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A program with its arguments and environment, as NUL-terminated texts.
#[derive(Debug)]
pub struct ProgramTexts {
    /// Candidate paths of the program; the first executable one is used.
    programs: Vec<CString>,
    /// Arguments, the program's name first.
    argv: CStringArray,
    /// `NAME=value`.
    env: CStringArray,
}

/// A text that no program can get.
#[derive(Debug)]
pub struct InvalidText {
    /// The text.
    pub what: String,
    /// ENOENT for an empty program name, otherwise a NUL byte.
    pub source: io::Error,
}

/// Texts and the list of pointers to them in the kernel's form. The list ends in null.
#[derive(Debug)]
struct CStringArray {
    pointers: Vec<*const libc::c_char>,
    // `pointers` points into it. A CString does not move its bytes when it moves.
    texts: Vec<CString>,
}

impl CStringArray {
    fn new(texts: Vec<CString>) -> CStringArray {
        let pointers = texts
            .iter()
            .map(|t| t.as_ptr())
            .chain(std::iter::once(std::ptr::null()))
            .collect();
        CStringArray { pointers, texts }
    }
}

impl ProgramTexts {
    /// The program with its arguments, and the whole environment. A program without a slash is
    /// looked up in `PATH` of `env`.
    pub fn new<A: AsRef<OsStr>>(
        argv: impl IntoIterator<Item = A>,
        env: &[(OsString, OsString)],
    ) -> Result<ProgramTexts, InvalidText> {
        let mut argv = argv.into_iter();
        let program = argv.next();
        let program: &OsStr = program.as_ref().map(AsRef::as_ref).unwrap_or_default();
        if program.is_empty() {
            return Err(InvalidText {
                what: "an empty program name".into(),
                source: io::Error::from_raw_os_error(libc::ENOENT),
            });
        }
        let mut texts = vec![text(program)?];
        for arg in argv {
            texts.push(text(arg.as_ref())?);
        }
        let mut variables = Vec::with_capacity(env.len());
        for (name, value) in env {
            variables.push(text(&[name.as_os_str(), value].join(OsStr::new("=")))?);
        }
        let programs = if program.as_bytes().contains(&b'/') {
            vec![text(program)?]
        } else {
            let path = env.iter().rev().find(|(n, _)| n == "PATH");
            path.map_or(OsStr::new(DEFAULT_PATH), |(_, value)| value)
                .as_bytes()
                .split(|b| *b == b':')
                .filter(|dir| !dir.is_empty())
                .map(|dir| text(Path::new(OsStr::from_bytes(dir)).join(program).as_os_str()))
                .collect::<Result<_, _>>()?
        };
        Ok(ProgramTexts {
            programs,
            argv: CStringArray::new(texts),
            env: CStringArray::new(variables),
        })
    }

    /// The program's name, for messages.
    pub fn name(&self) -> String {
        let name = self.argv.texts.first();
        name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// Executes the first executable candidate. Returns only on failure, with the most informative
    /// errno. Only makes system calls.
    pub fn execute(&self) -> i32 {
        let mut answer = libc::ENOENT;
        for program in &self.programs {
            // SAFETY: the texts end in NUL and the lists in null; all outlive the call.
            let errno = unsafe {
                libc::syscall(
                    libc::SYS_execve,
                    program.as_ptr(),
                    self.argv.pointers.as_ptr(),
                    self.env.pointers.as_ptr(),
                );
                *libc::__errno_location()
            };
            match errno {
                libc::ENOENT | libc::ENOTDIR => {}
                // Continue like a shell, but remember that a file exists.
                libc::EACCES => answer = libc::EACCES,
                errno => return errno,
            }
        }
        answer
    }
}

fn text(text: &OsStr) -> Result<CString, InvalidText> {
    CString::new(text.as_bytes()).map_err(|e| InvalidText {
        what: format!("{text:?}"),
        source: e.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(program: &str, path: Option<&str>) -> Vec<String> {
        let env: Vec<_> = path
            .map(|path| ("PATH".into(), path.into()))
            .into_iter()
            .collect();
        let texts = ProgramTexts::new([program], &env).expect("texts");
        let text = |program: &CString| program.to_string_lossy().into_owned();
        texts.programs.iter().map(text).collect()
    }

    #[test]
    fn a_bare_name_is_looked_up_in_the_path() {
        assert_eq!(candidates("a", Some("/x::/y")), ["/x/a", "/y/a"]);
        assert_eq!(
            candidates("a", None),
            ["/usr/local/bin/a", "/usr/bin/a", "/bin/a"]
        );
        assert_eq!(candidates("./a", Some("/x")), ["./a"]);
    }

    #[test]
    fn the_most_informative_errno_is_returned() {
        let errno = |program: &str, path: &str| {
            let env = [("PATH".into(), path.into())];
            ProgramTexts::new([program], &env).expect("texts").execute()
        };
        assert_eq!(errno("no-such-program", "/usr/bin:/bin"), libc::ENOENT);
        assert_eq!(errno("passwd", "/etc:/nonexistent"), libc::EACCES);
    }

    #[test]
    fn texts_that_no_program_can_get_are_refused() {
        let refused = |argv: &[&str]| ProgramTexts::new(argv, &[]).expect_err("is refused");
        assert_eq!(refused(&[]).source.raw_os_error(), Some(libc::ENOENT));
        assert_eq!(refused(&["a", "b\0"]).what, r#""b\0""#);
    }
}
