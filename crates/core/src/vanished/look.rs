//! What the API's answers say about Bowline's namespace. An agent in a cluster may not read namespaces, so it asks up to
//! three questions; each answer decides, or leads to the next question.

use std::sync::Arc;

/// What a look at Bowline's namespace shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// The namespace exists and is not being deleted. Its uid, if the agent may read it.
    Exists(Option<Arc<str>>),
    /// It is being deleted or is gone, or all rights of the agent in it are.
    Gone,
    /// The API does not answer, or its answer does not tell.
    Unknown,
}

/// A request of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// It reads the namespace.
    Read,
    /// It tries to create its Lease, as a dry run. The API refuses new content in a namespace that is being deleted.
    Create,
    /// It reads Plans. Without this right it has no role in the namespace any more.
    List,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The namespace, whether it is being deleted, and its uid.
    Namespace(bool, Option<Arc<str>>),
    /// The request is carried out, or would be.
    Done,
    /// The API refuses the request with this status code, and whether it says that the namespace is being deleted.
    Refused(u16, bool),
    /// There is no answer.
    Silence,
}

/// What follows from an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The look is over.
    End(Look),
    /// The agent asks this, too.
    Ask(Question),
}

impl Question {
    /// What follows from the answer to this question.
    pub fn answered(self, answer: Answer) -> Step {
        let look = match (self, answer) {
            (Self::Read, Answer::Namespace(false, uid)) => Look::Exists(uid),
            (_, Answer::Namespace(true, _)) => Look::Gone,
            (Self::Read | Self::Create, Answer::Refused(404, _)) => Look::Gone,
            (_, Answer::Refused(403, true)) => Look::Gone,
            (Self::Read, Answer::Refused(403, false)) => return Step::Ask(Self::Create),
            // The Lease exists, or would.
            (Self::Create, Answer::Done | Answer::Refused(409, _)) => Look::Exists(None),
            // A Role may lack this right alone, or a quota may be exhausted.
            (Self::Read, Answer::Refused(401, _))
            | (Self::Create, Answer::Refused(401 | 403, _)) => {
                return Step::Ask(Self::List);
            }
            (Self::List, Answer::Refused(401 | 403, _)) => Look::Gone,
            _ => Look::Unknown,
        };
        Step::End(look)
    }
}
