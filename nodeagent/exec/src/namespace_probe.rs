//! Checks by a trial whether this process can create namespaces for a child.

use std::path::Path;

use crate::command::SpawnCommand;
use crate::error::SpawnStep;
use crate::exec_arguments::ExecArguments;
use crate::namespaces::{Namespaces, Privilege};
use crate::spawn::spawn;

/// Checks whether this process can create namespaces for a child. The error is the kernel's, with
/// the failed part.
pub fn probe_namespaces(privilege: Privilege) -> Result<(), String> {
    // The program does not exist, so the child ends after it entered its namespaces.
    let program = ["/dev/null/namespace-probe"];
    let namespaces = Some(Namespaces {
        privilege,
        shm: 1 << 20,
    });
    let arguments = ExecArguments::new(program, &[]).map_err(|error| error.to_string())?;
    match spawn(&SpawnCommand {
        namespaces,
        ..SpawnCommand::new(&arguments, Path::new("/"))
    }) {
        Err(e) if e.step == SpawnStep::Exec => Ok(()),
        Err(e) => Err(format!("{}: {}", e.what, e.source)),
        Ok(child) => {
            // Cannot happen: nothing below /dev/null can be executed.
            let _ = child.signal(libc::SIGKILL).and_then(|()| child.wait());
            Ok(())
        }
    }
}
