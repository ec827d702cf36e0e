//! The CustomResourceDefinitions of all of Bowline's kinds. `bowline crds` prints them, `deploy/crds` holds them and
//! `bowline up` installs them. They are made from the Rust types; nothing is written by hand twice.

use crate::{
    Address, AddressPool, Advertisement, BGPPeer, ExternalIP, LoadBalancer, LoadBalancerClaim,
    LoadBalancerClass, Plan,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::{CustomResourceExt, Resource as _};
use serde_json::Value;
use std::collections::BTreeSet;

/// Every definition, in a fixed order.
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut all = vec![
        LoadBalancer::crd(),
        LoadBalancerClaim::crd(),
        LoadBalancerClass::crd(),
        AddressPool::crd(),
        Address::crd(),
        ExternalIP::crd(),
        Advertisement::crd(),
        BGPPeer::crd(),
        Plan::crd(),
    ];
    for crd in &mut all {
        let with_state = crd.spec.names.kind == Address::kind(&());
        for version in &mut crd.spec.versions {
            let schema = version.schema.as_mut().and_then(|it| it.open_api_v3_schema.as_mut());
            let Some(schema) = schema else { continue };
            tidy(schema);
            if with_state {
                always_with_status(schema);
            }
        }
    }
    all
}

/// Gives the status a default, so that an object has one before any is written: an Address is Active without a second
/// write.
fn always_with_status(schema: &mut JSONSchemaProps) {
    let properties = schema.properties.as_mut();
    if let Some(status) = properties.and_then(|it| it.get_mut("status")) {
        status.default = Some(JSON(Value::Object(Default::default())));
    }
}

/// The definitions as one YAML text of several documents.
pub fn yaml() -> String {
    files().into_iter().map(|(_, yaml)| format!("---\n{yaml}")).collect()
}

/// The definitions as files: name and content.
pub fn files() -> Vec<(String, String)> {
    all()
        .into_iter()
        .map(|crd| (format!("{}.yaml", crd.spec.names.plural), to_yaml(&crd)))
        .collect()
}

fn to_yaml(crd: &CustomResourceDefinition) -> String {
    // Bounds are floating point in the Rust type; servers write `minimum: 0`.
    let mut value = serde_json::to_value(crd).unwrap_or_default();
    whole_numbers(&mut value);
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(&value, options).unwrap_or_default()
}

/// Bounds are floating point in the Rust type; `minimum: 0` is what a server answers.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(float) = number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 1e15) {
                *number = (float as i64).into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// Makes the derived schema look as if written by a person: no null where absence means the same, no title that repeats
/// the type's name, no format that Kubernetes does not know, no `oneOf` that a rule or a number of properties expresses
/// as well, and descriptions as running text.
fn tidy(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.title = None;
    if let Some(choices) = schema.one_of.take()
        && let Some(properties) = &schema.properties
    {
        let chosen = choices.iter().flat_map(|choice| choice.required.iter().flatten());
        if properties.keys().eq(chosen.collect::<BTreeSet<_>>()) {
            (schema.min_properties, schema.max_properties) = (Some(1), Some(1));
        }
    }
    if schema.format.as_deref() == Some("uint32") {
        schema.maximum.get_or_insert(u32::MAX.into());
    }
    if let Some(values) = &mut schema.enum_ {
        values.retain(|JSON(value)| !value.is_null());
    }
    if !matches!(schema.format.as_deref(), Some("int32" | "int64" | "date-time")) {
        schema.format = None;
    }
    if let Some(text) = &mut schema.description {
        *text = text.split("\n\n").map(|p| p.replace('\n', " ")).collect::<Vec<_>>().join("\n\n");
    }
    for property in schema.properties.iter_mut().flat_map(|map| map.values_mut()) {
        tidy(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        tidy(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        tidy(values);
    }
}

#[cfg(test)]
mod check;
#[cfg(test)]
mod tests;
