use super::data;
use super::*;
use bowline_core::exposed::view::{Cluster, Endpoint, Entry, PortSpec};
use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::outcome::Reason;
use bowline_core::plan::Transport;
use std::time::{Duration, Instant};

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
            "{{ $p := index .Ports 0 }}{{ $p.IP }} {{ $p.IP.String }} {{ printf \"%s\" $p.IP }} \
             {{ eq $p.IP \"192.0.2.7\" }} {{ EscapeNode $p.IP }} {{ $p.IP | len }}",
            "192.0.2.7 192.0.2.7 192.0.2.7 true 192_0_2_7 9",
        ),
        (
            "{{ range ServerNames (index .Services 0) .Domain }}{{ len . }}{{ slice . 0 3 }}{{ index . 0 }} {{ end }}",
            "18web119 9a.e97 5~^b126 ",
        ),
        ("{{ ToJson .Nodes }}{{ ToJson (index .Ports 0).Port }}", r#"["n1.example","n2"]80"#),
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

const SETTLE: Duration = Duration::from_millis(50);

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
        publisher.write(&of(services), Instant::now()).await.unwrap();
        publisher.notify().await;
    }
    assert_eq!((stage.read("out"), stage.read("count")), ("a\nb\n".into(), "x\nx\n".into()));
    let mut again = stage.publisher(None, &[stage.counter()]);
    again.write(&of(&["a", "b"]), Instant::now()).await.unwrap();
    assert!(!again.owes() && again.notify().await.is_empty());
}

#[tokio::test]
async fn who_fails_is_owed_alone_and_also_after_a_restart() {
    let stage = Stage::new(LINES);
    let failing = format!("command:test -e {}", stage.path("ready").display());
    let notifiers = [stage.counter(), failing];
    let mut publisher = stage.publisher(None, &notifiers);
    publisher.write(&of(&["a"]), Instant::now()).await.unwrap();
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
    let done = publisher.write(&of(&services), Instant::now()).await.unwrap();
    let told: Vec<_> = done.refused.iter().map(|t| (&*t.consumer.name, t.problem.reason)).collect();
    assert_eq!(told, [("bad1", Reason::RefusedByCheck), ("bad2", Reason::RefusedByCheck)]);
    assert_eq!(stage.read("out"), "a\nc\nd\ne\ng\n");
    let again = publisher.write(&of(&services), Instant::now()).await.unwrap();
    assert_eq!((again.changed.len(), again.refused), (0, done.refused));
    let mended = publisher.write(&of(&["a", "c"]), Instant::now()).await.unwrap();
    assert_eq!((mended.changed.len(), mended.refused.len()), (1, 0));
}

/// Who is left out, and why.
fn told(done: &Done) -> Vec<(&str, Reason)> {
    done.refused.iter().map(|told| (&*told.consumer.name, told.problem.reason)).collect()
}

#[tokio::test]
async fn a_check_that_does_not_answer_changes_nothing_and_refuses_nobody() {
    let stage = Stage::new(LINES);
    stage.publisher(None, &[]).write(&of(&["a"]), Instant::now()).await.unwrap();
    for (check, why) in [
        ("exec sleep 100", "it took longer than 100ms and was killed"),
        ("exec /no/such/program {}", "exit status: 127"),
    ] {
        let mut publisher = stage.publisher(Some(check), &[]);
        publisher.limit = Duration::from_millis(100);
        let error =
            publisher.write(&of(&["a", "b"]), Instant::now()).await.unwrap_err().to_string();
        assert!(
            error.starts_with("asking the check of the configuration: ") && error.contains(why),
            "{error}"
        );
        assert_eq!(stage.read("out"), "a\n");
    }
}

#[tokio::test]
async fn a_search_that_takes_too_many_tries_goes_live_with_what_it_knows_and_goes_on() {
    let stage = Stage::new(LINES);
    let mut publisher = stage.publisher(Some("! grep -q bad {}"), &[]);
    publisher.most_tries = 6;
    let services = ["a", "bad1", "c", "d", "e", "bad2", "g", "h"];
    let now = Instant::now();
    let mut done = publisher.write(&of(&services), now).await.unwrap();
    assert!(stage.read("out").starts_with("a\n"), "{}", stage.read("out"));
    assert_eq!(done.again, Some(now));
    assert!(told(&done).contains(&("bad1", Reason::RefusedByCheck)), "{done:?}");
    for _ in 0..4 {
        if done.again == Some(now) {
            done = publisher.write(&of(&services), now).await.unwrap();
        }
    }
    let both = [("bad1", Reason::RefusedByCheck), ("bad2", Reason::RefusedByCheck)];
    assert_eq!((told(&done), stage.read("out").as_str()), (both.to_vec(), "a\nc\nd\ne\ng\nh\n"));
}

#[tokio::test]
async fn who_is_refused_comes_back_by_itself_and_costs_one_try_when_others_change() {
    let stage = Stage::new(LINES);
    std::fs::write(stage.path("words"), "bad\n").unwrap();
    let (words, tries) = (stage.path("words"), stage.path("tries"));
    let check = format!("echo >> {}; ! grep -q -f {} {{}}", tries.display(), words.display());
    let mut publisher = stage.publisher(Some(&check), &[]);
    let begin = Instant::now();
    let done = publisher.write(&of(&["a", "bad", "c", "d"]), begin).await.unwrap();
    assert_eq!(told(&done), [("bad", Reason::RefusedByCheck)]);
    let due = done.again.unwrap();
    assert_eq!(due, begin + Duration::from_secs(10));
    let count = || stage.read("tries").lines().count();
    let before = count();
    // Others change: they go live, and nobody is searched for.
    publisher.write(&of(&["a", "bad", "c", "e"]), begin).await.unwrap();
    assert_eq!((stage.read("out").as_str(), count() - before), ("a\nc\ne\n", 1));
    let before = count();
    let done = publisher.write(&of(&["a", "bad", "c", "e"]), due).await.unwrap();
    assert_eq!(
        (told(&done).len(), done.again, count() - before),
        (1, Some(due + Duration::from_secs(20)), 2)
    );
    std::fs::write(stage.path("words"), "worse\n").unwrap();
    let done = publisher.write(&of(&["a", "bad", "c", "e"]), done.again.unwrap()).await.unwrap();
    assert_eq!((done.changed.len(), told(&done), done.again), (1, vec![], None));
    assert_eq!(stage.read("out"), "a\nbad\nc\ne\n");
}

#[tokio::test]
async fn a_template_that_fails_on_one_is_filled_with_the_others() {
    let stage = Stage::new(
        "{{ range .Services }}{{ if eq .Name \"odd\" }}{{ .Odd }}{{ end }}{{ .Name }}\n{{ end }}",
    );
    let mut publisher = stage.publisher(None, &[]);
    let done = publisher.write(&of(&["a", "odd", "c"]), Instant::now()).await.unwrap();
    assert_eq!(
        (told(&done), stage.read("out").as_str()),
        (vec![("odd", Reason::TemplateFailed)], "a\nc\n")
    );
    let message = &done.refused[0].problem.message;
    assert!(message.contains("evaluating {{ .Odd }}"), "{message}");
}

#[tokio::test]
async fn what_is_said_of_others_is_not_told_on_an_object() {
    let stage = Stage::new(LINES);
    // Refused only together, with the texts of both.
    let check = "if grep -q one {} && grep -q two {}; then cat {}; exit 1; fi";
    let mut publisher = stage.publisher(Some(check), &[]);
    let done = publisher.write(&of(&["one", "two"]), Instant::now()).await.unwrap();
    let messages: Vec<_> =
        done.refused.iter().map(|told| told.problem.message.to_string()).collect();
    let generic = "the configuration with it and others is refused, so it is left out; the log of the agent \
                   has what was said";
    assert_eq!(messages, [generic]);
}

#[tokio::test]
async fn nobody_is_owed_where_there_is_nobody() {
    let stage = Stage::new(LINES);
    stage.publisher(None, &[]).write(&of(&["a"]), Instant::now()).await.unwrap();
    assert!(!stage.path(".out.unnotified").exists());
}

#[test]
fn what_a_template_asks_for_is_read_from_what_it_evaluates() {
    let knows = |file: &str, source: &str| {
        let template = Template::new(Path::new(file), source.to_owned(), &names("")).unwrap();
        let knows = template.knows();
        (knows.source_ranges, knows.tls)
    };
    let comment = "SourceRanges tls {{/* .SourceRanges .tls */}}";
    assert_eq!(knows("t.tmpl", comment), (false, false));
    assert_eq!(knows("t.tmpl", "{{ range .Services }}{{ .SourceRanges }}{{ end }}"), (true, false));
    assert_eq!(
        knows("t.tmpl", "{{ range .Plan.pools }}{{ if .sourceRanges }}{{ end }}{{ end }}"),
        (true, false)
    );
    assert_eq!(
        knows("t.tmpl", "{{ range $s := .Plan.sites }}{{ index $s \"tls\" }}{{ end }}"),
        (false, true)
    );
    assert_eq!(knows("t.j2", "SourceRanges {# sourceRanges #}"), (false, false));
    assert_eq!(knows("t.j2", "{% for s in plan.sites %}{{ s.tls }}{% endfor %}"), (false, true));
}

#[tokio::test]
async fn a_check_that_refuses_everything_leaves_what_is_there() {
    let stage = Stage::new(LINES);
    stage.publisher(None, &[]).write(&of(&["a"]), Instant::now()).await.unwrap();
    let mut publisher = stage.publisher(Some("echo never; exit 1"), &[]);
    let error = publisher.write(&of(&["a", "b"]), Instant::now()).await.unwrap_err().to_string();
    let why =
        "the check of the configuration: exit status: 1; it printed: never; what is in place stays";
    assert_eq!((error.as_str(), stage.read("out").as_str()), (why, "a\n"));
}

#[tokio::test]
async fn a_template_that_is_broken_later_leaves_what_is_there_until_it_is_mended() {
    let stage = Stage::new(LINES);
    let mut publisher = stage.publisher(None, &[]);
    publisher.write(&of(&["a"]), Instant::now()).await.unwrap();
    std::fs::write(stage.path("t.tmpl"), "{{ range .Services }}\n{{ .Nope }}{{ end }}").unwrap();
    publisher.reread().unwrap();
    let error = publisher.write(&of(&["b"]), Instant::now()).await.unwrap_err().to_string();
    assert!(error.contains("t.tmpl:2: evaluating {{ .Nope }}"), "{error}");
    std::fs::write(stage.path("t.tmpl"), "{{ if }}").unwrap();
    assert!(publisher.reread().is_err());
    assert_eq!(stage.read("out"), "a\n");
    std::fs::write(stage.path("t.tmpl"), LINES).unwrap();
    publisher.reread().unwrap();
    publisher.write(&of(&["b"]), Instant::now()).await.unwrap();
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
        let mut driver = Templates::new(stage.publisher(None, &[stage.counter()]), "local", SETTLE);
        let report = driver.apply(&update()).await.unwrap();
        let out = "db_shop_3306_tcp_tcp 10.0.0.1:80 10.0.0.2:80\nshop.example/a\n";
        assert_eq!((stage.read("out").as_str(), stage.read("count").as_str()), (out, "x\n"));
        let told: Vec<_> =
            report.refused.iter().map(|r| (&*r.consumer.name, r.problem.reason)).collect();
        assert_eq!(told, [("closed", Reason::NotSupported), ("hostile", Reason::BadValue)]);
        assert!(driver.apply(&update()).await.unwrap().waiting);
        assert!(!driver.changed().await.waiting);
        assert_eq!(stage.read("count"), "x\n");
    }

    #[tokio::test]
    async fn a_burst_of_updates_is_one_notification() {
        let stage = Stage::new(LINES);
        let mut driver = Templates::new(stage.publisher(None, &[stage.counter()]), "local", SETTLE);
        assert!(!driver.apply(&update()).await.unwrap().waiting);
        for port in 4000..4020 {
            let update = Update { listeners: vec![listener(port, "db")], ..Update::default() };
            assert!(driver.apply(&update).await.unwrap().waiting);
        }
        assert_eq!(stage.read("count"), "x\n");
        assert!(!driver.changed().await.waiting);
        assert_eq!(
            (stage.read("count").as_str(), stage.read("out").lines().count()),
            ("x\nx\n", 21)
        );
    }

    #[tokio::test]
    async fn a_notifier_that_fails_later_is_tried_again_and_the_plan_waits_for_it() {
        let stage = Stage::new(LINES);
        let notify = format!("command:test ! -e {}", stage.path("broken").display());
        let mut driver = Templates::new(stage.publisher(None, &[notify]), "local", SETTLE);
        driver.apply(&update()).await.unwrap();
        std::fs::write(stage.path("broken"), "").unwrap();
        let more = Update { listeners: vec![listener(4000, "db")], ..Update::default() };
        assert!(driver.apply(&more).await.unwrap().waiting);
        assert!(driver.changed().await.waiting);
        std::fs::remove_file(stage.path("broken")).unwrap();
        assert!(!driver.changed().await.waiting);
    }

    #[tokio::test]
    async fn who_needs_what_no_template_asks_for_is_left_out_and_told() {
        let needs = |name: &str, change: fn(&mut Pool)| {
            let mut pool = Pool::clone(&pool(name, &[]));
            change(&mut pool);
            Change::Put(name.into(), Arc::new(pool))
        };
        let persistence = |pool: &mut Pool| {
            let by = bowline_core::plan::PersistenceKey::SourceIp;
            pool.persistence = Some(bowline_core::plan::Persistence { by, timeout_seconds: 60 });
        };
        let site = ResolvedSite {
            owner: "shop".into(),
            tls: Some(bowline_core::plan::SiteTls { certificate: None, redirect: true }),
            rules: vec![rule("/a", "secret")],
        };
        let host: Host = "shop.example".parse().unwrap();
        let update = Update {
            complete: true,
            pools: vec![
                needs("web", |_| {}),
                needs("sticky", persistence),
                needs("proxied", |pool| pool.proxy_protocol = true),
                needs("seen", |pool| pool.snat = false),
            ],
            sites: vec![Change::Put(SiteKey { entry: "web".into(), host }, Arc::new(site))],
            listeners: vec![listener(1, "sticky"), listener(2, "proxied"), listener(3, "seen")],
            ..Update::default()
        };
        let names = async |template: &str| {
            let stage = Stage::new(template);
            let mut driver = Templates::new(stage.publisher(None, &[]), "local", SETTLE);
            let report = driver.apply(&update).await.unwrap();
            let names =
                report.refused.iter().map(|r| (r.consumer.name.to_string(), r.problem.reason));
            names.collect::<Vec<_>>()
        };
        let all = ["proxied", "seen", "sticky", "secret"];
        let refused: Vec<_> = all.map(|name| (name.to_owned(), Reason::NotSupported)).into();
        assert_eq!(names(LINES).await, refused);
        let knows = "{{ range .Plan.pools }}{{ .persistence }}{{ .proxyProtocol }}{{ .snat }}{{ end }}\
                     {{ range .Plan.sites }}{{ .tls.redirect }}{{ end }}";
        assert_eq!(names(knows).await, []);
    }

    #[tokio::test]
    async fn every_field_of_a_plan_is_there_to_be_asked_for() {
        let stage = Stage::new("{{ ToJson .Plan }}");
        let mut driver = Templates::new(stage.publisher(None, &[]), "local", SETTLE);
        let mut update = update();
        update.sites.truncate(1);
        update.listeners.truncate(1);
        driver.apply(&update).await.unwrap();
        let plan: serde_json::Value = serde_json::from_str(&stage.read("out")).unwrap();
        let expected = serde_json::json!({
            "listeners": [{
                "address": "192.0.2.7", "port": 3306, "protocol": "TCP",
                "serves": {"pool": "db", "entry": null},
            }],
            "pools": [
                pool_of("db", &[json_member(1), json_member(2)]),
                pool_of("web", &[]),
            ],
            "sites": [{
                "entry": "web", "host": "shop.example", "namespace": "shop", "tls": null,
                "rules": [{
                    "path": {"kind": "Prefix", "value": "/a"},
                    "method": null, "headers": [], "query": [],
                    "action": {
                        "forward": [{"pool": "web", "weight": 1}], "redirect": null, "respond": null,
                    },
                    "consumer": {"kind": "Ingress", "namespace": "shop", "name": "good"},
                }],
            }],
        });
        assert_eq!(plan, expected, "{plan:#}");
    }

    fn json_member(last: u8) -> serde_json::Value {
        serde_json::json!({
            "address": format!("10.0.0.{last}"), "port": 80, "weight": 1, "draining": false,
        })
    }

    fn pool_of(name: &str, members: &[serde_json::Value]) -> serde_json::Value {
        serde_json::json!({
            "name": name, "algorithm": "RoundRobin", "backends": {"pods": {}, "nodes": null},
            "service": {"namespace": "shop", "name": name, "port": "", "protocol": "TCP"},
            "persistence": null, "snat": true, "proxyProtocol": false, "speaks": "Http1",
            "sourceRanges": [], "healthCheck": null, "limits": null,
            "timeouts": {"connectMs": null, "backendMs": null, "drainSeconds": null},
            "members": members,
        })
    }

    #[tokio::test]
    async fn an_ingress_that_a_check_refuses_is_found_too() {
        let template =
            "{{ range .Plan.sites }}{{ range .rules }}{{ .path.value }}\n{{ end }}{{ end }}";
        let stage = Stage::new(template);
        let publisher = stage.publisher(Some("! grep /a {}"), &[]);
        let mut driver = Templates::new(publisher, "local", SETTLE);
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
