//! The program itself: asking it what it can, letting it check a file, starting it, telling it to reload and
//! to end.

use super::find::title;
use super::render::Stream;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// The oldest nginx that refuses handshakes for names without a certificate, and logs where it is told.
const OLDEST: (u32, u32) = (1, 20);
/// How long a check may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What an nginx can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) version: String,
    pub(super) stream: Stream,
}

/// What `nginx -V` prints.
pub(super) async fn version(program: &Path) -> io::Result<String> {
    let output = Command::new(program).arg("-V").stdin(Stdio::null()).output().await?;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// What the nginx that prints this can, if it can be driven; else why not.
pub(super) fn usable(printed: &str, exists: impl Fn(&Path) -> bool) -> Result<Found, String> {
    let version = printed.split_once("nginx version: ").and_then(|(_, rest)| {
        let version = rest.split_whitespace().next()?;
        Some(version.split_once('/')?.1)
    });
    let version = version.ok_or_else(|| format!("no version in {:?}", printed.lines().next()))?;
    let mut numbers = version.split('.').map(|it| it.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found < OLDEST {
        return Err(format!("nginx {version} is too old; 1.20 is not"));
    }
    let options: Vec<_> = printed.split_whitespace().collect();
    for module in ["http_ssl_module", "http_v2_module"] {
        if !options.contains(&&*format!("--with-{module}")) {
            return Err(format!("this nginx has no {module}"));
        }
    }
    let folder = options.iter().find_map(|it| it.strip_prefix("--modules-path="));
    let module = folder.map(|it| PathBuf::from(it).join("ngx_stream_module.so"));
    let stream = match module {
        _ if options.contains(&"--with-stream") => Stream::BuiltIn,
        Some(module) if exists(&module) => Stream::Module(module),
        _ => Stream::Missing,
    };
    Ok(Found { version: version.to_owned(), stream })
}

/// What nginx has against a file; nothing if it would load it.
pub(super) async fn check(program: &Path, config: &Path) -> io::Result<Option<String>> {
    let mut command = Command::new(program);
    command.args(["-e", "stderr", "-t", "-q", "-c"]).arg(config);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(PATIENCE, command.output()).await {
        Ok(output) => output?,
        Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "the check takes too long")),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    Ok((!output.status.success()).then(|| complaint(&said)))
}

/// The first error, without time, pid and place, which mean nothing to who reads it.
fn complaint(said: &str) -> String {
    let line = said.lines().find(|line| line.contains("[emerg]")).unwrap_or(said.trim());
    let text = line.split_once("[emerg] ").map_or(line, |(_, rest)| rest);
    let text =
        text.split_once("#").and_then(|(_, rest)| rest.split_once(": ")).map_or(text, |it| it.1);
    let text = text.rsplit_once(" in /").map_or(text, |(text, _)| text);
    text.chars().take(300).collect()
}

/// Starts nginx with a master, which reloads when it is told to. It outlives us if we are killed, so that
/// traffic goes on; who comes after us finds it by its status socket.
pub(super) fn start(program: &Path, config: &Path) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(["-e", "stderr", "-g", "daemon off;", "-c"]).arg(config);
    command.stdin(Stdio::null()).process_group(0).kill_on_drop(false).spawn()
}

/// Tells a master to load its file.
pub(super) fn reload(pid: u32) -> bool {
    signal(pid, Signal::SIGHUP)
}

/// Asks a process to finish what it has and end.
pub(super) fn finish(pid: u32) {
    signal(pid, Signal::SIGQUIT);
}

/// Asks a process to end.
pub(super) fn end(pid: u32) {
    signal(pid, Signal::SIGTERM);
}

fn signal(pid: u32, signal: Signal) -> bool {
    // Only to what calls itself nginx: pids are given out again.
    let nginx = title(pid).starts_with("nginx: ");
    i32::try_from(pid).is_ok_and(|pid| nginx && pid > 1 && kill(Pid::from_raw(pid), signal).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(version: &str, options: &str) -> String {
        format!(
            "nginx version: nginx/{version}\nbuilt with OpenSSL 3.0.20\nconfigure arguments: \
             --modules-path=/usr/lib/nginx/modules --with-http_ssl_module --with-http_v2_module {options}\n"
        )
    }

    #[test]
    fn it_is_found_out_whether_and_how_streams_are_carried() {
        let module = Path::new("/usr/lib/nginx/modules/ngx_stream_module.so");
        let stream = |options: &str, there: bool| {
            usable(&printed("1.22.1", options), |path| there && path == module).map(|it| it.stream)
        };
        assert_eq!(stream("--with-stream=dynamic", true), Ok(Stream::Module(module.into())));
        assert_eq!(stream("--with-stream=dynamic", false), Ok(Stream::Missing));
        assert_eq!(stream("--with-stream", false), Ok(Stream::BuiltIn));
        assert_eq!(stream("", false), Ok(Stream::Missing));
    }

    #[test]
    fn an_nginx_that_cannot_do_what_is_needed_is_told_apart() {
        let fails = |printed: &str| usable(printed, |_| true).unwrap_err();
        assert_eq!(fails(&printed("1.18.0", "")), "nginx 1.18.0 is too old; 1.20 is not");
        let without = printed("1.22.1", "").replace("--with-http_v2_module", "");
        assert_eq!(fails(&without), "this nginx has no http_v2_module");
        assert!(usable("", |_| true).is_err());
    }

    #[test]
    fn a_complaint_is_told_without_time_and_place() {
        let said = "2026/11/16 00:50:07 [emerg] 10204#10204: invalid port in upstream \"10.0.0.1:0\" in \
                    /tmp/x/nginx.conf:205\nnginx: configuration file /tmp/x/nginx.conf test failed\n";
        assert_eq!(complaint(said), "invalid port in upstream \"10.0.0.1:0\"");
        assert_eq!(complaint("other\n"), "other");
    }
}
