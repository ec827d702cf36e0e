//! Converts Kubernetes objects, ours and its own, into the values that `bowline-core` decides with: one file a kind.
//! Texts that users write are parsed here, once. A text that cannot be parsed becomes a [`Problem`] that quotes it and
//! says what is accepted, never a guess and never a panic. The runtime calls these functions on every event and drops
//! the object.

mod address;
mod announce;
mod binding;
mod cookies;
mod exposed;
mod external_ip;
mod gossip;
mod ingress;
mod ingress_class;
mod load_balancer;
mod namespace;
mod node;
mod read;
mod secret;
mod service;
mod slice;
mod speaker;
mod tuning;

pub use address::{address_object, node_addresses, pool, record};
pub use announce::{advertisement, bgp_peer};
pub use binding::{
    Location, bindable, claim, claim_phase, claim_ref, claimed, class, finalizers, provisioned,
    resource_list, seating, seats,
};
pub use cookies::{cookie_secret, cookie_secret_data};
pub use exposed::exposed;
pub use external_ip::external_ip;
pub use gossip::{gossip_key, gossip_key_data};
pub use ingress::ingress;
pub use ingress_class::ingress_class;
pub(crate) use load_balancer::label_selector;
pub use load_balancer::{carrier, load_balancer, owner_uid};
pub use namespace::namespace;
pub use node::node;
pub use secret::{TYPE_TLS, certificates, certificates_data, rooms, rooms_text, tls_secret};
pub use service::service;
pub use slice::{LABEL_SERVICE_NAME, slice};
pub use speaker::{announced_service, announcing, pool_labels, speaker_node};

#[cfg(doc)]
use bowline_core::outcome::Problem;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
