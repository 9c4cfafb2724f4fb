//! Log lines for the systemd journal, with their fields as journal fields and a `MESSAGE_ID` for
//! the most important lines.
//!
//! Owned by the log of a daemon whose standard error is the journal. The writer sends one datagram
//! per line in the journal's native protocol. Lines that it cannot deliver go to standard error,
//! which the journal stores without the fields.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// The socket of the systemd journal.
const PLACE: &str = "/run/systemd/journal/socket";
/// Longest text of a line that is too large for one datagram. Bytes.
const MOST: usize = 16 * 1024;

macro_rules! messages {
    ($($key:literal $id:literal $by:literal $when:literal)*) => {
        /// Log lines with a `MESSAGE_ID`. An identity must never be reused for another meaning.
        pub const MESSAGES: &[CatalogMessage] = &[$(CatalogMessage { key: $key, id: $id, by: $by, when: $when }),*];
    };
}

/// A log line with an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogMessage {
    /// The name of the tracing event: the reason of the line, or another name.
    pub key: &'static str,
    /// The `MESSAGE_ID`: 128 random bits.
    pub id: &'static str,
    /// The daemon that logs the line.
    pub by: &'static str,
    /// The condition under which the daemon logs it.
    pub when: &'static str,
}

messages! {
    "ResourceManagerStarted" "56f60373462e4cd19b6cbb33e2dee1e6" "resourcemanager" "An epoch of the resource manager begins."
    "manager-ready" "6776b204068242e9b74510d3e29dfcb1" "resourcemanager" "The resource manager is ready."
    "agent-ready" "b0c0c9a288444916816e938e77ae683d" "nodeagent" "The agent is ready and searches its resource manager."
    "OomKilled" "00079c9f83134ca2a732514ce25b9302" "resourcemanager" "A container, or a task in one, ended for a memory failure of its own."
    "container-killed" "c68f05c37ac14980920cbfa1e641867e" "nodeagent" "A container of this host ended for a memory failure of its own."
    "NodeOom" "ead1f75117ee4f2b90cf26047b22a23c" "resourcemanager" "A container was killed because its whole host ran out of memory."
    "NodeLost" "20b694f0a8de4251a772172f276a04d7" "resourcemanager" "A node sent no heartbeat for too long: its containers are lost."
    "node-unhealthy" "d5c8a7b5112a46ab9f5fcd925285de00" "nodeagent" "This host takes no work until its problem is solved."
    "self-fenced" "4536c89a9f0549509c38d07635e42f96" "nodeagent" "The resource manager did not answer in time; all containers are ended."
    "call-refused" "5a7363997ebc49ccb9d7dcae519e08d2" "resourcemanager" "A caller without the permission made a call."
    "ConfigReloaded" "1cefa89efa434d2db34a21f0970047c9" "both" "A changed configuration was applied."
    "ConfigRefused" "4087a15068f94224a0c0d19e5972a014" "both" "A changed configuration has errors and was not applied."
}

/// The `MESSAGE_ID` of a line, by the name of its tracing event.
fn identity(name: &str) -> Option<&'static str> {
    MESSAGES.iter().find(|m| m.key == name).map(|m| m.id)
}

/// Writes lines to the journal.
#[derive(Debug)]
pub struct SystemdJournal {
    socket: UnixDatagram,
    place: PathBuf,
    program: &'static str,
}

impl SystemdJournal {
    /// The journal, if standard error leads there: `JOURNAL_STREAM` contains the device and inode
    /// of standard error.
    pub fn behind_stderr(program: &'static str) -> Option<Self> {
        let stream = std::env::var("JOURNAL_STREAM").ok()?;
        let file = std::fs::metadata("/proc/self/fd/2").ok()?;
        let meant = stream == format!("{}:{}", file.dev(), file.ino());
        meant
            .then(|| SystemdJournal::at(PLACE.into(), program).ok())
            .flatten()
    }

    fn at(place: PathBuf, program: &'static str) -> io::Result<Self> {
        Ok(SystemdJournal {
            socket: UnixDatagram::unbound()?,
            place,
            program,
        })
    }

    fn send(&self, metadata: &Metadata<'_>, line: &JournaldEntry) -> io::Result<()> {
        let deliver = |line: &JournaldEntry| {
            self.socket
                .send_to(&datagram(metadata, self.program, line), &self.place)
                .map(drop)
        };
        deliver(line).or_else(|error| {
            let text = line.text();
            if text.len() <= MOST {
                return Err(error);
            }
            deliver(&JournaldEntry {
                sentence: beginning(&text).to_owned(),
                ..JournaldEntry::default()
            })
        })
    }
}

impl<S: Subscriber> Layer<S> for SystemdJournal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = JournaldEntry::default();
        event.record(&mut line);
        if self.send(event.metadata(), &line).is_err() {
            // There is no other output left if this write fails.
            let _ = writeln!(io::stderr(), "{}", line.text());
        }
    }
}

/// One log line.
#[derive(Debug, Default)]
struct JournaldEntry {
    sentence: String,
    fields: Vec<(&'static str, String)>,
}

impl JournaldEntry {
    /// The sentence, followed by its fields.
    fn text(&self) -> String {
        let mut text = self.sentence.clone();
        for (name, value) in &self.fields {
            let gap = if text.is_empty() { "" } else { " " };
            // Writing to a `String` cannot fail.
            let _ = write!(text, "{gap}{name}={value}");
        }
        text
    }

    fn put(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.sentence = value,
            name => self.fields.push((name, value)),
        }
    }
}

impl Visit for JournaldEntry {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let chain =
            std::iter::successors(Some(value), |error| error.source()).map(ToString::to_string);
        self.put(field, chain.collect::<Vec<_>>().join(": "));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

fn datagram(metadata: &Metadata<'_>, program: &str, line: &JournaldEntry) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    put(&mut bytes, "MESSAGE", &line.text());
    put(&mut bytes, "PRIORITY", priority(metadata.level()));
    put(&mut bytes, "SYSLOG_IDENTIFIER", program);
    if let Some(id) = identity(metadata.name()) {
        put(&mut bytes, "MESSAGE_ID", id);
    }
    if let (Some(file), Some(number)) = (metadata.file(), metadata.line()) {
        put(&mut bytes, "CODE_FILE", file);
        put(&mut bytes, "CODE_LINE", &number.to_string());
    }
    put(&mut bytes, "HEADROOM_TARGET", metadata.target());
    for (name, value) in &line.fields {
        put(&mut bytes, &field_name(name), value);
    }
    bytes
}

/// A value with a line break is preceded by its length.
fn put(bytes: &mut Vec<u8>, name: &str, value: &str) {
    bytes.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        bytes.push(b'\n');
        bytes.extend_from_slice(&u64::try_from(value.len()).unwrap_or(u64::MAX).to_le_bytes());
    } else {
        bytes.push(b'=');
    }
    bytes.extend_from_slice(value.as_bytes());
    bytes.push(b'\n');
}

/// `container_id` becomes `HEADROOM_CONTAINER_ID`. The journal accepts capitals, digits and
/// underscores, at most 64 characters.
fn field_name(name: &str) -> String {
    let plain = name.chars().map(|c| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    });
    "HEADROOM_".chars().chain(plain).take(64).collect()
}

fn priority(level: &Level) -> &'static str {
    match *level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    }
}

/// The longest prefix of a text within [`MOST`] bytes.
fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;
    use tracing_subscriber::layer::SubscriberExt as _;

    /// Parses the fields of a datagram as systemd does.
    fn read(mut bytes: &[u8]) -> BTreeMap<String, String> {
        let mut fields = BTreeMap::new();
        while !bytes.is_empty() {
            let end = bytes
                .iter()
                .position(|b| matches!(b, b'=' | b'\n'))
                .expect("a name");
            let name = String::from_utf8(bytes[..end].to_vec()).expect("UTF-8");
            let rest = &bytes[end + 1..];
            let (value, after) = if bytes[end] == b'=' {
                let end = rest.iter().position(|b| *b == b'\n').expect("an end");
                (&rest[..end], &rest[end + 1..])
            } else {
                let length = u64::from_le_bytes(rest[..8].try_into().expect("eight bytes"));
                let end = 8 + usize::try_from(length).expect("fits");
                assert_eq!(rest[end], b'\n');
                (&rest[8..end], &rest[end + 1..])
            };
            fields.insert(name, String::from_utf8(value.to_vec()).expect("UTF-8"));
            bytes = after;
        }
        fields
    }

    /// The fields that arrive for the lines that `say` logs.
    fn logged_fields(say: impl FnOnce()) -> BTreeMap<String, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let place = dir.path().join("journal");
        let systemd = UnixDatagram::bind(&place).expect("binds");
        systemd
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("sets");
        let journal = SystemdJournal::at(place, "headroom-test").expect("a socket");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(journal), say);
        let mut bytes = vec![0; 1 << 20];
        let length = systemd.recv(&mut bytes).expect("arrives");
        read(&bytes[..length])
    }

    #[test]
    fn fields_are_sent_separately_and_in_the_line() {
        let fields = logged_fields(
            || tracing::warn!(node = "n1", container_id = %7, peak = ?Some(3), "the container\nended"),
        );
        assert_eq!(
            fields["MESSAGE"],
            "the container\nended node=n1 container_id=7 peak=Some(3)"
        );
        assert_eq!(
            (
                fields["HEADROOM_NODE"].as_str(),
                fields["HEADROOM_CONTAINER_ID"].as_str()
            ),
            ("n1", "7")
        );
        assert_eq!(
            (
                fields["PRIORITY"].as_str(),
                fields["SYSLOG_IDENTIFIER"].as_str()
            ),
            ("4", "headroom-test")
        );
        assert!(
            fields["CODE_FILE"].ends_with("journal.rs") && !fields.contains_key("MESSAGE_ID"),
            "{fields:?}"
        );
    }

    #[test]
    fn important_lines_have_a_message_id() {
        let lost = logged_fields(
            || tracing::warn!(name: "NodeLost", object = "node/n1", "NodeLost: no heartbeat"),
        );
        assert_eq!(lost["MESSAGE_ID"], "20b694f0a8de4251a772172f276a04d7");
        let text = logged_fields(|| tracing::warn!("NodeLost: no heartbeat"));
        assert!(!text.contains_key("MESSAGE_ID"), "the text has no effect");
        let ready =
            logged_fields(|| tracing::info!(name: "agent-ready", url = "http://n1", "ready"));
        assert_eq!(ready["MESSAGE_ID"], "b0c0c9a288444916816e938e77ae683d");
    }

    #[test]
    fn causes_of_an_error_are_sent() {
        let cause = io::Error::other("no room");
        let error = io::Error::other(cause);
        let fields = logged_fields(|| {
            tracing::error!(error = &error as &dyn std::error::Error, "not written")
        });
        assert!(
            fields["HEADROOM_ERROR"].contains("no room") && fields["PRIORITY"] == "3",
            "{fields:?}"
        );
    }

    #[test]
    fn the_beginning_of_a_too_long_line_is_sent() {
        let long = "ä".repeat(4 << 20);
        let fields = logged_fields(|| tracing::info!(reason = long, "a call came"));
        assert!(
            fields["MESSAGE"].starts_with("a call came reason=ää")
                && fields["MESSAGE"].len() <= MOST
        );
    }

    #[test]
    fn message_ids_are_distinct_and_well_formed() {
        let hex = |id: &str| {
            id.len() == 32
                && id
                    .chars()
                    .all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))
        };
        assert!(MESSAGES.iter().all(|m| hex(m.id) && m.when.ends_with('.')));
        let (keys, ids): (BTreeSet<_>, BTreeSet<_>) =
            MESSAGES.iter().map(|m| (m.key, m.id)).unzip();
        assert_eq!((keys.len(), ids.len()), (MESSAGES.len(), MESSAGES.len()));
    }

    #[test]
    fn a_terminal_does_not_use_the_journal() {
        assert!(
            SystemdJournal::behind_stderr("headroom-test").is_none(),
            "tests do not run as a service"
        );
    }
}
