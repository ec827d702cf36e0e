//! The IngressClass `bowline` that `bowline up` creates, so that an Ingress needs no other object. It is created when none
//! has its name; from then on it belongs to the user. It is the default class only where there is a default load balancer:
//! without one an Ingress that names neither would be taken and then refused.

use anyhow::Context as _;
use bowline_api::names;
use k8s_openapi::api::networking::v1::IngressClass;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Error, ResourceExt as _};
use serde_json::{Value, json};

/// Its name.
const NAME: &str = "bowline";
/// The mark of the class of Ingresses that name none.
const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";

/// Creates it if none has its name. `default`: for Ingresses without a class, too.
pub(super) async fn ensure(client: &Client, default: bool) -> anyhow::Result<()> {
    let api: Api<IngressClass> = Api::all(client.clone());
    let doing = || format!("cannot set up the IngressClass {NAME:?}");
    let all = api.list(&ListParams::default()).await.with_context(doing)?.items;
    let Some(object) = wanted(&all, default) else { return Ok(()) };
    let object = serde_json::from_value(object).with_context(doing)?;
    match api.create(&PostParams::default(), &object).await {
        Err(Error::Api(status)) if status.code == 409 => Ok(()),
        created => created.map(drop).with_context(doing),
    }
}

/// The class to create beside those that there are. If it may be the default, it is unless another one is.
fn wanted(all: &[IngressClass], default: bool) -> Option<Value> {
    let is_default =
        |it: &IngressClass| it.annotations().get(DEFAULT).is_some_and(|it| it == "true");
    if all.iter().any(|it| it.name_any() == NAME) {
        return None;
    }
    let annotations = match default && !all.iter().any(is_default) {
        true => json!({DEFAULT: "true"}),
        false => json!({}),
    };
    Some(json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IngressClass",
        "metadata": {"name": NAME, "annotations": annotations},
        "spec": {"controller": names::INGRESS_CONTROLLER},
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, default: &str) -> IngressClass {
        let class = json!({"metadata": {"name": name, "annotations": {DEFAULT: default}}});
        serde_json::from_value(class).expect("an IngressClass")
    }

    #[test]
    fn it_is_made_once_and_is_the_default_unless_another_is() {
        let default = |all: &[_]| {
            wanted(all, true).map(|it| it["metadata"]["annotations"][DEFAULT] == "true")
        };
        assert_eq!(default(&[]), Some(true));
        assert_eq!(default(&[class("nginx", "false")]), Some(true));
        assert_eq!(default(&[class("nginx", "true")]), Some(false));
        assert_eq!(default(&[class(NAME, "false")]), None, "the user's");
        let without = wanted(&[], false).expect("made");
        assert_eq!(without["metadata"]["annotations"], json!({}), "no load balancer for it");
    }
}
