//! What every cluster has from its first moment: the system namespaces. Asked for through the API
//! itself, so that these objects are like all others.

use crate::error::ApiError;
use crate::server::Server;
use crate::verbs::Input;
use crate::{decode::Decoded, http::query::FieldValidation};
use serde_json::json;

/// The namespaces that a cluster cannot be without.
pub const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl Server {
    /// Creates what is missing and serves the CRDs that are stored.
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
