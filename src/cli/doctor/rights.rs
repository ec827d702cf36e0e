//! The rights of controllers, agents and speakers: what the manifests of `deploy/rbac` grant is what they need, and the API server is
//! asked for each of these rights whether the account has it.

use crate::view::doctor::Rights;
use bowline_api::names;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, Error, ResourceExt as _};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The manifests with the rights of controllers, of speakers, and of the agent of a load balancer called `edge`.
const CONTROLLER: &str = include_str!("../../../deploy/rbac/controller.yaml");
const SPEAKER: &str = include_str!("../../../deploy/rbac/speaker.yaml");
const AGENT: &str = include_str!("../../../deploy/rbac/agent.yaml");

/// The most questions to the API server at the same time.
const AT_ONCE: usize = 16;

/// A right that a process needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    verb: String,
    group: String,
    resource: String,
    /// Only in Bowline's own namespace; else everywhere.
    own: bool,
    /// The object, where the right is for one only.
    name: Option<String>,
}

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { verb, group, resource, name, .. } = self;
        let dot = if group.is_empty() { "" } else { "." };
        write!(f, "{verb} {resource}{dot}{group}")?;
        name.iter().try_for_each(|name| write!(f, " {name}"))
    }
}

/// The rights that a manifest grants to a ServiceAccount.
fn granted(manifest: &str, account: &str) -> Result<BTreeSet<Right>, serde_saphyr::Error> {
    let objects = serde_saphyr::from_multiple::<Value>(manifest)?;
    let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let binds = |binding: &&Value| {
        all(&binding["subjects"])
            .iter()
            .any(|it| it["kind"] == "ServiceAccount" && it["name"] == account)
    };
    let mut rights = BTreeSet::new();
    for binding in objects.iter().filter(binds) {
        let role = &binding["roleRef"];
        let is_bound =
            |it: &&Value| it["kind"] == role["kind"] && it["metadata"]["name"] == role["name"];
        let rules = objects.iter().filter(is_bound).flat_map(|it| all(&it["rules"]));
        let own = binding["kind"] == "RoleBinding";
        for rule in rules {
            let texts = |field: &str| -> Vec<String> {
                all(&rule[field]).iter().filter_map(|it| Some(it.as_str()?.to_owned())).collect()
            };
            // A long list of names is that of numbered Secrets: who has the first and the last has all.
            let names = match &texts("resourceNames")[..] {
                [] => vec![None],
                [one] => vec![Some(one.clone())],
                [first, .., last] => vec![Some(first.clone()), Some(last.clone())],
            };
            for group in texts("apiGroups") {
                for resource in texts("resources") {
                    for verb in texts("verbs") {
                        rights.extend(names.iter().map(|name| Right {
                            verb: verb.clone(),
                            group: group.clone(),
                            resource: resource.clone(),
                            own,
                            name: name.clone(),
                        }));
                    }
                }
            }
        }
    }
    Ok(rights)
}

/// The rights that each account needs.
fn needed(
    load_balancers: &[&str],
) -> Result<BTreeMap<String, BTreeSet<Right>>, serde_saphyr::Error> {
    let controller = names::ACCOUNT_CONTROLLER.to_owned();
    let mut all = BTreeMap::from([(controller.clone(), granted(CONTROLLER, &controller)?)]);
    let speaker = names::ACCOUNT_SPEAKER.to_owned();
    all.insert(speaker.clone(), granted(SPEAKER, &speaker)?);
    for name in load_balancers {
        let account = names::agent_account(name);
        let rights = granted(&AGENT.replace("edge", name), &account)?;
        all.insert(account, rights);
    }
    Ok(all)
}

/// What controllers, speakers and the agents of these load balancers lack. An account that does not exist is left out: its process
/// runs elsewhere.
pub(super) async fn check(client: &Client, system: &str, load_balancers: &[&str]) -> Rights {
    match lacking(client, system, load_balancers).await {
        Ok(lacking) if lacking.is_empty() => Rights::Unknown(format!(
            "namespace {system} has no ServiceAccount of a controller or agent: they run elsewhere, with rights that \
             are not known here"
        )),
        Ok(lacking) => Rights::Known(lacking),
        Err(why) => Rights::Unknown(why),
    }
}

async fn lacking(
    client: &Client,
    system: &str,
    load_balancers: &[&str],
) -> Result<BTreeMap<String, Vec<String>>, String> {
    let api: Api<ServiceAccount> = Api::namespaced(client.clone(), system);
    let accounts = match api.list(&ListParams::default()).await {
        Ok(accounts) => accounts,
        Err(Error::Api(status)) if status.code == 403 => {
            return Err(format!("you may not list serviceaccounts in namespace {system}"));
        }
        Err(error) => return Err(format!("cannot list serviceaccounts: {error}")),
    };
    let accounts: BTreeSet<String> = accounts.iter().map(ServiceAccount::name_any).collect();
    let mut needed = needed(load_balancers).map_err(|error| error.to_string())?;
    needed.retain(|account, _| accounts.contains(account));
    let mut lacking: BTreeMap<String, Vec<String>> =
        needed.keys().map(|account| (account.clone(), Vec::new())).collect();
    let questions =
        needed.iter().flat_map(|(account, all)| all.iter().map(move |it| (account, it)));
    let mut answers = futures::stream::iter(questions)
        .map(async |(account, right)| {
            is_allowed(client, system, account, right).await.map(|may| (account, right, may))
        })
        .buffered(AT_ONCE);
    let answer = |error: Error| match error {
        Error::Api(status) if status.code == 403 => {
            "you may not ask what ServiceAccounts may do (create subjectaccessreviews)".to_owned()
        }
        error => format!("the API server does not say: {error}"),
    };
    while let Some((account, right, may)) = answers.try_next().await.map_err(answer)? {
        if !may && let Some(all) = lacking.get_mut(account) {
            all.push(right.to_string());
        }
    }
    Ok(lacking)
}

/// Asks the API server whether a ServiceAccount has a right.
async fn is_allowed(
    client: &Client,
    system: &str,
    account: &str,
    right: &Right,
) -> Result<bool, Error> {
    let (resource, sub) = match right.resource.split_once('/') {
        Some((resource, sub)) => (resource, Some(sub.to_owned())),
        None => (right.resource.as_str(), None),
    };
    let everyone = ["system:serviceaccounts", "system:authenticated"].map(str::to_owned);
    let own = format!("system:serviceaccounts:{system}");
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{system}:{account}")),
            groups: Some(everyone.into_iter().chain([own]).collect()),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(right.verb.clone()),
                group: Some(right.group.clone()),
                resource: Some(resource.to_owned()),
                subresource: sub,
                namespace: right.own.then(|| system.to_owned()),
                name: right.name.clone(),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

#[cfg(test)]
mod tests;
