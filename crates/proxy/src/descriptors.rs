//! How many file descriptors this process may have. Every connection, session and listener takes some,
//! and whoever shares the process needs some too: limits are made from what there is.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises what this process may open to the most that it may ask for, and says how much that is.
pub fn raise() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return MODEST;
    };
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_err() {
        return soft;
    }
    hard
}

/// What a process may have where nobody says.
const MODEST: u64 = 1024;
