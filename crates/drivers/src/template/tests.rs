use super::data;
use super::*;
use bowline_core::exposed::view::{Cluster, Endpoint, Entry, PortSpec};
use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::outcome::Reason;
use bowline_core::plan::Transport;
use std::time::Duration;

/// An entry of Service `NAME` in `shop`, with one endpoint called `NAME-a`.
fn entry(name: &str, port: u16, mode: &str) -> Entry {
    Entry {
        consumer: ConsumerRef {
            kind: ConsumerKind::Service,
            namespace: "shop".into(),
            name: name.into(),
            uid: format!("uid-of-{name}").into(),
        },
        port: PortSpec {
            ip: "192.0.2.7".parse().unwrap(),
            port,
            transport: Transport::Tcp,
            mode: mode.into(),
        },
        endpoints: vec![Endpoint {
            name: format!("{name}-a.b").into(),
            ip: "10.0.0.1".parse().unwrap(),
            port: 8080,
        }],
        node_port: 30080,
        external: Vec::new(),
        timeout_ms: 0,
        source_ranges: Vec::new(),
    }
}

fn cluster(services: Vec<Entry>) -> Cluster {
    let whole = Cluster {
        services,
        ports: Vec::new(),
        nodes: vec!["n1.example".into(), "n2".into()],
        domain: "local".into(),
    };
    whole.only(|_| true)
}

fn names(rules: &str) -> Arc<ServerNames> {
    Arc::new(ServerNames::new(rules).unwrap())
}

fn render(file: &str, source: &str, cluster: &Cluster) -> Result<String, String> {
    let template = Template::new(Path::new(file), source.to_owned(), &names(""));
    let rendered = template.and_then(|template| template.render(&data::cluster(cluster)));
    rendered.map_err(|error| error.to_string())
}

fn go(source: &str) -> Result<String, String> {
    let mut web = entry("web", 80, "http");
    web.external = vec!["a.example".parse().unwrap(), "~^b+$".parse().unwrap()];
    render("t.tmpl", source, &cluster(vec![web, entry("db", 3306, "tcp")]))
}

#[test]
fn objects_print_as_their_labels_and_methods_work() {
    let cases = [
        ("{{ range .Services }}{{ . }} {{ end }}", "web_shop_80_tcp_http db_shop_3306_tcp_tcp "),
        (
            "{{ range $p := .Ports }}{{ $p.String }}={{ $p }} {{ end }}",
            "c0000207_80_tcp_http=c0000207_80_tcp_http c0000207_3306_tcp_tcp=c0000207_3306_tcp_tcp ",
        ),
        ("{{ .Ports }}", "[c0000207_80_tcp_http c0000207_3306_tcp_tcp]"),
        (
            "{{ range $s := .Services }}{{ range $s.Endpoints }}{{ .Name }}@{{ . }} {{ end }}{{ end }}",
            "web-a.b@10.0.0.1:8080 db-a.b@10.0.0.1:8080 ",
        ),
        (
            "{{ with index .Services 0 }}{{ .Port.IP }}:{{ .Port.Port }} {{ .NodePort }} {{ .Timeout }}{{ end }}",
            "192.0.2.7:80 30080 0",
        ),
        (
            "{{ $s := index .Services 0 }}{{ printf \"%s_%s_%d_%v\" $s.Name $s.Port $s.Port.Port $s }}",
            "web_c0000207_80_tcp_http_80_web_shop_80_tcp_http",
        ),
        (
            "{{ $s := index .Services 0 }}{{ $p := index .Ports 0 }}{{ eq $s.Port $p }} {{ eq $s.Port.String $p.String }}",
            "true true",
        ),
        ("{{ (index .Services 0).Port | printf \"%s\" }}", "c0000207_80_tcp_http"),
        (
            "{{ range $n := ServerNames (index .Services 0) .Domain }}{{ if $n.IsRegexp }}~{{ $n.Regexp }}{{ else }}{{ $n }}{{ end }} {{ end }}",
            "web.shop.svc.local a.example ~^b+$ ",
        ),
        (
            "{{ range $i, $c := IntRange 3 1 4 }}{{ $i }}:{{ $c }}-{{ Add $c 4 -1 }} {{ end }}",
            "0:1-4 1:5-8 2:9-12 ",
        ),
        (
            "{{ range .Nodes }}{{ EscapeNode . }} {{ end }}{{ EscapeNode \"::1\" }}",
            "n1_example n2 __1",
        ),
        ("{{ ToUpper .Domain }}{{ ToLower \"ABC\" }}", "LOCALabc"),
        (
            "{{ define \"x\" }}<{{ . }}>{{ end }}{{ range .Ports }}{{ template \"x\" . }}{{ end }}",
            "<c0000207_80_tcp_http><c0000207_3306_tcp_tcp>",
        ),
        (
            "{{- range $i, $s := .Services }}\n{{- if gt $i 0 }}, {{ end -}}\n{{ $s.Name }}\n{{- end }}",
            "web, db",
        ),
        (
            "{{ range .Services }}{{ range .External }}[{{ . }}]{{ end }}{{ end }}",
            "[a.example][~^b+$]",
        ),
    ];
    for (source, expected) in cases {
        assert_eq!(go(source), Ok(expected.to_owned()), "{source}");
    }
}

#[test]
fn an_error_names_file_line_and_what_was_evaluated() {
    let cases = [
        (
            "a\n{{ range .Services }}\n{{ .Name }} {{ .Prot.Port }}\n{{ end }}",
            "t.tmpl:3: evaluating {{ .Prot.Port }}: map has no entry for key: Prot",
        ),
        ("\n{{ if gt .Domain 0 }}{{ end }}", "t.tmpl:2: evaluating {{ if gt .Domain 0 }}: "),
        (
            "a\n\n{{ Frobnicate .Domain }}",
            "t.tmpl:3: evaluating {{ Frobnicate .Domain }}: there is no function Frobnicate",
        ),
        ("a\n{{ if true }}", "t.tmpl:2: {{ if }} has no {{ end }}"),
        (
            "{{ range .Services }}{{ if true }}x{{ end }}{{ end }}\n{{ Add \"a\" }}",
            "t.tmpl:2: evaluating {{ Add \"a\" }}: execution error: Add: string is no whole number",
        ),
    ];
    for (source, expected) in cases {
        let error = go(source).unwrap_err();
        assert!(error.starts_with(expected), "{source}\n{error}\n{expected}");
    }
}

#[test]
fn jinja_has_the_same_data_and_functions() {
    let services = cluster(vec![entry("web", 80, "http"), entry("db", 3306, "tcp")]);
    let j2 = |source: &str| render("t.j2", source, &services);
    let cases = [
        (
            "{% for s in Services %}{{ s }} {{ s.Port.Port + 1 }};{% endfor %}",
            "web_shop_80_tcp_http 81;db_shop_3306_tcp_tcp 3307;",
        ),
        (
            "{% for n in ServerNames(Services[0], Domain) %}{{ n }} {{ n.IsRegexp }}{% endfor %}",
            "web.shop.svc.local False",
        ),
        (
            "{{ Nodes | join(',') }} {{ EscapeNode(Nodes[0]) }} {{ Add(1, 2, 3) }} {{ IntRange(3, 0, 2) | join(' ') }}\n",
            "n1.example,n2 n1_example 6 0 2 4\n",
        ),
        (
            "{{ Services | selectattr('Port.Mode', 'eq', 'tcp') | map(attribute='Name') | join }}",
            "db",
        ),
    ];
    for (source, expected) in cases {
        assert_eq!(j2(source), Ok(expected.to_owned()), "{source}");
    }
    let error = j2("a\n{{ Services[0].Nmae }}").unwrap_err();
    assert!(
        error.starts_with("t.j2:2: evaluating {{ Services[0].Nmae }}: undefined value"),
        "{error}"
    );
    assert!(j2("a\n{% for %}").unwrap_err().starts_with("t.j2:2: "));
}

#[test]
fn names_are_made_by_several_rules_each_once() {
    let rules = "{{ .Service.Name }}.example.com,{{ .Service.Name }}.example.com,{{ .Domain }}";
    let made = names(rules).generated(&entry("web", 80, "http"), "d");
    assert_eq!(made, ["web.example.com", "d"]);
    assert!(ServerNames::new("{{ .Service.").is_err());
}

/// A folder with a template, and what publishes it.
struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    fn new(template: &str) -> Self {
        let stage = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::write(stage.path("t.tmpl"), template).unwrap();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn publisher(&self, check: Option<&str>, notifiers: &[String]) -> Publisher {
        let target = Target {
            template: self.path("t.tmpl"),
            output: self.path("out"),
            check: check.map(str::to_owned),
        };
        let notifiers = notifiers.iter().map(|text| text.parse().unwrap()).collect();
        Publisher::new(vec![target], notifiers, names(""), Duration::from_secs(20)).unwrap()
    }

    /// A notifier that counts in a file.
    fn counter(&self) -> String {
        format!("command:echo x >> {}", self.path("count").display())
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

const LINES: &str = "{{ range .Services }}{{ .Name }}\n{{ end }}";

fn of(names: &[&str]) -> Subject {
    let entries = names.iter().enumerate().map(|(i, name)| entry(name, 1 + i as u16, "http"));
    Subject::exposed(cluster(entries.collect()))
}

#[tokio::test]
async fn what_is_the_same_is_neither_written_nor_told() {
    let stage = Stage::new(LINES);
    let mut publisher = stage.publisher(None, &[stage.counter()]);
    for services in [&["a"][..], &["a"], &["a", "b"], &["a", "b"]] {
        publisher.write(&of(services)).await.unwrap();
        publisher.notify().await;
    }
    assert_eq!((stage.read("out"), stage.read("count")), ("a\nb\n".into(), "x\nx\n".into()));
    let mut again = stage.publisher(None, &[stage.counter()]);
    again.write(&of(&["a", "b"])).await.unwrap();
    assert!(!again.owes() && again.notify().await.is_empty());
}

#[tokio::test]
async fn who_fails_is_owed_alone_and_also_after_a_restart() {
    let stage = Stage::new(LINES);
    let failing = format!("command:test -e {}", stage.path("ready").display());
    let notifiers = [stage.counter(), failing];
    let mut publisher = stage.publisher(None, &notifiers);
    publisher.write(&of(&["a"])).await.unwrap();
    let told = publisher.notify().await;
    assert_eq!(told.iter().map(|(_, came)| came.is_ok()).collect::<Vec<_>>(), [true, false]);
    assert!(publisher.owes());
    assert_eq!(publisher.notify().await.len(), 1);
    // The process ends here; what it owed is owed by the next one, which cannot know to whom.
    let mut next = stage.publisher(None, &notifiers);
    assert!(next.owes());
    std::fs::write(stage.path("ready"), "").unwrap();
    assert_eq!(next.notify().await.len(), 2);
    assert!(!next.owes() && !stage.publisher(None, &notifiers).owes());
}

#[tokio::test]
async fn what_a_check_refuses_is_found_left_out_and_told_until_it_changes() {
    let stage = Stage::new(LINES);
    let check = "if grep -n bad {}; then exit 1; fi";
    let mut publisher = stage.publisher(Some(check), &[]);
    let services = ["a", "bad1", "c", "d", "e", "bad2", "g"];
    let done = publisher.write(&of(&services)).await.unwrap();
    let told: Vec<_> = done.refused.iter().map(|t| (&*t.consumer.name, t.problem.reason)).collect();
    assert_eq!(told, [("bad1", Reason::RefusedByCheck), ("bad2", Reason::RefusedByCheck)]);
    assert_eq!(stage.read("out"), "a\nc\nd\ne\ng\n");
    let again = publisher.write(&of(&services)).await.unwrap();
    assert_eq!((again.changed.len(), again.refused), (0, done.refused));
    let mended = publisher.write(&of(&["a", "c"])).await.unwrap();
    assert_eq!((mended.changed.len(), mended.refused.len()), (1, 0));
}

#[tokio::test]
async fn a_check_that_refuses_everything_leaves_what_is_there() {
    let stage = Stage::new(LINES);
    stage.publisher(None, &[]).write(&of(&["a"])).await.unwrap();
    let mut publisher = stage.publisher(Some("echo never; exit 1"), &[]);
    let error = publisher.write(&of(&["a", "b"])).await.unwrap_err().to_string();
    let why =
        "the check of the configuration: exit status: 1; it printed: never; what is in place stays";
    assert_eq!((error.as_str(), stage.read("out").as_str()), (why, "a\n"));
}

#[tokio::test]
async fn a_template_that_is_broken_later_leaves_what_is_there_until_it_is_mended() {
    let stage = Stage::new(LINES);
    let mut publisher = stage.publisher(None, &[]);
    publisher.write(&of(&["a"])).await.unwrap();
    std::fs::write(stage.path("t.tmpl"), "{{ range .Services }}\n{{ .Nope }}{{ end }}").unwrap();
    publisher.reread().unwrap();
    let error = publisher.write(&of(&["b"])).await.unwrap_err().to_string();
    assert!(error.contains("t.tmpl:2: evaluating {{ .Nope }}"), "{error}");
    std::fs::write(stage.path("t.tmpl"), "{{ if }}").unwrap();
    assert!(publisher.reread().is_err());
    assert_eq!(stage.read("out"), "a\n");
    std::fs::write(stage.path("t.tmpl"), LINES).unwrap();
    publisher.reread().unwrap();
    publisher.write(&of(&["b"])).await.unwrap();
    assert_eq!(stage.read("out"), "b\n");
}

mod planned {
    use super::*;
    use crate::Driver as _;
    use bowline_core::plan::{
        Action, Algorithm, Backends, Host, Listener, ListenerProtocol, PathKind, PathMatch, Pool,
        Rule, Serves, ServicePortRef, Speaks, Timeouts, WeightedPool,
    };
    use bowline_core::update::{
        Change, ListenerKey, Member, MemberChange, MemberState, ResolvedListener, ResolvedSite,
        SiteKey, Update,
    };

    fn consumer(kind: ConsumerKind, name: &str) -> ConsumerRef {
        ConsumerRef { kind, namespace: "shop".into(), name: name.into(), uid: name.into() }
    }

    fn pool(name: &str, ranges: &[&str]) -> Arc<Pool> {
        Arc::new(Pool {
            name: name.into(),
            service: ServicePortRef {
                namespace: "shop".into(),
                name: name.into(),
                port: "".into(),
                protocol: Transport::Tcp,
            },
            backends: Backends::Pods,
            algorithm: Algorithm::RoundRobin,
            persistence: None,
            snat: true,
            proxy_protocol: false,
            speaks: Speaks::Http1,
            source_ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(),
            timeouts: Timeouts::default(),
            health_check: None,
            limits: None,
        })
    }

    fn listener(port: u16, name: &str) -> Change<ListenerKey, Arc<ResolvedListener>> {
        let listener = Listener {
            address: "192.0.2.7".parse().unwrap(),
            port,
            protocol: ListenerProtocol::Tcp,
            serves: Serves::Pool(name.into()),
        };
        let consumer = consumer(ConsumerKind::Service, name);
        Change::Put(ListenerKey::of(&listener), Arc::new(ResolvedListener { consumer, listener }))
    }

    fn rule(path: &str, ingress: &str) -> (Rule, ConsumerRef) {
        let rule = Rule {
            path: PathMatch { kind: PathKind::Prefix, value: path.into() },
            method: None,
            headers: Vec::new(),
            query: Vec::new(),
            action: Action::Forward(vec![WeightedPool { pool: "web".into(), weight: 1 }]),
        };
        (rule, consumer(ConsumerKind::Ingress, ingress))
    }

    fn update() -> Update {
        let member = |last| Member {
            address: ([10, 0, 0, last], 80).into(),
            weight: 1,
            state: MemberState::Ready,
        };
        let site = ResolvedSite {
            owner: "shop".into(),
            tls: None,
            rules: vec![rule("/a", "good"), rule("/b;\"\n{", "hostile")],
        };
        let host: Host = "shop.example".parse().unwrap();
        Update {
            complete: true,
            pools: ["db", "web"]
                .map(|name| Change::Put(name.into(), pool(name, &[])))
                .into_iter()
                .chain([Change::Put("closed".into(), pool("closed", &["192.0.2.0/24"]))])
                .collect(),
            members: vec![MemberChange {
                pool: "db".into(),
                members: [member(1), member(2)].into(),
                added: Vec::new(),
                changed: Vec::new(),
                removed: Vec::new(),
            }],
            sites: vec![Change::Put(SiteKey { entry: "web".into(), host }, Arc::new(site))],
            listeners: vec![listener(3306, "db"), listener(443, "closed")],
            ..Update::default()
        }
    }

    #[tokio::test]
    async fn a_load_balancers_plan_is_given_whole_but_for_what_a_template_must_not_see() {
        let template = "{{ range .Services }}{{ . }}{{ range .Endpoints }} {{ . }}{{ end }}\n{{ end }}\
                        {{ range .Plan.sites }}{{ $host := .host }}{{ range .rules }}{{ $host }}\
                        {{ .path.value }}\n{{ end }}{{ end }}";
        let stage = Stage::new(template);
        let mut driver = Templates::new(stage.publisher(None, &[stage.counter()]), "local");
        let report = driver.apply(&update()).await.unwrap();
        let out = "db_shop_3306_tcp_tcp 10.0.0.1:80 10.0.0.2:80\nshop.example/a\n";
        assert_eq!((stage.read("out").as_str(), stage.read("count").as_str()), (out, "x\n"));
        let told: Vec<_> =
            report.refused.iter().map(|r| (&*r.consumer.name, r.problem.reason)).collect();
        assert_eq!(told, [("closed", Reason::NotSupported), ("hostile", Reason::BadValue)]);
        driver.apply(&update()).await.unwrap();
        assert_eq!(stage.read("count"), "x\n");
    }

    #[tokio::test]
    async fn an_ingress_that_a_check_refuses_is_found_too() {
        let template =
            "{{ range .Plan.sites }}{{ range .rules }}{{ .path.value }}\n{{ end }}{{ end }}";
        let stage = Stage::new(template);
        let publisher = stage.publisher(Some("! grep /a {}"), &[]);
        let mut driver = Templates::new(publisher, "local");
        let mut update = update();
        let site = ResolvedSite {
            owner: "shop".into(),
            tls: None,
            rules: vec![rule("/a", "bad"), rule("/b", "good")],
        };
        let host: Host = "shop.example".parse().unwrap();
        let key = SiteKey { entry: "web".into(), host };
        update.sites = vec![Change::Put(key, Arc::new(site))];
        let report = driver.apply(&update).await.unwrap();
        let told = report.refused.iter().filter(|r| r.problem.reason == Reason::RefusedByCheck);
        assert_eq!(told.map(|r| &*r.consumer.name).collect::<Vec<_>>(), ["bad"]);
        assert_eq!(stage.read("out"), "/b\n");
    }
}
