//! Ctrl-C and SIGTERM for verbs that have something to clean up: the first one is an order to end, the second one ends at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::exit::{Exit, Failure};

/// Exit code of a process that was interrupted, as shells have it.
const INTERRUPTED: i32 = 130;

/// Whether an end was asked for. Listens from its making on, so that nothing can be left behind.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    asked: watch::Receiver<bool>,
}

impl Interrupt {
    /// Takes both signals over.
    pub(crate) fn listen() -> Result<Interrupt, Failure> {
        let deaf = |e: std::io::Error| Failure::new(Exit::Failed, format!("signals cannot be heard: {e}"));
        let mut interrupt = signal(SignalKind::interrupt()).map_err(deaf)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(deaf)?;
        let (tell, asked) = watch::channel(false);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if tell.send_replace(true) {
                    std::process::exit(INTERRUPTED);
                }
            }
        });
        Ok(Interrupt { asked })
    }

    /// Returns once an end was asked for.
    pub(crate) async fn asked(&self) {
        let mut asked = self.asked.clone();
        // The sender lives as long as the runtime.
        let _ = asked.wait_for(|asked| *asked).await;
    }
}
