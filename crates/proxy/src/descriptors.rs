//! How many file descriptors this process may open. Every connection, session and listener takes some,
//! and the other parts of the process need some too, so limits are computed from this number.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit of open files to the hard limit, and returns it.
pub fn raise() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return MODEST;
    };
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_err() {
        return soft;
    }
    hard
}

/// The limit that is assumed if the system does not tell it.
const MODEST: u64 = 1024;
