//! Output on standard output and standard error, with or without colour. A closed pipe is not a
//! failure.

use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::args::ColorMode;
use crate::exit::{CommandExitCode, CommandFailure};
use crate::render::TextPainter;

/// Whether a verb reacts to the loss of standard output itself.
static OUTLIVES_OUTPUT: AtomicBool = AtomicBool::new(false);
static OUTPUT_LOST: Notify = Notify::const_new();
static LOST_OUTPUT: OnceLock<OutputLoss> = OnceLock::new();

/// Why standard output takes no more data.
#[derive(Clone, Debug)]
pub(crate) enum OutputLoss {
    /// The reader has closed the pipe.
    Closed,
    /// A write failed, for example because the disk is full.
    Failed(CommandFailure),
}

impl OutputLoss {
    fn of(error: &std::io::Error) -> Self {
        if error.kind() == ErrorKind::BrokenPipe {
            return OutputLoss::Closed;
        }
        OutputLoss::Failed(CommandFailure::failed(format!(
            "standard output cannot be written: {error}"
        )))
    }
}

/// Waits for the loss of standard output. From the first poll on, it no longer ends the process.
pub(crate) async fn output_lost() -> OutputLoss {
    OUTLIVES_OUTPUT.store(true, Ordering::Relaxed);
    loop {
        if let Some(lost) = lost_output() {
            return lost;
        }
        OUTPUT_LOST.notified().await;
    }
}

/// The loss of standard output, if it has happened.
pub(crate) fn lost_output() -> Option<OutputLoss> {
    LOST_OUTPUT.get().cloned()
}

/// The streams for data and messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TerminalOutput {
    /// Colour of standard output.
    pub(crate) paint: TextPainter,
    /// Colour of standard error.
    pub(crate) talk: TextPainter,
    /// Standard error is a terminal, so progress lines can be drawn.
    pub(crate) live: bool,
    /// Columns of the terminal; 100 without a terminal.
    pub(crate) width: usize,
    /// Standard output is a terminal, so a screen can be redrawn.
    pub(crate) screen: bool,
    /// Data is not printed, because the requests are printed instead.
    quiet: bool,
    /// Data goes to standard error, because it is the standard error of a program.
    aside: bool,
}

impl TerminalOutput {
    /// Checks the two streams.
    pub(crate) fn new(color: ColorMode) -> Self {
        let wanted = |terminal: bool| match color {
            ColorMode::Always => true,
            ColorMode::Never => false,
            ColorMode::Auto => automatic(terminal, set("NO_COLOR"), set("CLICOLOR_FORCE")),
        };
        let (out, err) = (
            std::io::stdout().is_terminal(),
            std::io::stderr().is_terminal(),
        );
        let width = std::env::var("COLUMNS")
            .ok()
            .and_then(|c| c.parse().ok())
            .unwrap_or(100)
            .clamp(60, 200);
        TerminalOutput {
            paint: TextPainter::new(wanted(out)),
            talk: TextPainter::new(wanted(err)),
            live: err,
            width,
            screen: out,
            quiet: false,
            aside: false,
        }
    }

    /// A terminal that prints no data.
    pub(crate) fn silent(self) -> Self {
        TerminalOutput {
            quiet: true,
            ..self
        }
    }

    /// A terminal that prints data to standard error.
    pub(crate) fn aside(self) -> Self {
        TerminalOutput {
            aside: true,
            ..self
        }
    }

    /// A terminal that prints data.
    pub(crate) fn aloud(self) -> Self {
        TerminalOutput {
            quiet: false,
            ..self
        }
    }

    /// Prints data. If that fails, the process ends: without an error if the reader has closed the
    /// pipe, as `head` does. See also [`output_lost`].
    pub(crate) fn print(&self, text: &str) {
        self.print_bytes(text.as_bytes());
    }

    /// Prints bytes as they are.
    pub(crate) fn print_bytes(&self, bytes: &[u8]) {
        if self.quiet {
            return;
        }
        if self.aside {
            // There is no other output for this failure.
            let _ = std::io::stderr().lock().write_all(bytes);
            return;
        }
        self.bytes(bytes);
    }

    /// Prints bytes of data unchanged, also for a quiet terminal.
    pub(crate) fn bytes(&self, bytes: &[u8]) {
        let mut out = std::io::stdout().lock();
        let written = out.write_all(bytes).and_then(|()| out.flush());
        drop(out);
        if let Err(error) = written {
            self.lose_output(&error);
        }
    }

    fn lose_output(&self, error: &std::io::Error) {
        // Only the first failure counts.
        let _ = LOST_OUTPUT.set(OutputLoss::of(error));
        if OUTLIVES_OUTPUT.load(Ordering::Relaxed) {
            return OUTPUT_LOST.notify_one();
        }
        match OutputLoss::of(error) {
            OutputLoss::Closed => std::process::exit(0),
            OutputLoss::Failed(failure) => {
                self.complain(&failure);
                std::process::exit(CommandExitCode::Failed as i32)
            }
        }
    }

    /// Redraws the screen.
    pub(crate) fn redraw(&self, text: &str) {
        let lines: String = text
            .lines()
            .map(|line| format!("{line}\u{1b}[K\n"))
            .collect();
        self.print(&format!("\u{1b}[H{lines}\u{1b}[J"));
    }

    /// Prints one line of data.
    pub(crate) fn line(&self, text: &str) {
        self.print(&format!("{text}\n"));
    }

    /// Prints one message. There is no other output for a failure.
    pub(crate) fn say(&self, text: &str) {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// Asks the user for confirmation. Returns true without a terminal.
    pub(crate) fn confirm(&self, what: &str) -> bool {
        if !self.live || !std::io::stdin().is_terminal() {
            return true;
        }
        // There is no other output for this failure.
        let _ = write!(std::io::stderr().lock(), "{what}\nContinue? [y/N] ");
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
    }

    /// Prints a failure.
    pub(crate) fn complain(&self, failure: &CommandFailure) {
        let text = failure.to_string();
        match text.split_once(": ") {
            Some((head, rest)) if head.starts_with("error") => {
                self.say(&format!("{}: {rest}", self.talk.bad(head)))
            }
            Some(_) | None => self.say(&text),
        }
    }
}

/// True if a variable is set and is neither empty nor 0.
fn set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|v| !v.is_empty() && v != "0")
}

/// Whether to use colour without an argument.
fn automatic(terminal: bool, never: bool, force: bool) -> bool {
    !never && (terminal || force)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_for_terminals_unless_a_variable_overrides() {
        assert!(automatic(true, false, false) && !automatic(false, false, false));
        assert!(automatic(false, false, true) && !automatic(true, true, true));
    }
}
