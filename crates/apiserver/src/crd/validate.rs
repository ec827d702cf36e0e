//! Validates a CustomResourceDefinition. Errors have the order and the words of kube-apiserver: if all
//! versions have the same schema, subresources or columns, it reports them at the top of the spec, and
//! so does this module. It does no I/O.

use super::{storage_version, text, texts, versions};
use crate::error::{FieldError, FieldErrorKind};
use crate::meta;
use crate::names::{is_dns1035_label, is_dns1123_subdomain};
use crate::schema::{
    CelRules, Schema, Type, child, compile_crd_at, field_path, indexed, unrecognized_formats,
};
use serde_json::Value;

const APPROVED: &str = "api-approved.kubernetes.io";

/// The errors of a defaulted definition (`old` on update).
pub fn validate(crd: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old.is_none() {
        name(crd, &mut errors);
    }
    spec(crd, &mut errors);
    if let Some(old) = old {
        immutable(crd, old, &mut errors);
    }
    stored_versions(crd, old, &mut errors);
    approval(crd, old, &mut errors);
    if crd["spec"]["preserveUnknownFields"] == Value::Bool(true) {
        errors.push(FieldError::invalid(
            "spec.preserveUnknownFields",
            &Value::Bool(true),
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
             spec.versions[*].schema instead",
        ));
    }
    errors
}

/// The warnings for the writer: formats that are not checked.
pub fn warnings(crd: &Value, old: Option<&Value>) -> Vec<String> {
    let formats = |crd: &Value| -> Vec<String> {
        let schemas = versions(crd).iter().map(|v| &v["schema"]["openAPIV3Schema"]);
        schemas.flat_map(unrecognized_formats).collect()
    };
    let known = old.map(formats).unwrap_or_default();
    let mut new = formats(crd);
    new.retain(|format| !known.contains(format));
    new.iter().map(|format| format!("unrecognized format {format:?}")).collect()
}

fn name(crd: &Value, errors: &mut Vec<FieldError>) {
    let name = meta::name(crd);
    let wanted =
        format!("{}.{}", text(&crd["spec"]["names"], "plural"), text(&crd["spec"], "group"));
    if name != wanted {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", &name.into(), detail));
    }
}

fn spec(crd: &Value, errors: &mut Vec<FieldError>) {
    let spec = &crd["spec"];
    let group = text(spec, "group");
    let wrong = is_dns1123_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !wrong.is_empty() {
        errors.push(FieldError::invalid("spec.group", &group.into(), wrong.join(",")));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", &group.into(), detail));
    }
    one_of("spec.scope", text(spec, "scope"), &["Cluster", "Namespaced"], errors);
    for (i, version) in versions(crd).iter().enumerate() {
        if version["schema"]["openAPIV3Schema"].is_null() {
            let field = format!("spec.versions[{i}].schema.openAPIV3Schema");
            errors.push(FieldError::required(field, ""));
        }
    }
    let shared = Shared::of(versions(crd));
    for (i, version) in versions(crd).iter().enumerate() {
        let path = format!("spec.versions[{i}]");
        let wrong = is_dns1035_label(text(version, "name"));
        if !wrong.is_empty() {
            let field = child(&path, "name");
            errors.push(FieldError::invalid(field, &version["name"], wrong.join(",")));
        }
        deprecation(version, &path, errors);
        parts(version, &path, &shared, false, errors);
    }
    storage(crd, errors);
    names(&spec["names"], errors);
    if let Some(first) = versions(crd).first() {
        parts(first, "spec", &shared, true, errors);
    }
    conversion(&spec["conversion"], errors);
}

fn one_of(field: &str, value: &str, known: &[&str], errors: &mut Vec<FieldError>) {
    if value.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if !known.contains(&value) {
        errors.push(FieldError::not_supported(field, &value.into(), known));
    }
}

/// Whether all versions have the same part.
struct Shared {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable: bool,
}

impl Shared {
    fn of(versions: &[Value]) -> Self {
        let same = |key: &str| versions.iter().all(|v| v[key] == versions[0][key]);
        Self {
            schema: same("schema"),
            subresources: same("subresources"),
            columns: same("additionalPrinterColumns"),
            selectable: same("selectableFields"),
        }
    }
}

/// Validates the parts of a version at `path`: with `top` the shared parts, otherwise the others.
fn parts(version: &Value, path: &str, shared: &Shared, top: bool, errors: &mut Vec<FieldError>) {
    let status = !version["subresources"]["status"].is_null();
    let schema = &version["schema"]["openAPIV3Schema"];
    let key = if top { "validation" } else { "schema" };
    let schema_at = child(&child(path, key), "openAPIV3Schema");
    if shared.schema == top && !schema.is_null() {
        if status {
            root_with_status(schema, &schema_at, errors);
        }
        match compile_crd_at(schema, &schema_at) {
            Err(wrong) => errors.extend(wrong),
            Ok(compiled) => {
                if let Err(wrong) = CelRules::compile_at(schema, &compiled, &schema_at) {
                    errors.extend(wrong);
                }
            }
        }
    }
    if shared.subresources == top {
        scale(&version["subresources"]["scale"], &child(path, "subresources"), errors);
    }
    if shared.columns == top {
        let at = child(path, "additionalPrinterColumns");
        let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
        for (i, column) in columns.enumerate() {
            printer_column(column, &indexed(&at, i), errors);
        }
    }
    if shared.selectable == top
        && let Ok(compiled) = compile_crd_at(schema, &schema_at)
    {
        selectable(version, &compiled, &child(path, "selectableFields"), errors);
    }
}

/// With a status subresource the root schema may use only a few fields; otherwise the status would
/// escape validation.
fn root_with_status(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const ALLOWED: [(&str, &str); 22] = [
        ("Description", "description"),
        ("Type", "type"),
        ("Format", "format"),
        ("Title", "title"),
        ("Maximum", "maximum"),
        ("ExclusiveMaximum", "exclusiveMaximum"),
        ("Minimum", "minimum"),
        ("ExclusiveMinimum", "exclusiveMinimum"),
        ("MaxLength", "maxLength"),
        ("MinLength", "minLength"),
        ("Pattern", "pattern"),
        ("MaxItems", "maxItems"),
        ("MinItems", "minItems"),
        ("UniqueItems", "uniqueItems"),
        ("MultipleOf", "multipleOf"),
        ("Required", "required"),
        ("Items", "items"),
        ("Properties", "properties"),
        ("ExternalDocs", "externalDocs"),
        ("Example", "example"),
        ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields"),
        ("XValidations", "x-kubernetes-validations"),
    ];
    let type_ = text(schema, "type");
    if !type_.is_empty() && type_ != "object" {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status \
                      subresource is enabled";
        errors.push(FieldError::invalid(child(path, "type"), &type_.into(), detail));
    }
    let given = schema.as_object().into_iter().flatten();
    let mut others = given.filter(|(key, value)| {
        let empty = value.is_null() || **value == Value::Bool(false);
        !empty && !ALLOWED.iter().any(|(_, allowed)| allowed == key)
    });
    if others.next().is_some() {
        let names = ALLOWED.map(|(name, _)| name).join(" ");
        let detail = format!(
            "only [{names}] fields are allowed at the root of the schema if the status subresource is \
             enabled"
        );
        errors.push(FieldError::invalid(path, schema, detail));
    }
}

fn deprecation(version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let warning = &version["deprecationWarning"];
    let Some(words) = warning.as_str() else { return };
    let mut wrong = Vec::new();
    if version["deprecated"] != Value::Bool(true) {
        wrong.push("can only be set for deprecated versions".to_owned());
    } else {
        if words.len() > 256 {
            wrong.push("must be <= 256 characters long".to_owned());
        }
        if words.is_empty() {
            wrong.push("must not be an empty string".to_owned());
        }
        if let Some((i, _)) = words.char_indices().find(|(_, c)| c.is_control()) {
            wrong.push(format!(
                "must only contain printable UTF-8 characters; non-printable character found at index {i}"
            ));
        }
    }
    for detail in wrong {
        errors.push(FieldError::invalid(child(path, "deprecationWarning"), warning, detail));
    }
}

fn storage(crd: &Value, errors: &mut Vec<FieldError>) {
    let list = versions(crd);
    let shown = &crd["spec"]["versions"];
    let name = |v: &Value| text(v, "name").to_owned();
    let unique = (1..list.len()).all(|i| list[..i].iter().all(|v| name(v) != name(&list[i])));
    if !unique {
        let detail = "must contain unique version names";
        errors.push(FieldError::invalid("spec.versions", shown, detail));
    }
    if list.iter().filter(|v| v["storage"] == Value::Bool(true)).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", shown, detail));
    }
    // kube-apiserver's internal form has the first version in a second place, and reports it there too.
    if let Some(first) = list.first().map(name).filter(|first| !first.is_empty()) {
        let wrong = is_dns1035_label(&first);
        if !wrong.is_empty() {
            errors.push(FieldError::invalid("spec.version", &first.into(), wrong.join(",")));
        }
    }
}

fn names(names: &Value, errors: &mut Vec<FieldError>) {
    const AT: &str = "spec.names";
    const MIXED: &str = "may have mixed case, but should otherwise match: ";
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(names, key).is_empty() {
            errors.push(FieldError::required(child(AT, key), ""));
        }
    }
    for (key, mixed) in [("plural", ""), ("singular", ""), ("kind", MIXED), ("listKind", MIXED)] {
        let name = text(names, key);
        let folded = if mixed.is_empty() { name.to_owned() } else { name.to_lowercase() };
        let wrong = is_dns1035_label(&folded);
        if !name.is_empty() && !wrong.is_empty() {
            let detail = format!("{mixed}{}", wrong.join(","));
            errors.push(FieldError::invalid(child(AT, key), &name.into(), detail));
        }
    }
    let mut each = |key: &str| {
        for (i, name) in texts(&names[key]).into_iter().enumerate() {
            let wrong = is_dns1035_label(&name);
            if !wrong.is_empty() {
                let field = indexed(&child(AT, key), i);
                errors.push(FieldError::invalid(field, &name.into(), wrong.join(",")));
            }
        }
    };
    each("shortNames");
    each("categories");
    let kind = text(names, "kind");
    if !kind.is_empty() && kind == text(names, "listKind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(child(AT, "listKind"), &kind.into(), detail));
    }
}

fn scale(scale: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if scale.is_null() {
        return;
    }
    let places: [(&str, bool, &[&str], &str); 3] = [
        ("specReplicasPath", true, &[".spec."], ".spec"),
        ("statusReplicasPath", true, &[".status."], ".status"),
        ("labelSelectorPath", false, &[".spec.", ".status."], "either .spec or .status"),
    ];
    for (key, required, roots, words) in places {
        let field = format!("{path}.scale.{key}");
        let value = text(scale, key);
        if value.is_empty() {
            if required {
                errors.push(FieldError::required(field, ""));
            }
        } else if let Some(error) = json_path(value, &field) {
            errors.push(error);
        } else if !roots.iter().any(|root| value.starts_with(root)) {
            let detail = format!("should be a json path under {words}");
            errors.push(FieldError::invalid(field, &value.into(), detail));
        }
    }
}

fn json_path(path: &str, field: &str) -> Option<FieldError> {
    let detail = match path {
        path if !path.starts_with('.') => "must be a simple json path starting with .",
        path if !balanced(path) => "must be a json path whose brackets and quotes are closed",
        _ => return None,
    };
    Some(FieldError::invalid(field, &path.into(), detail))
}

/// Whether brackets, parentheses and quotes are closed in the order in which they were opened.
/// kube-apiserver accepts any text here and then shows no column at all.
fn balanced(path: &str) -> bool {
    let mut open = Vec::new();
    let mut quote = None;
    let mut escaped = false;
    for c in path.chars() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => open.push(']'),
            (None, '(') => open.push(')'),
            (None, '{') => open.push('}'),
            (None, ']' | ')' | '}') if open.pop() != Some(c) => return false,
            _ => {}
        }
    }
    open.is_empty() && quote.is_none()
}

fn printer_column(column: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] =
        ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    if text(column, "name").is_empty() {
        errors.push(FieldError::required(child(path, "name"), ""));
    }
    let must = format!("must be one of {}", TYPES.join(","));
    match text(column, "type") {
        "" => errors.push(FieldError::required(child(path, "type"), must)),
        known if TYPES.contains(&known) => {}
        other => errors.push(FieldError::invalid(child(path, "type"), &other.into(), must)),
    }
    let format = text(column, "format");
    if !format.is_empty() && !FORMATS.contains(&format) {
        let must = format!("must be one of {}", FORMATS.join(","));
        errors.push(FieldError::invalid(child(path, "format"), &format.into(), must));
    }
    let field = child(path, "JSONPath");
    match text(column, "jsonPath") {
        "" => errors.push(FieldError::required(field, "")),
        value => errors.extend(json_path(value, &field)),
    }
}

fn selectable(version: &Value, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    const LIMIT: usize = 8;
    let mut seen: Vec<String> = Vec::new();
    for (i, entry) in version["selectableFields"].as_array().into_iter().flatten().enumerate() {
        let field = child(&indexed(path, i), "jsonPath");
        let value = &entry["jsonPath"];
        let given = text(entry, "jsonPath");
        if given.is_empty() {
            errors.push(FieldError::required(field, ""));
            continue;
        }
        let (written, found) = match field_path(given, schema, false) {
            Ok(found) => found,
            Err(why) => {
                let detail = format!("is an invalid path: {why}");
                errors.push(FieldError::invalid(field, value, detail));
                continue;
            }
        };
        if written.split(['.', '[']).next() == Some("metadata") {
            let detail = "must not point to fields in metadata";
            errors.push(FieldError::invalid(field.clone(), value, detail));
        }
        if !matches!(found.node().type_, Some(Type::String | Type::Boolean | Type::Integer)) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields \
                          and strings with formats are allowed.";
            errors.push(FieldError::invalid(field.clone(), value, detail));
        }
        if seen.contains(&written) {
            errors.push(FieldError::duplicate(field, value));
        } else {
            seen.push(written);
        }
    }
    if seen.len() > LIMIT {
        errors.push(FieldError::too_many(path, seen.len(), LIMIT));
    }
}

fn conversion(conversion: &Value, errors: &mut Vec<FieldError>) {
    if conversion.is_null() {
        return;
    }
    let strategy = text(conversion, "strategy");
    if strategy == "Webhook" {
        errors.push(FieldError::forbidden(
            "spec.conversion.strategy",
            "this server does not implement conversion webhooks",
        ));
        return;
    }
    one_of("spec.conversion.strategy", strategy, &["None", "Webhook"], errors);
    if !conversion["webhook"].is_null() {
        let detail = "should not be set when strategy is not set to Webhook";
        errors.push(FieldError::forbidden("spec.conversion.webhookClientConfig", detail));
    }
}

fn immutable(crd: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let established = super::established(old);
    for (path, keys, always) in [
        ("spec.scope", &["scope"][..], false),
        ("spec.names.kind", &["names", "kind"], false),
        ("spec.group", &["group"], true),
        ("spec.names.plural", &["names", "plural"], true),
    ] {
        let get = |crd: &Value| keys.iter().fold(crd["spec"].clone(), |v, key| v[*key].clone());
        let new = get(crd);
        if (always || established) && new != get(old) {
            errors.push(FieldError::invalid(path, &new, "field is immutable"));
        }
    }
}

/// A version in which objects may still be stored must stay.
fn stored_versions(crd: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let Some(old) = old else {
        if storage_version(crd).is_empty() {
            let detail = "must have at least one stored version";
            errors.push(FieldError::invalid("status.storedVersions", &Value::Null, detail));
        }
        return;
    };
    let stored = texts(&old["status"]["storedVersions"]);
    for (i, name) in stored.iter().enumerate() {
        let kept =
            versions(crd).iter().any(|v| text(v, "name") == name) || storage_version(crd) == name;
        if !kept {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {name} and \
                 removes {name} from status.storedVersions"
            );
            let value = name.as_str().into();
            errors.push(FieldError::invalid(format!("status.storedVersions[{i}]"), &value, detail));
        }
    }
}

/// API groups of the Kubernetes community need an annotation that says whether the API was approved.
fn approval(crd: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let group = text(&crd["spec"], "group");
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|g| group == *g || group.strip_suffix(g).is_some_and(|rest| rest.ends_with('.')));
    let said =
        |crd: &Value| crd["metadata"]["annotations"][APPROVED].as_str().unwrap_or("").to_owned();
    if !protected || old.is_some_and(|old| said(old) == said(crd)) {
        return;
    }
    let given = said(crd);
    let is_url = given.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && !rest.is_empty() && !rest.starts_with('/') && !rest.contains(' ')
    });
    let field = format!("metadata.annotations[{APPROVED}]");
    if given.is_empty() {
        let detail = format!("protected groups must have approval annotation {APPROVED:?}, {SEE}");
        errors.push(FieldError { kind: FieldErrorKind::Required, field, value: None, detail });
    } else if !given.starts_with("unapproved") && !is_url {
        let detail = format!(
            "protected groups must have approval annotation {APPROVED:?} with either a URL or a reason \
             starting with \"unapproved\", {SEE}"
        );
        errors.push(FieldError::invalid(field, &given.into(), detail));
    }
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
