//! What was done on which host, what it printed, and how long it took.

use std::time::{Duration, Instant};

/// Whether what is done is shown while it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voice {
    /// Commands and what they print go to standard output.
    Aloud,
    /// Only the table is asked for.
    Silent,
}

/// The record of one life of a fleet.
#[derive(Debug)]
pub struct Book {
    voice: Voice,
    began: Instant,
    steps: Vec<(String, Duration)>,
}

impl Book {
    /// One with nothing in it.
    pub fn new(voice: Voice) -> Self {
        Book { voice, began: Instant::now(), steps: Vec::new() }
    }

    /// Whether it is shown.
    pub fn voice(&self) -> Voice {
        self.voice
    }

    /// Does something and writes down how long it took.
    pub fn step<T>(&mut self, what: &str, done: impl FnOnce(&mut Book) -> T) -> T {
        self.say(&format!("\n== {what}"));
        let began = Instant::now();
        let result = done(self);
        self.steps.push((what.to_owned(), began.elapsed()));
        result
    }

    /// Shows a command and what it printed.
    pub fn command(&self, host: &str, mark: char, command: &str, printed: &str) {
        let command = command.trim().replace('\n', "\n> ");
        self.say(&format!("{host}{mark} {command}\n{}", printed.trim_end()));
    }

    /// Shows a line.
    #[allow(clippy::print_stdout)] // the transcript is what somebody reads
    pub fn say(&self, text: &str) {
        if self.voice == Voice::Aloud {
            println!("{}", text.trim_end());
        }
    }

    /// Steps and seconds, and the whole.
    pub fn table(&self) -> String {
        let line = |what: &str, time: Duration| format!("{what:<64} {:>6.1} s\n", time.as_secs_f64());
        let steps: String = self.steps.iter().map(|(what, time)| line(what, *time)).collect();
        steps + &line("all of it", self.began.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_in_the_table_and_the_whole_is_no_less_than_the_steps() {
        let mut book = Book::new(Voice::Silent);
        assert_eq!(book.step("one", |_| 1), 1);
        book.step("two", |_| ());
        let table = book.table();
        let words: Vec<&str> = table.lines().filter_map(|l| l.split_whitespace().next()).collect();
        assert_eq!(words, ["one", "two", "all"]);
        assert!(table.lines().all(|l| l.ends_with(" s")), "{table}");
    }
}
