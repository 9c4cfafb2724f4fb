//! Master URL of a cluster for Spark: `spark-headroom://HOST:PORT`, with `+https` for TLS. Pure.

use headroom_types::split_address_list;

use super::arguments::usage;
use crate::exit::CommandResult;

/// Converts the addresses of the resource managers, separated by commas. Fails for a Unix socket,
/// which Spark cannot use.
pub(crate) fn master_url(addresses: &str) -> CommandResult<String> {
    let wrong = |address: &str| {
        usage(format!("Spark cannot connect to {address}"))
            .help("name an address over TCP: rmctl --addr http://HOST:PORT, or https:// with TLS")
    };
    let list = split_address_list(addresses).map_err(|error| usage(error.to_string()))?;
    let (scheme, master, port) = if addresses.trim_start().starts_with("https://") {
        ("https://", "spark-headroom+https://", 443)
    } else {
        ("http://", "spark-headroom://", 80)
    };
    let hosts = list.iter().map(|address| {
        let host = address.strip_prefix(scheme);
        match host.filter(|host| !host.is_empty() && !host.contains('/')) {
            Some(host) if has_port(host) => Ok(host.to_owned()),
            Some(host) => Ok(format!("{host}:{port}")),
            None => Err(wrong(address)),
        }
    });
    let hosts = hosts.collect::<CommandResult<Vec<_>>>()?;
    Ok(format!("{master}{}", hosts.join(",")))
}

fn has_port(host: &str) -> bool {
    let port = host.rsplit_once(':').map_or("", |(_, port)| port);
    !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
}

/// Checks that `--master` names the cluster at `address`: all resource managers, or one of them.
pub(crate) fn check_master(given: Option<&str>, address: &str) -> CommandResult<()> {
    let Some(given) = given else { return Ok(()) };
    let each = split_address_list(address).unwrap_or_default();
    let same = std::iter::once(address)
        .chain(each)
        .any(|one| master_url(one).is_ok_and(|own| own == given.trim_end_matches('/')));
    if same {
        return Ok(());
    }
    let failure = usage(format!(
        "--master {given}: this command submits to {address}"
    ));
    Err(failure.help("omit --master, or choose another cluster with rmctl --addr or --context"))
}

/// Checks that the deploy mode is `cluster`.
pub(crate) fn check_deploy_mode(given: Option<&str>) -> CommandResult<()> {
    match given {
        None | Some("cluster") => Ok(()),
        Some("client") => Err(usage("rmctl spark submit runs the driver on a node")
            .help("client mode is spark-submit itself: spark-submit $(rmctl spark conf) …")),
        Some(other) => Err(usage(format!("--deploy-mode {other}: write cluster"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_becomes_a_master_url() {
        for (address, url) in [
            ("http://rm:7070", "spark-headroom://rm:7070"),
            ("https://rm:7070/", "spark-headroom+https://rm:7070"),
            ("https://rm", "spark-headroom+https://rm:443"),
            ("http://[::1]:7070", "spark-headroom://[::1]:7070"),
            (
                "https://rm1:7070, https://rm2/",
                "spark-headroom+https://rm1:7070,rm2:443",
            ),
        ] {
            assert_eq!(master_url(address).as_deref(), Ok(url));
        }
        let socket = master_url("unix:/run/s").expect_err("a socket");
        assert!(socket.to_string().contains("--addr"), "{socket}");
    }

    #[test]
    fn only_the_own_cluster_and_cluster_mode_are_accepted() {
        let at = "http://rm:7070";
        assert!(check_master(None, at).is_ok());
        assert!(check_master(Some("spark-headroom://rm:7070"), at).is_ok());
        for other in ["yarn", "spark-headroom://other:7070", "local[2]"] {
            let failure = check_master(Some(other), at).expect_err(other).to_string();
            assert!(failure.contains(other) && failure.contains("omit --master"));
        }
        let several = "http://rm:7070,http://rm2:7070";
        for own in [
            "spark-headroom://rm:7070,rm2:7070",
            "spark-headroom://rm2:7070/",
        ] {
            assert!(check_master(Some(own), several).is_ok(), "{own}");
        }
        assert!(check_master(Some("spark-headroom://rm3:7070"), several).is_err());
        assert!(check_deploy_mode(Some("cluster")).is_ok());
        let client = check_deploy_mode(Some("client")).expect_err("client mode");
        assert!(client.to_string().contains("rmctl spark conf"));
        assert!(check_deploy_mode(Some("x")).is_err());
    }
}
