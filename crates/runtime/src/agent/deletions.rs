//! Passes events of Plans from the watches to the agent. Before a deletion it looks at Bowline's namespace, as
//! [`bowline_core::vanished`] asks, and passes on first whether deleted Plans are served. It decides nothing.

use super::Heard;
use crate::clock;
use bowline_api::{Plan, names};
use bowline_core::resolver::{Event, Kind};
use bowline_core::vanished::{Answer, Look, Question, Step, Vanished};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, PostParams};
use kube::core::Status;
use kube::{Api, Client, Error};
use serde_json::json;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};

/// How often the agent looks at the namespace while deleted Plans are served.
const LOOK: Duration = Duration::from_secs(2);
/// How long one request of a look may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most events that share one look.
const BURST: usize = 256;

/// The cause of the API's refusal to create an object in a namespace that is being deleted.
const TERMINATING: &str = "NamespaceTerminating";

/// What one agent knows of deleted Plans. The watch of its own Plans and that of all others share it.
pub(super) struct Deletions {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) load_balancer: String,
    /// Held while its decision is sent, so that decisions arrive in their order.
    vanished: Mutex<Vanished>,
}

impl Deletions {
    /// `recalled`: the agent has kept state from before a restart.
    pub(super) fn new(
        client: Client,
        namespace: String,
        load_balancer: String,
        recalled: bool,
    ) -> Self {
        let vanished = Mutex::new(Vanished::new(recalled));
        Self { client, namespace, load_balancer, vanished }
    }

    /// Passes events on until a channel is closed.
    pub(super) async fn pass_on(
        &self,
        mut heard: mpsc::Receiver<Heard>,
        listener: &mpsc::Sender<Heard>,
    ) {
        let mut events = Vec::new();
        loop {
            let holds = self.vanished.lock().await.holds();
            tokio::select! {
                read = heard.recv_many(&mut events, BURST) => {
                    if read == 0 {
                        return;
                    }
                }
                () = tokio::time::sleep(LOOK), if holds => {}
            }
            let looks = self.observe(&events).await;
            if (looks || events.is_empty()) && !self.look(listener).await {
                return;
            }
            for heard in events.drain(..) {
                let withheld = self.vanished.lock().await.withholds(&heard.event);
                if !withheld && listener.send(heard).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Whether the agent must look at the namespace before it passes these events on.
    async fn observe(&self, events: &[Heard]) -> bool {
        let mut vanished = self.vanished.lock().await;
        let observe = |looks, heard: &Heard| vanished.observe(&heard.event, clock::now()) || looks;
        events.iter().fold(false, observe)
    }

    /// Looks at the namespace, and sends what follows. False: nothing receives it any more.
    async fn look(&self, listener: &mpsc::Sender<Heard>) -> bool {
        let mut question = Question::Read;
        let look = loop {
            let asked = tokio::time::timeout(PATIENCE, self.ask(question)).await;
            match question.answered(asked.unwrap_or(Answer::Silence)) {
                Step::End(look) => break look,
                Step::Ask(next) => question = next,
            }
        };
        self.decide(look, listener).await
    }

    async fn decide(&self, look: Look, listener: &mpsc::Sender<Heard>) -> bool {
        let mut vanished = self.vanished.lock().await;
        let Some(news) = vanished.looked(look, clock::now()) else { return true };
        let (namespace, load_balancer) = (&*self.namespace, &*self.load_balancer);
        match news.hold {
            Some(why) => tracing::warn!(namespace, load_balancer, "{}", why.text()),
            None => {
                tracing::info!(namespace, load_balancer, "deleted Plans are not served any more")
            }
        }
        let mut events = vec![Event::Hold(news.hold.is_some())];
        events.extend(news.list_ends.then_some(Event::Done(Kind::Shard)));
        for event in events {
            if listener.send(Heard::now(event)).await.is_err() {
                return false;
            }
        }
        true
    }

    async fn ask(&self, question: Question) -> Answer {
        match question {
            Question::Read => self.read().await,
            Question::Create => self.try_to_create().await,
            Question::List => self.list().await,
        }
        .unwrap_or_else(|error| answer(&error))
    }

    async fn read(&self) -> Result<Answer, Error> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let meta = namespaces.get(&self.namespace).await?.metadata;
        Ok(Answer::Namespace(meta.deletion_timestamp.is_some(), meta.uid.map(Into::into)))
    }

    async fn try_to_create(&self) -> Result<Answer, Error> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let name = names::agent_lease(&self.load_balancer);
        let lease = serde_json::from_value(json!({"metadata": {"name": name}}));
        let params = PostParams { dry_run: true, ..PostParams::default() };
        leases.create(&params, &lease.map_err(Error::SerdeError)?).await?;
        Ok(Answer::Done)
    }

    async fn list(&self) -> Result<Answer, Error> {
        let plans: Api<Plan> = Api::namespaced(self.client.clone(), &self.namespace);
        plans.list_metadata(&ListParams::default().limit(1)).await?;
        Ok(Answer::Done)
    }
}

fn answer(error: &Error) -> Answer {
    match error {
        Error::Api(status) => Answer::Refused(status.code, is_terminating(status)),
        _ => Answer::Silence,
    }
}

fn is_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == TERMINATING)
}
