//! How many sockets this process may have, and which of its addresses they come from.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context as _, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors kept for all that is no agent: masters, pipes, files.
const OTHERS: u64 = 600;
/// Connections from one address of loopback; there are 28,000 ports for each.
const PER_ADDRESS: usize = 5_000;

/// Takes all descriptors this process may have; how many.
pub fn raise() -> Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("the limit of open files")?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("raising the limit of open files")?;
    }
    Ok(hard)
}

/// Connections for reports that so many agents share: one each, or as many as are left beside one stream each.
pub fn report_lines(agents: usize, descriptors: u64) -> usize {
    let left = usize::try_from(descriptors.saturating_sub(OTHERS)).unwrap_or(usize::MAX).saturating_sub(agents);
    agents.min(left).max(1)
}

/// The address of loopback that connection `n` comes from.
pub fn address(n: usize) -> IpAddr {
    let last = u8::try_from(1 + n / PER_ADDRESS).unwrap_or(u8::MAX);
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_share_what_the_limit_leaves() {
        assert_eq!(report_lines(10_000, 1 << 20), 10_000);
        assert_eq!(report_lines(10_000, 20_000), 9_400);
        assert_eq!(report_lines(10_000, 5_000), 1);
        assert_eq!((address(4_999), address(5_000)), (address(0), "127.0.0.2".parse().expect("an address")));
    }
}
