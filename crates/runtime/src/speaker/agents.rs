//! The socket at which agents of this node say what is open: a line of JSON for each change. An agent that ends or
//! hangs up says that nothing is open any more; its addresses stay on the node for a while, since its proxy may still
//! serve connections and the agent may come back. Several agents of one load balancer count together.

use super::Heard;
use crate::sockets::{Open, SPEAKER};
use crate::supervise::Keeper;
use bowline_core::announce::{Event, Listening};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

/// The longest line. An agent says a part of its addresses in each, and one address with all ports is shorter.
const LONGEST_LINE: u64 = 4 << 20;

/// How long the addresses of an agent that has ended stay on the node.
const LINGER: Duration = Duration::from_secs(60);

/// What each connection said last.
type Said = Arc<Mutex<BTreeMap<u64, Open>>>;

/// Listens in this folder.
pub(super) fn listen(
    folder: PathBuf,
    group: Option<u32>,
    sender: mpsc::Sender<Heard>,
    tasks: &mut Keeper,
) {
    let said = Said::default();
    tasks.keep("the socket for agents", move |works| {
        let (folder, sender, said) = (folder.clone(), sender.clone(), said.clone());
        async move {
            match bind(&folder, group) {
                Ok(listener) => {
                    works.now();
                    accept(listener, sender, said).await;
                }
                Err(error) => {
                    let folder = folder.display();
                    tracing::error!(%folder, %error, "agents cannot say what is open");
                }
            }
        }
    });
}

/// A socket that only processes of this user can use, and of the group. The one that an earlier process left is replaced.
fn bind(folder: &Path, group: Option<u32>) -> io::Result<UnixListener> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(SPEAKER);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    let mode = if group.is_some() { 0o660 } else { 0o600 };
    std::os::unix::fs::chown(&path, None, group)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
    Ok(listener)
}

async fn accept(listener: UnixListener, sender: mpsc::Sender<Heard>, said: Said) {
    let mut connections = tokio::task::JoinSet::new();
    for number in 0.. {
        match listener.accept().await {
            Ok((connection, _)) => {
                connections.spawn(hear(connection, number, sender.clone(), said.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an agent");
                return;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn hear(connection: UnixStream, number: u64, sender: mpsc::Sender<Heard>, said: Said) {
    let mut reader = BufReader::new(connection);
    // What was said with more to come.
    let mut begun = BTreeMap::new();
    loop {
        let mut line = Vec::new();
        let read = (&mut reader).take(LONGEST_LINE).read_until(b'\n', &mut line).await;
        let open = match read {
            Ok(1..) if line.ends_with(b"\n") => serde_json::from_slice::<Open>(&line),
            Ok(length) if length as u64 == LONGEST_LINE => {
                tracing::warn!(LONGEST_LINE, "an agent says more in one line than is read");
                break;
            }
            _ => break,
        };
        match open {
            Ok(open) if open.more => begun.extend(Arc::unwrap_or_clone(open.addresses)),
            Ok(mut open) => {
                if !begun.is_empty() {
                    begun.extend(Arc::unwrap_or_clone(open.addresses));
                    open.addresses = Arc::new(std::mem::take(&mut begun));
                }
                let name = open.load_balancer.clone();
                let before = said.lock().insert(number, open);
                let moved = before.map(|it| it.load_balancer).filter(|it| *it != name);
                for name in moved.into_iter().chain([name]) {
                    tell(&name, &sender, &said).await;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "an agent says what cannot be read");
                break;
            }
        }
    }
    let closed = {
        let mut said = said.lock();
        said.get_mut(&number).map(|open| {
            let closed = |(address, it): (&IpAddr, &Listening)| {
                (*address, Listening { open: false, ..it.clone() })
            };
            open.addresses = Arc::new(open.addresses.iter().map(closed).collect());
            open.load_balancer.clone()
        })
    };
    if let Some(name) = closed {
        tell(&name, &sender, &said).await;
        tokio::time::sleep(LINGER).await;
        said.lock().remove(&number);
        tell(&name, &sender, &said).await;
    }
}

/// Tells what the agents of a load balancer have open together.
async fn tell(load_balancer: &Arc<str>, sender: &mpsc::Sender<Heard>, said: &Said) {
    let together = {
        let said = said.lock();
        let mut of_it = said.values().filter(|it| it.load_balancer == *load_balancer).peekable();
        of_it.peek().is_some().then(|| {
            let mut together = BTreeMap::<IpAddr, Listening>::new();
            for (address, it) in of_it.flat_map(|it| &*it.addresses) {
                match together.get_mut(address) {
                    Some(sum) => {
                        sum.open |= it.open;
                        sum.ports = sum.ports.and(&it.ports);
                    }
                    None => _ = together.insert(*address, it.clone()),
                }
            }
            together
        })
    };
    let event = Event::Agent(load_balancer.clone(), together);
    // The speaker ends.
    let _ = sender.send(Heard::Event(event)).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::lines;
    use bowline_core::plan::Transport;
    use std::collections::BTreeSet;
    use tokio::io::AsyncWriteExt as _;

    async fn next(heard: &mut mpsc::Receiver<Heard>) -> Event {
        let wait = tokio::time::timeout(3 * LINGER, heard.recv());
        match wait.await.expect("an event").expect("a speaker") {
            Heard::Event(event) => event,
            other => panic!("{other:?}"),
        }
    }

    fn event(addresses: Option<&[(&str, bool)]>) -> Event {
        let listening = |open| Listening { open, ..Listening::default() };
        let read = |(text, open): &(&str, bool)| (text.parse().unwrap(), listening(*open));
        Event::Agent("edge".into(), addresses.map(|all| all.iter().map(read).collect()))
    }

    #[tokio::test(start_paused = true)]
    async fn agents_of_a_load_balancer_count_together_until_they_hang_up() {
        let folder = tempfile::tempdir().unwrap();
        let (sender, mut heard) = mpsc::channel(10);
        tokio::spawn(accept(bind(folder.path(), None).unwrap(), sender, Said::default()));
        let connect = || UnixStream::connect(folder.path().join(SPEAKER));
        let (mut one, mut two) = (connect().await.unwrap(), connect().await.unwrap());
        let line = |open| {
            format!(r#"{{"loadBalancer":"edge","addresses":{{"192.0.2.1":{{"open":{open}}}}}}}"#)
        };
        one.write_all(format!("{}\n", line(false)).as_bytes()).await.unwrap();
        assert_eq!(next(&mut heard).await, event(Some(&[("192.0.2.1", false)])));
        two.write_all(format!("{}\n", line(true)).as_bytes()).await.unwrap();
        assert_eq!(next(&mut heard).await, event(Some(&[("192.0.2.1", true)])));
        drop(two);
        assert_eq!(next(&mut heard).await, event(Some(&[("192.0.2.1", false)])));
        let begun = tokio::time::Instant::now();
        drop(one);
        assert_eq!(next(&mut heard).await, event(Some(&[("192.0.2.1", false)])));
        assert_eq!(next(&mut heard).await, event(Some(&[("192.0.2.1", false)])), "two is gone");
        assert_eq!(next(&mut heard).await, event(None), "the addresses may go");
        assert!(begun.elapsed() >= LINGER);
    }

    #[tokio::test]
    async fn the_socket_of_an_earlier_process_is_replaced_and_belongs_to_this_user() {
        let folder = tempfile::tempdir().unwrap();
        drop(bind(folder.path(), None).unwrap());
        let _again = bind(folder.path(), None).unwrap();
        let mode = std::fs::metadata(folder.path().join(SPEAKER)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[tokio::test]
    async fn the_socket_belongs_to_the_group_of_the_agents() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().unwrap();
        let group = std::fs::metadata(folder.path()).unwrap().gid();
        let _socket = bind(folder.path(), Some(group)).unwrap();
        let metadata = std::fs::metadata(folder.path().join(SPEAKER)).unwrap();
        assert_eq!((metadata.permissions().mode() & 0o777, metadata.gid()), (0o660, group));
    }

    #[tokio::test]
    async fn an_agent_with_many_addresses_says_them_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let (sender, mut heard) = mpsc::channel(10);
        tokio::spawn(accept(bind(folder.path(), None).unwrap(), sender, Said::default()));
        let mut agent = UnixStream::connect(folder.path().join(SPEAKER)).await.unwrap();
        let ports: BTreeSet<_> = (1..=250).map(|port| (Transport::Tcp, port)).collect();
        let listening = Listening { open: true, ports: Some(ports).into() };
        let address = |number: u32| IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 + number));
        let all: BTreeMap<_, _> = (0..2000).map(|it| (address(it), listening.clone())).collect();
        for line in lines(&"edge".into(), &all) {
            agent.write_all(&line).await.unwrap();
        }
        assert_eq!(next(&mut heard).await, Event::Agent("edge".into(), Some(all)));
        // What is said next stands alone.
        for line in lines(&"edge".into(), &BTreeMap::new()) {
            agent.write_all(&line).await.unwrap();
        }
        assert_eq!(next(&mut heard).await, event(Some(&[])));
    }
}
