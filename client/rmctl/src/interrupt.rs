//! Ctrl-C and SIGTERM for verbs that must clean up: the first signal requests the end, the second
//! one ends the process at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::exit::{CommandFailure, CommandResult};

/// Exit code of an interrupted process, as in shells.
const INTERRUPTED: i32 = 130;

/// The signal handler. It listens from its creation on, so that no early signal is lost.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    asked: watch::Receiver<bool>,
}

impl Interrupt {
    /// Installs handlers for both signals.
    pub(crate) fn listen() -> CommandResult<Interrupt> {
        let deaf = |e: std::io::Error| {
            CommandFailure::failed(format!("the signal handler cannot be installed: {e}"))
        };
        let mut interrupt = signal(SignalKind::interrupt()).map_err(deaf)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(deaf)?;
        let (sender, asked) = watch::channel(false);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if sender.send_replace(true) {
                    std::process::exit(INTERRUPTED);
                }
            }
        });
        Ok(Interrupt { asked })
    }

    /// Returns when a signal has arrived.
    pub(crate) async fn asked(&self) {
        let mut asked = self.asked.clone();
        // The sender lives as long as the runtime.
        let _ = asked.wait_for(|asked| *asked).await;
    }
}
