//! Objects for the tests of this module, from YAML as users write it, and the problems that the
//! tests expect.

use bowline_core::outcome::{Problem, Reason};
use kube::Resource;
use serde::de::DeserializeOwned;

/// An object of any kind.
pub(super) fn object<T: DeserializeOwned>(yaml: &str) -> T {
    serde_saphyr::from_str(yaml).unwrap()
}

/// An object with these annotations beside those it has.
pub(super) fn annotated<T: DeserializeOwned + Resource>(yaml: &str, pairs: &[(&str, &str)]) -> T {
    let mut object: T = object(yaml);
    let all = object.meta_mut().annotations.get_or_insert_default();
    all.extend(pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())));
    object
}

/// A placement, address or host that cannot be read.
pub(super) fn bad_value(message: &str) -> Problem {
    Problem::new(Reason::BadValue, message)
}

/// Tuning that cannot be read.
pub(super) fn bad_tuning(message: &str) -> Problem {
    Problem::new(Reason::BadTuning, format!("{message}; the default is used"))
}

/// Texts that are often read or rendered wrongly.
pub(crate) const HOSTILE: &[&str] = &[
    "",
    " ",
    "\n",
    "a\r\nHost: b",
    "a;b",
    "a}\nserver { }",
    "{",
    "}",
    "\"",
    "'",
    "\\",
    "$(id)",
    "`id`",
    "{{ . }}",
    "../../etc/passwd",
    "%00",
    "\0",
    "\u{feff}true",
    "true ",
    "TRUE",
    "ｔｒｕｅ",
    "٣",
    "-1",
    "1e309",
    "999999999999999999999",
    "null",
    "[]",
    "[[[[[[[[[[[[[[[[[[[[",
    "{\"a\":{\"a\":{\"a\":{}}}}",
    "::",
    "::ffff:1.2.3.4",
    "0.0.0.0/0",
    "~(a+)+$",
    "http:/a b",
    "http:/a\nb",
    "http://evil/",
];
