//! `rmctl container`: containers, and another size for one that runs.

use std::time::Duration;

use headroom_client::How;
use headroom_wire::v1::apps::{ContainerView, ResizeContainer};

use crate::args::{ContainerVerb, Resize};
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::render::{figures::short, json::Found};

/// How long the node may take to confirm.
const CONFIRM: Duration = Duration::from_secs(30);
/// Longest wait of one look.
const LOOK: Duration = Duration::from_secs(5);

/// Does what is asked about containers.
pub(crate) async fn run(context: &Context, what: ContainerVerb) -> Result<Exit, Failure> {
    match what {
        ContainerVerb::Resize(args) => resize(context, args).await,
    }
}

async fn resize(context: &Context, args: Resize) -> Result<Exit, Failure> {
    let client = context.client()?;
    let before = client.container(&args.container).await?;
    let mut resource = before.resource.clone();
    resource.memory = args.memory.unwrap_or(resource.memory);
    resource.cpus = args.cpus.unwrap_or(resource.cpus);
    let body = ResizeContainer { version: args.version.or(Some(before.version)), resource, heap: args.heap };
    let how = if args.dry_run { How::DryRun } else { How::Really };
    let answer = client.resize(&args.container, how, &body).await?;
    if args.dry_run {
        let to = &body.resource;
        context.term.line(&format!(
            "{} could have {}, {} cpus: version {}",
            before.id,
            short(to.memory),
            to.cpus,
            answer.version
        ));
        return Ok(Exit::Ok);
    }
    let mut view = client.container(&args.container).await?;
    let until = tokio::time::Instant::now() + CONFIRM;
    let mut index = 0;
    while !args.no_wait && view.wanted.is_some() && tokio::time::Instant::now() < until {
        let list = format!("/v1/containers?app={}&state=running", view.id.app);
        (_, index) = client.get_after::<Vec<ContainerView>>(&list, index, LOOK).await?;
        view = client.container(&args.container).await?;
    }
    let machine = Found { items: std::slice::from_ref(&view), list: false }.text(context.format, |c| c.id.to_string());
    context.term.print(&machine.unwrap_or_else(|| people(&view)));
    let refused = !args.no_wait && view.version < answer.version;
    Ok(if refused { Exit::Failed } else { Exit::Ok })
}

fn people(c: &ContainerView) -> String {
    let size = format!("{}  has {}, {} cpus (version {})", c.id, short(c.resource.memory), c.resource.cpus, c.version);
    let wanted = c.wanted.as_ref().map(|w| format!(", {} is on its way (version {})", short(w.resource.memory), w.version));
    format!("{size}{}\nnext: rmctl events --tail 5\n", wanted.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;
    use headroom_wire::v1::apps::WantedSize;

    #[test]
    fn a_size_on_its_way_is_said() {
        let mut c = fixture::containers().remove(1);
        assert_eq!(people(&c).lines().next(), Some("wordcount.7.e1.c2  has 10.4G, 1 cpus (version 1)"));
        let mut resource = c.resource.clone();
        resource.memory = headroom_types::Bytes::from_gib(12);
        c.wanted = Some(WantedSize { resource, version: 2 });
        assert!(people(&c).contains("12G is on its way (version 2)"), "{}", people(&c));
    }
}
