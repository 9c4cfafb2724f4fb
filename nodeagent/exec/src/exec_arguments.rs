//! Arguments and environment of a program as `execve` takes them.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::error::{SpawnError, SpawnStep};

/// Search path of a program whose environment has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Arguments and environment of a program, as NUL-terminated texts. They exist before the start, so
/// that the child allocates nothing.
#[derive(Debug)]
pub struct ExecArguments {
    /// Candidate paths of the program; the first executable one is used.
    pub(crate) programs: Vec<CString>,
    /// Arguments, the program's name first.
    pub(crate) argv: CStringArray,
    /// `NAME=value`.
    pub(crate) env: CStringArray,
}

/// Texts and the list of pointers to them in the kernel's form. The list ends in null.
#[derive(Debug)]
pub(crate) struct CStringArray {
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
    pub(crate) fn as_ptr(&self) -> *const *const libc::c_char {
        self.pointers.as_ptr()
    }
}

impl ExecArguments {
    /// The program with its arguments, and the whole environment. A program without a slash is
    /// looked up in `PATH` of `env`.
    ///
    /// # Errors
    /// [`SpawnStep::Prepare`] if the program has no name, or a text contains NUL.
    pub fn new<A: AsRef<OsStr>>(
        argv: impl IntoIterator<Item = A>,
        env: &[(OsString, OsString)],
    ) -> Result<ExecArguments, SpawnError> {
        let mut argv = argv.into_iter();
        let program = argv.next();
        let program: &OsStr = program.as_ref().map(AsRef::as_ref).unwrap_or_default();
        let failed = |what: String, source: std::io::Error| SpawnError {
            step: SpawnStep::Prepare,
            program: program.display().to_string(),
            what,
            source,
        };
        if program.is_empty() {
            let source = std::io::Error::from_raw_os_error(libc::ENOENT);
            return Err(failed("an empty program name".into(), source));
        }
        let text =
            |t: &OsStr| CString::new(t.as_bytes()).map_err(|e| failed(format!("{t:?}"), e.into()));
        let mut texts = vec![text(program)?];
        for arg in argv {
            texts.push(text(arg.as_ref())?);
        }
        let mut variables = Vec::with_capacity(env.len());
        for (name, value) in env {
            let mut pair = name.clone();
            pair.push("=");
            pair.push(value);
            variables.push(text(&pair)?);
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
        Ok(ExecArguments {
            programs,
            argv: CStringArray::new(texts),
            env: CStringArray::new(variables),
        })
    }

    /// The program's name, for messages.
    pub(crate) fn program(&self) -> String {
        let name = self.argv.texts.first();
        name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }
}
