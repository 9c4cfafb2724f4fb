//! Ctrl-C and SIGTERM for verbs that must clean up, and Ctrl-C alone for verbs that wait in a loop:
//! the first signal requests the end, the second one ends the process at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
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
        Interrupt::with(Some(handler(SignalKind::terminate())?))
    }

    /// Installs a handler for Ctrl-C. SIGTERM ends the process as usual.
    pub(crate) fn ctrl_c() -> CommandResult<Interrupt> {
        Interrupt::with(None)
    }

    fn with(mut terminate: Option<Signal>) -> CommandResult<Interrupt> {
        let mut interrupt = handler(SignalKind::interrupt())?;
        let (sender, asked) = watch::channel(false);
        tokio::spawn(async move {
            loop {
                let terminated = async {
                    match &mut terminate {
                        Some(signal) => signal.recv().await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminated => {}
                }
                if sender.send_replace(true) {
                    std::process::exit(INTERRUPTED);
                }
            }
        });
        Ok(Interrupt { asked })
    }

    /// Returns when a signal has arrived, also one that arrived before the call.
    pub(crate) async fn asked(&self) {
        let mut asked = self.asked.clone();
        // The sender lives as long as the runtime.
        let _ = asked.wait_for(|asked| *asked).await;
    }
}

fn handler(kind: SignalKind) -> CommandResult<Signal> {
    signal(kind)
        .map_err(|e| CommandFailure::failed(format!("the signal handler cannot be installed: {e}")))
}
