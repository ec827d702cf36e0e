//! Who is told, how often, and what becomes of those who could not be told.

use crate::stage::{LINES, Site, play, says};
use bowline_testing::{eventually, net};
use serde_json::json;

async fn counted(site: &Site, expected: usize) {
    eventually(&format!("{expected} notifications"), || async {
        let count = site.count();
        if count == expected { Ok(()) } else { Err(count.to_string()) }
    })
    .await;
}

#[test]
fn a_burst_is_one_notification_and_what_changes_nothing_is_none() {
    play(async || {
        let site = Site::new(LINES).await;
        let notify = site.counter();
        let agent = site.agent(&["--notify", &notify, "--settle", "3000"]).await;
        // It is ready before it has told of its first output.
        let before = 1;
        counted(&site, before).await;
        let burst = (0..20).map(|i| {
            let site = &site;
            async move {
                let name = format!("web{i:02}");
                site.service(&name, "0.0.0.0", json!({})).await;
                site.endpoints(&name, &["10.9.8.7".parse().unwrap()]).await;
            }
        });
        futures::future::join_all(burst).await;
        let lines: String =
            (0..20).map(|i| format!("web{i:02} 00000000_81_tcp_http 10.9.8.7:8080\n")).collect();
        site.becomes(&lines).await;
        counted(&site, before + 1).await;
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        site.cluster.patch("Service", &site.namespace, "web00", &label).await;
        site.endpoints("web00", &["10.9.8.6".parse().unwrap()]).await;
        counted(&site, before + 2).await;
        drop(agent);
    });
}

#[test]
fn a_notifier_that_fails_is_tried_again_with_what_is_newest() {
    play(async || {
        let site = Site::new(LINES).await;
        site.service("web", "0.0.0.0", json!({})).await;
        site.endpoints("web", &["10.9.8.7".parse().unwrap()]).await;
        let (ready, told) = (site.path("ready"), site.path("told"));
        let notify = format!(
            "command:test -e {ready} || {{ echo not yet; exit 4; }}; cp {} {told}",
            site.path("out")
        );
        let agent = site.agent(&["--notify", &notify]).await;
        says(&agent, "exit status: 4; it printed: not yet").await;
        site.endpoints("web", &["10.9.8.6".parse().unwrap()]).await;
        let newest = "web 00000000_81_tcp_http 10.9.8.6:8080\n";
        site.becomes(newest).await;
        site.put("ready", "");
        eventually("the newest is told", || async {
            let told = site.text("told");
            if told == newest { Ok(()) } else { Err(told) }
        })
        .await;
        assert!(agent.metric("bowline_errors_total").await >= 1.0);
    });
}

#[test]
fn who_was_to_be_told_when_the_agent_was_killed_is_told_by_the_next_one() {
    play(async || {
        let site = Site::new(LINES).await;
        site.service("web", "0.0.0.0", json!({})).await;
        site.endpoints("web", &["10.9.8.7".parse().unwrap()]).await;
        let begun = site.path("begun");
        let hangs = format!("command:touch {begun}; exec sleep 100");
        let mut first = site.start(&["--notify", &hangs, "--notify-timeout", "100"]).await;
        eventually("the notifier has begun", || async {
            std::fs::metadata(&begun).map(drop).map_err(|error| error.to_string())
        })
        .await;
        first.process.kill();
        let _second = site.agent(&["--notify", &site.counter()]).await;
        counted(&site, 1).await;
    });
}

#[test]
fn a_notifier_that_has_begun_ends_before_the_agent_does_within_the_grace() {
    play(async || {
        let site = Site::new(LINES).await;
        let (begun, go) = (site.path("begun"), site.path("go"));
        let slow = format!("command:touch {begun}; until test -e {go}; do sleep 0.1; done");
        let begins = async || {
            eventually("the notifier has begun", || async {
                std::fs::metadata(&begun).map(drop).map_err(|error| error.to_string())
            })
            .await;
        };
        let args = ["--notify", &slow, "--notify-timeout", "100"];
        let owed = site.folder.join(".out.unnotified");
        let mut hasty = site.start(&[&args[..], &["--grace", "0"]].concat()).await;
        begins().await;
        assert_eq!(hasty.stop(), Some(0), "{}", hasty.process.log());
        assert!(owed.exists(), "the next agent is to tell it");
        std::fs::remove_file(&begun).unwrap();
        let mut patient = site.start(&[&args[..], &["--grace", "100"]].concat()).await;
        begins().await;
        patient.process.signal("TERM");
        says(&patient, "a second signal ends it at once").await;
        assert!(owed.exists(), "nobody has been told yet");
        site.put("go", "");
        assert_eq!(patient.process.wait(), Some(0), "{}", patient.process.log());
        assert!(!owed.exists(), "everybody has been told");
    });
}

#[test]
fn what_cannot_be_served_is_told_on_the_object_and_the_others_are_served() {
    play(async || {
        let site = Site::new(LINES).await;
        let pod = ["10.9.8.7".parse().unwrap()];
        for name in ["web", "hostile", "elsewhere"] {
            site.endpoints(name, &pod).await;
        }
        let vip = net::vip4();
        site.service("web", &vip.to_string(), json!({})).await;
        let attack = "a.example\n  use_backend evil";
        site.service("hostile", "0.0.0.0", json!({"kube2lb/external-domains": attack})).await;
        // No interface has it, and nobody may bind what is not there.
        site.service("elsewhere", "203.0.113.254", json!({})).await;
        let high = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "high"},
            "spec": {"type": "LoadBalancer", "ports": [{"name": "http", "port": 40000, "protocol": "TCP"}]},
        });
        site.cluster.apply(&site.namespace, &high).await;
        let _agent = site.agent(&[]).await;
        let std::net::IpAddr::V4(four) = vip else { panic!("{vip}") };
        let hex = four.octets().map(|byte| format!("{byte:02x}")).concat();
        let web = format!("web {hex}_80_tcp_http 10.9.8.7:8080\n");
        site.becomes(&web).await;
        let (message, who) = site.told("hostile", "BadValue").await;
        assert!(message.contains(r#""a.example\n  use_backend evil""#), "{message}");
        assert_eq!(who, "bowline-agent");
        let (message, _) = site.told("elsewhere", "AddressNotAvailable").await;
        assert!(
            message.contains("203.0.113.254 is not an address of the load balancer's machine"),
            "{message}"
        );
        let (message, _) = site.told("high", "EphemeralPort").await;
        assert!(message.contains("port 40000"), "{message}");
        // As VRRP does.
        net::add("203.0.113.254".parse().unwrap());
        site.becomes(&format!("elsewhere cb0071fe_80_tcp_http 10.9.8.7:8080\n{web}")).await;
    });
}

#[test]
fn a_port_that_the_template_does_not_name_may_be_the_load_balancers_own() {
    play(async || {
        let site = Site::new("{{ range .Services }}{{ .Name }}\n{{ end }}").await;
        let vip = net::vip4();
        let pod = ["10.9.8.7".parse().unwrap()];
        site.service("first", &vip.to_string(), json!({})).await;
        site.endpoints("first", &pod).await;
        let _agent = site.agent(&[]).await;
        site.becomes("first\n").await;
        // As a load balancer does whose port stands elsewhere.
        let _listener = tokio::net::TcpListener::bind((vip, 80)).await.unwrap();
        site.service("second", &vip.to_string(), json!({})).await;
        site.endpoints("second", &pod).await;
        site.becomes("first\nsecond\n").await;
    });
}

#[test]
fn who_is_owed_a_notification_does_not_wait_for_a_template_to_be_mended() {
    play(async || {
        let site = Site::new(LINES).await;
        let notify =
            format!("command:test -e {} && echo x >> {}", site.path("ready"), site.path("count"));
        let agent = site.agent(&["--notify", &notify]).await;
        says(&agent, "exit status: 1").await;
        site.put("t.tmpl", "{{ if }}");
        says(&agent, "t.tmpl:1").await;
        site.put("ready", "");
        counted(&site, 1).await;
    });
}

#[test]
fn a_port_that_another_program_has_is_left_out_until_it_is_free() {
    play(async || {
        let site = Site::new(LINES).await;
        let (vip, other) = (net::vip4(), net::vip4());
        let pod = ["10.9.8.7".parse().unwrap()];
        site.service("first", &other.to_string(), json!({})).await;
        site.endpoints("first", &pod).await;
        // What is in place says where the load balancer listens: not yet at 80.
        site.put("t.tmpl", "{{ range .Services }}{{ .Name }}\n{{ if ne .Name \"first\" }}{{ .Port.Port }}{{ end }}{{ end }}");
        let _agent = site.agent(&[]).await;
        site.becomes("first\n").await;
        let listener = tokio::net::TcpListener::bind((vip, 80)).await.unwrap();
        site.service("web", &vip.to_string(), json!({})).await;
        site.endpoints("web", &pod).await;
        let (message, _) = site.told("web", "BindFailed").await;
        assert!(message.contains("another program"), "{message}");
        assert_eq!(site.text("out"), "first\n");
        drop(listener);
        site.becomes("first\nweb\n80").await;
    });
}
