//! The output: what is in it, when it changes, and that it is never half there.

use crate::stage::{LINES, Site, play, says};
use bowline_testing::{eventually, net};
use serde_json::json;
use std::net::IpAddr;

#[test]
fn the_file_follows_services_and_endpoints_of_any_class() {
    play(async || {
        let site = Site::new(LINES).await;
        let _agent = site.agent(&[]).await;
        assert_eq!(site.text("out"), "");
        let (vip, pods) = (net::vip4(), [net::pod4(), net::pod4()]);
        site.service("web", &vip.to_string(), json!({})).await;
        site.endpoints("web", &pods[..1]).await;
        let std::net::IpAddr::V4(four) = vip else { panic!("{vip}") };
        let port = four.octets().map(|byte| format!("{byte:02x}")).concat() + "_80_tcp_http";
        site.becomes(&format!("web {port} {}:8080\n", pods[0])).await;
        site.endpoints("web", &pods).await;
        site.becomes(&format!("web {port} {}:8080 {}:8080\n", pods[0], pods[1])).await;
        let mode =
            json!({"metadata": {"annotations": {"kube2lb/port-mode": "{\"http\":\"tcp\"}"}}});
        site.cluster.patch("Service", &site.namespace, "web", &mode).await;
        let tcp = port.replace("tcp_http", "tcp_tcp");
        site.becomes(&format!("web {tcp} {}:8080 {}:8080\n", pods[0], pods[1])).await;
        let inside = json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null, "loadBalancerIP": null}});
        site.cluster.patch("Service", &site.namespace, "web", &inside).await;
        site.becomes("").await;
    });
}

#[test]
fn endpoints_that_are_denied_are_not_in_the_file_and_their_service_is_told() {
    play(async || {
        let site = Site::new(LINES).await;
        site.service("web", "0.0.0.0", json!({})).await;
        let all = [[10, 0, 0, 1], [10, 66, 6, 6]].map(IpAddr::from);
        site.endpoints("web", &all).await;
        let _agent = site.agent(&["--deny-members", "10.66.0.0/16"]).await;
        site.becomes("web 00000000_81_tcp_http 10.0.0.1:8080\n").await;
        let (message, _) = site.told("web", "MemberRefused").await;
        let said = "10.66.6.6:8080 (in 10.66.0.0/16, which --deny-members lists)";
        assert!(message.ends_with(said), "{message}");
    });
}

#[test]
fn nodes_names_and_flags_reach_the_template() {
    play(async || {
        let template = "{{ .Nodes }} {{ range $s := .Services }}{{ $s }} {{ $s.NodePort }} \
                        {{ range ServerNames $s $.Domain }}{{ . }},{{ end }}{{ end }}";
        let site = Site::new(template).await;
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
        site.cluster.apply("", &node).await;
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web", "annotations": {"bowline.dev/external-domains": "a.example"}},
            "spec": {
                "type": "NodePort",
                "ports": [{"name": "http", "port": 80, "nodePort": 30080, "protocol": "TCP"}],
            },
        });
        site.cluster.apply(&site.namespace, &service).await;
        site.endpoints("web", &[net::pod4()]).await;
        let rules = "{{ .Service.Name }}.{{ .Domain }},x-{{ .Service.Name }}";
        let _agent = site
            .agent(&[
                "--domain",
                "example.net",
                "--default-port-mode",
                "tcp",
                "--default-lb-ip",
                "0.0.0.0",
                "--server-name-templates",
                rules,
            ])
            .await;
        let line = format!(
            "[n1] web_{}_80_tcp_tcp 30080 web.example.net,x-web,a.example,",
            site.namespace
        );
        site.becomes(&line).await;
    });
}

#[test]
fn once_writes_notifies_and_ends_with_success_or_failure() {
    play(async || {
        let site = Site::new(LINES).await;
        site.service("web", "0.0.0.0", json!({})).await;
        site.endpoints("web", &["10.9.8.7".parse().unwrap()]).await;
        let mut good = site.start(&["--once", "--notify", &site.counter()]).await;
        assert_eq!(good.process.wait(), Some(0), "{}", good.process.log());
        let log = good.process.log();
        assert!(!log.contains("ended by itself"), "an orderly end is no error: {log}");
        assert_eq!(site.text("out"), "web 00000000_81_tcp_http 10.9.8.7:8080\n");
        assert_eq!(site.count(), 1);
        let mut same = site.start(&["--once", "--notify", &site.counter()]).await;
        assert_eq!(same.process.wait(), Some(0), "{}", same.process.log());
        assert_eq!(site.count(), 1, "what has not changed is told to nobody");
        site.endpoints("web", &["10.9.8.6".parse().unwrap()]).await;
        let mut bad = site.start(&["--once", "--notify", "command:echo no; exit 3"]).await;
        assert_eq!(bad.process.wait(), Some(1), "{}", bad.process.log());
        let log = bad.process.log();
        assert!(log.contains("exit status: 3; it printed: no"), "{log}");
    });
}

#[test]
fn once_ends_with_a_failure_when_the_api_is_away_and_the_log_says_why() {
    play(async || {
        let site = Site::new(LINES).await;
        let away = site.path("away.kubeconfig");
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": "http://127.0.0.1:1"}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        std::fs::write(&away, kubeconfig.to_string()).unwrap();
        let flags = ["--kubeconfig", &away, "--once", "--once-timeout", "5"];
        let mut once = site.start(&flags).await;
        assert_eq!(once.process.wait(), Some(1), "{}", once.process.log());
        let log = once.process.log();
        assert!(
            log.contains("has not delivered all Services, EndpointSlices and Nodes within 5s"),
            "{log}"
        );
        assert!(log.contains("Connection refused"), "{log}");
    });
}

#[test]
fn a_bad_template_leaves_the_last_output_and_is_told_with_file_and_line() {
    play(async || {
        let site = Site::new(LINES).await;
        site.service("web", "0.0.0.0", json!({})).await;
        site.endpoints("web", &["10.9.8.7".parse().unwrap()]).await;
        let agent = site.agent(&[]).await;
        let good = "web 00000000_81_tcp_http 10.9.8.7:8080\n";
        site.becomes(good).await;
        site.put("t.tmpl", "\n{{ range .Services }}\n{{ .Nmae }}{{ end }}");
        site.endpoints("web", &["10.9.8.6".parse().unwrap()]).await;
        says(&agent, "t.tmpl:3: evaluating {{ .Nmae }}: map has no entry for key: Nmae").await;
        assert_eq!(site.text("out"), good);
        site.put("t.tmpl", LINES);
        site.becomes("web 00000000_81_tcp_http 10.9.8.6:8080\n").await;
        let mut unreadable = {
            site.put("t.tmpl", "\n{{ if }}");
            site.start(&["--once"]).await
        };
        assert_eq!(unreadable.process.wait(), Some(1));
        assert!(unreadable.process.log().contains("t.tmpl:2"), "{}", unreadable.process.log());
    });
}

#[test]
fn a_kill_between_write_and_rename_leaves_the_old_file_whole() {
    play(async || {
        let site = Site::new(LINES).await;
        site.service("web", "0.0.0.0", json!({})).await;
        site.endpoints("web", &["10.9.8.7".parse().unwrap()]).await;
        let old = "web 00000000_81_tcp_http 10.9.8.7:8080\n";
        let mut first = site.agent(&[]).await;
        site.becomes(old).await;
        first.process.kill();
        site.endpoints("web", &["10.9.8.6".parse().unwrap()]).await;
        // It writes beside, and then asks a check that does not answer.
        let asked = format!("cp {{}} {}; exec sleep 100", site.path("asked"));
        let mut second = site.start(&["--check", &asked, "--notify-timeout", "100"]).await;
        let new = "web 00000000_81_tcp_http 10.9.8.6:8080\n";
        eventually("the new file is beside the old one", || async {
            let asked = site.text("asked");
            if asked == new { Ok(()) } else { Err(asked) }
        })
        .await;
        second.process.kill();
        assert_eq!(site.text("out"), old);
        let _third = site.agent(&[]).await;
        site.becomes(new).await;
    });
}

#[test]
fn two_templates_make_two_files_and_one_notification() {
    play(async || {
        let site = Site::new(LINES).await;
        site.put("second.j2", "{{ Services | map(attribute='Name') | join(' ') }}");
        let (second, other) = (site.path("second.j2"), site.path("other"));
        let notify = site.counter();
        let _agent = site
            .agent(&[
                "--template",
                &second,
                "--output",
                &other,
                "--notify",
                &notify,
                "--settle",
                "1000",
            ])
            .await;
        // An agent is ready before it has told of its first output.
        eventually("the first output is told", || async {
            let count = site.count();
            if count == 1 { Ok(()) } else { Err(count.to_string()) }
        })
        .await;
        site.service("web", "0.0.0.0", json!({})).await;
        site.endpoints("web", &["10.9.8.7".parse().unwrap()]).await;
        site.becomes("web 00000000_81_tcp_http 10.9.8.7:8080\n").await;
        eventually("the other file is written and somebody told", || async {
            let now = (site.text("other"), site.count());
            if now == ("web".to_owned(), 2) { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    });
}
