//! Creates, repairs and removes the provisioned objects of a load balancer. It is the shell around
//! `bowline_api::provisioned_objects`, which says what each object should be, and `bowline_drivers::provision`, which
//! chooses the steps. Creates are exclusive; updates name a version and deletions a uid. `Writer::perform` calls it.

use super::{Reply, Writer, params, patch_params};
use crate::api_timeout::answer;
use bowline_api::provisioned_objects::{Made, Part, Wish, covers, rollout};
use bowline_core::binder;
use bowline_core::objects::Version;
use bowline_core::provision::{Found, Mark, Reach, Standing};
use bowline_drivers::provision::{Progress, Provisioner, Trouble, make, remove};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, Preconditions};
use kube::{Client, Error};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The observed state of a provisioned load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::controller) struct Provisioned {
    /// Whether its proxies are ready.
    pub(in crate::controller) standing: Standing,
    /// Where clients reach it. None: the Service was not read.
    pub(in crate::controller) reach: Option<Reach>,
}

impl Writer {
    /// Creates missing objects, repairs different ones, and returns the observed state.
    pub(in crate::controller) async fn provision(&self, wish: Wish) -> Reply {
        let objects = Objects::new(self, wish.made.clone(), Some(wish));
        let standing = match make(&objects).await {
            Ok(Progress::Done) => objects.standing(),
            Ok(Progress::Waits(part)) => {
                Standing::Coming(format!("{} is being removed", objects.say(part)).into())
            }
            Ok(Progress::Blocked(part)) => Standing::Failed(
                format!("{} exists and is not Bowline's: delete it", objects.say(part)).into(),
            ),
            Ok(Progress::Restless) => Standing::Failed(
                "its objects change after every write: see whether another controller writes them"
                    .into(),
            ),
            Err(Trouble(why)) => Standing::Failed(why.into()),
        };
        Reply::Provisioned(Box::new(Provisioned { standing, reach: objects.reach() }))
    }

    /// Removes the provisioned objects. False: the removal is still going on.
    pub(in crate::controller) async fn deprovision(&self, id: binder::Id, made: Made) -> Reply {
        let objects = Objects::new(self, made, None);
        let result = match remove(&objects).await {
            Ok(Progress::Done) => Ok(true),
            Ok(_) => Ok(false),
            Err(Trouble(why)) => Err(why),
        };
        Reply::Deprovisioned(id, result)
    }
}

/// The provisioned objects of one load balancer.
struct Objects {
    client: Client,
    own: String,
    made: Made,
    /// What they should be. None: they should not exist.
    wish: Option<Wish>,
    /// The objects as they were read last. Null: the object does not exist.
    seen: Mutex<BTreeMap<Part, Value>>,
}

impl Objects {
    fn new(writer: &Writer, made: Made, wish: Option<Wish>) -> Self {
        let (client, own) = (writer.client.clone(), writer.namespace.clone());
        Self { client, own, made, wish, seen: Mutex::default() }
    }

    fn api(&self, part: Part) -> (Api<DynamicObject>, String) {
        let (api_version, kind, plural) = part.kind();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        let (namespace, name) = self.made.place(part, &self.own);
        (Api::namespaced_with(self.client.clone(), &namespace, &resource), name)
    }

    /// The object's name for messages, such as `Service kube-system/edge`.
    fn say(&self, part: Part) -> String {
        let (namespace, name) = self.made.place(part, &self.own);
        format!("{} {namespace}/{name}", part.kind().1)
    }

    fn trouble(&self, doing: &str, part: Part, error: &Error) -> Trouble {
        let (namespace, _) = self.made.place(part, &self.own);
        let what = self.say(part);
        let Error::Api(status) = error else {
            return Trouble(format!("cannot {doing} {what}: {error}"));
        };
        let why = &status.message;
        Trouble(match status.code {
            403 => format!(
                "cannot {doing} {what}: {why}; allow it by provisioning.namespaces of the chart, or \
                 by a Role such as bowline-controller has in {}",
                self.own
            ),
            404 => {
                format!("cannot {doing} {what}: namespace {namespace} does not exist; create it")
            }
            _ => format!("cannot {doing} {what}: {why}"),
        })
    }

    /// The state of the rollout, from the Deployment's status.
    fn standing(&self) -> Standing {
        let seen = self.seen.lock();
        match Standing::of(&rollout(seen.get(&Part::Proxies).unwrap_or(&Value::Null))) {
            Standing::Failed(why) => {
                let (namespace, name) = self.made.place(Part::Proxies, &self.own);
                let look = format!("kubectl -n {namespace} describe deployment {name}");
                Standing::Failed(format!("{why}; see `{look}`").into())
            }
            standing => standing,
        }
    }

    /// Where clients reach the Service. None: it was not read. A foreign Service gives no addresses.
    fn reach(&self) -> Option<Reach> {
        let seen = self.seen.lock();
        let door = seen.get(&Part::Door)?;
        let points = door["status"]["loadBalancer"]["ingress"].as_array();
        let points = || points.into_iter().flatten().filter(|_| self.made.owns(door));
        Some(Reach {
            addresses: points().filter_map(|it| it["ip"].as_str()?.parse().ok()).collect(),
            hostnames: points().filter_map(|it| Some(it["hostname"].as_str()?.into())).collect(),
        })
    }

    fn found(&self, part: Part, object: &Value) -> Found {
        let text = |value: &Value| value.as_str().unwrap_or_default().into();
        let metadata = &object["metadata"];
        let mark = Mark {
            uid: text(&metadata["uid"]),
            version: Version(text(&metadata["resourceVersion"])),
        };
        // Agents create their Lease and set no owner on it.
        if part != Part::Lease && !self.made.owns(object) {
            return Found::Foreign;
        }
        if !metadata["deletionTimestamp"].is_null() {
            return Found::Leaving;
        }
        match self.wish.as_ref().and_then(|wish| wish.change(part)) {
            Some(wanted) if covers(object, &wanted) => Found::Same(mark),
            _ => Found::Different(mark),
        }
    }
}

impl Provisioner for Objects {
    type Part = Part;

    async fn observe(&self) -> Result<Vec<(Part, Found)>, Trouble> {
        let mut all = Vec::new();
        for part in Part::ALL {
            if self.wish.is_some() && part == Part::Lease {
                continue;
            }
            let (api, name) = self.api(part);
            let object = match answer(api.get(&name)).await {
                Ok(object) => serde_json::to_value(object).unwrap_or_default(),
                Err(Error::Api(status)) if status.code == 404 => {
                    self.seen.lock().insert(part, Value::Null);
                    // If the API does not know the kind at all, its 404 names no object: there is nothing to create.
                    let named = status.details.as_ref().is_some_and(|it| !it.name.is_empty());
                    if named {
                        all.push((part, Found::Missing));
                    }
                    continue;
                }
                Err(error) => return Err(self.trouble("read", part, &error)),
            };
            all.push((part, self.found(part, &object)));
            self.seen.lock().insert(part, object);
        }
        Ok(all)
    }

    async fn create(&self, part: Part) -> Result<(), Trouble> {
        let Some(object) = self.wish.as_ref().and_then(|wish| wish.object(part)) else {
            return Ok(());
        };
        let (api, _) = self.api(part);
        let object: DynamicObject = serde_json::from_value(object)
            .map_err(|error| Trouble(format!("{}: {error}", self.say(part))))?;
        match answer(api.create(&params(), &object)).await {
            Err(Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(self.trouble("make", part, &error)),
            Ok(_) => Ok(()),
        }
    }

    async fn update(&self, part: Part, mark: Mark) -> Result<(), Trouble> {
        let Some(mut change) = self.wish.as_ref().and_then(|wish| wish.change(part)) else {
            return Ok(());
        };
        change["metadata"]["resourceVersion"] = json!(mark.version.0);
        let (api, name) = self.api(part);
        match answer(api.patch(&name, &patch_params(), &Patch::Merge(&change))).await {
            Err(Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(self.trouble("change", part, &error)),
            Ok(_) => Ok(()),
        }
    }

    async fn delete(&self, part: Part, mark: Mark) -> Result<(), Trouble> {
        let preconditions =
            Some(Preconditions { uid: Some(mark.uid.to_string()), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        let (api, name) = self.api(part);
        match answer(api.delete(&name, &params)).await {
            Err(Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(self.trouble("delete", part, &error)),
            Ok(_) => Ok(()),
        }
    }
}
