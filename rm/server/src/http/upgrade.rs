//! Change of the protocol of a connection, as a caller asks for it with `Connection: Upgrade`.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

/// Whether the headers ask for this protocol.
pub(super) fn is_asked_for(headers: &HeaderMap, protocol: &str) -> bool {
    let names = |name: HeaderName, wanted: &str| {
        let values = headers.get_all(name);
        let mut words = values
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        words.any(|word| word.trim().eq_ignore_ascii_case(wanted))
    };
    names(header::CONNECTION, "upgrade") && names(header::UPGRADE, protocol)
}

/// The response after which the connection has this protocol.
pub(super) fn switching_to(protocol: &'static str) -> Response {
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(protocol));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOL: &str = "headroom-submission/1";

    fn asks(pairs: &[(HeaderName, &'static str)]) -> bool {
        let headers = pairs
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .collect();
        is_asked_for(&headers, PROTOCOL)
    }

    #[test]
    fn both_headers_ask_for_the_protocol() {
        let connection = |value| (header::CONNECTION, value);
        let upgrade = |value| (header::UPGRADE, value);
        assert!(asks(&[connection("Upgrade"), upgrade(PROTOCOL)]));
        assert!(asks(&[
            connection("keep-alive, upgrade"),
            upgrade("other/2, Headroom-Submission/1")
        ]));
        assert!(!asks(&[connection("Upgrade")]));
        assert!(!asks(&[upgrade(PROTOCOL)]));
        assert!(!asks(&[connection("Upgrade"), upgrade("websocket")]));
        assert!(!asks(&[
            connection("Upgrade"),
            upgrade("headroom-submission/2")
        ]));
    }
}
