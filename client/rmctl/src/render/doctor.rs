//! Screen of the checks of a host: a row for each check, and remedies below it.

use headroom_nodeagent::doctor::{CheckResult, DoctorFinding};

use super::table::{Column, cut, list, wrap};
use super::{ListStyle, TextPainter, count};

/// Maximum width of a finding in the table; the full text is below it. Columns.
const FOUND: usize = 56;
/// Indentation of advice. Columns.
const INDENT: usize = 4;

/// The daemon that is to work on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DoctorSubject {
    /// A node agent.
    Node,
    /// A resource manager.
    Manager,
}

impl DoctorSubject {
    fn as_str(self) -> &'static str {
        match self {
            DoctorSubject::Node => "a node",
            DoctorSubject::Manager => "a resource manager",
        }
    }
}

/// The whole screen.
pub(crate) fn screen(
    subject: DoctorSubject,
    findings: &[DoctorFinding],
    width: usize,
    paint: TextPainter,
) -> String {
    let columns: &[Column<'_, &DoctorFinding>] = &[
        ("", &|finding| mark(finding.state, paint)),
        ("CHECK", &|finding| finding.code.to_string()),
        ("FOUND", &|finding| cut(&finding.found, FOUND)),
    ];
    let mut text = list(findings, ListStyle::whole(paint), columns);
    for finding in findings.iter().filter(|f| f.state != CheckResult::Ok) {
        text += &format!(
            "\n{} {}: {}\n",
            mark(finding.state, paint),
            paint.strong(&finding.code),
            finding.what
        );
        let fix = finding.fix.iter().map(|fix| format!("fix: {fix}"));
        for line in std::iter::once(format!("found: {}", finding.found)).chain(fix) {
            for part in wrap(&line, width.saturating_sub(INDENT)) {
                text += &format!("{:INDENT$}{part}\n", "");
            }
        }
    }
    text + "\n" + &last_line(subject, findings, paint)
}

fn mark(state: CheckResult, paint: TextPainter) -> String {
    match state {
        CheckResult::Ok => paint.good("✓"),
        CheckResult::Warn => paint.warn("!"),
        CheckResult::Fail => paint.bad("✗"),
    }
}

fn last_line(subject: DoctorSubject, findings: &[DoctorFinding], paint: TextPainter) -> String {
    let subject = subject.as_str();
    let number = |state: CheckResult| findings.iter().filter(|f| f.state == state).count() as u64;
    match (number(CheckResult::Fail), number(CheckResult::Warn)) {
        (0, 0) => format!("{} no problem found\n", mark(CheckResult::Ok, paint)),
        (0, less) => format!(
            "{} {subject} works here, with {}\n",
            mark(CheckResult::Warn, paint),
            count(less, "warning")
        ),
        (ills, _) => format!(
            "{} {subject} does not work here: {}\n",
            mark(CheckResult::Fail, paint),
            count(ills, "error")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(
        code: &'static str,
        state: CheckResult,
        found: &str,
        fix: Option<&str>,
    ) -> DoctorFinding {
        DoctorFinding {
            code: code.into(),
            state,
            what: "the purpose of the check".into(),
            found: found.into(),
            fix: fix.map(str::to_owned),
        }
    }

    #[test]
    fn problems_are_listed_below_with_their_fixes() {
        let long = "no CAP_SYS_ADMIN (user namespaces: 31000); all programs share the /tmp of the host; only TMPDIR is private";
        let findings = [
            finding(
                "cgroup",
                CheckResult::Ok,
                "v2 with the memory controller",
                None,
            ),
            finding(
                "private_tmp",
                CheckResult::Warn,
                long,
                Some("give the agent CAP_SYS_ADMIN, as its unit does"),
            ),
            finding(
                "disk",
                CheckResult::Fail,
                "/var: 97 % in use, 1GiB free (limit 90 %)",
                Some("make room"),
            ),
        ];
        insta::assert_snapshot!(screen(
            DoctorSubject::Node,
            &findings,
            80,
            TextPainter::PLAIN
        ));
        assert!(
            screen(DoctorSubject::Node, &findings[..1], 80, TextPainter::PLAIN)
                .ends_with("✓ no problem found\n")
        );
        assert!(
            screen(DoctorSubject::Node, &findings[..2], 80, TextPainter::PLAIN)
                .ends_with("! a node works here, with 1 warning\n")
        );
    }
}
