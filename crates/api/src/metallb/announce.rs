//! What announces addresses in MetalLB, as Advertisements and BGPPeers. Several selectors of which one must match are an
//! Advertisement each, with the same content: their addresses add up. What cannot be read so that no more is announced than
//! before is not made.

use super::kinds::{
    BFDProfile, BGPAdvertisement, BGPPeer as TheirPeer, Community, Covers, L2Advertisement,
};
use super::peers::{self, Places};
use super::{Loss, selectors};
use crate::advertisement::{
    Advertisement, AdvertisementSpec, BgpAdvertisement, L2Advertisement as ByL2,
};
use crate::bgp_peer::BGPPeer;
use crate::selector::LabelSelector;
use crate::{convert, names};
use bowline_core::announce::Community as Value;
use bowline_core::outcome::quote;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};

/// MetalLB's objects, of one namespace.
#[derive(Clone, Debug, Default)]
pub struct Announcing {
    /// What is announced by ARP and neighbour discovery.
    pub l2: Vec<L2Advertisement>,
    /// What is announced by BGP.
    pub bgp: Vec<BGPAdvertisement>,
    /// Routers.
    pub peers: Vec<TheirPeer>,
    /// Names of communities.
    pub communities: Vec<Community>,
    /// How BFD watches routers.
    pub profiles: Vec<BFDProfile>,
}

/// What Bowline has for them.
#[derive(Clone, Debug, Default)]
pub struct Announced {
    /// Routers.
    pub peers: Vec<BGPPeer>,
    /// What is announced.
    pub advertisements: Vec<Advertisement>,
    /// What is lost, or to be done.
    pub losses: Vec<Loss>,
}

/// The losses of one object.
pub(super) struct Losses<'a> {
    of: &'a str,
    all: &'a mut Vec<Loss>,
}

impl Losses<'_> {
    pub(super) fn push(&mut self, loss: impl FnOnce(String) -> Loss) {
        self.all.push(loss(self.of.to_owned()));
    }
}

/// The keys of labels by which advertisements select pools.
pub fn selecting_labels(theirs: &Announcing) -> BTreeSet<String> {
    let l2 = theirs.l2.iter().map(|it| &it.spec.covers);
    let all = l2.chain(theirs.bgp.iter().map(|it| &it.spec.covers));
    let selectors = all.flat_map(|it| &it.ip_address_pool_selectors);
    let keys = selectors.flat_map(|it| {
        let labels = it.match_labels.iter().flatten().map(|(key, _)| key.clone());
        labels.chain(it.match_expressions.iter().flatten().map(|it| it.key.clone()))
    });
    keys.collect()
}

/// The objects for all of them. `namespace` is MetalLB's, `ours` is where Secrets with passwords must be.
pub fn announcing(theirs: &Announcing, namespace: &str, ours: &str) -> Announced {
    let mut out = Announced::default();
    let places = Places { theirs: namespace, ours };
    let mut named: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    // One that keeps its name comes before those that get a number.
    for several in [false, true] {
        for peer in theirs.peers.iter().filter(|it| (it.spec.node_selectors.len() > 1) == several) {
            let name = peer.metadata.name.as_deref().unwrap_or_default();
            let of = format!("BGPPeer {name}");
            let mut losses = Losses { of: &of, all: &mut out.losses };
            let specs = match peers::specs(name, &peer.spec, &theirs.profiles, places, &mut losses)
            {
                Ok(specs) => specs,
                Err(why) => {
                    losses.push(|of| Loss::NotMade { of, why });
                    continue;
                }
            };
            for (own, spec) in numbered(name, specs) {
                let mut object = BGPPeer::new(&own, spec);
                let taken = out.peers.iter().any(|it| it.metadata.name.as_deref() == Some(&own));
                let problem = convert::bgp_peer(&object).err().map(|it| it.message.to_string());
                let taken = taken.then(|| format!("the name {own} is taken by another BGPPeer"));
                if let Some(why) = problem.or(taken) {
                    out.losses.push(Loss::NotMade { of: of.clone(), why });
                    continue;
                }
                from(&mut object.metadata, namespace, name);
                named.entry(name).or_default().push(own);
                out.peers.push(object);
            }
        }
    }
    for l2 in &theirs.l2 {
        let of = format!("L2Advertisement {}", l2.metadata.name.as_deref().unwrap_or_default());
        let mut losses = Losses { of: &of, all: &mut out.losses };
        let spec = AdvertisementSpec { l2: Some(by_l2(l2, &mut losses)), ..Default::default() };
        out.add(&of, &l2.metadata, "l2", Ok(spec), &l2.spec.covers);
    }
    for bgp in &theirs.bgp {
        let of = format!("BGPAdvertisement {}", bgp.metadata.name.as_deref().unwrap_or_default());
        let mut losses = Losses { of: &of, all: &mut out.losses };
        let spec = by_bgp(bgp, &theirs.communities, &named, &mut losses)
            .map(|bgp| AdvertisementSpec { bgp: Some(bgp), ..Default::default() });
        out.add(&of, &bgp.metadata, "bgp", spec, &bgp.spec.covers);
    }
    out
}

impl Announced {
    /// The Advertisements for one of MetalLB: one for each combination of selectors.
    fn add(
        &mut self,
        of: &str,
        metadata: &ObjectMeta,
        suffix: &str,
        spec: Result<AdvertisementSpec, String>,
        covers: &Covers,
    ) {
        let name = metadata.name.as_deref().unwrap_or_default();
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let specs = match spec.and_then(|spec| combinations(&spec, covers)) {
            Ok(specs) => specs,
            Err(why) => return self.losses.push(Loss::NotMade { of: of.to_owned(), why }),
        };
        for (own, spec) in numbered(&format!("{name}-{suffix}"), specs) {
            let mut object = Advertisement::new(&own, spec);
            if let Err(problem) = convert::advertisement(&object) {
                self.losses
                    .push(Loss::NotMade { of: of.to_owned(), why: problem.message.to_string() });
                return;
            }
            from(&mut object.metadata, namespace, name);
            self.advertisements.push(object);
        }
    }
}

/// One keeps the name, several get numbers.
fn numbered<T>(name: &str, all: Vec<T>) -> impl Iterator<Item = (String, T)> {
    let name = name.to_owned();
    let alone = all.len() == 1;
    all.into_iter().enumerate().map(move |(index, it)| match alone {
        true => (name.clone(), it),
        false => (format!("{name}-{}", index + 1), it),
    })
}

fn from(metadata: &mut ObjectMeta, namespace: &str, name: &str) {
    let from = format!("metallb.io/{namespace}/{name}");
    metadata.annotations = Some([(names::ANNOTATION_IMPORTED_FROM.to_owned(), from)].into());
}

fn combinations(
    spec: &AdvertisementSpec,
    covers: &Covers,
) -> Result<Vec<AdvertisementSpec>, String> {
    let read = |field: &str, all: &[LabelSelector]| {
        let read =
            selectors::any_of(all).ok_or_else(|| format!("{field}: a selector cannot be read"))?;
        // Nothing but selectors that match everything is one that is left out.
        let some = read.into_iter().map(Some).collect::<Vec<_>>();
        Ok::<_, String>(if some.is_empty() { vec![None] } else { some })
    };
    let pools = distinct(&covers.ip_address_pools);
    let mut by_label = read("ipAddressPoolSelectors", &covers.ip_address_pool_selectors)?;
    let everything = by_label == [None] && !covers.ip_address_pool_selectors.is_empty();
    if everything && !pools.is_empty() {
        by_label = vec![Some(LabelSelector::default())];
    }
    let services = read("serviceSelectors", &covers.service_selectors)?;
    let nodes = read("nodeSelectors", &covers.node_selectors)?;
    if by_label.len() * services.len() * nodes.len() > selectors::MOST {
        let most = selectors::MOST;
        return Err(format!(
            "its selectors have more than {most} combinations: make fewer selectors"
        ));
    }
    let mut out = Vec::new();
    for (index, pool) in by_label.iter().enumerate() {
        for service in &services {
            for node in &nodes {
                out.push(AdvertisementSpec {
                    address_pools: if index == 0 { pools.clone() } else { Vec::new() },
                    address_pool_selector: pool.clone(),
                    service_selector: service.clone(),
                    node_selector: node.clone(),
                    ..spec.clone()
                });
            }
        }
    }
    Ok(out)
}

/// Each once: our kinds have sets.
fn distinct(all: &[String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    all.iter().filter(|it| seen.insert(*it)).cloned().collect()
}

fn by_l2(theirs: &L2Advertisement, losses: &mut Losses<'_>) -> ByL2 {
    let mut preferred = theirs.spec.preferred_node_selectors.iter().collect::<Vec<_>>();
    preferred.sort_by_key(|it| std::cmp::Reverse(it.weight));
    if preferred.len() > 1 {
        let why = format!(
            "there is one preference here: the first with the highest weight of {} is used",
            preferred.len()
        );
        losses.field("preferredNodeSelectors", why);
    }
    ByL2 {
        interfaces: distinct(&theirs.spec.interfaces),
        preferred_node_selector: preferred.first().map(|it| it.preference.clone()),
    }
}

fn by_bgp(
    theirs: &BGPAdvertisement,
    names: &[Community],
    peers: &BTreeMap<&str, Vec<String>>,
    losses: &mut Losses<'_>,
) -> Result<BgpAdvertisement, String> {
    let spec = &theirs.spec;
    let mut length = |field, value: Option<i64>, most: u8| {
        let read = value.map(|it| u8::try_from(it).ok().filter(|it| (1..=most).contains(it)));
        if let (Some(value), Some(None)) = (value, read) {
            let why = format!("{value} is not between 1 and {most}; {most} is used");
            losses.field(field, why);
        }
        read.flatten().unwrap_or(most)
    };
    let aggregation_length = length("aggregationLength", spec.aggregation_length, 32);
    let aggregation_length_v6 = length("aggregationLengthV6", spec.aggregation_length_v6, 128);
    let local_pref = match spec.local_pref.unwrap_or_default() {
        0 => None,
        pref => Some(u32::try_from(pref).map_err(|_| format!("localPref {pref} is out of range"))?),
    };
    let communities: Result<BTreeSet<Value>, String> =
        spec.communities.iter().map(|text| community(text, names)).collect();
    // A peer that could not be made is named all the same: no name means all peers.
    let own =
        |name: &String| peers.get(name.as_str()).cloned().unwrap_or_else(|| vec![name.clone()]);
    Ok(BgpAdvertisement {
        peers: distinct(&spec.peers.iter().flat_map(own).collect::<Vec<_>>()),
        aggregation_length,
        aggregation_length_v6,
        local_pref,
        med: None,
        prepend: 0,
        communities: communities?.into_iter().map(String::from).collect(),
    })
}

/// A community, by the name that a Community object gives it, or as it is. Without one the route could go further than it
/// may: no-export is a community.
fn community(text: &str, names: &[Community]) -> Result<Value, String> {
    let mut all = names.iter().flat_map(|it| &it.spec.communities);
    let (value, of) = match all.find(|it| it.name == text) {
        Some(alias) => (alias.value.as_str(), format!(" (community {})", quote(text))),
        None => (text, String::new()),
    };
    value.parse().map_err(|_| {
        let known = "is neither ASN:NUMBER, nor large:ASN:NUMBER:NUMBER, nor the name of a community in a Community object";
        format!("communities: {}{of} {known}", quote(value))
    })
}

#[cfg(test)]
mod tests;
