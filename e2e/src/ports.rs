//! Free loopback ports.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::TcpListener;

use anyhow::{Result, bail};

/// Below Linux's default ephemeral range (32768..61000), so that no outgoing connection takes one of them between
/// the check and the start of the server.
const FIRST: u16 = 20_000;
const LAST: u16 = 32_000;

/// Finds `N` different TCP ports on which nothing listens on the loopback interface.
pub(crate) fn free<const N: usize>() -> Result<[u16; N]> {
    let span = u64::from(LAST - FIRST);
    let start = u16::try_from(RandomState::new().build_hasher().finish() % span)?;
    let mut found = [0; N];
    let mut held = Vec::with_capacity(N);
    let candidates = (FIRST + start..LAST).chain(FIRST..FIRST + start);
    for port in candidates {
        if held.len() == N {
            break;
        }
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            if let Some(slot) = found.get_mut(held.len()) {
                *slot = port;
            }
            held.push(listener);
        }
    }
    if held.len() < N {
        bail!("fewer than {N} free ports between {FIRST} and {LAST} on 127.0.0.1");
    }
    Ok(found)
}
