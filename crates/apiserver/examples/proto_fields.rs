//! Writes `src/proto/fields.txt`: which field of which protobuf message is which JSON member.
//!
//! The one source is the struct tags of the Kubernetes Go types, because only they say all of it: field
//! number, JSON name, what is inlined, and which zero values Go's JSON leaves out. Rerun it when a new
//! Kubernetes release brings fields:
//!
//! ```text
//! cargo run -p bowline-apiserver --example proto_fields -- KUBERNETES/staging/src/k8s.io VERSION \
//!     > crates/apiserver/src/proto/fields.txt
//! cargo run -p bowline-apiserver --example proto_fields -- KUBERNETES/staging/src/k8s.io check
//! ```
//!
//! The second form decodes the round-trip data of that release (every field of every kind is set in it)
//! and fails where the outcome is not the JSON that belongs to it. VERSION is that of the release, such as v1.36;
//! the table says it, and how it is checked.

use bowline_apiserver::proto;
use regex::Regex;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// API version, Go package, name in the round-trip data, kinds.
const ROOTS: &[(&str, &str, &str, &[&str])] = &[
    (
        "v1",
        "api/core/v1",
        "core.v1",
        &[
            "ConfigMap",
            "Endpoints",
            "Event",
            "Namespace",
            "Node",
            "Pod",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
    ),
    ("apps/v1", "api/apps/v1", "apps.v1", &["Deployment", "StatefulSet"]),
    ("autoscaling/v1", "api/autoscaling/v1", "autoscaling.v1", &["Scale"]),
    (
        "authorization.k8s.io/v1",
        "api/authorization/v1",
        "authorization.k8s.io.v1",
        &["SelfSubjectAccessReview"],
    ),
    ("coordination.k8s.io/v1", "api/coordination/v1", "coordination.k8s.io.v1", &["Lease"]),
    ("discovery.k8s.io/v1", "api/discovery/v1", "discovery.k8s.io.v1", &["EndpointSlice"]),
    ("events.k8s.io/v1", "api/events/v1", "events.k8s.io.v1", &["Event"]),
    (
        "networking.k8s.io/v1",
        "api/networking/v1",
        "networking.k8s.io.v1",
        &["Ingress", "IngressClass"],
    ),
    (
        "rbac.authorization.k8s.io/v1",
        "api/rbac/v1",
        "rbac.authorization.k8s.io.v1",
        &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
    ),
    // Every API group registers the options of meta/v1 as its own.
    ("*", "apimachinery/pkg/apis/meta/v1", "core.v1", &["DeleteOptions"]),
];

/// Messages whose JSON is not an object of their fields.
const SPECIAL: &[(&str, &str)] = &[
    ("apimachinery/pkg/apis/meta/v1.Time", "time"),
    ("apimachinery/pkg/apis/meta/v1.MicroTime", "microtime"),
    ("apimachinery/pkg/apis/meta/v1.FieldsV1", "json"),
    ("apimachinery/pkg/api/resource.Quantity", "quantity"),
    ("apimachinery/pkg/util/intstr.IntOrString", "intorstring"),
];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let root = PathBuf::from(
        arguments.next().ok_or("usage: proto_fields DIR VERSION, or proto_fields DIR check")?,
    );
    match arguments.next().as_deref() {
        Some("check") => check(&root),
        Some(version) if version.starts_with("v1.") => generate(&root, version),
        _ => {
            Err("usage: proto_fields DIR VERSION, such as v1.36, or proto_fields DIR check".into())
        }
    }
}

fn generate(root: &Path, version: &str) -> Result<()> {
    let mut source = Source { root: root.to_owned(), packages: HashMap::new() };
    println!("# Written by examples/proto_fields.rs; see there. Not for editing by hand.");
    println!(
        "# Kubernetes {version}: facts of the struct tags of its Go types, numbers and names."
    );
    println!(
        "# Checked here: against bodies that kubectl sends (proto/tests), and each name against the"
    );
    println!(
        "# schemas of k8s-openapi. Checked with a copy of Kubernetes: `proto_fields DIR check` decodes"
    );
    println!("# the round-trip data of the release.");
    println!("# kind API_VERSION KIND MESSAGE");
    println!("# message MESSAGE, then its fields: NUMBER NAME TYPE");
    println!("# NAME: - is inlined into its parent; a leading ? is left out of JSON when zero.");
    let mut wanted = Vec::new();
    for (api_version, package, _, kinds) in ROOTS {
        for kind in *kinds {
            println!("kind {api_version} {kind} {}", message_name(package, kind));
            wanted.push((package.to_string(), kind.to_string()));
        }
    }
    let mut done = BTreeMap::new();
    while let Some((package, name)) = wanted.pop() {
        let id = message_name(&package, &name);
        if done.contains_key(&id) {
            continue;
        }
        let Some(Go::Struct(fields)) = source.package(&package)?.types.get(&name).cloned() else {
            return Err(format!("{package} has no struct {name}").into());
        };
        let mut lines = BTreeMap::new();
        for field in fields {
            let (pointer, type_) = source.resolve(&package, &field.type_, &mut wanted)?;
            let omit = if field.omitempty && !pointer { "?" } else { "" };
            lines.insert(field.number, format!("{omit}{} {type_}", field.json));
        }
        done.insert(id, lines);
    }
    for (id, lines) in done {
        println!("message {id}");
        for (number, line) in lines {
            println!("{number} {line}");
        }
    }
    Ok(())
}

/// `core/v1.Pod`: the last two elements of the package are telling enough.
fn message_name(package: &str, name: &str) -> String {
    let mut last: Vec<_> = package.rsplit('/').take(2).collect();
    last.reverse();
    format!("{}.{name}", last.join("/"))
}

/// The Go packages read so far.
struct Source {
    root: PathBuf,
    packages: HashMap<String, Package>,
}

#[derive(Default)]
struct Package {
    /// From the name in the source to the directory under the root.
    imports: HashMap<String, String>,
    types: HashMap<String, Go>,
}

#[derive(Clone)]
enum Go {
    Struct(Vec<Field>),
    Alias(String),
}

#[derive(Clone)]
struct Field {
    number: u32,
    json: String,
    omitempty: bool,
    type_: String,
}

impl Source {
    fn package(&mut self, directory: &str) -> Result<&Package> {
        if !self.packages.contains_key(directory) {
            let package = read_package(&self.root.join(directory))?;
            self.packages.insert(directory.to_owned(), package);
        }
        Ok(&self.packages[directory])
    }

    /// Whether a Go type is a pointer, and its name in the table; messages that it needs are noted.
    fn resolve(
        &mut self,
        package: &str,
        go: &str,
        wanted: &mut Vec<(String, String)>,
    ) -> Result<(bool, String)> {
        if let Some(inner) = go.strip_prefix('*') {
            return Ok((true, self.resolve(package, inner, wanted)?.1));
        }
        let plain = match go {
            "string" | "bool" | "int32" | "int64" => go.to_owned(),
            "[]byte" => "bytes".to_owned(),
            _ => {
                if let Some(item) = go.strip_prefix("[]") {
                    format!("[]{}", self.resolve(package, item, wanted)?.1)
                } else if let Some((_, value)) =
                    go.strip_prefix("map[").and_then(|rest| rest.split_once(']'))
                {
                    format!("map:{}", self.resolve(package, value, wanted)?.1)
                } else if let Some((import, name)) = go.split_once('.') {
                    let known = self.package(package)?.imports.get(import).cloned();
                    let other = known.ok_or_else(|| format!("{package} imports no {import}"))?;
                    return self.resolve(&other, name, wanted);
                } else {
                    return Ok((false, self.resolve_named(package, go, wanted)?));
                }
            }
        };
        Ok((false, plain))
    }

    fn resolve_named(
        &mut self,
        package: &str,
        name: &str,
        wanted: &mut Vec<(String, String)>,
    ) -> Result<String> {
        let path = format!("{package}.{name}");
        if let Some((_, special)) = SPECIAL.iter().find(|(message, _)| *message == path) {
            return Ok((*special).to_owned());
        }
        match self.package(package)?.types.get(name).cloned() {
            Some(Go::Struct(_)) => {
                wanted.push((package.to_owned(), name.to_owned()));
                Ok(message_name(package, name))
            }
            Some(Go::Alias(other)) => Ok(self.resolve(package, &other, wanted)?.1),
            None => Err(format!("{path} is not known").into()),
        }
    }
}

fn read_package(directory: &Path) -> Result<Package> {
    let import = Regex::new(r#"^\s*(?:import )?(\w+)? ?"k8s\.io/([^"]+)"$"#)?;
    let start = Regex::new(r"^type (\w+) struct \{$")?;
    let alias = Regex::new(r"^type (\w+) (\S+)$")?;
    let field = Regex::new(r"^\t(?:\w+\s+)?([\w.*\[\]]+)\s+`([^`]*)`")?;
    let protobuf = Regex::new(r#"protobuf:"(?:bytes|varint),(\d+)"#)?;
    let json = Regex::new(r#"json:"([^",]*)([^"]*)""#)?;
    let mut package = Package::default();
    let mut files = fs::read_dir(directory)?.collect::<std::io::Result<Vec<_>>>()?;
    files.sort_by_key(fs::DirEntry::file_name);
    for file in files {
        let name = file.file_name().to_string_lossy().into_owned();
        if !name.ends_with(".go") || name.ends_with("_test.go") || name.starts_with("generated") {
            continue;
        }
        let mut open: Option<(String, Vec<Field>)> = None;
        for line in fs::read_to_string(file.path())?.lines() {
            if let Some(found) = start.captures(line) {
                open = Some((found[1].to_owned(), Vec::new()));
            } else if line == "}" {
                if let Some((name, fields)) = open.take() {
                    package.types.insert(name, Go::Struct(fields));
                }
            } else if let Some((_, fields)) = &mut open {
                let Some(found) = field.captures(line) else { continue };
                let (Some(number), Some(tag)) =
                    (protobuf.captures(&found[2]), json.captures(&found[2]))
                else {
                    continue;
                };
                fields.push(Field {
                    number: number[1].parse()?,
                    json: if tag[1].is_empty() { "-".to_owned() } else { tag[1].to_owned() },
                    omitempty: tag[2].contains("omit"),
                    type_: found[1].to_owned(),
                });
            } else if let Some(found) = alias.captures(line) {
                package.types.insert(found[1].to_owned(), Go::Alias(found[2].to_owned()));
            } else if let Some(found) = import.captures(line) {
                let path = &found[2];
                let last = path.rsplit('/').next().unwrap_or(path);
                let name = found.get(1).map_or(last, |given| given.as_str());
                package.imports.insert(name.to_owned(), path.to_owned());
            }
        }
    }
    Ok(package)
}

fn check(root: &Path) -> Result<()> {
    let mut wrong = 0;
    for (_, _, prefix, kinds) in ROOTS {
        for kind in *kinds {
            let base = root.join("api/testdata/HEAD").join(format!("{prefix}.{kind}"));
            let body = fs::read(base.with_added_extension("pb"))?;
            let expected: Value =
                serde_json::from_slice(&fs::read(base.with_added_extension("json"))?)?;
            let decoded = proto::decode(&body)?;
            if decoded != expected {
                wrong += 1;
                println!("{kind}\n  expected {expected}\n  decoded  {decoded}");
            }
        }
    }
    if wrong > 0 { Err(format!("{wrong} kinds differ").into()) } else { Ok(()) }
}
