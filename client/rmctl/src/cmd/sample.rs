//! `rmctl sample`: programs that tasks can run, so that a demonstration needs no other software.

use crate::args::Sample;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::groupby;

/// Runs one of them in this thread.
pub(crate) fn run(program: Sample, context: &Context) -> Result<Exit, Failure> {
    match program {
        Sample::GroupBy {
            input,
            output,
            key,
            value,
        } => {
            let done = groupby::group_file(&input, &output, &key, &value)
                .map_err(|e| Failure::new(Exit::Failed, e.to_string()))?;
            context.term.line(&crate::render::json::line(&done));
            Ok(Exit::Ok)
        }
        #[cfg(feature = "dev")]
        Sample::Skewed {
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
                .map_err(|e| Failure::new(Exit::Failed, e.to_string()))?;
            data.parts
                .iter()
                .for_each(|p| context.term.line(&p.path.display().to_string()));
            Ok(Exit::Ok)
        }
    }
}
