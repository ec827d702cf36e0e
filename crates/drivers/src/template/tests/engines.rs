//! Tests what both engines make of a template, and their errors for a bad one.

use super::*;

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
            "t.tmpl:2: evaluating {{ Add \"a\" }}: execution error: Add: string is not a whole number",
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
