//! Reload of the configuration while the agent runs: all reloadable keys change, or none.
//!
//! The limits of logs and the health checks take effect at once. The other keys define the agent
//! for the resource manager and its containers, and need a restart, which affects no container.
//! Each reload names the keys that wait for a restart.

use headroom_config::reference::{self, TakesEffect};
use headroom_config::{FileProblem, NodeAgentConfig, in_one_line, render};
use headroom_wire::v1::nodes::ConfigReload;
use tracing::{info, warn};

use crate::agent_input::AgentInput;
use crate::clock;
use crate::start::RunningAgent;

impl RunningAgent {
    /// Applies the reloadable keys of a configuration. Logs the result and reports it to the
    /// resource manager. `before` is the effective configuration and is updated.
    pub async fn reload(
        &self,
        before: &mut NodeAgentConfig,
        read: Result<NodeAgentConfig, Vec<FileProblem>>,
    ) {
        let (refused, message) = match read {
            Ok(new) => {
                let words = words(before, &new);
                self.site.set_logs(new.logs);
                self.checks.send_replace(new.health.clone());
                (before.logs, before.health) = (new.logs, new.health);
                info!(name: "ConfigReloaded", "ConfigReloaded: {words}");
                (false, words)
            }
            Err(problems) => {
                warn!(
                    name: "ConfigRefused",
                    "ConfigRefused: the configuration has errors, nothing has changed:\n{}",
                    render(&problems).trim_end()
                );
                (
                    true,
                    format!("nothing has changed: {}", in_one_line(&problems)),
                )
            }
        };
        let input = AgentInput::Reloaded(ConfigReload {
            at: clock::unix_now(),
            refused,
            message,
        });
        // The loop may be gone; then no report is needed.
        self.inputs.send(input).await.ok();
    }
}

/// The changes as text: `logs.count: 4 → 7; after a restart: reserve`.
fn words(before: &NodeAgentConfig, now: &NodeAgentConfig) -> String {
    let (mut parts, mut waits) = (Vec::new(), Vec::new());
    for (key, was, is) in reference::changes(reference::AGENT_KEYS, before, now) {
        match key.takes {
            TakesEffect::Reload => parts.push(format!("{}: {was} → {is}", key.name)),
            TakesEffect::Restart => waits.push(key.name),
        }
    }
    if !waits.is_empty() {
        parts.push(format!("after a restart: {}", waits.join(", ")));
    }
    if parts.is_empty() {
        "no key has changed".to_owned()
    } else {
        parts.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applied_keys_and_keys_that_need_a_restart_are_listed_separately() {
        let before = NodeAgentConfig::default();
        let mut now = before.clone();
        (now.logs.count, now.health.disk_full, now.exclusive) = (7, 80, true);
        let text = words(&before, &now);
        assert!(
            text.contains("logs.count: ") && text.contains(" → 7; health.disk_full: "),
            "{text}"
        );
        assert!(text.ends_with("; after a restart: exclusive"), "{text}");
        assert_eq!(words(&now, &now), "no key has changed");
    }

    #[test]
    fn the_first_error_is_one_line() {
        let problems =
            headroom_config::compile::nodeagent("reserve = 'x'\nlables = []\n", "agent.toml")
                .expect_err("two");
        let line = in_one_line(&problems);
        assert!(
            line.starts_with("agent.toml:") && line.ends_with("(1 more in the log)"),
            "{line}"
        );
    }
}
