//! The limit of sockets of this process, and their source addresses.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context as _, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors for everything except agents: masters, pipes, files.
const OTHERS: u64 = 600;
/// Connections per loopback address. Each has 28,000 ephemeral ports.
const PER_ADDRESS: usize = 20_000;

/// Raises the limit of descriptors to the maximum and returns it.
pub fn raise() -> Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("the limit of open files")?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
            .context("raising the limit of open files")?;
    }
    Ok(hard)
}

/// Number of connections for reports that the agents share: one each, or the remaining descriptors
/// after one stream for each agent.
pub fn report_lines(agents: usize, descriptors: u64) -> usize {
    let left = usize::try_from(descriptors.saturating_sub(OTHERS))
        .unwrap_or(usize::MAX)
        .saturating_sub(agents);
    agents.min(left).max(1)
}

/// The loopback address that connection `n` uses as its source. `None` for the first ones, which
/// use the address that the kernel chooses: for a named one, it searches for a port that no other
/// socket has, which is most of the work of a measurement with thousands of connections.
pub fn address(n: usize) -> Option<IpAddr> {
    let last = u8::try_from(1 + n / PER_ADDRESS).unwrap_or(u8::MAX);
    (last > 1).then_some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_share_the_remaining_descriptors() {
        assert_eq!(report_lines(10_000, 1 << 20), 10_000);
        assert_eq!(report_lines(10_000, 20_000), 9_400);
        assert_eq!(report_lines(10_000, 5_000), 1);
        assert_eq!(
            (address(19_999), address(20_000)),
            (None, "127.0.0.2".parse().ok())
        );
    }
}
