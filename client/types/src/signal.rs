//! Signals by name or by number.

use std::fmt;
use std::str::FromStr;

/// Names of the Linux signals on the supported processors, from number 1.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
/// The highest signal number of the kernel, real-time signals included.
const MAX_SIGNAL: u8 = 64;

/// A signal, written as its name (`SIGTERM`), or as its number if it has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(u8);

impl Signal {
    /// The signal that a process cannot catch.
    pub const KILL: Signal = Signal(9);

    /// The signal number.
    pub fn number(self) -> i32 {
        i32::from(self.0)
    }

    /// The name without `SIG`, as users type it; the number if the signal has no name.
    pub fn name(self) -> String {
        match usize::from(self.0)
            .checked_sub(1)
            .and_then(|place| NAMES.get(place))
        {
            Some(name) => (*name).to_owned(),
            None => self.0.to_string(),
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match usize::from(self.0)
            .checked_sub(1)
            .and_then(|place| NAMES.get(place))
        {
            Some(name) => f.pad(&format!("SIG{name}")),
            None => f.pad(&format!("signal {}", self.0)),
        }
    }
}

impl FromStr for Signal {
    type Err = String;
    /// Parses a name in any case, with or without `SIG`, or a number: `SIGUSR1`, `usr1`, `10`.
    fn from_str(text: &str) -> Result<Self, String> {
        let upper = text.trim().to_ascii_uppercase();
        let bare = upper
            .strip_prefix("SIGNAL ")
            .or_else(|| upper.strip_prefix("SIG"))
            .unwrap_or(&upper);
        let wrong = || {
            let near = crate::spelling::did_you_mean(bare, NAMES);
            format!(
                "{text:?} is no signal; write a name such as TERM or USR1, or 1 to {MAX_SIGNAL}{}",
                near.map(|n| format!("; {n}")).unwrap_or_default()
            )
        };
        if let Ok(number) = bare.parse::<u8>() {
            return if (1..=MAX_SIGNAL).contains(&number) {
                Ok(Signal(number))
            } else {
                Err(wrong())
            };
        }
        let place = NAMES
            .iter()
            .position(|name| *name == bare)
            .and_then(|place| u8::try_from(place + 1).ok());
        place.map(Signal).ok_or_else(wrong)
    }
}

crate::textual!(Signal);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_any_case_and_a_number_are_the_same_signal() {
        for text in ["TERM", "term", "SIGTERM", "sigterm", " 15 "] {
            assert_eq!(text.parse::<Signal>().expect(text).number(), 15, "{text}");
        }
        let named = |number: &str| number.parse::<Signal>().expect("a signal").to_string();
        assert_eq!(
            (named("9"), named("1"), named("31"), named("34")),
            (
                "SIGKILL".into(),
                "SIGHUP".into(),
                "SIGSYS".into(),
                "signal 34".into()
            )
        );
        for wrong in ["", "0", "65", "-9", "SIG", "TREM", "300"] {
            assert!(wrong.parse::<Signal>().is_err(), "{wrong}");
        }
        assert!(
            "TREM"
                .parse::<Signal>()
                .expect_err("no signal")
                .contains("TERM")
        );
    }

    #[test]
    fn signals_round_trip_as_text() {
        for number in 1..=MAX_SIGNAL {
            let text = serde_json::to_string(&Signal(number)).expect("writes");
            assert_eq!(
                serde_json::from_str::<Signal>(&text).expect("reads"),
                Signal(number),
                "{text}"
            );
        }
    }
}
