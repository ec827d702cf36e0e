//! The watches of a speaker: what each delivers becomes an event for `core::announce`.

use super::{Heard, SpeakerOptions};
use crate::lease;
use crate::roles::Context;
use crate::supervise::Keeper;
use crate::watch::{self, Seen, Selection, What};
use bowline_api::address::address_of_name;
use bowline_api::{Address, AddressPool, Advertisement, BGPPeer, convert, names};
use bowline_core::ObjectKey;
use bowline_core::announce::{Event, Kind, Name, Object, Wish};
use bowline_core::outcome::Problem;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Starts the watches.
pub(super) fn follow(
    client: &Client,
    options: &SpeakerOptions,
    context: &Context,
    sender: &mpsc::Sender<Heard>,
    tasks: &mut Keeper,
) {
    let mut watches = Watches { client, context, sender, tasks };
    watches.addresses();
    watches.all(
        "Advertisement",
        Kind::Advertisement,
        |it: &Advertisement| {
            let read = convert::advertisement(it);
            readable("Advertisement", it, read).map(|it| Object::Advertisement(it.into()))
        },
        |it: &Advertisement| Some(Name::Advertisement(it.name_any().into())),
    );
    watches.all(
        "BGPPeer",
        Kind::Peer,
        |it: &BGPPeer| {
            let read = convert::bgp_peer(it);
            readable("BGPPeer", it, read).map(|it| Object::Peer(it.into()))
        },
        |it: &BGPPeer| Some(Name::Peer(it.name_any().into())),
    );
    watches.all(
        "AddressPool",
        Kind::Pool,
        |it: &AddressPool| {
            let (name, labels) = convert::pool_labels(it);
            Some(Object::Pool(name, labels))
        },
        |it: &AddressPool| Some(Name::Pool(it.name_any().into())),
    );
    watches.all(
        "Node",
        Kind::Node,
        |it: &Node| Some(Object::Node(convert::speaker_node(it))),
        |it: &Node| Some(Name::Node(it.name_any().into())),
    );
    watches.all(
        "Service",
        Kind::Service,
        |it: &Service| {
            let (key, service) = convert::announced_service(it);
            Some(Object::Service(key, service))
        },
        |it: &Service| Some(Name::Service(key(it))),
    );
    watches.all(
        "EndpointSlice",
        Kind::Slice,
        |it: &EndpointSlice| Some(Object::Slice(convert::slice(it))),
        |it: &EndpointSlice| Some(Name::Slice(key(it))),
    );
    watches.key(&options.namespace);
}

/// Follows where other speakers say that they are reached by gossip.
pub(super) fn follow_speakers(
    leases: &super::Leases,
    context: &Context,
    sender: &mpsc::Sender<Heard>,
    tasks: &mut Keeper,
) {
    let api: Api<Lease> = Api::namespaced(leases.client.clone(), &leases.namespace);
    let (metrics, listener) = (context.metrics.clone(), sender.clone());
    tasks.keep("the watch of other speakers", move |works| {
        let (api, listener) = (api.clone(), listener.clone());
        let selection = Selection::default();
        watch::follow(api, selection, "Lease", metrics.clone(), listener, move |seen| {
            works.seen(&seen);
            match seen {
                Seen::Apply(lease) => {
                    let report = lease::speaker(&lease)?.report;
                    let at = report.and_then(|report| report.links.gossip);
                    Some(Heard::Speaker(lease.name_any().into(), at))
                }
                Seen::Delete(lease) => Some(Heard::Speaker(lease.name_any().into(), None)),
                // A speaker that is gone while the watch is broken is only asked in vain.
                Seen::Begin | Seen::Done => None,
            }
        })
    });
}

fn key<K: Resource>(object: &K) -> ObjectKey {
    ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any())
}

/// An object that cannot be read changes nothing.
fn readable<K: Resource, T>(kind: &str, object: &K, read: Result<T, Problem>) -> Option<T> {
    if let Err(problem) = &read {
        let (name, why) = (object.name_any(), &*problem.message);
        tracing::warn!(kind, name, why, "the object cannot be read, so its change is ignored");
    }
    read.ok()
}

struct Watches<'a> {
    client: &'a Client,
    context: &'a Context,
    sender: &'a mpsc::Sender<Heard>,
    tasks: &'a mut Keeper,
}

impl Watches<'_> {
    /// Follows all objects of a kind.
    fn all<K>(
        &mut self,
        what: &'static str,
        kind: Kind,
        read: impl Fn(&K) -> Option<Object> + Copy + Send + Sync + 'static,
        name: impl Fn(&K) -> Option<Name> + Copy + Send + Sync + 'static,
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let (metrics, listener) = (self.context.metrics.clone(), self.sender.clone());
        self.tasks.keep(format!("the watch of {what}s of the speaker"), move |works| {
            let (api, listener) = (api.clone(), listener.clone());
            watch::follow(api, Selection::default(), what, metrics.clone(), listener, move |seen| {
                works.seen(&seen);
                let event = match seen {
                    Seen::Begin => Event::Begin(kind),
                    Seen::Apply(object) => match read(&object) {
                        Some(object) => Event::Apply(object),
                        None => Event::Unreadable(name(&object)?),
                    },
                    Seen::Delete(object) => Event::Delete(name(&object)?),
                    Seen::Done => Event::Done(kind),
                };
                Some(Heard::Event(event))
            })
        });
    }

    /// Follows Addresses, with what is wished of each.
    fn addresses(&mut self) {
        let api: Api<Address> = Api::all(self.client.clone());
        let (metrics, listener) = (self.context.metrics.clone(), self.sender.clone());
        self.tasks.keep("the watch of Addresses of the speaker", move |works| {
            let (api, listener) = (api.clone(), listener.clone());
            watch::follow(
                api,
                Selection::default(),
                "Address",
                metrics.clone(),
                listener,
                move |seen| {
                    works.seen(&seen);
                    let (event, wish) = match seen {
                        Seen::Begin => (Event::Begin(Kind::Address), None),
                        Seen::Apply(address) => {
                            let text = address.annotations().get(names::ANNOTATION_MOVE_TO);
                            let wish = text.map(|text| Wish::new(text));
                            let event = match convert::record(&address) {
                                Some(record) => {
                                    let announcing = convert::announcing(&address);
                                    Event::Apply(Object::Address(record, announcing))
                                }
                                None => {
                                    let name = address_of_name(&address.name_any())?;
                                    Event::Unreadable(Name::Address(name))
                                }
                            };
                            (event, wish)
                        }
                        Seen::Delete(address) => {
                            let name = address_of_name(&address.name_any())?;
                            (Event::Delete(Name::Address(name)), None)
                        }
                        Seen::Done => (Event::Done(Kind::Address), None),
                    };
                    Some(Heard::Address(event, wish))
                },
            )
        });
    }

    /// Follows the Secret with the key of speakers in Bowline's namespace.
    fn key(&mut self, namespace: &str) {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let (metrics, listener) = (self.context.metrics.clone(), self.sender.clone());
        self.tasks.keep("the watch of the key of the speaker", move |works| {
            let (api, listener) = (api.clone(), listener.clone());
            let (selection, what) = of_name(names::GOSSIP_SECRET, "apply deploy/rbac/speaker.yaml");
            watch::follow(api, selection, what, metrics.clone(), listener, move |seen| {
                works.seen(&seen);
                match seen {
                    Seen::Apply(secret) => convert::gossip_key(&secret).map(Heard::Key),
                    // The key is used until there is another one, so that speakers go on hearing each other.
                    Seen::Delete(_) | Seen::Begin | Seen::Done => None,
                }
            })
        });
    }
}

/// Where the Secrets with passwords are.
pub(super) struct Passwords {
    pub(super) client: Client,
    pub(super) namespace: String,
}

impl Passwords {
    /// Follows the Secret with a password. A role can name the Secrets that may be followed so.
    pub(super) fn follow(
        &self,
        name: &Arc<str>,
        context: &Context,
        sender: &mpsc::Sender<Heard>,
        tasks: &mut Keeper,
    ) {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let (metrics, listener, name) = (context.metrics.clone(), sender.clone(), name.clone());
        tasks.keep(format!("the watch of Secret {name} of the speaker"), move |works| {
            let remedy =
                "name it in speaker.passwordSecrets of the chart, or in deploy/rbac/speaker.yaml";
            let (selection, what) = of_name(&name, remedy);
            let (api, listener, name) = (api.clone(), listener.clone(), name.clone());
            let mut listed = false;
            watch::follow(api, selection, what, metrics.clone(), listener, move |seen| {
                works.seen(&seen);
                match seen {
                    Seen::Apply(secret) => {
                        listed = true;
                        Some(Heard::Password(name.clone(), password(secret)))
                    }
                    Seen::Delete(_) => Some(Heard::Password(name.clone(), None)),
                    Seen::Begin => {
                        listed = false;
                        None
                    }
                    Seen::Done => (!listed).then(|| Heard::Password(name.clone(), None)),
                }
            })
        });
    }
}

/// The Secret of this name, and what to do if it may not be read.
fn of_name(name: &str, remedy: &str) -> (Selection, What) {
    let remedy = format!("may not read Secret {name}: {remedy}");
    let what = What { label: "Secret", remedy: Some(remedy) };
    (Selection::fields(format!("metadata.name={name}")), what)
}

/// The password in a Secret of the right type.
fn password(secret: Secret) -> Option<Vec<u8>> {
    (secret.type_.as_deref() == Some(names::SECRET_TYPE_PASSWORD)).then_some(())?;
    let data: BTreeMap<_, _> = secret.data.unwrap_or_default();
    data.into_iter().find(|(key, _)| key == "password").map(|(_, value)| value.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_the_key_of_that_name() {
        let of = |type_: &str, data: &str| {
            let text = format!(r#"{{"type": "{type_}", "data": {data}}}"#);
            password(serde_json::from_str(&text).unwrap())
        };
        let basic = "kubernetes.io/basic-auth";
        assert_eq!(of(basic, r#"{"password": "aHVudGVy"}"#), Some(b"hunter".to_vec()));
        assert_eq!(of(basic, r#"{"username": "aHVudGVy"}"#), None);
        assert_eq!(of("Opaque", r#"{"password": "aHVudGVy"}"#), None);
    }
}
