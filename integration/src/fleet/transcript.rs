//! The transcript of a fleet: commands by host, their output, and the duration of each step.

use std::time::{Duration, Instant};

/// Whether a transcript prints commands while they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TranscriptOutput {
    /// Commands and their output go to standard output.
    Aloud,
    /// Only the table is used.
    Silent,
}

/// The transcript of one fleet, from boot to end.
#[derive(Debug)]
pub struct FleetTranscript {
    voice: TranscriptOutput,
    began: Instant,
    steps: Vec<(String, Duration)>,
}

impl FleetTranscript {
    /// An empty transcript.
    pub fn new(voice: TranscriptOutput) -> Self {
        FleetTranscript {
            voice,
            began: Instant::now(),
            steps: Vec::new(),
        }
    }

    /// Whether it prints.
    pub fn voice(&self) -> TranscriptOutput {
        self.voice
    }

    /// Runs a step and records its duration.
    pub fn step<T>(&mut self, what: &str, done: impl FnOnce(&mut FleetTranscript) -> T) -> T {
        self.say(&format!("\n== {what}"));
        let began = Instant::now();
        let result = done(self);
        self.steps.push((what.to_owned(), began.elapsed()));
        result
    }

    /// Prints a command and its output.
    pub fn command(&self, host: &str, mark: char, command: &str, printed: &str) {
        let command = command.trim().replace('\n', "\n> ");
        self.say(&format!("{host}{mark} {command}\n{}", printed.trim_end()));
    }

    /// Prints a line.
    #[allow(clippy::print_stdout)] // the transcript is for the user
    pub fn say(&self, text: &str) {
        if self.voice == TranscriptOutput::Aloud {
            println!("{}", text.trim_end());
        }
    }

    /// A table of the steps with their durations in seconds, and the total.
    pub fn table(&self) -> String {
        let line =
            |what: &str, time: Duration| format!("{what:<64} {:>6.1} s\n", time.as_secs_f64());
        let steps: String = self
            .steps
            .iter()
            .map(|(what, time)| line(what, *time))
            .collect();
        steps + &line("total", self.began.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_contains_every_step_and_the_total() {
        let mut book = FleetTranscript::new(TranscriptOutput::Silent);
        assert_eq!(book.step("one", |_| 1), 1);
        book.step("two", |_| ());
        let table = book.table();
        let words: Vec<&str> = table
            .lines()
            .filter_map(|l| l.split_whitespace().next())
            .collect();
        assert_eq!(words, ["one", "two", "total"]);
        assert!(table.lines().all(|l| l.ends_with(" s")), "{table}");
    }
}
