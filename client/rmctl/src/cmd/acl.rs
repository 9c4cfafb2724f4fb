//! `rmctl acl` and `rmctl node join`: tokens, policies, and hosts that join the cluster.

use std::path::Path;
use std::time::Duration;

use headroom_client::{Client, ClientCredentials, ExpectedPeer, TokenSource};
use headroom_identity::files::{self, FileReaders, OverwritePolicy};
use headroom_identity::{Certificate, authority};
use headroom_transport::CertificateFiles;
use headroom_types::NodeId;
use headroom_wire::v1::acl::{
    CreateJoinTokenRequest, CreateTokenRequest, MintedToken, NodeJoinRequest, PolicySpec,
};

use crate::args::{
    AclSubcommand, JoinTokenCreateArgs, JoinTokenSubcommand, NodeJoinArgs, PolicySubcommand,
    TokenCreateArgs, TokenSubcommand,
};
use crate::context::{CommandContext, now};
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::acl as screens;
use crate::render::json::MachineOutput;

/// Runs an `acl` verb.
pub(crate) async fn run(context: &CommandContext, what: AclSubcommand) -> CommandResult {
    let client = context.client()?;
    match what {
        AclSubcommand::Bootstrap => shown(context, &client.bootstrap().await?, None),
        AclSubcommand::Token(what) => tokens(context, &client, what).await,
        AclSubcommand::Policy(what) => policies(context, &client, what).await,
        AclSubcommand::JoinToken(JoinTokenSubcommand::Create(args)) => {
            join_token(context, &client, &args).await
        }
    }
}

fn seconds(lifetime: Option<Duration>) -> Option<u64> {
    lifetime.map(|lifetime| lifetime.as_secs().max(1))
}

async fn tokens(context: &CommandContext, client: &Client, what: TokenSubcommand) -> CommandResult {
    match what {
        TokenSubcommand::Create(args) => {
            let TokenCreateArgs {
                user,
                rights,
                lifetime,
                about,
                out,
            } = args;
            let token = CreateTokenRequest {
                user,
                rights,
                lifetime_s: seconds(lifetime),
                about,
            };
            shown(context, &client.mint(&token).await?, out.as_deref())
        }
        TokenSubcommand::List(rows) => {
            let context = &context.list(&rows);
            let all = client.tokens().await?;
            let text =
                MachineOutput::list(&all).text(&context.output, |token| token.accessor.clone());
            Ok(context.show(text, || screens::tokens(&all, now(), context.look())))
        }
        TokenSubcommand::Revoke { accessor } => {
            let gone = client.revoke(&accessor).await?;
            context
                .term
                .say(&format!("token {} is revoked", gone.accessor));
            Ok(CommandExitCode::Ok)
        }
        TokenSubcommand::Own => {
            let own = client.who_am_i().await?;
            let text = MachineOutput::one(&own)
                .text(&context.output, |own| own.who.clone().unwrap_or_default());
            Ok(context.show(text, || screens::own(&own, now())))
        }
    }
}

async fn policies(
    context: &CommandContext,
    client: &Client,
    what: PolicySubcommand,
) -> CommandResult {
    let (all, context) = match what {
        PolicySubcommand::List(rows) => (client.policies().await?, context.list(&rows)),
        PolicySubcommand::Set { subject, rights } => (
            vec![client.set_policy(&subject, &PolicySpec { rights }).await?],
            context.clone(),
        ),
        PolicySubcommand::Unset { subject } => {
            client.forget_policy(&subject).await?;
            context.term.say(&format!(
                "{subject} has the default rights again: see and submit jobs, and end its own jobs"
            ));
            return Ok(CommandExitCode::Ok);
        }
    };
    let text = MachineOutput::list(&all).text(&context.output, |policy| policy.subject.clone());
    Ok(context.show(text, || screens::policies(&all, context.look())))
}

async fn join_token(
    context: &CommandContext,
    client: &Client,
    args: &JoinTokenCreateArgs,
) -> CommandResult {
    let wanted = CreateJoinTokenRequest {
        node: args.node.clone(),
        names: args.names.clone(),
        lifetime_s: seconds(args.lifetime),
    };
    let pin = client.ca().await?.fingerprint;
    let minted = client.mint_join(&wanted).await?;
    shown(context, &minted, args.out.as_deref())?;
    let name = args
        .node
        .as_ref()
        .map(|node| format!(" --name {node}"))
        .unwrap_or_default();
    context.term.say(&format!(
        "On the host: rmctl node join --addr https://MANAGER:7070 --token-file FILE --pin {pin}{name} --at ADDRESS"
    ));
    Ok(CommandExitCode::Ok)
}

/// Prints a token, or writes it to a file without printing its secret.
fn shown(context: &CommandContext, minted: &MintedToken, out: Option<&Path>) -> CommandResult {
    if let Some(path) = out {
        files::write(
            path,
            &format!("{}\n", minted.token.0),
            FileReaders::Owner,
            OverwritePolicy::Keep,
        )?;
        context.term.print(&screens::tokens(
            std::slice::from_ref(&minted.view),
            now(),
            context.look(),
        ));
        return Ok(CommandExitCode::Ok);
    }
    let text = MachineOutput::one(minted).text(&context.output, |minted| minted.token.0.clone());
    context.show(text, || format!("{}\n", minted.token.0));
    context.term.say("The token is shown only once. Keep it in a file that only you can read, and set HEADROOM_TOKEN_FILE");
    Ok(CommandExitCode::Ok)
}

/// Joins this host to the cluster as a node. The key is created on this host and never leaves it.
pub(crate) async fn join(context: &CommandContext, args: &NodeJoinArgs) -> CommandResult {
    let addr = &context.addr;
    if !addr.starts_with("https://") {
        let failure = CommandFailure::usage(format!(
            "a host joins over https, but the address is {addr}"
        ));
        return Err(failure.help("rmctl node join --addr https://MANAGER:7070 …"));
    }
    let at = |name: &str| args.out.join(name);
    if let Some(path) = ["ca.pem", "cert.pem", "key.pem"]
        .map(at)
        .into_iter()
        .find(|path| path.exists())
    {
        return Err(files::FileError::There { path }.into());
    }
    let token = context.settings.trust.token.clone();
    if token == TokenSource::Nowhere {
        let failure = CommandFailure::usage("a host needs a token to join, but none was given");
        return Err(failure.help("add --token-file FILE; create a token on the manager's host: rmctl acl join-token create"));
    }
    let ca = vouched(addr, &args.pin).await?;
    std::fs::create_dir_all(&args.out).map_err(|source| files::FileError::Io {
        path: args.out.clone(),
        source,
    })?;
    files::write(&at("ca.pem"), &ca, FileReaders::All, OverwritePolicy::Keep)?;
    let done = certify(context, args, token).await;
    if done.is_err() {
        // Without its certificate the file would block the next attempt.
        let _ = std::fs::remove_file(at("ca.pem"));
    }
    done
}

/// The authority of the cluster, if its fingerprint is the pin.
async fn vouched(addr: &str, pin: &str) -> CommandResult<String> {
    let stranger = Client::with_credentials(
        addr,
        ClientCredentials {
            other: ExpectedPeer::Stranger,
            ..ClientCredentials::default()
        },
    )?;
    let ca = stranger.ca().await?.ca;
    let read = Certificate::from_pem(&ca)
        .map_err(|error| CommandFailure::failed(format!("{addr}: {error}")))?;
    if read.fingerprint.to_string() == pin.trim().to_ascii_lowercase() {
        return Ok(ca);
    }
    let failure = CommandFailure::new(
        CommandExitCode::Auth,
        format!(
            "the authority of {addr} has the fingerprint {}, not that of --pin",
            read.fingerprint
        ),
    );
    Err(failure
        .help("check the pin and the address: another server may answer there; no token was sent"))
}

async fn certify(
    context: &CommandContext,
    args: &NodeJoinArgs,
    token: TokenSource,
) -> CommandResult {
    let at = |name: &str| args.out.join(name);
    let node = match args.name.clone().or_else(own_name) {
        Some(node) => node,
        None => {
            return Err(
                CommandFailure::usage("the name of this host is not a valid node name")
                    .help("--name NODE"),
            );
        }
    };
    let files = CertificateFiles {
        ca: Some(at("ca.pem")),
        own: None,
    };
    let client = Client::with_credentials(
        &context.addr,
        ClientCredentials {
            files,
            token,
            other: ExpectedPeer::Manager,
        },
    )?;
    let (request, key) = authority::request()?;
    let joined = client
        .join(&NodeJoinRequest {
            node: node.clone(),
            names: args.names.clone(),
            request,
        })
        .await?;
    files::write(
        &at("key.pem"),
        &key.0,
        FileReaders::Owner,
        OverwritePolicy::Keep,
    )?;
    files::write(
        &at("cert.pem"),
        &joined.certificate,
        FileReaders::All,
        OverwritePolicy::Keep,
    )?;
    context.term.line(&format!(
        "{node} has a certificate in {}",
        args.out.display()
    ));
    context.term.say(&format!(
        "Next, in nodeagent.toml: rm = \"{}\" and tls = \"{}\"",
        context.addr,
        args.out.display()
    ));
    Ok(CommandExitCode::Ok)
}

fn own_name() -> Option<NodeId> {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()?
        .trim()
        .parse()
        .ok()
}
