//! The rules of Kubernetes names: DNS labels and subdomains, label keys and values, port names, path
//! segments. Each check returns the errors in kube-apiserver's words; an empty list means valid. It
//! does no I/O; validations and the parsers of URLs and selectors call it.

/// The longest DNS label.
pub const LABEL_MAX: usize = 63;
/// The longest DNS subdomain.
pub const SUBDOMAIN_MAX: usize = 253;

const DNS1123_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS1123_SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS1035_LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_KEY_WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character";

/// A rule for the names of a kind's objects. The flag: whether the name is a `generateName` prefix.
pub type NameRule = fn(name: &str, prefix: bool) -> Vec<String>;

/// The error for a value longer than `limit` characters.
pub fn max_length(limit: usize) -> String {
    format!("must be no more than {limit} characters")
}

/// The error for a number outside `low..=high`.
pub fn between(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

/// The error for a value that does not match a pattern.
pub fn mismatch(words: &str, pattern: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{words} (regex used for validation is '{pattern}')");
    }
    let list = examples.iter().map(|e| format!("'{e}', ")).collect::<Vec<_>>().join(" or ");
    format!("{words} (e.g. {list}regex used for validation is '{pattern}')")
}

/// A DNS label of RFC 1123, such as the name of a Namespace or a container.
pub fn is_dns1123_label(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, LABEL_MAX);
    if !label1123(value) {
        wrong.push(if subdomain1123(value) {
            "must not contain dots".to_owned()
        } else {
            mismatch(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                 start and end with an alphanumeric character",
                DNS1123_LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    wrong
}

/// A DNS subdomain of RFC 1123, the name rule of most kinds.
pub fn is_dns1123_subdomain(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, SUBDOMAIN_MAX);
    if !subdomain1123(value) {
        wrong.push(mismatch(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
             must start and end with an alphanumeric character",
            DNS1123_SUBDOMAIN,
            &["example.com"],
        ));
    }
    wrong
}

/// `*.` and a DNS subdomain.
pub fn is_wildcard_dns1123_subdomain(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, SUBDOMAIN_MAX);
    if !value.strip_prefix("*.").is_some_and(subdomain1123) {
        wrong.push(mismatch(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
             consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!("\\*\\.{DNS1123_SUBDOMAIN}"),
            &["*.example.com"],
        ));
    }
    wrong
}

/// A DNS label of RFC 1035 (no digit first), the old name rule of Services.
pub fn is_dns1035_label(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, LABEL_MAX);
    if !(label1123(value) && value.starts_with(|c: char| c.is_ascii_lowercase())) {
        wrong.push(mismatch(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
             alphabetic character, and end with an alphanumeric character",
            DNS1035_LABEL,
            &["my-name", "abc-123"],
        ));
    }
    wrong
}

/// A label key, also the form of finalizers and annotation keys: a name with an optional DNS prefix.
pub fn is_qualified_name(value: &str) -> Vec<String> {
    let words = || mismatch(LABEL_KEY_WORDS, LABEL_KEY, &["MyName", "my.name", "123-abc"]);
    let mut wrong = Vec::new();
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        ["", name] => {
            wrong.push("prefix part must be non-empty".to_owned());
            name
        }
        [prefix, name] => {
            if prefix.len() > SUBDOMAIN_MAX {
                wrong.push(format!("prefix part {}", max_bytes(SUBDOMAIN_MAX)));
            }
            let syntax = is_dns1123_subdomain(prefix);
            wrong.extend(
                syntax
                    .into_iter()
                    .filter(|m| *m != max_length(SUBDOMAIN_MAX))
                    .map(|m| format!("prefix part {m}")),
            );
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')",
                words()
            )];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        wrong.push(format!("name part {}", max_bytes(LABEL_MAX)));
    }
    if !label_name(name) {
        wrong.push(format!("name part {}", words()));
    }
    wrong
}

/// A label value.
pub fn is_label_value(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.len() > LABEL_MAX {
        wrong.push(max_bytes(LABEL_MAX));
    }
    if !(value.is_empty() || label_name(value)) {
        wrong.push(mismatch(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
             must start and end with an alphanumeric character",
            &format!("({LABEL_KEY})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    wrong
}

/// A name that can be one segment of a URL path, the name rule of RBAC kinds.
pub fn is_path_segment(value: &str) -> Vec<String> {
    if let "." | ".." = value {
        return vec![format!("may not be '{value}'")];
    }
    is_path_segment_prefix(value)
}

/// The beginning of a name that can be one segment of a URL path.
pub fn is_path_segment_prefix(value: &str) -> Vec<String> {
    ["/", "%"]
        .iter()
        .filter(|bad| value.contains(**bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

/// A port name (`IANA_SVC_NAME`): up to 15 of `a-z0-9-`, with at least one letter.
pub fn is_port_name(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, 15);
    let mut check = |bad: bool, words: &str| {
        if bad {
            wrong.push(words.to_owned());
        }
    };
    check(
        value.is_empty() || !value.bytes().all(|b| lower_alnum(b) || b == b'-'),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    check(!value.bytes().any(|b| b.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    check(value.contains("--"), "must not contain consecutive hyphens");
    check(value.starts_with('-') || value.ends_with('-'), "must not begin or end with a hyphen");
    wrong
}

/// [`is_port_name`] under its name in the API documentation.
pub fn is_iana_svc_name(value: &str) -> Vec<String> {
    is_port_name(value)
}

/// A port number, not zero.
pub fn is_port_number(value: i64) -> Vec<String> {
    if (1..=65535).contains(&value) { Vec::new() } else { vec![between(1, 65535)] }
}

/// A key of a ConfigMap or Secret.
pub fn is_config_key(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, SUBDOMAIN_MAX);
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
    {
        wrong.push(mismatch(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match value {
        "." => wrong.push("must not be '.'".to_owned()),
        ".." => wrong.push("must not be '..'".to_owned()),
        _ if value.starts_with("..") => wrong.push("must not start with '..'".to_owned()),
        _ => {}
    }
    wrong
}

/// The name of an environment variable.
pub fn is_env_var_name(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.is_empty() {
        wrong.push("environment variable name must be non-empty".to_owned());
    }
    if value.chars().any(|c| !(' '..='~').contains(&c) || c == '=') {
        wrong.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .to_owned(),
        );
    }
    wrong
}

/// A percentage, such as `25%`.
pub fn is_percent(value: &str) -> Vec<String> {
    let digits = value.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Vec::new();
    }
    vec![mismatch(
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    )]
}

/// [`NameRule`]: a DNS subdomain.
pub fn name_is_subdomain(name: &str, prefix: bool) -> Vec<String> {
    is_dns1123_subdomain(&masked(name, prefix))
}

/// [`NameRule`]: a DNS label of RFC 1123.
pub fn name_is_label(name: &str, prefix: bool) -> Vec<String> {
    is_dns1123_label(&masked(name, prefix))
}

/// [`NameRule`]: a DNS label of RFC 1035.
pub fn name_is_dns1035_label(name: &str, prefix: bool) -> Vec<String> {
    is_dns1035_label(&masked(name, prefix))
}

/// [`NameRule`]: a path segment.
pub fn name_is_path_segment(name: &str, prefix: bool) -> Vec<String> {
    if prefix { is_path_segment_prefix(name) } else { is_path_segment(name) }
}

/// Hides the dash at the end of a prefix, because more characters follow.
fn masked(name: &str, prefix: bool) -> String {
    match name.strip_suffix('-') {
        Some(rest) if prefix && !rest.is_empty() => {
            let mut rest = rest.to_owned();
            rest.pop();
            rest + "a"
        }
        _ => name.to_owned(),
    }
}

fn too_long(value: &str, limit: usize) -> Vec<String> {
    if value.len() > limit { vec![max_length(limit)] } else { Vec::new() }
}

fn max_bytes(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

fn lower_alnum(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn label1123(value: &str) -> bool {
    let bytes = value.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    lower_alnum(*first) && lower_alnum(*last) && bytes.iter().all(|b| lower_alnum(*b) || *b == b'-')
}

fn subdomain1123(value: &str) -> bool {
    value.split('.').all(label1123)
}

fn label_name(value: &str) -> bool {
    let bytes = value.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    first.is_ascii_alphanumeric()
        && last.is_ascii_alphanumeric()
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(check: fn(&str) -> Vec<String>, good: &[&str]) {
        for value in good {
            assert_eq!(check(value), Vec::<String>::new(), "{value:?}");
        }
    }

    fn refuses(check: fn(&str) -> Vec<String>, bad: &[&str]) {
        for value in bad {
            assert_ne!(check(value), Vec::<String>::new(), "{value:?}");
        }
    }

    const LABELS: &[&str] = &["a", "0", "a-1", "1--a--b--2", "my-name"];
    const NO_LABELS: &[&str] = &[
        "", "A", "aBc", "-", "a-", "-a", "_", "a_b", ".", "a.", ".a", " ", "a b", "a\n", "ä",
        "a\0", "a/b", "%2e", "😀",
    ];

    #[test]
    fn dns_names_are_lower_case_labels_joined_by_dots() {
        accepts(is_dns1123_label, LABELS);
        refuses(is_dns1123_label, NO_LABELS);
        refuses(is_dns1123_label, &["a.b", &"a".repeat(64)]);
        accepts(is_dns1123_subdomain, LABELS);
        accepts(is_dns1123_subdomain, &["a.b", "1.2.3.4", &"a".repeat(253)]);
        refuses(is_dns1123_subdomain, NO_LABELS);
        refuses(is_dns1123_subdomain, &["a..b", "a.-b", &"a".repeat(254)]);
        accepts(is_dns1035_label, &["a", "a-1", &"a".repeat(63)]);
        refuses(is_dns1035_label, NO_LABELS);
        refuses(is_dns1035_label, &["1a", "0", "a.b", &"a".repeat(64)]);
        accepts(is_wildcard_dns1123_subdomain, &["*.a", "*.foo.bar.com"]);
        refuses(
            is_wildcard_dns1123_subdomain,
            &["*", "*.", "*.*.com", "*bar.com", "a.*.com", "a.com"],
        );
    }

    #[test]
    fn messages_are_those_of_the_real_server() {
        assert_eq!(
            is_dns1123_label("My_Name"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
              and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert_eq!(is_dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(is_label_value(&"x".repeat(64)), ["must be no more than 63 bytes"]);
        assert_eq!(is_dns1123_subdomain(&"x".repeat(254)), ["must be no more than 253 characters"]);
        assert_eq!(
            is_qualified_name("example.com/"),
            [
                "name part must be non-empty",
                "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                 alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                 '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            ]
        );
        assert_eq!(
            is_qualified_name("a/b/c"),
            [
                "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
              with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
              validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and \
              '/' (e.g. 'example.com/MyName')"
            ]
        );
        assert_eq!(
            is_port_name("--"),
            [
                "must contain at least one letter (a-z)",
                "must not contain consecutive hyphens",
                "must not begin or end with a hyphen"
            ]
        );
    }

    #[test]
    fn label_keys_have_an_optional_dns_prefix() {
        accepts(is_qualified_name, &["simple", "now-with-dashes", "1.2.3.4/5", "a.b/C_d.e"]);
        refuses(
            is_qualified_name,
            &[
                "",
                "/",
                "/a",
                "a/",
                "nospecialchars%^=@",
                "Tama-nui/x",
                "a b",
                "a/b/c",
                &"a".repeat(64),
            ],
        );
        let long_prefix = format!("{}/a", "a".repeat(254));
        assert_eq!(is_qualified_name(&long_prefix), ["prefix part must be no more than 253 bytes"]);
        accepts(is_label_value, &["", "a", "A_b.c-1", "1.0-rc"]);
        refuses(is_label_value, &[" ", "-a", "a-", "a/b", "ä", "a b", "\n"]);
    }

    #[test]
    fn port_names_and_config_keys_keep_to_their_alphabet() {
        accepts(is_port_name, &["telnet", "re-mail-ck", "pop3", "a", "a-1", "123abc789012345"]);
        refuses(
            is_port_name,
            &["", "longerthan15char", "12345", "-a", "a-", "a--b", "A", "a_b", "ä"],
        );
        accepts(is_config_key, &["a", ".a", "A.b_c-d"]);
        refuses(is_config_key, &["", ".", "..", "..a", "a/b", "a b", "ä", &"a".repeat(254)]);
        accepts(is_env_var_name, &["A", "my.env-name", "1a", "a b"]);
        refuses(is_env_var_name, &["", "a=b", "ä", "a\tb"]);
        accepts(is_percent, &["1%", "100%"]);
        refuses(is_percent, &["", "%", "1", "-1%", "1.5%"]);
    }

    #[test]
    fn path_segments_may_not_leave_their_place() {
        accepts(is_path_segment, &["system:node", "a b", "..a"]);
        assert_eq!(is_path_segment(".."), ["may not be '..'"]);
        assert_eq!(is_path_segment("a/b%"), ["may not contain '/'", "may not contain '%'"]);
    }

    #[test]
    fn a_generate_name_may_end_with_a_dash() {
        assert_eq!(name_is_subdomain("web-", true), Vec::<String>::new());
        assert_ne!(name_is_subdomain("web-", false), Vec::<String>::new());
        assert_ne!(name_is_subdomain("-", true), Vec::<String>::new());
        assert_eq!(name_is_path_segment(".", true), Vec::<String>::new());
    }
}
