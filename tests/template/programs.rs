//! The templates of `examples/template` with the programs they are for.

use crate::planned::planned;
use crate::stage::{PROGRAM, Site, play};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Authority, Backend, Bowline, Dial, Service, eventually, net};
use serde_json::json;
use std::os::unix::fs::MetadataExt as _;
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

/// Caddy with the output, and how it is told at this address to read it again.
fn caddy(site: &Site, admin: &str) -> (Service, String) {
    let (caddy, out, home) = (program("caddy"), site.path("out"), site.path("home"));
    let args = ["run", "--adapter", "caddyfile", "--config", &out].map(str::to_owned);
    let env = [("HOME", home.as_str()), ("XDG_DATA_HOME", &home), ("XDG_CONFIG_HOME", &home)];
    let process = site.scratch.spawn_with("caddy", &caddy, &args, &env);
    let caddy = caddy.display();
    let reload = format!("reload --force --address {admin} --adapter caddyfile --config {out}");
    (process, format!("command:{caddy} {reload}"))
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
        let check =
            format!("{} validate --adapter caddyfile --config {{}}", program("caddy").display());
        made(&site, &["--check", &check, "--notify-timeout", "60"]).await;
        let (mut process, reload) = caddy(&site, "127.0.0.1:2019");
        let vip = net::vip4();
        let args = ["--check", &check, "--notify", &reload, "--notify-timeout", "60"];
        follows(&site, &mut process, vip, &args).await;
    });
}

#[test]
fn caddy_serves_a_plan_with_the_certificates_that_are_files_and_follows_them() {
    play(async || {
        let site = Site::new("").await;
        // Beside another Caddy, as tests may run in one process.
        let admin = "127.0.0.1:2020";
        let options = format!("auto_https off\n\tadmin {admin}");
        site.put("t.j2", &example("edge.Caddyfile.j2").replace("auto_https off", &options));
        let (cluster, name) = (&site.cluster, "printed-tls");
        let (vip, pod) = (net::vip4(), net::pod4());
        let _backend = Backend::http("shop", pod, 8080).await;
        let (_controller, rights) = planned(&site, name, vip).await;
        cluster.apply("", &objects::ingress_class(name, name)).await;
        let authority = Authority::new();
        let issued = authority.issue(&["shop.example"]);
        cluster.apply(&site.namespace, &objects::tls_secret("shop-tls", &issued)).await;
        let rules =
            [("shop.example", "/", "Prefix", "shop"), ("bare.example", "/", "Prefix", "shop")];
        let mut ingress = objects::ingress("shop", name, &rules);
        // A certificate that nobody has made takes its own host away, and nothing else.
        ingress["spec"]["tls"] = json!([
            {"hosts": ["shop.example"], "secretName": "shop-tls"},
            {"hosts": ["bare.example"], "secretName": "not-there"},
        ]);
        cluster.apply(&site.namespace, &objects::cluster_service("shop", 80, 8080)).await;
        let slice = objects::slice("shop", ("", 8080, "TCP"), &[Endpoint::ready(pod)]);
        cluster.apply(&site.namespace, &slice).await;
        cluster.apply(&site.namespace, &ingress).await;
        let (template, output, folder) = (site.path("t.j2"), site.path("out"), site.path("certs"));
        let check =
            format!("{} validate --adapter caddyfile --config {{}}", program("caddy").display());
        let start = |more: &[&str]| {
            let args = [
                &["--load-balancer", name, "--template", &template, "--output", &output][..],
                &["--certificates", &folder, "--check", &check, "--notify-timeout", "60"],
                more,
            ];
            Bowline::start(cluster, Path::new(PROGRAM), &rights, "agent", &args.concat())
        };
        let mut once = start(&["--once"]);
        assert_eq!(once.process.wait(), Some(0), "{}", once.process.log());
        let (mut process, reload) = caddy(&site, admin);
        let mut agent = start(&["--notify", &reload]);
        agent.ready().await;
        let secure = Dial::to(vip, 443).tls(&authority.trusted(&["http/1.1"]), "shop.example");
        answers(&secure, "shop.example", "shop").await;
        let clear = Dial::to(vip, 80).get("shop.example", "/a?b").await.unwrap();
        let to = clear.header("location").to_owned();
        assert_eq!((clear.status, to.as_str()), (308, "https://shop.example/a?b"));
        assert!(!site.text("out").contains("bare.example"), "{}", site.text("out"));
        let files = || {
            let entries = std::fs::read_dir(&folder).unwrap().flatten();
            let files = entries.filter(|file| file.path().extension().is_some());
            files.map(|file| file.metadata().unwrap().mode() & 0o7777).collect::<Vec<_>>()
        };
        assert_eq!(files(), [0o600]);
        let before = secure.certificate().await.unwrap();
        let issued = authority.issue(&["shop.example"]);
        cluster.apply(&site.namespace, &objects::tls_secret("shop-tls", &issued)).await;
        eventually("the new certificate is shown and the old one is gone", || async {
            let shown = secure.certificate().await?;
            let count = files().len();
            if shown != before && count == 1 { Ok(()) } else { Err(format!("{count} files")) }
        })
        .await;
        answers(&secure, "shop.example", "shop").await;
        process.assert_alive();
    });
}
