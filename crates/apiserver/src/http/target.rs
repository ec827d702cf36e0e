//! Parses a request path into a [`Target`]. It does no I/O; the registry knows whether the resource
//! exists.

/// The meaning of a request path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `/livez`, `/readyz`, `/healthz`, and `/ping` below each.
    Health,
    /// `/version`.
    Version,
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1` or `/apis/GROUP/VERSION`.
    GroupVersion {
        /// API group, empty for core.
        group: String,
        /// Version.
        version: String,
    },
    /// `/openapi/v3`.
    OpenApiIndex,
    /// `/openapi/v3/…`; the rest of the path, such as `apis/apps/v1`.
    OpenApi(String),
    /// A collection, an object or a subresource.
    Resource(ResourceTarget),
    /// A path that this server does not know.
    Nowhere,
}

/// A collection, an object or a subresource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceTarget {
    /// API group, empty for core.
    pub group: String,
    /// Version.
    pub version: String,
    /// Namespace, empty when the path names none.
    pub namespace: String,
    /// The plural.
    pub resource: String,
    /// Object name, empty for the collection.
    pub name: String,
    /// Subresource, empty for the object itself.
    pub subresource: String,
    /// Whether the path is the old form of watches, `/api/v1/watch/…`.
    pub watch: bool,
}

impl ResourceTarget {
    /// `v1` or `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// Reads a request path. Segments are percent-decoded. A path that cannot be decoded is
/// [`Target::Nowhere`].
pub fn parse(path: &str) -> Target {
    let mut segments = Vec::new();
    for raw in path.trim_start_matches('/').trim_end_matches('/').split('/') {
        match percent_decode(raw) {
            Some(segment) => segments.push(segment),
            None => return Target::Nowhere,
        }
    }
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["livez" | "readyz" | "healthz"] | ["livez" | "readyz" | "healthz", "ping"] => {
            Target::Health
        }
        ["version"] => Target::Version,
        ["api"] => Target::CoreVersions,
        ["apis"] => Target::Groups,
        ["apis", group] => Target::Group((*group).to_owned()),
        ["openapi", "v3"] => Target::OpenApiIndex,
        ["openapi", "v3", rest @ ..] => Target::OpenApi(rest.join("/")),
        ["api", version] => {
            Target::GroupVersion { group: String::new(), version: (*version).to_owned() }
        }
        ["apis", group, version] => {
            Target::GroupVersion { group: (*group).to_owned(), version: (*version).to_owned() }
        }
        ["api", version, "watch", rest @ ..] => resource("", version, rest, true),
        // An empty group is not another path of the core group.
        ["apis", "", ..] => Target::Nowhere,
        ["apis", group, version, "watch", rest @ ..] => resource(group, version, rest, true),
        ["api", version, rest @ ..] => resource("", version, rest, false),
        ["apis", group, version, rest @ ..] => resource(group, version, rest, false),
        _ => Target::Nowhere,
    }
}

fn resource(group: &str, version: &str, rest: &[&str], watch: bool) -> Target {
    let (namespace, rest) = match rest {
        // `/namespaces/NAME`, `/namespaces/NAME/status` and `/namespaces/NAME/finalize` mean the
        // Namespace itself. Longer paths mean objects in it.
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] if group.is_empty() => {
            ("", rest)
        }
        ["namespaces", namespace, inner @ ..] if !inner.is_empty() => (*namespace, inner),
        _ => ("", rest),
    };
    let (resource, name, subresource) = match rest {
        [resource] => (*resource, "", ""),
        [resource, name] => (*resource, *name, ""),
        [resource, name, subresource] => (*resource, *name, *subresource),
        _ => return Target::Nowhere,
    };
    Target::Resource(ResourceTarget {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        subresource: subresource.to_owned(),
        watch,
    })
}

/// Decodes `%XX`. None: the result is not UTF-8, or an escape is invalid.
pub fn percent_decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let high = char::from(bytes.next()?).to_digit(16)?;
            let low = char::from(bytes.next()?).to_digit(16)?;
            out.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(group: &str, namespace: &str, resource: &str, name: &str, sub: &str) -> Target {
        Target::Resource(ResourceTarget {
            group: group.into(),
            version: "v1".into(),
            namespace: namespace.into(),
            resource: resource.into(),
            name: name.into(),
            subresource: sub.into(),
            watch: false,
        })
    }

    #[test]
    fn every_form_of_path_has_one_meaning() {
        for (path, target) in [
            ("/api", Target::CoreVersions),
            ("/apis/", Target::Groups),
            ("/apis/apps", Target::Group("apps".into())),
            ("/api/v1", Target::GroupVersion { group: String::new(), version: "v1".into() }),
            ("/api/v1/pods", at("", "", "pods", "", "")),
            ("/api/v1/nodes/a", at("", "", "nodes", "a", "")),
            ("/api/v1/namespaces", at("", "", "namespaces", "", "")),
            ("/api/v1/namespaces/a", at("", "", "namespaces", "a", "")),
            ("/api/v1/namespaces/a/status", at("", "", "namespaces", "a", "status")),
            ("/api/v1/namespaces/a/finalize", at("", "", "namespaces", "a", "finalize")),
            ("/api/v1/namespaces/a/pods", at("", "a", "pods", "", "")),
            ("/api/v1/namespaces/a/pods/b/status", at("", "a", "pods", "b", "status")),
            ("/apis/apps/v1/namespaces/a/deployments/b", at("apps", "a", "deployments", "b", "")),
            ("/openapi/v3/apis/apps/v1", Target::OpenApi("apis/apps/v1".into())),
            ("/livez/ping", Target::Health),
            ("/", Target::Nowhere),
            ("/apis//v1/configmaps", Target::Nowhere),
            ("/api/v1/namespaces/a/pods/b/c/d", Target::Nowhere),
            ("/api/v1/nodes/%ff", Target::Nowhere),
            ("/api/v1/nodes/a%2Fb", at("", "", "nodes", "a/b", "")),
        ] {
            assert_eq!(parse(path), target, "{path}");
        }
    }
}
