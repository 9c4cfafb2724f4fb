//! Arguments and environment of a program, with errors of its start.

use std::ffi::{OsStr, OsString};

use headroom_node_process::program_texts::{InvalidText, ProgramTexts};

use crate::error::{SpawnError, SpawnStep};

/// Arguments and environment of a program, as NUL-terminated texts.
#[derive(Debug)]
pub struct ExecArguments(pub(crate) ProgramTexts);

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
        let mut argv = argv.into_iter().peekable();
        let program = argv.peek().map(|program| program.as_ref().to_owned());
        ProgramTexts::new(argv, env)
            .map(ExecArguments)
            .map_err(|InvalidText { what, source }| SpawnError {
                step: SpawnStep::Prepare,
                program: program.unwrap_or_default().display().to_string(),
                what,
                source,
            })
    }
}
