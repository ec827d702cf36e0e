//! The source of a load balancer: exactly one of six, for one load balancer ([`LoadBalancerSource`]) or in the template
//! of a class ([`ClassSource`]). Drivers read sources; nothing here knows a driver.

use crate::schema;
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// The source of one load balancer. In YAML its key stands beside the other fields of `spec`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum LoadBalancerSource {
    /// The proxy inside Bowline. It has no fields: write builtin: {}.
    Builtin(BuiltinSource),
    /// HAProxy or nginx, run as a Service of the cluster with an agent beside it.
    BareMetalLoadBalancer(BareMetalSource),
    /// Any program that an agent configures by a template. It has no fields: write template: {}.
    Template(TemplateSource),
    /// An appliance or a private cloud's load balancer, or a pair of them, configured by its API.
    External(ExternalSource),
    /// A load balancer of AWS.
    AwsLoadBalancer(CloudSource),
    /// A load balancer of Google Cloud.
    GceLoadBalancer(CloudSource),
}

/// What a class makes its load balancers from: the same sources, without the names that only one
/// load balancer can have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ClassSource {
    /// The proxy inside Bowline. It has no fields: write builtin: {}.
    Builtin(BuiltinSource),
    /// HAProxy or nginx, made as a Service of the cluster that is named after the load balancer.
    BareMetalLoadBalancer(BareMetalClassSource),
    /// Any program that an agent configures by a template. It has no fields: write template: {}.
    Template(TemplateSource),
    /// An appliance or a private cloud's load balancer, or a pair of them, configured by its API.
    External(ExternalSource),
    /// A load balancer of AWS, named after the LoadBalancer object. It has no fields.
    AwsLoadBalancer(CloudClassSource),
    /// A load balancer of Google Cloud, named after the LoadBalancer object. It has no fields.
    GceLoadBalancer(CloudClassSource),
}

/// The built-in proxy. It has no settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BuiltinSource {}

/// An agent with a template. The template is the agent's own setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateSource {}

/// A load balancer that a class makes in a cloud. It has no settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CloudClassSource {}

/// A proxy that runs in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self == oldSelf").message("a proxy cannot become another one: make a new LoadBalancer"))]
pub struct BareMetalSource {
    /// Which program: Haproxy or Nginx. It cannot be changed.
    #[serde(rename = "type")]
    pub type_: BareMetalType,
    /// The Service in Bowline's namespace in front of the proxy. It cannot be changed. Example: edge.
    #[schemars(schema_with = "schema::label_name")]
    pub service_name: String,
}

/// A proxy that a class makes in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalClassSource {
    /// Which program: Haproxy or Nginx.
    #[serde(rename = "type")]
    pub type_: BareMetalType,
}

/// Programs that can be the proxy of a [`BareMetalSource`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BareMetalType {
    /// HAProxy.
    Haproxy,
    /// nginx.
    Nginx,
}

/// A load balancer in a public cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloudSource {
    /// The name by which the cloud knows the load balancer. It cannot be changed. Example: edge-1.
    #[schemars(schema_with = "cloud_name")]
    pub lb_name: String,
}

fn cloud_name(_: &mut SchemaGenerator) -> Schema {
    let message = "must be a name such as edge-1: letters, digits and '-', with a letter or digit at both ends";
    let mut schema = schema::written((1, 63), "[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?", message);
    schema::rule(
        &mut schema,
        "self == oldSelf",
        "lbName cannot be changed: make a new LoadBalancer",
    );
    schema
}

/// A device, or a pair of them, with an API of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.insecureSkipVerify || (!self.primary.url.startsWith('http://') && (!has(self.backup) || !self.backup.url.startsWith('http://')))")
        .message("a url that begins with http:// needs insecureSkipVerify: true, because credentials are sent to it unprotected"),
    validation = Rule::new("!has(self.backup) || self.backup.url != self.primary.url")
        .message("backup must be another device than primary"),
)]
pub struct ExternalSource {
    /// Which API the device speaks: Octavia, Alteon or Webhook. It cannot be changed.
    #[x_kube(validation = Rule::new("self == oldSelf").message("driver cannot be changed: make a new LoadBalancer"))]
    pub driver: ExternalDriver,
    /// The device that is configured first.
    pub primary: ExternalDevice,
    /// The second device of a pair. Left out: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<ExternalDevice>,
    /// The Secret in Bowline's namespace with the devices' credentials (username and password, or token).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretRef>,
    /// The Secret in Bowline's namespace whose ca.crt signs the devices' certificates. Left out: the
    /// system's certificate authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretRef>,
    /// Whether to accept devices that do not prove their identity: any certificate, or plain http. Default:
    /// false.
    #[serde(default)]
    pub insecure_skip_verify: bool,
    /// How a pair is used. Failover (the default): the backup is configured when the primary cannot be.
    /// Mirror: both are always configured.
    #[serde(default)]
    pub mode: PairMode,
    /// Where the devices send traffic. Nodes (the default): to node ports. Pods: to the Pods themselves,
    /// which must then be reachable from the devices.
    #[serde(default)]
    pub backends: Backends,
    /// What to do when the device already has something of the same name that Bowline did not make. Overwrite
    /// (the default): replace it, with a warning. Refuse: leave it and report.
    #[serde(default)]
    pub on_conflict: OnConflict,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalDevice {
    /// Where its API is. Credentials belong in a Secret, never in the url. Example: https://lb-1.example.com:9876.
    #[schemars(schema_with = "device_url")]
    pub url: String,
    /// The Secret in Bowline's namespace with the credentials of this device alone. Left out: those of the pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretRef>,
}

/// A host and a path, without user, password, query, fragment or space.
fn device_url(_: &mut SchemaGenerator) -> Schema {
    let host = "[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|\\[[0-9A-Fa-f:.]+\\]";
    let message = "must be a url such as https://lb-1.example.com:9876: http or https, a host, perhaps a port and a path, and no \
                   user, password, query or fragment";
    schema::written(
        (0, 1024),
        &format!("https?://({host})(:[0-9]{{1,5}})?(/[-A-Za-z0-9._~%/]*)?"),
        message,
    )
}

/// A Secret in Bowline's own namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretRef {
    /// The Secret's name. Example: edge-credentials.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
}

/// APIs that an [`ExternalSource`] can speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExternalDriver {
    /// OpenStack Octavia.
    Octavia,
    /// Radware Alteon.
    Alteon,
    /// A web service of yours.
    Webhook,
}

/// How two devices are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PairMode {
    /// The backup when the primary fails.
    #[default]
    Failover,
    /// Both, always.
    Mirror,
}

/// Where a device sends traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Backends {
    /// Node ports.
    #[default]
    Nodes,
    /// Pods.
    Pods,
}

/// What to do about configuration of the same name that Bowline did not make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnConflict {
    /// Replace it, with a warning.
    #[default]
    Overwrite,
    /// Leave it and report.
    Refuse,
}
