//! Creates the system namespaces of a new cluster. It uses the API itself, so that these objects
//! are like all others. `Cluster` calls it.

use crate::error::ApiError;
use crate::server::Server;
use crate::verbs::Input;
use crate::{decode::Decoded, http::query::FieldValidation};
use serde_json::json;

/// The system namespaces.
pub const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl Server {
    /// Creates missing namespaces and serves the stored CRDs.
    pub async fn bootstrap(&self) -> Result<(), ApiError> {
        self.establish().await;
        let kind = self.kind("", "v1", "namespaces")?;
        for name in NAMESPACES {
            let value =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let input =
                Input { decoded: Decoded::plain(value), validation: FieldValidation::Ignore };
            match self.create(&kind, "", input).await {
                Ok(_) => {}
                Err(error) if error.reason == "AlreadyExists" => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
