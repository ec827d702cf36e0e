//! `bowline doctor`: checks an installation. It gathers the facts from the cluster and changes nothing; `view::doctor`
//! decides what is wrong.

use super::look::Look;
use super::version;
use crate::view::Lists;
use crate::view::doctor::{Diagnosis, Installation, Rights};
use bowline_api::names;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::jiff::{Timestamp, fmt::rfc2822};
use kube::api::PostParams;
use kube::client::Body;
use kube::{Api, Client, Error};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Check an installation, and say for each finding what helps.
///
/// Looks at Bowline's kinds, the rights of its controllers and agents, the leader, the agents and their versions,
/// pools that overlap, addresses that no agent serves, and clocks. Changes nothing. Exits with 1 if something is
/// wrong, and with 0 if not.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bowline doctor
  bowline doctor -o json | jq '.checks[] | select(.state == \"Wrong\")'")]
pub(super) struct Doctor {
    #[command(flatten)]
    look: Look,
}

impl Doctor {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        self.look.block_on(async |look, client| {
            let diagnosis = Diagnosis::of(&gather(look, &client).await?);
            look.print(&diagnosis)?;
            Ok(if diagnosis.is_wrong() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        })
    }
}

async fn gather(look: &Look, client: &Client) -> anyhow::Result<Installation> {
    let system = look.system().to_owned();
    let kinds = super::look::patiently(Lists::kinds(client)).await?;
    let server_ahead = server_ahead(client).await;
    // Ages are told by the clock that all of them share.
    let ahead = server_ahead.unwrap_or_default();
    let now = Timestamp::now();
    let now = Timestamp::from_second(now.as_second() + ahead).unwrap_or(now);
    let lists = Lists::read(client, &system).await;
    let seen = lists.as_ref().ok();
    let (leases, pools) = (
        seen.map(|it| it.leases.clone()).unwrap_or_default(),
        seen.and_then(|it| it.pools.clone()),
    );
    let mut accounts: Vec<(String, Vec<Right>)> =
        vec![(names::ACCOUNT_CONTROLLER.to_owned(), controller())];
    for lb in seen.into_iter().flat_map(|it| &it.load_balancers) {
        let name = lb.metadata.name.as_deref().unwrap_or_default();
        accounts.push((names::agent_account(name), agent(name)));
    }
    Ok(Installation {
        rights: rights(client, &system, accounts).await,
        facts: lists.map(|lists| look.facts_of(lists, now)).map_err(|error| error.to_string()),
        version: version::BUILD.to_owned(),
        system,
        kinds,
        pools,
        leases,
        server_ahead,
        now,
    })
}

/// By how many seconds the API server's clock is ahead of this machine's.
async fn server_ahead(client: &Client) -> Option<i64> {
    let request = http::Request::get("/version").body(Body::empty()).ok()?;
    let answer = client.send(request).await.ok()?;
    let date = answer.headers().get(http::header::DATE)?.to_str().ok()?;
    let server = rfc2822::parse(date).ok()?.timestamp();
    Some(server.as_second() - Timestamp::now().as_second())
}

/// A right that a process needs.
#[derive(Clone, Debug, PartialEq)]
struct Right {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    /// Only in Bowline's own namespace; else everywhere.
    own: bool,
    /// The object, where the right is for one only.
    name: Option<String>,
}

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { verb, group, resource, .. } = self;
        let dot = if group.is_empty() { "" } else { "." };
        write!(f, "{verb} {resource}{dot}{group}")
    }
}

fn right(verb: &'static str, group: &'static str, resource: &'static str, own: bool) -> Right {
    Right { verb, group, resource, own, name: None }
}

/// What a controller needs: to observe every kind that it plans from, and to write what it decides.
fn controller() -> Vec<Right> {
    let watched = [
        ("", "services"),
        ("", "nodes"),
        ("", "namespaces"),
        ("", "secrets"),
        ("networking.k8s.io", "ingresses"),
        ("networking.k8s.io", "ingressclasses"),
        (names::GROUP, "loadbalancers"),
        (names::GROUP, "loadbalancerclaims"),
        (names::GROUP, "loadbalancerclasses"),
        (names::GROUP, "addresspools"),
        (names::GROUP, "addresses"),
        (names::GROUP, "externalips"),
    ];
    let written = [
        right("patch", "", "services/status", false),
        right("patch", "networking.k8s.io", "ingresses/status", false),
        right("patch", names::GROUP, "loadbalancers/status", false),
        right("patch", names::GROUP, "loadbalancerclaims/status", false),
        right("patch", names::GROUP, "addresspools/status", false),
        right("create", names::GROUP, "addresses", false),
        right("create", "", "events", false),
        right("create", names::GROUP, "plans", true),
        right("create", "", "secrets", true),
        right("patch", "coordination.k8s.io", "leases", true),
    ];
    let watched = watched.into_iter().map(|(group, kind)| right("watch", group, kind, false));
    watched.chain(written).collect()
}

/// What the agent of a load balancer needs.
fn agent(load_balancer: &str) -> Vec<Right> {
    let lease = Some(names::agent_lease(load_balancer));
    vec![
        right("watch", names::GROUP, "plans", true),
        right("watch", "discovery.k8s.io", "endpointslices", false),
        Right { name: lease, ..right("patch", "coordination.k8s.io", "leases", true) },
        Right {
            name: Some(load_balancer.to_owned()),
            ..right("get", names::GROUP, "loadbalancers", false)
        },
    ]
}

/// What these ServiceAccounts lack. One that does not exist is left out: its process runs elsewhere.
async fn rights(client: &Client, system: &str, accounts: Vec<(String, Vec<Right>)>) -> Rights {
    let api: Api<ServiceAccount> = Api::namespaced(client.clone(), system);
    let mut lacking = BTreeMap::new();
    for (account, needed) in accounts {
        match api.get_opt(&account).await {
            Ok(Some(_)) => {}
            Ok(None) => continue,
            Err(error) => return Rights::Unknown(format!("cannot read ServiceAccounts: {error}")),
        }
        let mut missing = Vec::new();
        for right in needed {
            match is_allowed(client, system, &account, &right).await {
                Ok(true) => {}
                Ok(false) => missing.push(right.to_string()),
                Err(Error::Api(status)) if status.code == 403 => {
                    return Rights::Unknown(
                        "you may not ask what ServiceAccounts may do (create subjectaccessreviews)"
                            .to_owned(),
                    );
                }
                Err(error) => {
                    return Rights::Unknown(format!("the API server does not say: {error}"));
                }
            }
        }
        lacking.insert(account, missing);
    }
    if lacking.is_empty() {
        return Rights::Unknown(format!(
            "namespace {system} has no ServiceAccount of a controller or agent: they run elsewhere, with rights that \
             are not known here"
        ));
    }
    Rights::Known(lacking)
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
        None => (right.resource, None),
    };
    let everyone = ["system:serviceaccounts", "system:authenticated"].map(str::to_owned);
    let own = format!("system:serviceaccounts:{system}");
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{system}:{account}")),
            groups: Some(everyone.into_iter().chain([own]).collect()),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(right.verb.to_owned()),
                group: Some(right.group.to_owned()),
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
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Whether a manifest in deploy/rbac grants a right to a role of this name.
    fn granted(file: &str, role: &str, right: &Right) -> bool {
        let path = format!("{}/deploy/rbac/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).expect("a manifest");
        let objects = serde_saphyr::from_multiple::<Value>(&text).expect("YAML");
        let kind = if right.own { "Role" } else { "ClusterRole" };
        let of_role = objects.iter().filter(|it| it["metadata"]["name"] == role);
        let has = |list: &Value, what: &str| {
            list.as_array().is_some_and(|all| all.contains(&json!(what)))
        };
        let names = |rule: &Value| match &right.name {
            Some(name) => rule["resourceNames"].is_null() || has(&rule["resourceNames"], name),
            None => rule["resourceNames"].is_null(),
        };
        of_role
            .filter(|it| it["kind"] == kind || it["kind"] == "ClusterRole")
            .flat_map(|it| it["rules"].as_array().cloned().unwrap_or_default())
            .any(|rule| {
                has(&rule["apiGroups"], right.group)
                    && has(&rule["resources"], right.resource)
                    && has(&rule["verbs"], right.verb)
                    && names(&rule)
            })
    }

    #[test]
    fn what_is_asked_for_is_what_the_manifests_grant() {
        for right in controller() {
            assert!(granted("controller.yaml", names::ACCOUNT_CONTROLLER, &right), "{right}");
        }
        for right in agent("edge") {
            let roles = [names::agent_account("edge"), "bowline-agent".to_owned()];
            assert!(roles.iter().any(|role| granted("agent.yaml", role, &right)), "{right}");
        }
    }
}
