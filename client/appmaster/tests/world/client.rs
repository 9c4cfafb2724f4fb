//! Clients of a live job in the simulated cluster: they repeat what was not answered, and process
//! each result once.

use headroom_appmaster::event::SubmitterConnection;
use headroom_wire::v1::submission::{FromSubmitter, SubmittedTaskResult, ToSubmitter};

use super::*;

/// A client.
#[derive(Clone, Debug, Default)]
pub struct SimulatedClient {
    pub name: String,
    /// Time from a result to its acknowledgement.
    pub ack_ms: u64,
    connection: Option<SubmitterConnection>,
    /// Cursor of the last processed result.
    pub processed: u64,
    acked: u64,
    ack_is_due: bool,
    /// Results by key.
    pub results: BTreeMap<String, SubmittedTaskResult>,
    /// Keys in the order of their results.
    pub order: Vec<String>,
    unanswered: Vec<FromSubmitter>,
    pub answers: Vec<ToSubmitter>,
    /// True after the client has disconnected for good.
    gone: bool,
}

impl SimulatedClient {
    pub fn new(name: &str, ack_ms: u64) -> Self {
        SimulatedClient {
            name: name.to_owned(),
            ack_ms,
            ..SimulatedClient::default()
        }
    }
    /// Codes of the refusals.
    pub fn refusals(&self) -> Vec<String> {
        let code = |answer: &ToSubmitter| match answer {
            ToSubmitter::Refused { error, .. } => Some(error.code.to_string()),
            ToSubmitter::Welcome { .. }
            | ToSubmitter::StageAccepted { .. }
            | ToSubmitter::Accepted { .. }
            | ToSubmitter::Credit { .. }
            | ToSubmitter::States { .. }
            | ToSubmitter::Ended(_)
            | ToSubmitter::Over { .. }
            | ToSubmitter::Alive => None,
        };
        self.answers.iter().filter_map(code).collect()
    }
    /// Removes the message that this answer belongs to.
    fn settle(&mut self, answer: &ToSubmitter) {
        let subject = match answer {
            ToSubmitter::StageAccepted { name } => name.to_string(),
            ToSubmitter::Accepted { batch, .. } => batch.clone(),
            ToSubmitter::Refused {
                subject: Some(subject),
                ..
            } => subject.clone(),
            ToSubmitter::Welcome { .. }
            | ToSubmitter::Refused { .. }
            | ToSubmitter::Credit { .. }
            | ToSubmitter::States { .. }
            | ToSubmitter::Ended(_)
            | ToSubmitter::Over { .. }
            | ToSubmitter::Alive => return,
        };
        self.unanswered.retain(|message| match message {
            FromSubmitter::Stage { name, .. } => name.as_str() != subject,
            FromSubmitter::Tasks { batch, .. } => *batch != subject,
            FromSubmitter::Submitter { .. }
            | FromSubmitter::Cancel { .. }
            | FromSubmitter::CancelAll
            | FromSubmitter::Close
            | FromSubmitter::Ack { .. }
            | FromSubmitter::Leave
            | FromSubmitter::Alive => true,
        });
    }
}

/// An action of a client.
#[derive(Clone, Debug)]
pub(super) enum ClientEvent {
    /// It sends a message.
    Says(Box<FromSubmitter>),
    /// It connects.
    Connects,
    /// It disconnects.
    Leaves,
    /// It acknowledges the results that it has processed.
    Acks,
}

impl MasterScenario {
    /// A client of a live job, which acknowledges each result after this time.
    pub fn client(mut self, name: &str, ack_ms: u64) -> Self {
        self.clients.push(SimulatedClient::new(name, ack_ms));
        self
    }
    /// At this time a client sends a message.
    pub fn submission(mut self, at_ms: u64, client: usize, message: FromSubmitter) -> Self {
        let says = ClientEvent::Says(Box::new(message));
        self.client_events.push((at_ms, client, says));
        self
    }
    /// At this time a client disconnects.
    pub fn client_leaves(mut self, at_ms: u64, client: usize) -> Self {
        self.client_events
            .push((at_ms, client, ClientEvent::Leaves));
        self
    }
    /// At this time a client connects again.
    pub fn client_returns(mut self, at_ms: u64, client: usize) -> Self {
        self.client_events
            .push((at_ms, client, ClientEvent::Connects));
        self
    }
}

impl SimulatedCluster {
    pub(super) fn client_acts(&mut self, n: usize, event: ClientEvent) {
        match event {
            ClientEvent::Says(message) => self.client_says(n, *message),
            ClientEvent::Connects => self.client_connects(n),
            ClientEvent::Leaves => self.client_leaves(n),
            ClientEvent::Acks => self.client_acks(n),
        }
    }

    /// Connects all clients to a master that has registered.
    pub(super) fn clients_connect(&mut self) {
        for n in 0..self.clients.len() {
            if !self.clients[n].gone {
                self.client_connects(n);
            }
        }
    }

    fn client_connects(&mut self, n: usize) {
        if let Some(earlier) = self.clients[n].connection.take() {
            self.step(MasterEvent::SubmitterLeft {
                connection: earlier,
            });
        }
        self.connections += 1;
        let connection = SubmitterConnection(self.connections);
        let client = &mut self.clients[n];
        client.connection = Some(connection);
        client.gone = false;
        client.acked = client.processed;
        let (name, after) = (client.name.clone(), client.processed);
        self.step(MasterEvent::SubmitterJoined {
            connection,
            client: name,
            after,
        });
        for message in self.clients[n].unanswered.clone() {
            self.client_sends(n, message);
        }
    }

    fn client_leaves(&mut self, n: usize) {
        self.clients[n].gone = true;
        if let Some(connection) = self.clients[n].connection.take() {
            self.step(MasterEvent::SubmitterLeft { connection });
        }
    }

    /// The client wants to send this message: now, and on every later connection until it is
    /// answered.
    fn client_says(&mut self, n: usize, message: FromSubmitter) {
        if !matches!(message, FromSubmitter::Ack { .. }) {
            self.clients[n].unanswered.push(message.clone());
        }
        self.client_sends(n, message);
    }

    fn client_sends(&mut self, n: usize, message: FromSubmitter) {
        let Some(connection) = self.clients[n].connection.filter(|_| self.master_up) else {
            return;
        };
        self.step(MasterEvent::Submission {
            connection,
            message: Box::new(message),
        });
    }

    pub(super) fn client_hears(&mut self, connection: SubmitterConnection, message: ToSubmitter) {
        let client = self
            .clients
            .iter_mut()
            .find(|client| client.connection == Some(connection));
        if let Some(client) = client {
            client.settle(&message);
            client.answers.push(message);
        }
    }

    fn client_acks(&mut self, n: usize) {
        let client = &mut self.clients[n];
        client.ack_is_due = false;
        client.acked = client.processed;
        let cursor = client.processed;
        self.client_sends(n, FromSubmitter::Ack { cursor });
    }

    /// Delivers the results that are durable.
    pub(super) fn deliver_results(&mut self) {
        for n in 0..self.clients.len() {
            let client = &mut self.clients[n];
            if client.connection.is_none() || !self.master_up {
                continue;
            }
            for result in self.core.results_after(client.processed, 100) {
                assert!(result.cursor > client.processed, "results are in order");
                client.processed = result.cursor;
                client.order.push(result.key.clone());
                let key = result.key.clone();
                let before = client.results.insert(key, result);
                assert_eq!(before, None, "one result for each task");
            }
            if client.processed > client.acked && !client.ack_is_due {
                client.ack_is_due = true;
                let after = client.ack_ms;
                self.later(after, SimulatedEvent::Client(n, ClientEvent::Acks));
            }
        }
    }

    pub(super) fn clients_lose_master(&mut self) {
        for client in &mut self.clients {
            (client.connection, client.ack_is_due) = (None, false);
        }
        self.things
            .retain(|_, thing| !matches!(thing, SimulatedEvent::Client(_, ClientEvent::Acks)));
    }
}
