//! `rmctl operator leader`: all resource managers of the cluster and which of them leads.

use std::time::Duration;

use futures_util::future::join_all;
use headroom_client::{Client, ClientError, ClientResult, ManagerAddresses};
use headroom_wire::v1::error::ErrorCode;
use headroom_wire::v1::operator::LeaderView;
use serde::Deserialize;

use crate::context::{CommandContext, now};
use crate::exit::{CommandExitCode, CommandResult};
use crate::render::json::MachineOutput;
use crate::render::leader::{self as screens, ManagerAnswer};

/// Longest wait for one resource manager.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Asks every resource manager of the list, and prints a row for each.
pub(crate) async fn run(context: &CommandContext) -> CommandResult {
    let addresses = ManagerAddresses::parse(&context.addr).map_err(ClientError::Address)?;
    let mut asked = Vec::new();
    for address in addresses.iter() {
        asked.push((address.to_string(), context.client_at(address.as_str())?));
    }
    let answers = asked.into_iter().map(|(address, client)| async move {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, ask(&client)).await;
        (
            address,
            answer.unwrap_or(ManagerAnswer::None {
                cause: "no answer for 2 s".to_owned(),
            }),
        )
    });
    let answers = join_all(answers).await;
    let rows = screens::rows(&answers, now());
    let machine = MachineOutput::list(&rows).text(&context.output, |row| row.address.clone());
    context.show(machine, || screens::screen(&rows, context.look()));
    Ok(exit_code(&answers))
}

async fn ask(client: &Client) -> ManagerAnswer {
    match client.leader().await {
        Ok(view) => ManagerAnswer::View(view),
        Err(error) if error.code() == Some(ErrorCode::HR0404) || is_not_found(&error) => {
            match version(client).await {
                Ok(version) => ManagerAnswer::Older { version },
                Err(error) => no_answer(&error),
            }
        }
        Err(error) => no_answer(&error),
    }
}

/// True for the status of a path that a server does not know.
fn is_not_found(error: &ClientError) -> bool {
    use headroom_client::{AnswerDefect, StatusCode};
    matches!(error, ClientError::Answer { defect: AnswerDefect::Status(status), .. } if *status == StatusCode::NOT_FOUND)
}

async fn version(client: &Client) -> ClientResult<String> {
    #[derive(Deserialize)]
    struct VersionInfo {
        version: String,
    }
    let info: VersionInfo = client.get("/v1/version").await?;
    Ok(info.version)
}

fn no_answer(error: &ClientError) -> ManagerAnswer {
    ManagerAnswer::None {
        cause: error.root_cause(),
    }
}

/// Success if exactly one resource manager leads. Two addresses may lead to the same one.
fn exit_code(answers: &[(String, ManagerAnswer)]) -> CommandExitCode {
    let mut leaders: Vec<&str> = answers
        .iter()
        .filter_map(|(_, answer)| answer.view())
        .filter(|view| screens::is_leading(view))
        .map(|view: &LeaderView| view.own.as_str())
        .collect();
    leaders.sort_unstable();
    leaders.dedup();
    match leaders.len() {
        0 => CommandExitCode::Unreachable,
        1 => CommandExitCode::Ok,
        _ => CommandExitCode::Failed,
    }
}

#[cfg(test)]
mod tests {
    use headroom_wire::v1::operator::ManagerRole;

    use super::*;

    fn answer(own: &str, state: ManagerRole) -> (String, ManagerAnswer) {
        let view = LeaderView {
            own: own.to_owned(),
            state,
            leader: None,
            epoch: None,
            lease_ms: None,
            problem: None,
            managers: Vec::new(),
        };
        (own.to_owned(), ManagerAnswer::View(view))
    }

    #[test]
    fn the_exit_code_is_success_for_one_leader() {
        let (a, b) = ("https://rm1:7070", "https://rm2:7070");
        let (leads, waits) = (ManagerRole::Leader, ManagerRole::Standby);
        let code = |answers: &[_]| exit_code(answers);
        assert_eq!(
            code(&[answer(a, leads), answer(b, waits)]),
            CommandExitCode::Ok
        );
        assert_eq!(code(&[answer(a, ManagerRole::Single)]), CommandExitCode::Ok);
        assert_eq!(
            code(&[answer(a, leads), answer(a, leads)]),
            CommandExitCode::Ok
        );
        assert_eq!(
            code(&[answer(a, leads), answer(b, leads)]),
            CommandExitCode::Failed
        );
        let older = ManagerAnswer::Older {
            version: "0.1.0".to_owned(),
        };
        assert_eq!(
            code(&[answer(a, waits), (b.to_owned(), older)]),
            CommandExitCode::Unreachable
        );
    }
}
