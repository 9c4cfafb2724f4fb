//! Waiting requests of one application: its master, or requests by priority and arrival.
//!
//! Requests without placement rules that have the same priority and size share one line, so that a
//! size that does not fit is tried only once.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use headroom_types::{Bytes, Cpus, RequestId, Resource};

use super::sibling_order::SizeClass;
use crate::table::RowPosition;

/// Whether a request can share a line with others of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineSharing {
    /// Any node is suitable.
    Anywhere,
    /// It has placement rules.
    Somewhere,
}

/// Position of a request: priority, then arrival.
type RequestPosition = (Reverse<i32>, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RequestLineKey {
    priority: Reverse<i32>,
    memory: Bytes,
    cpus: Cpus,
    /// Arrival of a request that does not share its line.
    alone: Option<u64>,
}

/// A request in its line.
#[derive(Clone, Debug)]
struct WaitingRequest {
    /// Row in the table of the application's requests.
    row: RowPosition,
    id: RequestId,
}

#[derive(Clone, Debug, Default)]
struct RequestLine {
    /// Requests by arrival.
    requests: BTreeMap<u64, WaitingRequest>,
    failed: u64,
}

/// Largest number of lines that are merged for a list; with more lines, the requests are sorted.
const MERGED: usize = 8;

/// Waiting requests of one application.
#[derive(Clone, Debug, Default)]
pub struct WaitingRequests {
    master: Option<(SizeClass, u64)>,
    lines: BTreeMap<RequestLineKey, RequestLine>,
    heads: BTreeMap<RequestPosition, RequestLineKey>,
    /// Arrival and line of each waiting request, by its row in the table of the application's
    /// requests.
    of: Vec<Option<(u64, RequestLineKey)>>,
    /// Number of waiting requests.
    count: usize,
}

/// A line of an application during a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLineHead {
    /// Row of the first request of the line; `None` for the master.
    pub request: Option<RowPosition>,
    /// Position after which the iteration continues.
    pub at: Option<(i32, u64)>,
}

impl WaitingRequests {
    /// Adds the master.
    pub fn put_master(&mut self, size: &Resource) {
        self.master = Some((
            if size.extra.is_empty() {
                SizeClass::of(size)
            } else {
                SizeClass::ANY
            },
            0,
        ));
    }
    /// Adds a request, by its row in the table of the application's requests.
    pub fn put(
        &mut self,
        (row, request): (RowPosition, &RequestId),
        size: &Resource,
        priority: i32,
        arrival: u64,
        whereto: LineSharing,
    ) {
        let alone = match whereto {
            LineSharing::Anywhere if size.extra.is_empty() => None,
            LineSharing::Anywhere | LineSharing::Somewhere => Some(arrival),
        };
        let key = RequestLineKey {
            priority: Reverse(priority),
            memory: size.memory,
            cpus: size.cpus,
            alone,
        };
        if self.place_of(row) == Some((arrival, key)) {
            if let Some(line) = self.lines.get_mut(&key) {
                line.failed = 0;
            }
            return;
        }
        self.remove(Some(row));
        let line = self.lines.entry(key).or_default();
        let head = line.requests.first_key_value().map(|(arrival, _)| *arrival);
        let id = request.clone();
        line.requests.insert(arrival, WaitingRequest { row, id });
        line.failed = 0;
        if head.is_none_or(|head| arrival < head) {
            if let Some(head) = head {
                self.heads.remove(&(key.priority, head));
            }
            self.heads.insert((key.priority, arrival), key);
        }
        if self.of.len() <= row.index() {
            self.of.resize(row.index() + 1, None);
        }
        if let Some(place) = self.of.get_mut(row.index()) {
            *place = Some((arrival, key));
            self.count += 1;
        }
    }
    /// Removes a waiter: a request by its row, or the master.
    pub fn remove(&mut self, request: Option<RowPosition>) {
        let Some(row) = request else {
            self.master = None;
            return;
        };
        let Some((arrival, key)) = self.of.get_mut(row.index()).and_then(Option::take) else {
            return;
        };
        self.count -= 1;
        let Some(line) = self.lines.get_mut(&key) else {
            return;
        };
        let first = line.requests.first_key_value().map(|(arrival, _)| *arrival);
        line.requests.remove(&arrival);
        if first == Some(arrival) {
            self.heads.remove(&(key.priority, arrival));
            match line.requests.first_key_value() {
                Some((next, _)) => drop(self.heads.insert((key.priority, *next), key)),
                None => drop(self.lines.remove(&key)),
            }
        }
    }
    /// Arrival and line of a request that waits.
    fn place_of(&self, row: RowPosition) -> Option<(u64, RequestLineKey)> {
        *self.of.get(row.index())?
    }
    /// True when the waiter waits: a request by its row, or the master.
    pub fn contains(&self, request: Option<RowPosition>) -> bool {
        request.map_or(self.master.is_some(), |row| self.place_of(row).is_some())
    }
    /// Number of waiters.
    pub fn len(&self) -> usize {
        self.count + usize::from(self.master.is_some())
    }
    /// True when there are no waiters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Minimum class of all waiters. `None` without waiters.
    pub fn least(&self) -> Option<SizeClass> {
        let class = |key: &RequestLineKey| match key.alone {
            None => SizeClass::of(&Resource::new(key.memory, key.cpus)),
            Some(_) => SizeClass::ANY,
        };
        let lines = self.lines.keys().map(class);
        lines
            .chain(self.master.map(|(class, _)| class))
            .reduce(SizeClass::least)
    }
    /// First line after `after` that has not failed in this round.
    pub fn next(&self, after: Option<&RequestLineHead>, round: u64) -> Option<RequestLineHead> {
        if after.is_none()
            && let Some((_, failed)) = self.master
            && failed != round
        {
            return Some(RequestLineHead {
                request: None,
                at: None,
            });
        }
        let from = after
            .and_then(|head| head.at)
            .map_or(std::ops::Bound::Unbounded, |(priority, arrival)| {
                std::ops::Bound::Excluded((Reverse(priority), arrival))
            });
        let lines = self
            .heads
            .range((from, std::ops::Bound::Unbounded))
            .filter_map(|(at, key)| Some((at, self.lines.get(key)?)));
        let (at, line) = lines.into_iter().find(|(_, line)| line.failed != round)?;
        Some(RequestLineHead {
            request: line.requests.get(&at.1).map(|waiting| waiting.row),
            at: Some((at.0.0, at.1)),
        })
    }
    /// Rows of all requests of a line, in order.
    pub fn line(&self, head: &RequestLineHead) -> impl Iterator<Item = RowPosition> {
        let at = head
            .at
            .map(|(priority, arrival)| (Reverse(priority), arrival));
        let line = at.and_then(|at| self.lines.get(self.heads.get(&at)?));
        let waiting = line.into_iter().flat_map(|line| line.requests.values());
        waiting.map(|waiting| waiting.row)
    }
    /// Marks a line as failed in this round.
    pub fn fail(&mut self, head: &RequestLineHead, round: u64) {
        match head.at {
            None => {
                if let Some((_, failed)) = &mut self.master {
                    *failed = round;
                }
            }
            Some((priority, arrival)) => {
                let key = self.heads.get(&(Reverse(priority), arrival)).copied();
                if let Some(line) = key.and_then(|key| self.lines.get_mut(&key)) {
                    line.failed = round;
                }
            }
        }
    }
    /// All waiters in scheduling order.
    pub fn all(&self) -> Vec<Option<&RequestId>> {
        let mut all = Vec::with_capacity(self.len());
        all.extend(self.master.map(|_| None));
        if self.lines.len() <= MERGED {
            self.merge(&mut all);
            return all;
        }
        let lines = self.lines.iter();
        let mut requests: Vec<(RequestPosition, &RequestId)> = lines
            .flat_map(|(key, line)| {
                let waiting = line.requests.iter();
                waiting.map(|(arrival, waiting)| ((key.priority, *arrival), &waiting.id))
            })
            .collect();
        requests.sort_unstable_by_key(|(at, _)| *at);
        all.extend(requests.into_iter().map(|(_, request)| Some(request)));
        all
    }
    /// Merges a few lines, each of which is sorted.
    fn merge<'a>(&'a self, all: &mut Vec<Option<&'a RequestId>>) {
        let begin = |(key, line): (&RequestLineKey, &'a RequestLine)| {
            let mut rest = line.requests.iter();
            rest.next()
                .map(|(arrival, waiting)| ((key.priority, *arrival), &waiting.id, rest))
        };
        let mut lines: Vec<_> = self.lines.iter().filter_map(begin).collect();
        while let Some((at, (first, ..))) = lines
            .iter()
            .enumerate()
            .min_by_key(|(_, (first, ..))| *first)
        {
            let priority = first.0;
            let (first, request, rest) = &mut lines[at];
            all.push(Some(*request));
            match rest.next() {
                Some((arrival, next)) => (*first, *request) = ((priority, *arrival), &next.id),
                None => drop(lines.swap_remove(at)),
            }
        }
    }
    /// Number of waiters that precede this request.
    pub fn ahead(&self, request: RowPosition) -> usize {
        let Some((arrival, key)) = self.place_of(request) else {
            return 0;
        };
        let at = (key.priority, arrival);
        let waiting = self.of.iter().flatten();
        let before = waiting
            .filter(|(arrival, key)| (key.priority, *arrival) < at)
            .count();
        before + usize::from(self.master.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> RequestId {
        text.parse().expect("id")
    }
    fn size(gib: u64) -> Resource {
        Resource::new(Bytes::from_gib(gib), Cpus::from_cores(1))
    }
    /// Row of the request with this letter.
    fn row(text: &str) -> RowPosition {
        let letter = text.bytes().next().expect("a letter");
        RowPosition::new(u32::from(letter - b'a'))
    }
    fn put(waits: &mut WaitingRequests, text: &str, gib: u64, at: (i32, u64), way: LineSharing) {
        waits.put((row(text), &id(text)), &size(gib), at.0, at.1, way);
    }
    fn walk(waits: &WaitingRequests, round: u64) -> Vec<String> {
        let mut seen = Vec::new();
        let mut at = None;
        while let Some(head) = waits.next(at.as_ref(), round) {
            let letter = |row: RowPosition| {
                let letter = char::from_digit(10 + row.number(), 36);
                letter.expect("a letter").to_string()
            };
            seen.push(head.request.map_or("master".to_owned(), letter));
            at = Some(head);
        }
        seen
    }

    #[test]
    fn requests_are_tried_by_priority_and_arrival_and_fail_once_per_group() {
        let mut waits = WaitingRequests::default();
        put(&mut waits, "a", 1, (0, 1), LineSharing::Anywhere);
        put(&mut waits, "b", 2, (0, 2), LineSharing::Anywhere);
        put(&mut waits, "c", 1, (0, 3), LineSharing::Anywhere);
        put(&mut waits, "d", 4, (7, 4), LineSharing::Somewhere);
        assert_eq!(walk(&waits, 1), ["d", "a", "b"], "c waits behind a");
        assert_eq!(waits.all().len(), 4);
        assert_eq!(
            (waits.ahead(row("c")), waits.least()),
            (3, Some(SizeClass::ANY)),
            "d may fit on some node"
        );
        waits.fail(
            &RequestLineHead {
                request: Some(row("a")),
                at: Some((0, 1)),
            },
            1,
        );
        assert_eq!(walk(&waits, 1), ["d", "b"]);
        assert_eq!(
            walk(&waits, 2),
            ["d", "a", "b"],
            "a failure holds for one pass"
        );
        put(&mut waits, "d", 4, (7, 4), LineSharing::Anywhere);
        waits.remove(Some(row("a")));
        assert_eq!(walk(&waits, 2), ["d", "b", "c"], "and b came before c");
        waits.put_master(&size(1));
        assert_eq!(walk(&waits, 2)[0], "master");
        for request in ["b", "c", "d"] {
            waits.remove(Some(row(request)));
        }
        waits.remove(None);
        assert!(waits.is_empty() && waits.heads.is_empty() && waits.lines.is_empty());
    }
}
