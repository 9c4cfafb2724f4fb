//! A master's connection to the resource manager: carries out the effects of its real session over
//! the simulated network, with the conversions of the real messages.

use headroom_appmaster::run::MasterRunError;
use headroom_appmaster::session::{
    JobReport, ManagerCall, SessionEffect, SessionFailure, SessionInput, StreamNumber,
    StreamPosition, UnacceptedReport,
};
use headroom_client::ClientError;
use headroom_rm_core::{CallAnswer, ClusterCall, ContainerSize, DryRun};
use headroom_rm_server::{from_wire, to_wire};
use headroom_types::{ContainerId, Epoch, Tick};
use headroom_wire::v1::application_master::{
    ApplicationUpdate, ApplicationUpdateKind, MasterRegistered, MasterSyncReply,
};
use headroom_wire::v1::apps::ResizeContainer;
use headroom_wire::v1::job::JobViewPatch;
use headroom_wire::v1::known_containers::ContainerNumbers;

use super::Simulation;
use super::call_result::{MANAGER_URL, SimCallResult, unexpected};
use super::manager::SimManagerInput;
use super::network::{Caller, Line, Reader};
use crate::scenario::PlantedBug;

/// The connection of one master.
#[derive(Debug, Default)]
pub(super) struct SimMasterLink {
    call: Option<SimMasterCall>,
    /// Number of the size request in progress.
    resize: Option<u64>,
    stream: Option<SimUpdateStream>,
}

/// A call in progress.
#[derive(Debug)]
struct SimMasterCall {
    number: u64,
    kind: SimMasterCallKind,
    /// The rows of the job in the call.
    patch: Option<Box<JobViewPatch>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SimMasterCallKind {
    /// With the containers that the master named.
    Register(ContainerNumbers),
    Sync,
    Finish,
}

/// A stream of updates that the session reads.
#[derive(Debug)]
struct SimUpdateStream {
    number: StreamNumber,
    /// Its number in the simulated network.
    line: u64,
    /// The call that opens it, until it is answered or the first line arrives.
    opening: Option<u64>,
    /// Cursor of the last update.
    cursor: u64,
}

impl SimMasterLink {
    /// The input of the session from the result of a call; `None` if the session waits for no
    /// result.
    fn input_of(&mut self, number: u64, heard: SimCallResult) -> Option<SessionInput> {
        if let Some(stream) = &mut self.stream
            && stream.opening == Some(number)
        {
            stream.opening = None;
            let number = stream.number;
            let error = heard.stream_error()?;
            self.stream = None;
            return Some(SessionInput::StreamClosed(number, Some(error)));
        }
        if self.resize == Some(number) {
            self.resize = None;
            return Some(SessionInput::Resized(heard.answer().map(|_| ())));
        }
        let SimMasterCall { kind, patch, .. } = self.call.take_if(|call| call.number == number)?;
        let answer = heard.answer();
        let unaccepted = |error| UnacceptedReport { error, patch };
        Some(match kind {
            SimMasterCallKind::Register(named) => {
                SessionInput::Registered(answer.and_then(|answer| registered(answer, &named)))
            }
            SimMasterCallKind::Sync => {
                SessionInput::Synced(answer.and_then(synced).map_err(unaccepted))
            }
            SimMasterCallKind::Finish => {
                SessionInput::Finished(answer.map(|_| ()).map_err(unaccepted))
            }
        })
    }

    /// The updates in a line; `None` if the session does not read that stream. A line without
    /// updates contains a heartbeat.
    fn updates_of(&mut self, line: u64, text: Line) -> Option<Vec<SessionInput>> {
        let Line::Updates { epoch: _, updates } = text else {
            return None;
        };
        let stream = self.stream.as_mut().filter(|s| s.line == line)?;
        stream.opening = None;
        let mut updates: Vec<ApplicationUpdate> =
            updates.into_iter().map(to_wire::update).collect();
        if updates.is_empty() {
            updates.push(ApplicationUpdate {
                cursor: stream.cursor,
                what: ApplicationUpdateKind::Alive,
            });
        }
        stream.cursor = updates.last().map_or(stream.cursor, |last| last.cursor);
        let number = stream.number;
        let inputs = updates
            .into_iter()
            .map(|update| SessionInput::Update(number, Box::new(update)));
        Some(inputs.collect())
    }
}

fn registered(
    answer: (CallAnswer, Epoch),
    named: &ContainerNumbers,
) -> Result<MasterRegistered, ClientError> {
    let (
        CallAnswer::Master {
            largest,
            containers,
            cursor,
        },
        epoch,
    ) = answer
    else {
        return Err(unexpected());
    };
    let (containers, confirmed) = to_wire::live_containers(containers, named);
    Ok(MasterRegistered {
        epoch,
        largest,
        containers,
        confirmed,
        cursor,
        known: None,
        traces: None,
    })
}

fn synced(answer: (CallAnswer, Epoch)) -> Result<MasterSyncReply, ClientError> {
    let (CallAnswer::Synced { verdicts, stop }, _) = answer else {
        return Err(unexpected());
    };
    let verdicts = verdicts
        .into_iter()
        .map(|(request, verdict)| to_wire::ask_answer(request, verdict))
        .collect();
    Ok(MasterSyncReply { verdicts, stop })
}

impl Simulation {
    /// Registers a new master.
    pub(super) fn session_registers(&mut self, pid: u64) {
        let mut effects = Vec::new();
        if let Some(p) = self.processes.get_mut(&pid) {
            p.session.register(&mut effects);
        }
        self.session_carries_out(pid, effects);
    }

    /// Makes the call or opens the stream that is due.
    pub(super) fn session_wakes(&mut self, pid: u64) {
        let replaces = self.plant == PlantedBug::ReplacesDrained;
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        let report = || {
            let mut report = JobReport::of(&mut p.core, &p.greeting);
            if replaces && !p.core.fleet().drained.is_empty() {
                report
                    .open
                    .iter_mut()
                    .filter(|ask| ask.request.as_str().starts_with("set-"))
                    .for_each(|ask| ask.count += 1);
            }
            report
        };
        let (now, mut effects) = (Tick(self.now - p.started), Vec::new());
        p.session.wake(now, report, &mut effects);
        self.session_carries_out(pid, effects);
    }

    fn session_takes(&mut self, pid: u64, input: SessionInput) {
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        let (now, mut effects) = (Tick(self.now - p.started), Vec::new());
        let failure = p.session.take(now, input, &mut effects).err();
        self.session_carries_out(pid, effects);
        if let Some(failure) = failure {
            let error = match failure {
                SessionFailure::Refused(error) => MasterRunError::Refused(error),
                SessionFailure::Unreachable(source) => MasterRunError::Unreachable {
                    url: MANAGER_URL.to_owned(),
                    source,
                },
            };
            self.note(|| format!("master process {pid} fails: {error:?}"));
            self.process_leaves(pid, i32::from(error.exit_code()));
        }
    }

    pub(super) fn session_carries_out(&mut self, pid: u64, effects: Vec<SessionEffect>) {
        for effect in effects {
            match effect {
                SessionEffect::Call(call) => self.session_calls(pid, call),
                SessionEffect::Resize(container, body) => {
                    self.session_resizes(pid, container, body)
                }
                SessionEffect::OpenStream(number, from) => self.session_listens(pid, number, from),
                SessionEffect::Event(event) => self.core_steps(pid, event),
                SessionEffect::RestorePatch(patch) => {
                    if let Some(p) = self.processes.get_mut(&pid) {
                        p.core.restore_patch(*patch);
                    }
                }
                // The simulated resource manager names no collector.
                SessionEffect::SelectCollector(_) => {}
            }
        }
    }

    fn session_calls(&mut self, pid: u64, call: ManagerCall) {
        let Some(p) = self.processes.get(&pid) else {
            return;
        };
        let (kind, patch, call) = match call {
            ManagerCall::Register(body) => {
                let kind = SimMasterCallKind::Register(body.containers.clone());
                let call = from_wire::register_master(&p.app, body).map(|(call, _)| call);
                (kind, None, call)
            }
            ManagerCall::Sync(mut body) => {
                for ask in &body.asks {
                    self.oracle
                        .asked(&p.greeting.token, &ask.request, ask.count);
                }
                let patch = body.job.take();
                let call = from_wire::sync(&p.app, *body);
                (SimMasterCallKind::Sync, patch, call)
            }
            ManagerCall::Finish(body) => {
                let patch = body.job.clone();
                let call = from_wire::finish(&p.app, *body).map(|(call, _)| call);
                (SimMasterCallKind::Finish, patch, call)
            }
        };
        let Some(number) = self.call_converted(Caller::Process(pid), call) else {
            return;
        };
        if let Some(p) = self.processes.get_mut(&pid) {
            let patch = patch.map(Box::new);
            p.link.call = Some(SimMasterCall {
                number,
                kind,
                patch,
            });
        }
    }

    fn session_resizes(&mut self, pid: u64, container: ContainerId, body: ResizeContainer) {
        let call = ClusterCall::Resize {
            container,
            version: body.version,
            size: ContainerSize {
                resource: body.resource,
                heap: body.heap,
            },
            how: DryRun::Really,
        };
        let number = self.call(Caller::Process(pid), SimManagerInput::Call(Box::new(call)));
        if let Some(p) = self.processes.get_mut(&pid) {
            p.link.resize = Some(number);
        }
    }

    fn session_listens(&mut self, pid: u64, number: StreamNumber, from: StreamPosition) {
        let Some(app) = self.processes.get(&pid).map(|p| p.app.clone()) else {
            return;
        };
        let line = self.number();
        let opening = self.call(
            Caller::Process(pid),
            SimManagerInput::WatchApp {
                app,
                epoch: from.epoch,
                cursor: from.cursor,
                stream: line,
                reader: Reader::Process(pid),
            },
        );
        if let Some(p) = self.processes.get_mut(&pid) {
            p.link.stream = Some(SimUpdateStream {
                number,
                line,
                opening: Some(opening),
                cursor: from.cursor,
            });
        }
    }

    /// Handles the result of a call.
    pub(super) fn master_link_hears(&mut self, pid: u64, number: u64, heard: SimCallResult) {
        let process = self.processes.get_mut(&pid);
        if let Some(input) = process.and_then(|p| p.link.input_of(number, heard)) {
            self.session_takes(pid, input);
        }
    }

    pub(super) fn master_link_line(&mut self, pid: u64, line: u64, text: Line) {
        if !self.is_open(line) {
            return;
        }
        let process = self.processes.get_mut(&pid);
        let updates = process.and_then(|p| p.link.updates_of(line, text));
        for input in updates.unwrap_or_default() {
            self.session_takes(pid, input);
        }
    }

    pub(super) fn master_link_stream_ended(&mut self, pid: u64, line: u64) {
        let process = self.processes.get_mut(&pid);
        let ended = process.and_then(|p| p.link.stream.take_if(|stream| stream.line == line));
        if let Some(stream) = ended {
            self.session_takes(pid, SessionInput::StreamClosed(stream.number, None));
        }
    }
}
