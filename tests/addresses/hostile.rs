//! Names as users, and those who wish them ill, write them: what cannot be a name is quoted in a condition
//! and an event, and nothing else moves. And names that can be, however odd, are looked up.

use crate::stage::{Site, play};
use bowline_testing::Bind;
use serde_json::{Value, json};

const PROGRAMMED: &str = "bowline.dev/Programmed";
const SPELLINGS: [&str; 2] = ["bowline.dev/assign-from-fqdn", "metallb.io/assign-from-fqdn"];

/// A name of so many bytes below `example.test`.
fn long(bytes: usize) -> String {
    let mut name = "x".repeat(bytes - "example.test".len() - 1);
    // Labels of 63 at most.
    for at in (0..name.len()).rev().filter(|at| at % 60 == 59) {
        name.replace_range(at..=at, ".");
    }
    let name = format!("{}.example.test", name.trim_end_matches('.'));
    assert!(name.len().abs_diff(bytes) <= 1, "{}", name.len());
    name
}

async fn site(bind: &Bind) -> Site {
    let server = bind.address().to_string();
    let site = Site::new(&["--dns-server", &server, "--dns-min-ttl", "1"]).await;
    let both = json!(["192.0.2.0/28", "2001:db8::/124"]);
    site.pool("global", json!({"addresses": both, "autoAssign": false})).await;
    site
}

#[test]
fn what_cannot_be_a_name_is_quoted_in_condition_and_event_and_moves_nothing() {
    play(async || {
        let bind = Bind::new();
        let site = site(&bind).await;
        site.service("bystander", json!({"bowline.dev/vip": "192.0.2.1"})).await;
        site.shows("bystander", &["192.0.2.1"]).await;
        let names = [
            (String::new(), "is empty"),
            (long(255), "is longer than 253"),
            (long(4_000), "is longer than 253"),
            (format!("{}.example.test", "x".repeat(64)), "more than 63"),
            ("bücher.example.test".to_owned(), "xn-- form"),
            ("例え.テスト".to_owned(), "xn-- form"),
            (".example.test".to_owned(), "empty part"),
            ("..".to_owned(), "empty part"),
            ("192.0.2.1".to_owned(), "an address and not a name"),
            ("2001:db8::1".to_owned(), "an address and not a name"),
            ("[2001:db8::1]".to_owned(), "an address and not a name"),
            ("192.0.2.1.".to_owned(), "an address and not a name"),
            ("a.example.test,b.example.test".to_owned(), "more than one name"),
            ("a.example.test b.example.test".to_owned(), "more than one name"),
            ("a.example.test\nb.example.test".to_owned(), "more than one name"),
            ("a.example.test\n".to_owned(), "white space or control"),
            ("a.example\u{0}.test".to_owned(), "white space or control"),
            ("\u{202e}tset.elpmaxe.a".to_owned(), "xn-- form"),
            ("*.example.test".to_owned(), "wildcard"),
            ("-a.example.test".to_owned(), "begins or ends with '-'"),
            ("a/../../etc".to_owned(), "which no DNS name may have"),
            ("localhost".to_owned(), "not fully qualified"),
        ];
        for (at, (name, why)) in names.iter().enumerate() {
            let service = format!("bad-{at}");
            site.service(&service, json!({(SPELLINGS[at % 2]): name})).await;
            let message = site.says(&service, PROGRAMMED, "BadValue").await;
            let event = site.told(&service, "BadValue").await;
            let head: String = name.chars().take(100).collect();
            for told in [message, event] {
                assert!(told.contains(&format!("{head:?}")), "{name:?}: {told}");
                assert!(told.contains(why), "{name:?}: {told}");
                assert!(!told.contains('\n') && told.len() < 1_000, "{name:?}: {told}");
            }
        }
        site.records(&[("192.0.2.1", &["bystander"])]).await;
        // Who has an address keeps it, also when its own name is spoiled.
        bind.set("good.example.test", "A", 1, &["192.0.2.2"]);
        site.service("good", json!({(SPELLINGS[0]): "good.example.test"})).await;
        site.shows("good", &["192.0.2.2"]).await;
        let spoiled = json!({"metadata": {"annotations": {(SPELLINGS[0]): "good..example.test"}}});
        site.patch("good", spoiled).await;
        site.says("good", PROGRAMMED, "BadValue").await;
        site.shows("good", &["192.0.2.2"]).await;
        site.records(&[("192.0.2.1", &["bystander"]), ("192.0.2.2", &["good"])]).await;
    });
}

#[test]
fn names_that_are_odd_and_can_be_are_looked_up() {
    play(async || {
        let bind = Bind::new();
        let site = site(&bind).await;
        let names = [
            "xn--bcher-kva.example.test".to_owned(),
            "_web._tcp.example.test".to_owned(),
            "UPPER.Example.TEST.".to_owned(),
            "1.2.3.example.test".to_owned(),
            long(252),
        ];
        for (at, name) in names.iter().enumerate() {
            let (service, address) = (format!("odd-{at}"), format!("192.0.2.{at}"));
            bind.set(name.trim_end_matches('.'), "A", 60, &[&address]);
            site.service(&service, json!({(SPELLINGS[at % 2]): name})).await;
            site.shows(&service, &[&address]).await;
        }
    });
}

#[test]
fn each_family_of_a_service_is_looked_up_and_no_other() {
    play(async || {
        let bind = Bind::new();
        let site = site(&bind).await;
        let dual = |name: &str, families: Value, policy: &str| {
            let mut service = bowline_testing::objects::service(name, "", &[(80, 8080)]);
            service["metadata"]["annotations"] =
                json!({(SPELLINGS[0]): format!("{name}.example.test")});
            service["spec"]["ipFamilies"] = families;
            service["spec"]["ipFamilyPolicy"] = json!(policy);
            service
        };
        for (name, last, families, policy, shown) in [
            ("four", 4, json!(["IPv4"]), "SingleStack", &["192.0.2.4"][..]),
            ("six", 6, json!(["IPv6"]), "SingleStack", &["2001:db8::6"]),
            ("both", 8, json!(["IPv6", "IPv4"]), "RequireDualStack", &["2001:db8::8", "192.0.2.8"]),
        ] {
            let host = format!("{name}.example.test");
            bind.set(&host, "A", 60, &[&format!("192.0.2.{last}")]);
            bind.set(&host, "AAAA", 60, &[&format!("2001:db8::{last}")]);
            site.cluster.apply(&site.namespace, &dual(name, families, policy)).await;
            site.shows(name, shown).await;
        }
        // The other one of the two is not there: one alone is not given.
        bind.set("half.example.test", "A", 1, &["192.0.2.9"]);
        let half = dual("half", json!(["IPv4", "IPv6"]), "RequireDualStack");
        site.cluster.apply(&site.namespace, &half).await;
        let message = site.says("half", "AddressFromDNS", "NameUnusable").await;
        assert!(message.contains("no IPv6"), "{message}");
        site.shows("half", &[]).await;
        bind.set("half.example.test", "AAAA", 1, &["2001:db8::9"]);
        site.shows("half", &["192.0.2.9", "2001:db8::9"]).await;
    });
}

#[test]
fn a_pool_gives_its_addresses_to_names_of_its_domains_alone() {
    play(async || {
        let bind = Bind::new();
        let site = site(&bind).await;
        let only = json!({"addresses": ["198.51.100.0/28"], "allowedDomains": ["in.example.test"]});
        site.pool("only", only).await;
        for (name, address) in
            [("a.in.example.test", "198.51.100.1"), ("notin.example.test", "198.51.100.2")]
        {
            bind.set(name, "A", 1, &[address]);
            let service = name.split('.').next().expect("a label");
            site.service(service, json!({(SPELLINGS[0]): name})).await;
        }
        site.shows("a", &["198.51.100.1"]).await;
        let message = site.says("notin", "AddressFromDNS", "NameUnusable").await;
        assert!(
            message.contains("pool \"only\": does not allow names of this domain"),
            "{message}"
        );
        site.shows("notin", &[]).await;
        site.records(&[("198.51.100.1", &["a"])]).await;
    });
}
