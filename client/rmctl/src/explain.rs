//! Explanations of words, generated from their declarations, so that only existing words are
//! explained. Pure.

use headroom_config::job::keys;
use headroom_types::{ExitCharge, ExitReason, Reason};
use headroom_wire::v1::error::ErrorCode;
use serde::Serialize;
use serde_json::Value;

use crate::exit::CommandExitCode;

/// The description of the interface, of this version.
const INTERFACE: &str = include_str!("../../../docs/openapi.json");
/// The reference configurations of the daemons, with a comment for each key.
const FILES: [(&str, &str); 2] = [
    (
        "resourcemanager.toml",
        include_str!("../../../config/resourcemanager.toml"),
    ),
    (
        "nodeagent.toml",
        include_str!("../../../config/nodeagent.toml"),
    ),
];

/// The explanation of one word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct WordExplanation {
    /// The word.
    pub(crate) word: String,
    /// Kind of the word.
    pub(crate) kind: &'static str,
    /// Its meaning, in one sentence.
    pub(crate) means: String,
    /// Further lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) more: Vec<String>,
    /// The command to type next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) see: Option<String>,
}

impl WordExplanation {
    fn new(word: impl Into<String>, kind: &'static str, means: impl Into<String>) -> Self {
        WordExplanation {
            word: word.into(),
            kind,
            means: means.into(),
            more: Vec::new(),
            see: None,
        }
    }
    /// True for fields, keys, objects and events, of which there are hundreds.
    pub(crate) fn is_detail(&self) -> bool {
        matches!(self.kind, FIELD | KEY | OBJECT | EVENT | JOB_KEY)
    }
}

const FIELD: &str = "field";
const OBJECT: &str = "object";
const KEY: &str = "key";
const JOB_KEY: &str = "key of a job file";
const EVENT: &str = "event";

/// The explanations of all words.
pub(crate) fn entries() -> Vec<WordExplanation> {
    let mut all: Vec<WordExplanation> = ErrorCode::ALL.iter().map(|code| of_code(*code)).collect();
    all.extend(REASONS.iter().map(of_reason));
    all.extend(EXITS.iter().map(|exit| of_exit(*exit)));
    all.extend(Reason::ALL.iter().map(|reason| of_event(*reason)));
    all.extend(keys::keys().iter().map(of_job_key));
    all.extend(fields(INTERFACE));
    all.extend(FILES.iter().flat_map(|(file, text)| keys(file, text)));
    all
}

/// The entries of a word: exact matches, else entries whose last part matches.
pub(crate) fn find(all: &[WordExplanation], word: &str) -> Vec<WordExplanation> {
    let exact: Vec<WordExplanation> = all
        .iter()
        .filter(|e| e.word.eq_ignore_ascii_case(word))
        .cloned()
        .collect();
    if !exact.is_empty() {
        return exact;
    }
    let ends = |e: &&WordExplanation| {
        let (long, short) = (e.word.to_ascii_lowercase(), word.to_ascii_lowercase());
        long.strip_suffix(&short)
            .is_some_and(|before| before.ends_with('.'))
    };
    all.iter().filter(ends).cloned().collect()
}

fn of_code(code: ErrorCode) -> WordExplanation {
    let explained = code.explanation();
    let mut entry = WordExplanation::new(
        code.to_string(),
        "error code",
        format!("{}. {}", explained.title, explained.cause),
    );
    entry.more.extend(
        explained
            .remedies
            .iter()
            .map(|remedy| format!("→ {remedy}")),
    );
    let again = if explained.retryable {
        "the same call may succeed later"
    } else {
        "the same call will not succeed later"
    };
    entry.more.push(format!(
        "HTTP status {}; {again}; rmctl ends with {}.",
        explained.status,
        crate::exit::exit_of(code) as u8
    ));
    entry
}

fn of_event(reason: Reason) -> WordExplanation {
    let mut entry = WordExplanation::new(reason.as_str(), EVENT, reason.when());
    entry.more.push(format!(
        "About a {}; {}.",
        reason.topic().as_str(),
        reason.weight().as_str()
    ));
    entry.see = Some(format!("rmctl events --reason {reason}"));
    entry
}

/// Explains a key of the job file with type, unit and default.
fn of_job_key(key: &keys::JobFileKey) -> WordExplanation {
    let mut entry = WordExplanation::new(key.path(), JOB_KEY, key.means);
    entry.more.push(format!("Takes: {}", key.takes));
    entry.more.push(if key.usual == keys::REQUIRED {
        "Required.".to_owned()
    } else {
        format!("Default: {}", key.usual)
    });
    entry.see = Some("rmctl job init writes a job file to begin with".to_owned());
    entry
}

/// All exit reasons.
const REASONS: [ExitReason; 14] = [
    ExitReason::HeapOom,
    ExitReason::OverheadOom,
    ExitReason::TaskOom,
    ExitReason::StalledAtLimit,
    ExitReason::AncestorOom,
    ExitReason::NodeOom,
    ExitReason::KilledExternally,
    ExitReason::Stopped,
    ExitReason::Preempted,
    ExitReason::Timeout,
    ExitReason::NodeLost,
    ExitReason::LaunchFailed,
    ExitReason::Exit { code: 1 },
    ExitReason::Signal { signal: 15 },
];

fn of_reason(reason: &ExitReason) -> WordExplanation {
    let sentence = match reason {
        ExitReason::Exit { .. } => {
            "the program ended by itself, with this exit code; 0 is success".to_owned()
        }
        ExitReason::Signal { .. } => {
            "the program ended by this signal, and memory was not the cause".to_owned()
        }
        ExitReason::HeapOom
        | ExitReason::OverheadOom
        | ExitReason::TaskOom
        | ExitReason::StalledAtLimit
        | ExitReason::AncestorOom
        | ExitReason::NodeOom
        | ExitReason::KilledExternally
        | ExitReason::Stopped
        | ExitReason::Preempted
        | ExitReason::Timeout
        | ExitReason::NodeLost
        | ExitReason::LaunchFailed => reason.sentence(),
    };
    let mut entry = WordExplanation::new(reason.name(), "verdict", sentence);
    entry.more.push(
        match reason.charge() {
            ExitCharge::Memory => "A memory failure of the task: it runs again with more memory, until its ladder ends.",
            ExitCharge::Plain => "A failure of the task without a memory cause: it runs again at the same size, a few times.",
            ExitCharge::Free => "Not caused by the task: it runs again at the same size, and the attempt is not charged.",
            ExitCharge::Success => "The program succeeded.",
        }
        .to_owned(),
    );
    entry.see = Some("rmctl diagnose TARGET shows the evidence of a verdict".to_owned());
    entry
}

/// All exit codes of rmctl.
const EXITS: [CommandExitCode; 11] = [
    CommandExitCode::Ok,
    CommandExitCode::Failed,
    CommandExitCode::Usage,
    CommandExitCode::NotFound,
    CommandExitCode::Conflict,
    CommandExitCode::Auth,
    CommandExitCode::Unreachable,
    CommandExitCode::Never,
    CommandExitCode::WaitTimeout,
    CommandExitCode::OomExhausted,
    CommandExitCode::NotNow,
];

fn of_exit(exit: CommandExitCode) -> WordExplanation {
    WordExplanation::new((exit as u8).to_string(), "exit code", exit.means())
}

/// All fields of all objects of the interface.
fn fields(interface: &str) -> Vec<WordExplanation> {
    // The document is compiled in, and a test parses it.
    let document: Value = serde_json::from_str(interface).unwrap_or_default();
    let Some(schemas) = document["components"]["schemas"].as_object() else {
        return Vec::new();
    };
    let text = |value: &Value| {
        value
            .as_str()
            .unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let mut found = Vec::new();
    for (object, schema) in schemas {
        found.push(WordExplanation::new(
            object.clone(),
            OBJECT,
            text(&schema["description"]),
        ));
        let fields: Vec<(&String, &Value)> = schema["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .collect();
        if let Some(last) = found.last_mut().filter(|_| !fields.is_empty()) {
            let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
            last.more.push(format!("Fields: {}", names.join(", ")));
        }
        for (name, field) in fields {
            let one = field["oneOf"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|one| one["description"].is_string());
            let described = one.map_or(&field["description"], |one| &one["description"]);
            let mut entry =
                WordExplanation::new(format!("{object}.{name}"), FIELD, text(described));
            entry.more.extend(kind(field));
            found.push(entry);
        }
    }
    found
}

/// The type of a field, if its description contains one.
fn kind(field: &Value) -> Option<String> {
    let reference = |v: &Value| {
        v["$ref"]
            .as_str()
            .and_then(|r| r.rsplit('/').next())
            .map(str::to_owned)
    };
    let one = reference(field).or_else(|| field["oneOf"].as_array()?.iter().find_map(reference));
    let list = reference(&field["items"]).map(|name| format!("list of {name}"));
    let plain = field["type"].as_str().map(str::to_owned);
    one.or(list).or(plain).map(|kind| format!("Type: {kind}"))
}

/// All keys of a file whose comments explain the key below them.
fn keys(file: &str, text: &str) -> Vec<WordExplanation> {
    let mut found = Vec::new();
    let (mut table, mut comment) = (String::new(), Vec::new());
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("# ") {
            comment.push(words.to_owned());
        } else if let Some(name) = line.strip_prefix('[').and_then(|l| l.split(']').next()) {
            table = format!("{}.", name.trim_start_matches('['));
            comment.clear();
        } else if let Some((key, _)) = line.split_once(" = ").filter(|(key, _)| !key.contains('#'))
        {
            let mut entry =
                WordExplanation::new(format!("{table}{}", key.trim()), KEY, comment.join(" "));
            entry.more.push(format!("Of {file}."));
            found.push(entry);
            comment.clear();
        } else {
            comment.clear();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_term_has_a_meaning() {
        let all = entries();
        let silent: Vec<&str> = all
            .iter()
            .filter(|e| e.means.is_empty() && e.kind != OBJECT)
            .map(|e| e.word.as_str())
            .collect();
        assert_eq!(
            silent, [""; 0],
            "fields, codes and keys without a description"
        );
        for kind in [
            "error code",
            "verdict",
            "exit code",
            FIELD,
            OBJECT,
            KEY,
            JOB_KEY,
            EVENT,
        ] {
            assert!(all.iter().filter(|e| e.kind == kind).count() > 5, "{kind}");
        }
    }

    #[test]
    fn terms_are_found_by_full_name_or_suffix() {
        let all = entries();
        let words = |word: &str| {
            find(&all, word)
                .iter()
                .map(|e| e.word.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(words("hr0422"), ["HR0422"]);
        assert_eq!(words("AppView.until"), ["AppView.until"]);
        assert!(words("silent_ms").contains(&"NodeView.silent_ms".to_owned()));
        assert_eq!(words("9"), ["9"]);
        assert_eq!(
            words("scheduling.preempt_part"),
            ["scheduling.preempt_part"]
        );
        assert_eq!(words("retry.cap"), ["retry.cap"]);
        assert_eq!(
            words("overhead")[0],
            "profiles.NAME.overhead",
            "the last part is enough"
        );
        assert_eq!(words("EscalationExhausted"), ["EscalationExhausted"]);
        assert_eq!(words("nothing of the kind"), [""; 0]);
    }

    #[test]
    fn a_job_file_key_is_explained_with_its_values() {
        let cap = &find(&entries(), "retry.cap")[0];
        assert!(
            cap.means.contains("grows")
                && cap.more[0].contains("512MiB")
                && cap.more[1].starts_with("Default: the largest")
        );
        let name = &find(&entries(), "stage.command")[0];
        assert!(name.more.contains(&"Required.".to_owned()), "{name:?}");
    }

    #[test]
    fn no_code_is_left_out() {
        let described = INTERFACE
            .split('"')
            .filter(|w| w.len() == 6 && w.starts_with("HR0"));
        let mut described: Vec<&str> = described.collect();
        described.sort_unstable();
        described.dedup();
        let known: Vec<String> = ErrorCode::ALL.iter().map(ToString::to_string).collect();
        assert_eq!(
            described, known,
            "codes of the interface, codes that are explained"
        );
    }
}
