//! HTTP calls by route, method and status. All routes are known at start, so a call finds its
//! counters without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use axum::http::{Method, StatusCode};
use headroom_telemetry::histogram::SHORT;
use headroom_telemetry::names::{RM_HTTP_DURATION, RM_HTTP_INFLIGHT, RM_HTTP_REQUESTS};
use headroom_telemetry::{Histogram, MetricsPage};

/// Label of unknown routes.
const ELSEWHERE: &str = "other";
/// Label of all routes of the YARN interface.
const YARN: &str = "/ws/v1";
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "other"];
const CODES: [u16; 19] = [
    101, 200, 201, 202, 204, 304, 307, 400, 401, 403, 404, 409, 410, 413, 416, 422, 426, 429, 503,
];
/// Label of any other status.
const OTHER_CODE: u16 = 500;

/// Counters of all routes.
#[derive(Debug)]
pub(crate) struct HttpCallCounters {
    /// Sorted by route.
    routes: Vec<(String, RouteCounters)>,
    elsewhere: RouteCounters,
    underway: Arc<AtomicI64>,
}

#[derive(Debug)]
struct RouteCounters {
    /// By method and status.
    answers: Vec<AtomicU64>,
    times: Histogram,
}

impl RouteCounters {
    fn new() -> Self {
        let answers = (0..METHODS.len() * (CODES.len() + 1))
            .map(|_| AtomicU64::new(0))
            .collect();
        RouteCounters {
            answers,
            times: Histogram::new(SHORT),
        }
    }
}

/// A call in progress; counted as such until it is dropped.
#[derive(Debug)]
pub(crate) struct CallInProgress {
    began: Instant,
    underway: Arc<AtomicI64>,
}

impl Drop for CallInProgress {
    fn drop(&mut self) {
        self.underway.fetch_sub(1, Ordering::Relaxed);
    }
}

impl HttpCallCounters {
    pub(crate) fn new(mut routes: Vec<String>) -> Self {
        routes.push(YARN.to_owned());
        routes.sort_unstable();
        routes.dedup();
        let routes = routes
            .into_iter()
            .map(|route| (route, RouteCounters::new()))
            .collect();
        HttpCallCounters {
            routes,
            elsewhere: RouteCounters::new(),
            underway: Arc::default(),
        }
    }

    /// Counts the start of a call.
    pub(crate) fn begin(&self) -> CallInProgress {
        self.underway.fetch_add(1, Ordering::Relaxed);
        CallInProgress {
            began: Instant::now(),
            underway: self.underway.clone(),
        }
    }

    /// Counts the end of a call. `route` is the path of the router.
    pub(crate) fn end(
        &self,
        call: &CallInProgress,
        route: Option<&str>,
        method: &Method,
        status: StatusCode,
    ) {
        let route = self.route(route);
        route.times.observe(call.began.elapsed().as_secs_f64());
        let method = METHODS
            .iter()
            .position(|m| *m == method.as_str())
            .unwrap_or(METHODS.len() - 1);
        let code = CODES
            .iter()
            .position(|c| *c == status.as_u16())
            .unwrap_or(CODES.len());
        if let Some(count) = route.answers.get(method * (CODES.len() + 1) + code) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn route(&self, route: Option<&str>) -> &RouteCounters {
        let Some(route) = route else {
            return &self.elsewhere;
        };
        let known = if route.starts_with(YARN) { YARN } else { route };
        let found = self
            .routes
            .binary_search_by(|(name, _)| name.as_str().cmp(known));
        found
            .ok()
            .and_then(|place| self.routes.get(place))
            .map_or(&self.elsewhere, |(_, route)| route)
    }

    /// Adds the metrics to the page.
    pub(crate) fn put(&self, page: &mut MetricsPage) {
        page.number(&RM_HTTP_INFLIGHT, &[], {
            let underway = self.underway.load(Ordering::Relaxed).max(0);
            f64::from(u32::try_from(underway).unwrap_or(u32::MAX))
        });
        let all = self
            .routes
            .iter()
            .map(|(name, route)| (name.as_str(), route));
        for (name, route) in all.chain([(ELSEWHERE, &self.elsewhere)]) {
            if route.answers.iter().all(|n| n.load(Ordering::Relaxed) == 0) {
                continue;
            }
            page.spread(&RM_HTTP_DURATION, &[name], &route.times);
            for (place, count) in route.answers.iter().enumerate() {
                let (method, code) = (place / (CODES.len() + 1), place % (CODES.len() + 1));
                let count = count.load(Ordering::Relaxed);
                if let (1.., Some(method)) = (count, METHODS.get(method)) {
                    let code = CODES.get(code).copied().unwrap_or(OTHER_CODE);
                    page.count(&RM_HTTP_REQUESTS, &[name, method, &code.to_string()], count);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_telemetry::ExpositionFormat;

    #[test]
    fn a_call_is_counted_by_its_route() {
        let calls =
            HttpCallCounters::new(vec!["/v1/nodes/{node}".to_owned(), "/v1/apps".to_owned()]);
        let one = calls.begin();
        calls.end(&one, Some("/v1/apps"), &Method::POST, StatusCode::CONFLICT);
        calls.end(
            &one,
            Some("/ws/v1/cluster/info"),
            &Method::GET,
            StatusCode::OK,
        );
        calls.end(
            &one,
            Some("/nowhere"),
            &Method::HEAD,
            StatusCode::BAD_GATEWAY,
        );
        let mut page = MetricsPage::new();
        calls.put(&mut page);
        drop(one);
        let text = page.write(ExpositionFormat::Text);
        for line in [
            "headroom_rm_http_requests_total{route=\"/v1/apps\",method=\"POST\",code=\"409\"} 1",
            "headroom_rm_http_requests_total{route=\"/ws/v1\",method=\"GET\",code=\"200\"} 1",
            "headroom_rm_http_requests_total{route=\"other\",method=\"other\",code=\"500\"} 1",
            "headroom_rm_http_inflight 1",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert_eq!(calls.underway.load(Ordering::Relaxed), 0);
    }
}
