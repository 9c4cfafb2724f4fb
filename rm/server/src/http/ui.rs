//! Web page: a few files that are built into this program, the same for all users.
//!
//! The sources and their build instructions are in `rm/server/ui`. Cargo never builds them; the
//! built files are committed.

use std::io::Write as _;
use std::sync::LazyLock;

use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use headroom_wire::v1::error::ProblemDetails;

use super::answer::digest;
use super::describe::Missing;
use super::error::HandlerResult;

/// Content only from this server, scripts only from files, and no framing by other pages.
const POLICY: &str = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Script of the page.
pub(super) const SCRIPT: &str = include_str!("../../ui/dist/app.js");
/// Style sheet of the page.
pub(super) const STYLE: &str = include_str!("../../ui/dist/app.css");

/// One file of the page.
struct PageFile {
    name: &'static str,
    kind: &'static str,
    plain: &'static [u8],
    packed: Vec<u8>,
    tag: String,
}

static FILES: LazyLock<Vec<PageFile>> = LazyLock::new(|| {
    let file = |name, kind, plain: &'static [u8]| {
        let tag = format!("\"{:016x}\"", digest(plain));
        PageFile {
            name,
            kind,
            plain,
            packed: pack(plain).unwrap_or_default(),
            tag,
        }
    };
    vec![
        file(
            "index.html",
            "text/html; charset=utf-8",
            include_bytes!("../../ui/dist/index.html"),
        ),
        file(
            "app.js",
            "text/javascript; charset=utf-8",
            SCRIPT.as_bytes(),
        ),
        file("app.css", "text/css; charset=utf-8", STYLE.as_bytes()),
        file(
            "icon.svg",
            "image/svg+xml",
            include_bytes!("../../ui/dist/icon.svg"),
        ),
        file(
            "licenses.txt",
            "text/plain; charset=utf-8",
            include_bytes!("../../ui/dist/licenses.txt"),
        ),
    ]
});

fn pack(plain: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain)?;
    encoder.finish()
}

/// Redirects to the web page.
#[utoipa::path(get, path = "/", tag = "page", responses((status = 307, description = "Redirect to the web page.")))]
pub(crate) async fn root() -> Response {
    to("ui/")
}

/// Redirects to the web page.
#[utoipa::path(get, path = "/ui", tag = "page", responses((status = 307, description = "Redirect to the web page.")))]
pub(crate) async fn folder() -> Response {
    to("ui/")
}

/// Relative redirect, so that it is correct behind a proxy that serves this under another path.
fn to(place: &'static str) -> Response {
    (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, place)]).into_response()
}

/// Returns the web page.
#[utoipa::path(get, path = "/ui/", tag = "page", responses(
    (status = 200, body = String, content_type = "text/html"),
    (status = 304, description = "Unchanged: If-None-Match names the current version."),
))]
pub(crate) async fn index(headers: HeaderMap) -> HandlerResult<Response> {
    serve("index.html", &headers)
}

/// Returns a file of the web page.
#[utoipa::path(get, path = "/ui/{file}", tag = "page", params(("file" = String, Path)), responses(
    (status = 200, body = String, content_type = "text/plain"),
    (status = 304, description = "Unchanged: If-None-Match names the current version."),
    Missing,
))]
pub(crate) async fn file(Path(name): Path<String>, headers: HeaderMap) -> HandlerResult<Response> {
    serve(&name, &headers)
}

fn serve(name: &str, asked: &HeaderMap) -> HandlerResult<Response> {
    let Some(file) = FILES.iter().find(|f| f.name == name) else {
        return Err(
            ProblemDetails::not_found(format!("the page has no file {name:?}"))
                .hint("the page is at /ui/")
                .into(),
        );
    };
    let has = |name, text: &str| {
        let values = asked
            .get_all(name)
            .iter()
            .filter_map(|v: &HeaderValue| v.to_str().ok());
        values
            .flat_map(|v| v.split(','))
            .map(str::trim)
            .any(|v| v.split(';').next() == Some(text) || v.strip_prefix("W/") == Some(text))
    };
    let packed = has(header::ACCEPT_ENCODING, "gzip") && !file.packed.is_empty();
    let mut response = match (has(header::IF_NONE_MATCH, &file.tag), packed) {
        (true, _) => StatusCode::NOT_MODIFIED.into_response(),
        (false, true) => (
            [(header::CONTENT_ENCODING, "gzip")],
            Bytes::from_static(&file.packed),
        )
            .into_response(),
        (false, false) => Bytes::from_static(file.plain).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(
        header::ETAG,
        HeaderValue::from_str(&file.tag).unwrap_or(HeaderValue::from_static("\"0\"")),
    );
    let fixed = [
        (header::CONTENT_TYPE, file.kind),
        // The browser revalidates each time and receives 304 if the file is unchanged.
        (header::CACHE_CONTROL, "no-cache"),
        (header::VARY, "accept-encoding"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    fn asked(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).expect("a header"))])
    }

    #[test]
    fn a_current_etag_is_answered_with_304() {
        let first = serve("app.js", &HeaderMap::new()).expect("there");
        let tag = first.headers()[header::ETAG]
            .to_str()
            .expect("text")
            .to_owned();
        for known in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}")] {
            let again = serve("app.js", &asked(header::IF_NONE_MATCH, &known)).expect("there");
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{known}");
        }
        assert_eq!(
            serve("app.js", &asked(header::IF_NONE_MATCH, "\"0\""))
                .expect("there")
                .status(),
            StatusCode::OK
        );
    }

    #[test]
    fn packed_files_unpack_to_the_plain_files() {
        for file in FILES.iter() {
            let mut text = Vec::new();
            flate2::read::GzDecoder::new(file.packed.as_slice())
                .read_to_end(&mut text)
                .expect("reads");
            assert_eq!(text, file.plain, "{}", file.name);
        }
        let packed =
            serve("app.js", &asked(header::ACCEPT_ENCODING, "br, gzip;q=0.8")).expect("there");
        assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
    }

    #[test]
    fn the_page_has_no_inline_script_or_style() {
        let index = FILES
            .iter()
            .find(|f| f.name == "index.html")
            .expect("there");
        let text = String::from_utf8(index.plain.to_vec()).expect("text");
        assert!(text.contains("src=\"app.js\""), "{text}");
        assert!(
            !text.contains("<style") && !text.contains(" style=") && !text.contains("onload"),
            "{text}"
        );
        assert_eq!(text.matches("<script").count(), 1);
        assert!(serve("../Cargo.toml", &HeaderMap::new()).is_err());
    }
}
