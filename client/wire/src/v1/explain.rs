//! Explanations of error codes: cause and remedies, as data.
//!
//! `rmctl explain`, the pages at `/v1/errors/CODE` and `docs/errors.md` use these texts.

use serde::Serialize;
use utoipa::ToSchema;

use super::error::ErrorCode;

/// The complete explanation of an error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Explanation {
    /// The error code.
    pub code: ErrorCode,
    /// The same title for every problem of this code.
    pub title: &'static str,
    /// HTTP status of the code.
    pub status: u16,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// The cause.
    pub cause: &'static str,
    /// Remedies, the most likely first.
    #[schema(value_type = Vec<String>)]
    pub remedies: &'static [&'static str],
}

impl ErrorCode {
    /// The explanation of this code.
    pub fn explanation(self) -> Explanation {
        let (cause, remedies) = cause_and_remedies(self);
        Explanation {
            code: self,
            title: self.title(),
            status: self.status(),
            retryable: self.retryable(),
            cause,
            remedies,
        }
    }
}

type CauseAndRemedies = (&'static str, &'static [&'static str]);

fn cause_and_remedies(code: ErrorCode) -> CauseAndRemedies {
    macro_rules! by_code {
        ($($code:ident)+) => {
            match code {
                $(ErrorCode::$code => $code,)+
            }
        };
    }
    by_code! {
        HR0400 HR0401 HR0403 HR0404 HR0409 HR0410 HR0411 HR0413 HR0416 HR0418
        HR0419 HR0421 HR0422 HR0426 HR0429 HR0500 HR0503 HR0507
    }
}

const HR0400: CauseAndRemedies = (
    "The body is not the JSON that the call expects, an id is not valid, or a parameter is unknown or has a wrong value. \
             Nothing was changed.",
    &[
        "Read the detail: it names the field and, in a body, the line and column.",
        "Compare the call with /v1/openapi.json of the same server; a client of another version may send other fields.",
        "With rmctl, repeat the command with --curl to see the request.",
    ],
);
const HR0401: CauseAndRemedies = (
    "The call has no credentials, and only a few calls work without them.",
    &[
        "On the host of the resource manager: call through its socket, --addr unix:/run/headroom/resourcemanager.sock.",
        "The health checks, the version and the web page need no credentials.",
    ],
);
const HR0403: CauseAndRemedies = (
    "The caller is authenticated, but lacks the right that the detail names. The audit log has the refusal.",
    &[
        "A member of the group of administrators, or root, can make the call.",
        "The owner of a job can end and change it: `rmctl job list --filter user==NAME` lists the jobs of a user.",
    ],
);
const HR0404: CauseAndRemedies = (
    "The address is valid, but no object has that name: it never existed, its name is spelled differently, or it ended so \
             long ago that it was deleted.",
    &[
        "Take the name from a list: rmctl ps, rmctl node list, rmctl queue list. A hint names the nearest one.",
        "Ended jobs are kept up to a number; an older job is only in the logs and in exported data.",
        "Check that --addr, HEADROOM_ADDR or the context names the cluster you mean.",
    ],
);
const HR0409: CauseAndRemedies = (
    "The object exists, but its state forbids the call: the job has ended, the queue is stopped, the run of the master was \
             replaced, or another caller changed the object after you had read it.",
    &[
        "Read the object again and decide by its current state.",
        "When If-Match was sent: send the ETag of the new answer.",
        "A master that gets this error belongs to an earlier run and must end.",
    ],
);
const HR0410: CauseAndRemedies = (
    "The resource manager was restarted, or it declared the sender lost. The node or master must register again.",
    &[
        "Nothing, for node agents and masters of this project: they register again by themselves.",
        "A master of your own: call register, then sync with the new epoch and cursor.",
        "When it repeats every few seconds, two agents or masters use one name; the events NodeJoined show from where.",
    ],
);
const HR0411: CauseAndRemedies = (
    "The log of events, or of updates, has a bounded length. The cursor is older than the oldest entry that is kept, so \
             entries in between would be missing without notice.",
    &[
        "Read the lists as they are now, then follow from cursor 0 or from the index they were given with.",
        "Follow the stream instead of polling.",
        "Keep more: events.keep and events.segments in resourcemanager.toml.",
    ],
);
const HR0413: CauseAndRemedies = (
    "The body, the number of its elements, or a name in it is larger than the call accepts. The limit is 1 MiB for the \
             bodies of users, and 16 MiB for those of nodes and masters.",
    &[
        "Send several smaller calls.",
        "Put large files where nodes can fetch them, and name them in the job file instead of including them.",
    ],
);
const HR0416: CauseAndRemedies = (
    "The requested part of a log begins after its end. The program has not written so much yet.",
    &[
        "Try again later, from the same position.",
        "Leave the range out, or follow the log.",
    ],
);
const HR0418: CauseAndRemedies = (
    "Only a live job accepts stages and tasks while it runs. This job has a fixed list of tasks in its job file.",
    &[
        "Add `live = true` to the job file and submit it again.",
        "Add the tasks to the job file: `array` makes one task for each number.",
    ],
);
const HR0419: CauseAndRemedies = (
    "The application has ended, or its master has reported the end. It accepts no further calls of this kind.",
    &[
        "Read how it ended: rmctl ps JOB, or rmctl diagnose JOB.",
        "Submit the job again. A live job without a connected client ends after its `lease`.",
    ],
);
const HR0422: CauseAndRemedies = (
    "No node is large enough for the size, or the maximum of its queue is smaller. Waiting does not help, so the \
             request is refused at once; the detail names the largest node.",
    &[
        "Request less: lower memory, heap or overhead in the profile, or the cap of its ladder.",
        "Compare the nodes, rmctl node list, and the maximum of the queue, rmctl queue list.",
        "Add a node that is large enough, or raise the maximum of the queue.",
        "Check labels, racks and attributes of the request: perhaps no node matches all of them.",
    ],
);
const HR0421: CauseAndRemedies = (
    "Several resource managers serve the cluster, and one of them leads. The one that was called is a standby. \
             Nothing was changed.",
    &[
        "Give the addresses of all resource managers, separated by commas: --addr, HEADROOM_ADDR, or `rm` in the \
             configuration of a node agent. Headroom's own programs then find the leader.",
        "Call the address in the header `headroom-leader`; `Location` is the same call there.",
        "rmctl operator leader shows all resource managers and which of them leads.",
    ],
);
const HR0426: CauseAndRemedies = (
    "The call opens a channel, for which client and server change the protocol of the connection. The headers of the call \
             do not ask for that, or ask for another protocol.",
    &[
        "Send the headers `Connection: Upgrade` and `Upgrade: headroom-submission/1`.",
        "A proxy before the resource manager must pass both headers on; call the resource manager directly otherwise.",
    ],
);
const HR0429: CauseAndRemedies = (
    "An address sends more calls than limits.calls_per_second allows, limits.streams streams are already open, or a queue \
             has reached its maximum number of jobs.",
    &[
        "Wait for as long as the header Retry-After says, and send the same call again.",
        "Combine several changes in one call, and follow one stream instead of many.",
        "Raise the limit in resourcemanager.toml, or max_apps of the queue.",
    ],
);
const HR0500: CauseAndRemedies = (
    "An internal fault of the resource manager or of the node agent. Earlier answered calls are safe: an answer is sent \
             after the change is on disk. It is unknown whether this call was carried out.",
    &[
        "Search the log for the id in instance: journalctl -u headroom-resourcemanager | grep ID.",
        "Send the same call again, with the same Idempotency-Key.",
        "Report it with the lines of the log around it.",
    ],
);
const HR0503: CauseAndRemedies = (
    "The resource manager is starting, ending, or waits after a restart for its nodes to come back; none of several resource \
             managers leads, because they elect a leader or reach no majority of etcd; a node that is needed for the \
             answer does not answer; or so many calls wait that reads and then changes by users are refused.",
    &[
        "Try again in a second; rmctl and the client library do.",
        "If the error persists: check rmctl status and /readyz. After a restart, nodes have the time lost to reconnect.",
        "With several resource managers: check rmctl operator leader, and etcd with rmctl doctor --manager FILE.",
        "For logs of a container: check whether its node is reachable with rmctl node show NODE.",
    ],
);

const HR0507: CauseAndRemedies = (
    "Uploaded files have the size that `[uploads] max_total` of resourcemanager.toml allows, or the disk of the resource \
             manager has too little free space. Nothing was stored.",
    &[
        "Name files that are on the nodes, or in a shared directory, with local:/PATH. They are not uploaded.",
        "Wait: a file that no application needs is removed after `[uploads] keep` without use.",
        "Raise max_total, or lower keep, under [uploads] in resourcemanager.toml, and restart the resource manager.",
    ],
);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_code_has_its_own_explanation() {
        let all: Vec<Explanation> = ErrorCode::ALL
            .into_iter()
            .map(ErrorCode::explanation)
            .collect();
        assert_eq!(
            all.iter().map(|e| e.cause).collect::<BTreeSet<_>>().len(),
            ErrorCode::ALL.len()
        );
        for e in all {
            assert!(e.cause.len() > 40 && e.cause.ends_with('.'), "{e:?}");
            assert!(
                !e.remedies.is_empty() && e.remedies.iter().all(|r| r.ends_with('.')),
                "{e:?}"
            );
        }
    }

    #[test]
    fn a_code_is_parsed_in_common_spellings() {
        for code in ErrorCode::ALL {
            assert_eq!(code.to_string().parse(), Ok(code));
            assert_eq!(code.to_string().to_lowercase().parse(), Ok(code));
        }
        assert!(
            "HR9999".parse::<ErrorCode>().is_err()
                && "404".parse::<ErrorCode>() == Ok(ErrorCode::HR0404)
        );
    }
}
