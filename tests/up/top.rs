//! `bowline top` against a running cluster: what it shows of real traffic, and that it leaves the terminal as it was.

use crate::bowline::{Bowline, PROGRAM, Start, said};
use crate::demo::turn;
use bowline_testing::{Dial, Scratch, net, until};
use serde_json::Value;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn top(program: &str, server: &Bowline, args: &[&str]) -> Output {
    let mut command = Command::new(program);
    command
        .arg("top")
        .args(args)
        .env("KUBECONFIG", &server.kubeconfig)
        .output()
        .expect("run bowline")
}

#[test]
fn one_frame_shows_the_traffic_that_clients_make() {
    let _turn = turn();
    net::in_namespace(|| async {
        let scratch = Scratch::new();
        let server = Start::new(&scratch).arg("--demo").ready();
        let clients = tokio::spawn(async {
            loop {
                let dial = Dial::to(Ipv4Addr::LOCALHOST.into(), 8080);
                dial.get("hello.localhost", "/").await.expect("an answer");
                dial.get("nowhere.localhost", "/").await.expect("an answer");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let (json, text, mut server, _scratch) = tokio::task::spawn_blocking(move || {
            let json = top(PROGRAM, &server, &["--once", "--interval", "1", "-o", "json"]);
            // Without a terminal it is one frame, too; and so is that of the plugin of kubectl.
            let plugin = scratch.path().join("kubectl-bowline");
            std::os::unix::fs::symlink(PROGRAM, &plugin).expect("a link");
            let plugin = plugin.to_str().expect("a path");
            let text = top(plugin, &server, &["-n", "demo", "--interval", "1"]);
            (json, text, server, scratch)
        })
        .await
        .expect("two frames");
        clients.abort();
        let _ = clients.await;
        assert_eq!(server.stop(), Some(0));
        let frame: Value =
            serde_json::from_slice(&json.stdout).unwrap_or_else(|_| panic!("{}", said(&json)));
        let at_least = |value: &Value, least: f64| {
            assert!(value.as_f64().is_some_and(|it| it > least), "{value}: {frame:#}");
        };
        let lb = &frame["loadBalancers"][0];
        assert_eq!((&lb["name"], &lb["driver"]), (&"local".into(), &"builtin".into()), "{frame:#}");
        let pool = |name: &str| {
            let all = frame["pools"].as_array().expect("pools");
            let its =
                all.iter().find(|it| it["name"] == name && it["consumer"]["kind"] == "Ingress");
            its.unwrap_or_else(|| panic!("{frame:#}")).clone()
        };
        // At most hundred a second of each sort; the proxy itself answers those to an unknown host.
        let hello = pool("demo/hello port http");
        at_least(&hello["requests"], 2.0);
        at_least(&lb["requests"], hello["requests"].as_f64().expect("a rate") * 1.5);
        assert_eq!(hello["ready"], 3, "{frame:#}");
        let listeners = frame["listeners"].as_array().expect("listeners");
        let http = listeners.iter().find(|it| it["at"] == "127.0.0.1:8080/HTTP");
        at_least(&http.expect("the listener of Ingresses")["connections"], 2.0);

        let text = said(&text);
        for part in ["Load balancers\n", "Listeners\n", "Pools\n", "Changes\n", "REQ/S", "3 ready"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    });
}

/// How a live view ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Key,
    Signal,
}

#[test]
fn it_leaves_the_terminal_as_it_was() {
    for end in [End::Key, End::Signal] {
        let scratch = Scratch::new();
        let mut server = Start::new(&scratch).ready();
        let file = |name: &str| scratch.path().join(name);
        let read = |name: &str| std::fs::read_to_string(file(name)).unwrap_or_default();
        let line = format!(
            "cd {}; stty rows 40 cols 120; stty -g > before; echo $$ > shell; {PROGRAM} top --interval 0.2; \
             echo $? > code; stty -g > after",
            scratch.path().display()
        );
        let shown = file("shown");
        let mut script = Command::new("script")
            .args(["-qefc", &line])
            .arg(&shown)
            .env("KUBECONFIG", &server.kubeconfig)
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("run script: apt install bsdutils");
        until("it is drawn", || {
            let text = read("shown");
            if text.contains("Load") && text.contains("local") { Ok(()) } else { Err(text) }
        });
        match end {
            End::Key => {
                let keys = script.stdin.as_mut().expect("a pipe");
                keys.write_all(b"/loc\rq").expect("typed");
                keys.flush().expect("typed");
            }
            End::Signal => {
                let shell = read("shell").trim().to_owned();
                let children = format!("/proc/{shell}/task/{shell}/children");
                let child = std::fs::read_to_string(children).expect("a process");
                let killed = Command::new("kill").args(["-TERM", child.trim()]).status();
                assert!(killed.expect("run kill").success());
            }
        }
        until("it has ended", || {
            script.try_wait().expect("a process").ok_or_else(|| read("shown"))
        });
        assert_eq!(read("code").trim(), "0", "{end:?}: {}", read("shown"));
        assert_eq!(read("before"), read("after"), "{end:?}: the settings of the terminal");
        let text = read("shown");
        let last = |what: &str| text.rfind(what).unwrap_or_else(|| panic!("{end:?}: {text:?}"));
        assert!(last("\u{1b}[?1049l") > last("\u{1b}[?1049h"), "{end:?}: {text:?}");
        assert!(last("\u{1b}[?25h") > last("\u{1b}[?25l"), "{end:?}: the cursor is back: {text:?}");
        assert_eq!(server.stop(), Some(0));
    }
}
