//! The task channel between masters and executors: lines of JSON, and the addresses that they
//! exchange.

use headroom_wire::v1::task::{
    FromExecutor, HelloPreamble, LineError, MAX_LINE_BYTES, ToExecutor, hello_token,
};

/// Each line is a message, a message to skip, or an error whose text is bounded.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    for line in text.lines().take(64) {
        one(line);
    }
}

fn one(line: &str) {
    let said = FromExecutor::read(line);
    check_error(&said, line);
    if let Ok(message) = &said {
        let written = serde_json::to_string(message).expect("writes");
        assert_eq!(FromExecutor::read(&written).as_ref(), Ok(message));
        assert!(written.len() <= 4096 + 200 * line.len() && line.len() <= MAX_LINE_BYTES);
    }
    let heard = ToExecutor::read(line);
    check_error(&heard, line);
    if let Ok(message) = &heard {
        let written = serde_json::to_string(message).expect("writes");
        assert_eq!(ToExecutor::read(&written).as_ref(), Ok(message));
    }
    if let Some(hello) = HelloPreamble::read(line) {
        assert!(
            hello.token.is_empty()
                || hello.token.len() < 8
                || !format!("{hello:?}").contains(&hello.token)
        );
        // The parser of whole lines also accepts a list as an object.
        let object = line.trim_start().starts_with('{');
        assert!(
            !object || hello_token(line.as_bytes()) == Some(hello.token),
            "the token is read before the end of the line"
        );
    } else {
        assert!(
            !matches!(said, Ok(FromExecutor::Hello { .. })),
            "a hello without a preamble"
        );
    }
}

fn check_error<T>(read: &Result<T, LineError>, line: &str) {
    if let Err(error) = read {
        let words = error.to_string();
        assert!(
            words.len() <= 4096 + 8 * line.len(),
            "{} bytes give an error of {} bytes",
            line.len(),
            words.len()
        );
    }
}
