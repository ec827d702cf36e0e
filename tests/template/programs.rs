//! The templates of `examples/template` with the programs they are for.

use crate::stage::{Site, play};
use bowline_testing::{Backend, Dial, Service, eventually, net};
use serde_json::json;
use std::path::{Path, PathBuf};

fn example(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/template").join(name);
    std::fs::read_to_string(file).expect("read an example")
}

/// Programs of administrators are not on everybody's `PATH`.
fn program(name: &str) -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/sbin", "/usr/local/bin"]);
    let mut files = folders.map(|folder| Path::new(folder).join(name));
    files.find(|file| file.is_file()).unwrap_or_else(|| {
        panic!("{name} is missing; install it with\n  sudo apt-get install -y {name}")
    })
}

/// Waits until a request for this host is answered by this backend.
async fn answers(dial: &Dial, host: &str, name: &str) {
    eventually(&format!("{host} is answered by {name}"), || async {
        let answer = dial.get(host, "/").await?;
        let echo = answer.echo().map_err(|error| format!("{} {error}", answer.status))?;
        if echo.name == name { Ok(()) } else { Err(echo.name) }
    })
    .await;
}

/// The output made once, before the program that reads it is there.
async fn made(site: &Site, args: &[&str]) {
    let mut all = vec!["--once"];
    all.extend(args);
    let mut once = site.start(&all).await;
    assert_eq!(once.process.wait(), Some(0), "{}", once.process.log());
}

/// Plays the part that all programs have; returns the backends, of which the second is in use.
async fn follows(
    site: &Site,
    process: &mut Service,
    vip: std::net::IpAddr,
    args: &[&str],
) -> [Backend; 2] {
    let name = format!("web.{}.svc.local", site.namespace);
    let pods = [net::pod4(), net::pod4()];
    let first = Backend::http("first", pods[0], 8080).await;
    let second = Backend::http("second", pods[1], 8080).await;
    let names = json!({"kube2lb/external-domains": r"Shop.example,~^(a|b)\.example$"});
    site.service("web", &vip.to_string(), names).await;
    site.endpoints("web", &pods[..1]).await;
    let agent = site.agent(args).await;
    let dial = Dial::to(vip, 80);
    answers(&dial, &name, "first").await;
    answers(&dial, "shop.example", "first").await;
    site.endpoints("web", &pods[1..]).await;
    answers(&dial, &name, "second").await;
    process.assert_alive();
    drop(agent);
    [first, second]
}

#[test]
fn haproxy_serves_the_services_and_follows_their_endpoints() {
    play(async || {
        let site = Site::new(&example("haproxy.cfg.tmpl")).await;
        let haproxy = program("haproxy");
        let (vip, db) = (net::vip4(), net::vip4());
        let pod = net::pod4();
        let backend = Backend::tcp("database", pod, 8080).await;
        site.service("db", &db.to_string(), json!({"kube2lb/port-mode": r#"{"http":"tcp"}"#}))
            .await;
        site.endpoints("db", &[pod]).await;
        let check = format!("{} -c -f {{}}", haproxy.display());
        made(&site, &["--check", &check]).await;
        let run = ["-W", "-db", "-f", &site.path("out")].map(str::to_owned);
        let mut process = site.scratch.spawn("haproxy", &haproxy, &run);
        let reload = format!("pid:SIGUSR2:{}", process.id());
        let args = ["--check", &check, "--notify", &reload];
        let _backends = follows(&site, &mut process, vip, &args).await;
        let answer = eventually("the database answers", || async {
            Dial::to(db, 80).line().await?.ask("hello").await
        })
        .await;
        assert_eq!((answer.as_str(), backend.name.as_str()), ("hello", "database"));
        let dial = Dial::to(vip, 80);
        answers(&dial, "b.example", "second").await;
        let stranger = dial.get("c.example", "/").await.unwrap();
        assert_eq!(stranger.status, 503);
    });
}

#[test]
fn caddy_serves_the_services_and_follows_their_endpoints() {
    play(async || {
        let site = Site::new(&example("Caddyfile.tmpl")).await;
        let caddy = program("caddy");
        let out = site.path("out");
        let check = format!("{} validate --adapter caddyfile --config {{}}", caddy.display());
        made(&site, &["--check", &check, "--notify-timeout", "60"]).await;
        let args = ["run", "--adapter", "caddyfile", "--config", &out].map(str::to_owned);
        let home = site.path("home");
        let env = [("HOME", home.as_str()), ("XDG_DATA_HOME", &home), ("XDG_CONFIG_HOME", &home)];
        let mut process = site.scratch.spawn_with("caddy", &caddy, &args, &env);
        let caddy = caddy.display();
        let reload = format!("command:{caddy} reload --force --adapter caddyfile --config {out}");
        let vip = net::vip4();
        let args = ["--check", &check, "--notify", &reload, "--notify-timeout", "60"];
        follows(&site, &mut process, vip, &args).await;
    });
}
