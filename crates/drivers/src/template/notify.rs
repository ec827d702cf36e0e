//! Notifiers, with kube2lb's grammar: `command:SHELL`, `pid:SIGNAL:PID`, `pidfile:SIGNAL:FILE`, `debug:`, and
//! `http:URL`. They come only from flags; no text from the cluster reaches them. The publisher runs them.

use super::shell;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use tokio::net::TcpStream;

/// A way to report that the configuration has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notifier {
    /// A command in a shell.
    Command(String),
    /// A signal to a process.
    Pid(Signal, i32),
    /// A signal to the process with the pid in a file.
    PidFile(Signal, PathBuf),
    /// A POST without a body; any 2xx answer is success.
    Http(Uri),
    /// A line in the log.
    Debug,
}

/// Why a text is not a notifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNotifier {
    /// The kind is unknown.
    #[error("write command:SHELL, pid:SIGNAL:PID, pidfile:SIGNAL:FILE, http:URL or debug:")]
    Kind,
    /// Something is missing.
    #[error("write {0}")]
    Form(&'static str),
    /// The signal does not exist.
    #[error("{0:?} is not a signal such as SIGHUP")]
    Signal(String),
    /// It is not a pid.
    #[error("{0:?} is not the number of a process")]
    Pid(String),
    /// It is not a usable URL.
    #[error(
        "{0:?} is not a URL such as http://127.0.0.1:8080/reload; for https use command:curl …"
    )]
    Url(String),
    /// It contains a password, which would get into logs. So the text is not quoted here.
    #[error("a URL must not have a user or a password; use command:curl … with a file instead")]
    Userinfo,
}

impl FromStr for Notifier {
    type Err = BadNotifier;

    fn from_str(text: &str) -> Result<Self, BadNotifier> {
        let (kind, rest) = text.split_once(':').ok_or(BadNotifier::Kind)?;
        match kind {
            "command" if rest.trim().is_empty() => Err(BadNotifier::Form("command:SHELL")),
            "command" => Ok(Self::Command(rest.to_owned())),
            "pid" => {
                let form = BadNotifier::Form("pid:SIGNAL:PID");
                let (name, number) = rest.split_once(':').ok_or(form)?;
                Ok(Self::Pid(signal(name)?, pid(number)?))
            }
            "pidfile" => {
                let form = BadNotifier::Form("pidfile:SIGNAL:FILE");
                let (name, file) =
                    rest.split_once(':').filter(|(_, file)| !file.is_empty()).ok_or(form)?;
                Ok(Self::PidFile(signal(name)?, file.into()))
            }
            // Both `http:http://…` and `http://…`.
            "http" => url(if rest.starts_with("//") { text } else { rest }).map(Self::Http),
            "debug" => Ok(Self::Debug),
            _ => Err(BadNotifier::Kind),
        }
    }
}

impl fmt::Display for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(command) => write!(f, "command:{command}"),
            Self::Pid(signal, pid) => write!(f, "pid:{signal}:{pid}"),
            Self::PidFile(signal, file) => write!(f, "pidfile:{signal}:{}", file.display()),
            Self::Http(uri) => write!(f, "http:{uri}"),
            Self::Debug => f.write_str("debug:"),
        }
    }
}

fn signal(name: &str) -> Result<Signal, BadNotifier> {
    let upper = name.to_ascii_uppercase();
    let full = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    full.parse().map_err(|_| BadNotifier::Signal(name.to_owned()))
}

/// Parses a pid. Numbers up to 0 are process groups, never one process.
fn pid(number: &str) -> Result<i32, BadNotifier> {
    let read = number.trim().parse().ok().filter(|pid| *pid > 0);
    read.ok_or_else(|| BadNotifier::Pid(number.trim().to_owned()))
}

fn url(text: &str) -> Result<Uri, BadNotifier> {
    let read = text.parse::<Uri>().ok();
    // A malformed URL may contain a password, too.
    let authority = text.split_once("//").map_or(text, |(_, rest)| rest);
    if authority.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@')) {
        return Err(BadNotifier::Userinfo);
    }
    read.filter(|uri| uri.scheme_str() == Some("http") && uri.host().is_some())
        .ok_or_else(|| BadNotifier::Url(text.to_owned()))
}

impl Notifier {
    /// Reports that the configuration has changed. Returns what was done, or why it failed.
    pub async fn notify(&self, limit: Duration) -> Result<String, String> {
        match self {
            Self::Command(command) => {
                shell::run(command, None, limit).await.map_err(|failed| failed.to_string())
            }
            Self::Pid(signal, pid) => send(*signal, *pid),
            Self::PidFile(signal, file) => {
                let text = tokio::fs::read_to_string(file).await;
                let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
                let pid = pid(&text).map_err(|why| format!("{}: {why}", file.display()))?;
                send(*signal, pid)
            }
            Self::Http(uri) => match tokio::time::timeout(limit, post(uri)).await {
                Ok(answer) => answer,
                Err(_) => Err(format!("no answer within {limit:?}")),
            },
            Self::Debug => Ok("the configuration has changed".to_owned()),
        }
    }
}

fn send(signal: Signal, pid: i32) -> Result<String, String> {
    kill(Pid::from_raw(pid), signal)
        .map(|()| format!("{signal} to {pid}"))
        .map_err(|error| format!("{signal} to {pid}: {error}"))
}

async fn post(uri: &Uri) -> Result<String, String> {
    let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(80))).await;
    let stream = stream.map_err(|error| format!("{authority}: {error}"))?;
    let told = |error: hyper::Error| format!("{authority}: {error}");
    let io = TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.map_err(told)?;
    let connection = tokio::spawn(connection);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::post(path)
        .header("host", &authority)
        .header("content-length", "0")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let answer = sender.send_request(request).await.map_err(told);
    let outcome = match answer {
        Ok(answer) if answer.status().is_success() => {
            let status = answer.status();
            let _ = answer.into_body().collect().await;
            Ok(status.to_string())
        }
        Ok(answer) => Err(format!("{authority} answered {}", answer.status())),
        Err(error) => Err(error),
    };
    connection.abort();
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Notifier, String> {
        text.parse().map_err(|bad: BadNotifier| bad.to_string())
    }

    #[test]
    fn the_grammar_is_kube2lbs_and_http() {
        assert_eq!(read("command:a: b"), Ok(Notifier::Command("a: b".into())));
        assert_eq!(read("pid:SIGHUP:5678"), Ok(Notifier::Pid(Signal::SIGHUP, 5678)));
        assert_eq!(read("pid:usr1:1"), Ok(Notifier::Pid(Signal::SIGUSR1, 1)));
        let file = Notifier::PidFile(Signal::SIGUSR1, "/run/a:b.pid".into());
        assert_eq!(read("pidfile:SIGUSR1:/run/a:b.pid"), Ok(file));
        assert_eq!(read("debug:"), Ok(Notifier::Debug));
        let uri = Notifier::Http("http://127.0.0.1:1/x".parse().unwrap());
        assert_eq!(read("http:http://127.0.0.1:1/x"), Ok(uri.clone()));
        assert_eq!(read("http://127.0.0.1:1/x"), Ok(uri));
    }

    #[test]
    fn what_is_no_notifier_is_refused_with_what_is_accepted() {
        let kinds = "write command:SHELL, pid:SIGNAL:PID, pidfile:SIGNAL:FILE, http:URL or debug:";
        let cases = [
            ("", kinds),
            ("reload", kinds),
            ("mail:x", kinds),
            ("command:", "write command:SHELL"),
            ("pid:SIGHUP", "write pid:SIGNAL:PID"),
            ("pid:NOPE:1", "\"NOPE\" is not a signal such as SIGHUP"),
            ("pid:HUP:-1", "\"-1\" is not the number of a process"),
            ("pid:HUP:0", "\"0\" is not the number of a process"),
            ("pidfile:HUP:", "write pidfile:SIGNAL:FILE"),
        ];
        for (text, why) in cases {
            assert_eq!(read(text), Err(why.to_owned()), "{text}");
        }
        let userinfo = Err(BadNotifier::Userinfo.to_string());
        assert_eq!(read("http://user:pass@127.0.0.1/x"), userinfo);
        assert_eq!(read("http:user:pass@host"), userinfo);
        assert!(read("http:https://a/").is_err() && read("http:nowhere").is_err());
    }

    #[tokio::test]
    async fn a_post_succeeds_with_any_2xx_and_fails_with_others() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let notifier: Notifier =
            format!("http://{}/reload?x=1", listener.local_addr().unwrap()).parse().unwrap();
        let answers = tokio::spawn(async move {
            let mut heads = Vec::new();
            for status in ["204 No Content", "503 Busy"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = vec![0; 1024];
                let read = stream.read(&mut head).await.unwrap();
                heads.push(
                    String::from_utf8_lossy(&head[..read]).lines().next().unwrap().to_owned(),
                );
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            heads
        });
        let limit = Duration::from_secs(20);
        assert_eq!(notifier.notify(limit).await, Ok("204 No Content".to_owned()));
        assert!(notifier.notify(limit).await.unwrap_err().contains("answered 503"));
        assert_eq!(answers.await.unwrap(), ["POST /reload?x=1 HTTP/1.1"; 2]);
    }

    #[tokio::test]
    async fn a_pid_file_without_a_process_is_a_failure_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.pid");
        let notifier = Notifier::PidFile(Signal::SIGCONT, file.clone());
        assert!(notifier.notify(Duration::from_secs(1)).await.unwrap_err().contains("a.pid"));
        std::fs::write(&file, "-1\n").unwrap();
        let why = notifier.notify(Duration::from_secs(1)).await.unwrap_err();
        assert!(why.ends_with("\"-1\" is not the number of a process"), "{why}");
        std::fs::write(&file, format!(" {}\n", std::process::id())).unwrap();
        assert!(notifier.notify(Duration::from_secs(1)).await.is_ok());
    }
}
