//! Says to the speaker of the node what is open: for each address in the Plan, whether traffic that arrives there is
//! served, and the ports of its listeners. Each change is a line of JSON over the socket in `/run/bowline`. A node without
//! a speaker has no such socket, and that is no error.

use crate::sockets::{self, SPEAKER};
use bowline_core::announce::Listening;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::watch;

/// How often the agent looks for a speaker.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The addresses in the Plan, each with what listens there. None: no Plan is known yet.
pub(super) type Addresses = Option<Arc<BTreeMap<IpAddr, Listening>>>;

/// Says what is open until the sender is dropped. `hears` tells whether a speaker is there.
pub(super) async fn tell(
    folder: PathBuf,
    load_balancer: Arc<str>,
    mut addresses: watch::Receiver<Addresses>,
    hears: Arc<AtomicBool>,
) {
    let (path, mut told) = (folder.join(SPEAKER), false);
    loop {
        match UnixStream::connect(&path).await {
            Ok(speaker) => {
                told = false;
                tracing::debug!("says to the speaker what is open");
                hears.store(true, Ordering::Relaxed);
                let talked = talk(speaker, &load_balancer, &mut addresses).await;
                hears.store(false, Ordering::Relaxed);
                if talked.is_none() {
                    return;
                }
            }
            Err(error) if is_absent(&error) => {}
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    let socket = path.display();
                    tracing::warn!(
                        %socket, %error,
                        "cannot reach the speaker of this node, so it announces nothing of this load balancer \
                         (--sockets-group of the speaker names a group that may)"
                    );
                }
            }
        }
        if addresses.has_changed().is_err() {
            return;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Whether the node has no speaker, or one that starts anew.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Talks until the speaker hangs up. None: the agent ends.
async fn talk(
    mut speaker: UnixStream,
    load_balancer: &Arc<str>,
    addresses: &mut watch::Receiver<Addresses>,
) -> Option<()> {
    loop {
        let known = addresses.borrow_and_update().clone();
        if let Some(addresses) = known {
            for line in sockets::lines(load_balancer, &addresses) {
                if speaker.write_all(&line).await.is_err() {
                    return Some(());
                }
            }
        }
        let mut byte = [0];
        tokio::select! {
            changed = addresses.changed() => changed.ok()?,
            // The speaker says nothing, so this is its end.
            _ = speaker.read(&mut byte) => return Some(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncBufReadExt as _, BufReader};
    use tokio::net::UnixListener;

    #[test]
    fn a_socket_that_may_not_be_used_is_no_absent_speaker() {
        let is = |kind: io::ErrorKind| is_absent(&kind.into());
        assert!(is(io::ErrorKind::NotFound) && is(io::ErrorKind::ConnectionRefused));
        assert!(!is(io::ErrorKind::PermissionDenied));
    }

    #[tokio::test]
    async fn each_speaker_hears_what_is_open_and_every_change() {
        let folder = tempfile::tempdir().unwrap();
        let (sender, receiver) = watch::channel(None);
        let hears = Arc::<AtomicBool>::default();
        let telling =
            tokio::spawn(tell(folder.path().to_owned(), "edge".into(), receiver, hears.clone()));
        for (round, open) in [(0, false), (1, true)] {
            let listener = UnixListener::bind(folder.path().join(SPEAKER)).unwrap();
            let ports = Some([(bowline_core::plan::Transport::Tcp, 80)].into()).into();
            let listening = Listening { open, ports };
            let addresses = BTreeMap::from([("192.0.2.1".parse().unwrap(), listening)]);
            sender.send_replace(Some(addresses.into()));
            let (connection, _) = listener.accept().await.unwrap();
            let mut lines = BufReader::new(connection).lines();
            let line = lines.next_line().await.unwrap().unwrap();
            assert!(hears.load(Ordering::Relaxed), "round {round}");
            let expected = format!(
                r#"{{"loadBalancer":"edge","addresses":{{"192.0.2.1":{{"open":{open},"ports":[["TCP",80]]}}}}}}"#
            );
            assert_eq!(line, expected, "round {round}");
            sender.send_replace(Some(BTreeMap::new().into()));
            let line = lines.next_line().await.unwrap().unwrap();
            assert_eq!(line, r#"{"loadBalancer":"edge","addresses":{}}"#, "round {round}");
            std::fs::remove_file(folder.path().join(SPEAKER)).unwrap();
        }
        drop(sender);
        telling.await.unwrap();
    }
}
