//! `bowline status`: all load balancers of a cluster at a glance. It reads the flags; `view`
//! decides what to print.

use super::look::Look;
use crate::view::addresses::Addresses;
use crate::view::announcements::AnnouncementsView;
use crate::view::status::Status;

/// Show the load balancers, their consumers, and whether everything is in force.
///
/// With --addresses: the address pools, how many addresses are free, and which object has which
/// address. With --announcements: what is announced to the network.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bowline status
  bowline status --namespace shop
  bowline status --addresses
  bowline status --announcements
  bowline status -o json | jq '.loadBalancers[] | {name, phase}'")]
pub(super) struct StatusCommand {
    /// Show address pools and addresses instead; reads AddressPool and Address objects only
    #[arg(long)]
    addresses: bool,

    /// Show instead which addresses are announced to the network, from which nodes and to which routers, and why
    /// the others are not
    #[arg(long, conflicts_with_all = ["addresses", "namespace"])]
    announcements: bool,

    /// Show only what Services, Ingresses and claims of this namespace have [default: all namespaces]
    #[arg(short = 'n', long, value_name = "NAME")]
    namespace: Option<String>,

    #[command(flatten)]
    look: Look,
}

impl StatusCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let Self { addresses, announcements, namespace, look } = self;
        let namespace = namespace.as_deref();
        look.block_on(async |look, client| {
            if announcements {
                let lists = look.announcements(&client).await?;
                return look.print(&AnnouncementsView::of(&lists));
            }
            if !addresses {
                let facts = look.facts_about(&client, namespace).await?;
                let status = Status::of(&facts);
                return look.print(&match namespace {
                    Some(namespace) => status.in_namespace(namespace),
                    None => status,
                });
            }
            let lists = look.addresses(&client).await?;
            let now = k8s_openapi::jiff::Timestamp::now();
            let all = Addresses::of(&lists.pools, &lists.addresses, lists.notes, now);
            look.print(&match namespace {
                Some(namespace) => all.in_namespace(namespace),
                None => all,
            })
        })
    }
}
