//! The progress line that is redrawn while a job runs, on a terminal only. Other lines are printed
//! above it.

use headroom_wire::v1::job::JobTotals;
use indicatif::{ProgressBar, ProgressStyle};

use crate::term::TerminalOutput;

/// A progress line; empty if standard error is not a terminal.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    bar: Option<ProgressBar>,
}

impl ProgressLine {
    /// A line that counts tasks.
    pub(crate) fn tasks(term: &TerminalOutput) -> Self {
        ProgressLine::new(term, "{spinner} {bar:24} {pos}/{len} {msg}")
    }
    /// A line that counts ended containers on a node.
    pub(crate) fn containers(term: &TerminalOutput, node: &str) -> Self {
        let template = "{spinner} {bar:24} {msg}: {pos} of {len} containers have ended, {elapsed}";
        ProgressLine::new(term, template).named(node)
    }
    /// A line that counts bytes.
    pub(crate) fn bytes(term: &TerminalOutput, what: &str) -> Self {
        let template = "{spinner} {bar:24} {msg} {binary_bytes} of {binary_total_bytes}";
        ProgressLine::new(term, template).named(what)
    }
    /// A line that counts other objects.
    #[cfg(feature = "dev")]
    pub(crate) fn keys(term: &TerminalOutput, what: &str) -> Self {
        ProgressLine::new(term, "{spinner} {bar:24} {msg} {percent}%").named(what)
    }

    fn named(self, name: &str) -> Self {
        if let Some(bar) = &self.bar {
            bar.set_message(name.to_owned());
        }
        self
    }

    fn new(term: &TerminalOutput, template: &str) -> Self {
        let style = ProgressStyle::with_template(template)
            .ok()
            .filter(|_| term.live);
        let bar = style.map(|style| {
            let bar = ProgressBar::new(0);
            bar.set_style(style.progress_chars("█▒·"));
            bar
        });
        ProgressLine { bar }
    }

    /// Shows the number of tasks by state.
    pub(crate) fn show(&self, t: &JobTotals) {
        let Some(bar) = &self.bar else { return };
        let waiting = t.tasks.saturating_sub(t.done + t.failed + t.running);
        bar.set_length(u64::from(t.tasks));
        bar.set_position(u64::from(t.done));
        bar.set_message(format!(
            "✓ {} done  ▶ {} running  … {waiting} waiting  ✗ {} kills, {} failed",
            t.done, t.running, t.memory_kills, t.failed
        ));
        bar.tick();
    }

    /// Shows the position.
    pub(crate) fn at(&self, position: u64, length: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(length);
            bar.set_position(position);
            bar.tick();
        }
    }

    /// Prints text above the line.
    pub(crate) fn above(&self, print: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
