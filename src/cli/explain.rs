//! `bowline explain`: why one object is where it is, or is nowhere. It reads the flags; `view` decides
//! what to print.

use super::ask;
use super::look::Look;
use crate::view::explain::{Explanation, Subject};
use crate::view::missing;
use anyhow::bail;
use bowline_core::key::ObjectKey;
use std::str::FromStr;

/// Explain where a Service, an Ingress, a claim, a load balancer or an address is, or why it is not served.
///
/// Shows how its load balancer was found, where it listens, its rules, pools and members, what was
/// refused and why, and whether the agent has applied it; an agent whose admin endpoint can be reached
/// from here is asked how it is now. For a pending claim it shows why the
/// claim does not get each of the load balancers. Where speakers run it shows which nodes announce its
/// addresses, by which protocol and to which peers, or why none does.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bowline explain service/web -n shop
  bowline explain ing/web -n shop -o json
  bowline explain lb/local
  bowline explain lbc/web -n shop
  bowline explain address/203.0.113.10")]
pub(super) struct Explain {
    /// What to explain: service/NAME (svc), ingress/NAME (ing), loadbalancer/NAME (lb),
    /// loadbalancerclaim/NAME (lbc) or address/ADDRESS
    #[arg(value_name = "KIND/NAME")]
    object: Object,

    /// The namespace of the object [default: the one of the kubeconfig's context]
    #[arg(short = 'n', long, alias = "object-namespace", value_name = "NAME")]
    namespace: Option<String>,

    #[command(flatten)]
    look: Look,
}

/// A kind and a name.
#[derive(Clone, Debug, PartialEq)]
struct Object {
    subject: Subject,
    name: String,
}

impl FromStr for Object {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str =
            "write service/NAME, ingress/NAME, loadbalancer/NAME, lbc/NAME or address/ADDRESS";
        let (kind, name) = text.split_once('/').ok_or(FORM)?;
        if name.is_empty() || name.contains('/') {
            return Err(FORM.to_owned());
        }
        // As kubectl prints them: service/web, ingress.networking.k8s.io/web.
        let kind = kind.split('.').next().unwrap_or_default().to_ascii_lowercase();
        let subject = match kind.as_str() {
            "service" | "services" | "svc" => Subject::Service,
            "ingress" | "ingresses" | "ing" => Subject::Ingress,
            "loadbalancer" | "loadbalancers" | "lb" => Subject::LoadBalancer,
            "loadbalancerclaim" | "loadbalancerclaims" | "lbc" => Subject::Claim,
            "address" | "addresses" | "addr" => Subject::Address,
            _ => return Err(format!("{kind:?} cannot be explained; {FORM}")),
        };
        Ok(Self { subject, name: name.to_owned() })
    }
}

impl Explain {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let Self { object, namespace, look } = self;
        look.block_on(async |look, client| {
            let facts = look.facts_about(&client, namespace.as_deref()).await?;
            let namespace = match object.subject {
                Subject::LoadBalancer | Subject::Address => String::new(),
                _ => namespace.unwrap_or_else(|| client.default_namespace().to_owned()),
            };
            let key = ObjectKey::new(namespace, object.name.as_str());
            let Some(mut explanation) = Explanation::of(&facts, object.subject, &key) else {
                bail!("{}", missing::sentence(&facts, object.subject, &key))
            };
            let answers = ask::all(explanation.asked()).await;
            explanation.hear(&answers);
            look.print(&explanation)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_kubectl_names_them() {
        let read = |text: &str| text.parse::<Object>();
        let object = |subject, name: &str| Ok(Object { subject, name: name.to_owned() });
        assert_eq!(read("svc/web"), object(Subject::Service, "web"));
        assert_eq!(read("Service/web"), object(Subject::Service, "web"));
        assert_eq!(read("ingress.networking.k8s.io/web"), object(Subject::Ingress, "web"));
        assert_eq!(read("loadbalancer.bowline.dev/edge"), object(Subject::LoadBalancer, "edge"));
        assert_eq!(read("lbc/web"), object(Subject::Claim, "web"));
        assert_eq!(read("address/2001:db8::1"), object(Subject::Address, "2001:db8::1"));
        for wrong in ["web", "pod/web", "svc/", "svc/a/b", ""] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
