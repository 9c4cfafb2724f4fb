//! Job report: one self-contained HTML file with the page and the current state of its topics.
//!
//! The script is that of the web page. It reads the state from the file instead of a stream.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use headroom_types::AppId;
use headroom_wire::v1::error::ProblemDetails;
use serde_json::json;

use super::describe::{Bad, Missing};
use super::error::HandlerResult;
use super::parse::PathId;
use super::ui;
use super::web::WebHandlerState;
use crate::eventlog;
use crate::topics::log::{EventTopicFilter, EventTopicReader};
use crate::topics::{TopicState, job};

/// The file runs its own script and loads nothing.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; \
                      form-action 'none'";

/// Returns a job as one HTML file: tasks, ladders, timelines, verdicts with evidence, and events.
///
/// It contains all attempts of tasks that needed more than their first size, failed or ran again,
/// at most 200 tasks. Other tasks are only cells of the grid.
#[utoipa::path(get, path = "/v1/apps/{app}/report", tag = "applications", params(("app" = AppId, Path)), responses(
    (status = 200, body = String, content_type = "text/html"), Bad, Missing,
))]
pub(crate) async fn report(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
) -> HandlerResult<Response> {
    let mut kept = None;
    let Some(board) = job::job(&web.reader, &app, &mut kept).await? else {
        return Err(ProblemDetails::not_found(format!("there is no application {app}")).into());
    };
    let mut boards = vec![(format!("job:{app}"), board)];
    for task in job::chosen_tasks(&web.reader, &app, &mut kept).await {
        if let Some(board) = job::task(&web.reader, &app, &task, &mut kept).await? {
            boards.push((format!("task:{app}/{task}"), board));
        }
    }
    let own = eventlog::EventFilter {
        app: Some(app.clone()),
        ..eventlog::EventFilter::default()
    };
    web.reader.shared.events.restored().await;
    let events = EventTopicReader::new(
        EventTopicFilter {
            log: own,
            find: None,
        },
        None,
    )
    .look(&web.reader.shared.events);
    let topics: serde_json::Map<String, serde_json::Value> = boards
        .into_iter()
        .map(|(topic, board)| (topic, whole(board)))
        .collect();
    let made = web.reader.clock.unix_now();
    let report = json!({"job": app, "made": made, "boards": topics, "events": events});
    let mut response = Response::new(Body::from(file(&app, &report.to_string())));
    let headers = response.headers_mut();
    let name = format!("attachment; filename=\"{app}.html\"");
    for (header, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (
            header::CONTENT_SECURITY_POLICY,
            &format!("sandbox allow-scripts; {POLICY}"),
        ),
        (header::CONTENT_DISPOSITION, &name),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(
            header,
            HeaderValue::from_str(value).unwrap_or(HeaderValue::from_static("")),
        );
    }
    Ok(response)
}

fn whole(board: TopicState) -> serde_json::Value {
    board.into_iter().collect::<serde_json::Map<_, _>>().into()
}

/// Frame, style, data and script, in this order: the data precedes the script that reads it.
fn file(app: &AppId, report: &str) -> String {
    // Escaped so that no data can close the script element.
    let report = report.replace('<', "\\u003c");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n<title>{app} · Headroom</title>\n\
         <style>{}</style>\n</head>\n<body>\n<div id=\"app\"><noscript>This report needs JavaScript.</noscript></div>\n\
         <script type=\"application/json\" id=\"report\">{report}</script>\n<script>{}</script>\n</body>\n</html>\n",
        ui::STYLE,
        ui::SCRIPT
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_data_cannot_leave_its_script_element() {
        let report = json!({"message": "</script><script>alert(1)</script><!--"}).to_string();
        let text = file(&"sort.3".parse().expect("id"), &report);
        assert_eq!(
            text.matches("<script").count(),
            2,
            "the data and the script of the page"
        );
        assert_eq!(text.matches("</script>").count(), 2);
        assert!(!text.contains("<!--"));
        let data = text
            .split("id=\"report\">")
            .nth(1)
            .and_then(|t| t.split("</script>").next())
            .expect("there");
        let read: serde_json::Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(read["message"], "</script><script>alert(1)</script><!--");
    }

    #[test]
    fn the_script_and_the_style_can_be_embedded_in_a_page() {
        assert!(
            !ui::SCRIPT.contains("</script") && !ui::SCRIPT.contains("<!--"),
            "the script would end early"
        );
        assert!(!ui::STYLE.contains("</style"), "the style would end early");
    }
}
