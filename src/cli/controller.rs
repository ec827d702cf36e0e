//! `bowline controller`: plans and records, in an existing cluster. It reads the flags and starts the
//! role in `bowline_runtime`.

use super::class::ClassFlag;
use super::config::ConfigFlag;
use super::connect::{Connect, OldNamespace};
use super::dns::DnsFlags;
use super::role::{self, AddressGraceFlag, AdminFlag};
use super::version;
use bowline_api::provisioned_objects::Images;
use bowline_core::member_rules::network;
use bowline_runtime::roles::ControllerOptions;
use bowline_runtime::{controller, metallb};
use ipnet::IpNet;

/// Decide which load balancer carries what, and record it for the agents.
///
/// Follows Services, Ingresses and Bowline's own kinds, writes Plans and status. Run two or more: one
/// leads, by a Lease, and another takes over when it goes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bowline controller --default-class --default-load-balancer edge
  bowline controller --default-class --import-metallb
  bowline controller --config /etc/bowline/controller.yaml
  bowline controller --kubeconfig FILE --log-level info --log-format json")]
pub(super) struct Controller {
    #[command(flatten)]
    class: ClassFlag,

    /// The load balancer for Services and Ingresses that name none
    #[arg(long, value_name = "NAME")]
    default_load_balancer: Option<String>,

    /// The mark of this cluster on what it owns in clouds and on devices [default: the uid of
    /// namespace kube-system]; no driver of this build reads it yet
    #[arg(long, value_name = "TEXT")]
    cluster_id: Option<String>,

    /// Whether controllers elect a leader. With false, each controller writes what it decides: that
    /// is safe, but two controllers do the work twice
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    leader_elect: bool,

    /// Before it starts, make AddressPools, Advertisements and BGPPeers for MetalLB's objects in this
    /// namespace, unless they exist. Does not start while MetalLB's own controller runs there
    #[arg(
        long,
        value_name = "NAMESPACE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = bowline_api::metallb::NAMESPACE
    )]
    import_metallb: Option<String>,

    #[command(flatten)]
    images: ImageFlags,

    /// Send no traffic to members in these networks from proxies that classes make; separated by
    /// commas or repeated
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_parser = network)]
    #[arg(help_heading = "Proxies that classes make")]
    deny_members: Vec<IpNet>,

    #[command(flatten)]
    dns: DnsFlags,

    #[command(flatten)]
    address_grace: AddressGraceFlag,

    #[command(flatten)]
    admin: AdminFlag,

    #[command(flatten)]
    _config: ConfigFlag,

    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    old: OldNamespace,
}

/// What the proxies run from that classes make.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Proxies that classes make")]
struct ImageFlags {
    /// Image of the built-in proxy: Bowline's own [default: bowline, of this version]
    #[arg(long, value_name = "IMAGE")]
    proxy_image: Option<String>,

    /// Image with HAProxy and Bowline's binary [default: bowline-haproxy, of this version]
    #[arg(long, value_name = "IMAGE")]
    haproxy_image: Option<String>,

    /// Image with nginx and Bowline's binary [default: bowline-nginx, of this version]
    #[arg(long, value_name = "IMAGE")]
    nginx_image: Option<String>,
}

impl ImageFlags {
    fn images(self) -> Images {
        let Images { builtin, haproxy, nginx } = Images::default();
        Images {
            builtin: self.proxy_image.unwrap_or(builtin),
            haproxy: self.haproxy_image.unwrap_or(haproxy),
            nginx: self.nginx_image.unwrap_or(nginx),
        }
    }
}

impl Controller {
    pub(super) fn run(self) -> anyhow::Result<()> {
        role::run(Some(self.admin.address()), async |context| {
            let client = self.connect.client().await?;
            let options = ControllerOptions {
                namespace: self.old.or(self.connect.system),
                cluster_id: self.cluster_id,
                default_class: self.class.default_class.unwrap_or(false),
                default_load_balancer: self.default_load_balancer,
                election: self.leader_elect,
                dns: Some(self.dns.options()?),
                address_grace: self.address_grace.time(),
                images: self.images.images(),
                deny_members: self.deny_members,
                version: version::BUILD.to_owned(),
                ..ControllerOptions::default()
            };
            let ours = options.namespace.clone();
            let stopped = context.clone();
            let run = controller::run(client.clone(), options, context);
            Ok(async move {
                if let Some(namespace) = &self.import_metallb {
                    let import = tokio::select! {
                        () = stopped.stopped() => return Ok(()),
                        import = metallb::import(&client, namespace, &ours) => import?,
                    };
                    metallb::tell(namespace, import.as_ref());
                }
                run.await
            })
        })
    }
}
