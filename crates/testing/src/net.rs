//! A network of the tests' own: one network namespace for each test binary. All its addresses are on
//! `lo`, every port is free, and nothing of the machine can be reached or disturbed. Tests need addresses
//! other than loopback, because an API server refuses loopback addresses as endpoints, and they need
//! ports 80 and 443.
//!
//! A network namespace belongs to a thread, and threads and processes that it starts inherit it. So
//! [`in_namespace`] enters it before the test's runtime is created.

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs::File;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

static NAMESPACE: OnceLock<File> = OnceLock::new();

/// Runs a test in the network of this test binary, on a runtime of its own.
pub fn in_namespace<F: Future>(test: impl FnOnce() -> F) -> F::Output {
    enter();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("build a runtime");
    runtime.block_on(test())
}

/// Moves the calling thread into the network of this test binary. Threads and processes that it starts
/// afterwards are there too; earlier ones are not.
pub fn enter() {
    let namespace = NAMESPACE.get_or_init(|| {
        raise_descriptors();
        let made = std::thread::spawn(make).join();
        made.unwrap_or_else(|_| panic!("no network namespace"))
    });
    setns(namespace, CloneFlags::CLONE_NEWNET).unwrap_or_else(|e| not_permitted(&e.to_string()));
}

/// Raises the limit of file descriptors: a test with thousands of connections needs more than most shells
/// allow. A limit that cannot be raised stays; the test then fails with the reason.
fn raise_descriptors() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// Whether a thread of this process has entered it.
pub fn is_entered() -> bool {
    NAMESPACE.get().is_some()
}

/// Runs on a thread that ends at once, so that the caller's network does not change.
fn make() -> File {
    unshare(CloneFlags::CLONE_NEWNET).unwrap_or_else(|e| not_permitted(&e.to_string()));
    ip(&["link", "set", "lo", "up"]);
    File::open("/proc/thread-self/ns/net").expect("open the namespace")
}

fn not_permitted(why: &str) -> ! {
    panic!(
        "these tests make a network of their own, which is not permitted here ({why}); run them as \
         root, or with\n  unshare -r cargo test --test traffic"
    )
}

/// Adds an address to the network.
pub fn add(address: IpAddr) {
    match address {
        IpAddr::V4(_) => ip(&["addr", "add", &format!("{address}/32"), "dev", "lo"]),
        // `nodad`: no other host can have the address, so detecting duplicates would only take time.
        IpAddr::V6(_) => {
            ip(&["addr", "add", &format!("{address}/128"), "dev", "lo", "nodad"]);
            wait_until_reached(address);
        }
    }
}

/// Linux accepts an IPv6 address at once but completes it later, from a work queue. Until then it can be
/// bound and has a route, but nothing answers, so only a connection proves it.
#[allow(
    clippy::disallowed_methods,
    reason = "asks until the address is reached, which takes a millisecond or two"
)]
fn wait_until_reached(address: IpAddr) {
    let listener = TcpListener::bind((address, 0)).expect("bind the address");
    let at = listener.local_addr().expect("an address");
    let deadline = Instant::now() + Duration::from_secs(10);
    while let Err(e) = TcpStream::connect(at) {
        assert!(Instant::now() < deadline, "{address} is not reached: {e}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Removes an address.
pub fn remove(address: IpAddr) {
    let length = if address.is_ipv4() { 32 } else { 128 };
    ip(&["addr", "del", &format!("{address}/{length}"), "dev", "lo"]);
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().unwrap_or_else(|e| {
        panic!("cannot run ip ({e}); install it with\n  sudo apt-get install -y iproute2")
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {said}", args.join(" "));
}

/// A number that no other address of this test binary has.
fn number() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A fresh IPv4 address for a load balancer.
pub fn vip4() -> IpAddr {
    fresh4([203, 0])
}

/// A fresh IPv6 address for a load balancer.
pub fn vip6() -> IpAddr {
    fresh6([0x2001, 0xdb8])
}

/// A fresh IPv4 address for a Pod.
pub fn pod4() -> IpAddr {
    fresh4([10, 244])
}

/// A fresh IPv6 address for a Pod.
pub fn pod6() -> IpAddr {
    fresh6([0xfd00, 0x244])
}

/// A fresh IPv4 address for a client, from 198.18.0.0/16.
pub fn client4() -> IpAddr {
    fresh4([198, 18])
}

/// A fresh IPv6 address for a client, from 2001:2::/32.
pub fn client6() -> IpAddr {
    fresh6([0x2001, 2])
}

fn fresh4([a, b]: [u8; 2]) -> IpAddr {
    let [c, d] = number().to_be_bytes();
    let address = Ipv4Addr::new(a, b, c, d).into();
    add(address);
    address
}

fn fresh6([a, b]: [u16; 2]) -> IpAddr {
    let address = Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, number()).into();
    add(address);
    address
}

#[cfg(test)]
mod tests {
    use super::{in_namespace, vip4, vip6};
    use tokio::net::{TcpListener, TcpStream};

    #[test]
    fn any_address_and_port_can_be_had_and_the_machine_is_out_of_reach() {
        let outside = std::net::TcpListener::bind("127.0.0.1:0").expect("bind outside");
        let outside = outside.local_addr().expect("an address");
        let inside = std::thread::spawn(move || {
            in_namespace(|| async move {
                for address in [vip4(), vip6()] {
                    let listener = TcpListener::bind((address, 80)).await.expect("bind port 80");
                    let made = TcpStream::connect((address, 80)).await;
                    assert!(made.is_ok(), "connect to {address}: {made:?}");
                    drop(listener);
                }
                TcpStream::connect(outside).await.is_err()
            })
        });
        assert!(inside.join().expect("the test inside"), "the machine can be reached");
    }
}
