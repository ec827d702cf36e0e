//! Asks the admin endpoints of agents what they have in force now: one short request each, all at once. What cannot be reached
//! in a second is not waited for.

use crate::view::now::{Answer, Asked};
use bowline_runtime::agents_page::Page;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// How long an agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most bytes of an answer.
const MOST: u64 = 256 * 1024;

/// Asks all of them.
pub(super) async fn all(asked: Vec<Asked>) -> Vec<(Asked, Answer)> {
    let mut asking = JoinSet::new();
    for one in asked {
        asking.spawn(async move {
            let answer = match tokio::time::timeout(PATIENCE, ask(one.at)).await {
                Ok(Ok(page)) => match page.agents.into_iter().find(|it| it.agent == one.agent) {
                    Some(now) => Answer::Now(now),
                    None => Answer::None("another process answers there".to_owned()),
                },
                Ok(Err(why)) => Answer::None(why),
                Err(_) => Answer::None(format!("no answer within {} s", PATIENCE.as_secs())),
            };
            (one, answer)
        });
    }
    let mut all = asking.join_all().await;
    all.sort_by(|(one, _), (other, _)| one.agent.cmp(&other.agent));
    all
}

async fn ask(at: SocketAddr) -> Result<Page, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(at).await.map_err(text)?;
    // Of this version of HTTP a server closes the connection after the answer.
    let request = format!("GET /agents HTTP/1.0\r\nhost: {at}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(text)?;
    let mut answer = Vec::new();
    stream.take(MOST).read_to_end(&mut answer).await.map_err(text)?;
    read(&answer)
}

/// Reads an answer.
fn read(answer: &[u8]) -> Result<Page, String> {
    const OTHER: &str = "something else answers there, or an agent of an earlier version";
    let end = answer.windows(4).position(|it| it == b"\r\n\r\n").ok_or(OTHER)?;
    let (head, body) = answer.split_at(end + 4);
    let good = head.starts_with(b"HTTP/1.0 200 ") || head.starts_with(b"HTTP/1.1 200 ");
    let page = good.then(|| serde_json::from_slice(body).ok()).flatten();
    page.ok_or_else(|| OTHER.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_page_or_of_somebody_else() {
        let good = b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n{\"agents\":[]}";
        assert_eq!(read(good), Ok(Page::default()));
        for bad in [
            &b""[..],
            b"SSH-2.0-x\r\n\r\n",
            b"HTTP/1.1 404 Not Found\r\n\r\n{\"agents\":[]}",
            b"HTTP/1.1 200 OK\r\n\r\n<html>",
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
