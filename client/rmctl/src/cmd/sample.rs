//! `rmctl sample`: programs that tasks can run, so that a demonstration needs no other software.

use crate::args::SampleProgram;
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::groupby;

/// Runs one of them in this thread.
pub(crate) fn run(program: SampleProgram, context: &CommandContext) -> CommandResult {
    match program {
        SampleProgram::GroupBy {
            input,
            output,
            key,
            value,
        } => {
            let done = groupby::group_file(&input, &output, &key, &value)
                .map_err(|e| CommandFailure::failed(e.to_string()))?;
            context.term.line(&crate::render::json::line(&done));
            Ok(CommandExitCode::Ok)
        }
        #[cfg(feature = "dev")]
        SampleProgram::Skewed {
            dir,
            share,
            partitions,
        } => {
            use crate::demo::data::{DataSetParams, prepare};
            let wanted = DataSetParams {
                input: None,
                key: None,
                value: None,
                partitions,
                share: Some(share),
                dir,
            };
            let data = prepare(&wanted, &context.term)
                .map_err(|e| CommandFailure::failed(e.to_string()))?;
            data.parts
                .iter()
                .for_each(|p| context.term.line(&p.path.display().to_string()));
            Ok(CommandExitCode::Ok)
        }
    }
}
