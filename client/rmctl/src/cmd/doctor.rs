//! `rmctl doctor`: looks at this host as a node agent would at its start. No daemon is asked.

use headroom_config::NodeAgentConfig;
use headroom_nodeagent::doctor::{self, Place, Standing};

use crate::args::Doctor;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::render;
use crate::render::json::Found;

/// Prints the findings; the worst of them is the exit code.
pub(crate) async fn run(context: &Context, args: Doctor) -> Result<Exit, Failure> {
    let config = match &args.config {
        None => NodeAgentConfig::default(),
        Some(path) => headroom_config::load_nodeagent(path)
            .map_err(|problems| Failure::laid_out(Exit::Usage, headroom_config::render(&problems)))?,
    };
    let place = Place {
        state: args.state.unwrap_or(config.state),
        cgroup_root: args.cgroup_root.or(config.cgroup_root),
        disk_full: config.health.disk_full,
        private_tmp: config.isolation.private_tmp,
    };
    let look = tokio::task::spawn_blocking(move || doctor::examine(&place)).await;
    let findings = look.map_err(|e| Failure::new(Exit::Failed, format!("the look at this host ended by a fault: {e}")))?;
    let found = Found { items: &findings, list: true };
    let text = found.text(&context.output, |f| f.code.to_owned());
    let text = text.unwrap_or_else(|| render::doctor::screen(&findings, context.term.width, context.term.paint));
    context.term.print(&text);
    Ok(match doctor::worst(&findings) {
        Standing::Ok => Exit::Ok,
        Standing::Warn => Exit::NotNow,
        Standing::Fail => Exit::Failed,
    })
}
