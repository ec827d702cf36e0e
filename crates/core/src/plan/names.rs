//! The names of pools, as the planner gives them. They are unique on a load balancer because a
//! namespace, a Service's name, an Ingress's name and a port's name contain no `/`.

use std::sync::Arc;

/// The pool of a Service's own port.
pub fn service_pool(namespace: &str, service: &str, port: &str) -> Arc<str> {
    format!("service/{namespace}/{service}/{port}").into()
}

/// The pool of a Service port behind an Ingress.
pub fn ingress_pool(namespace: &str, ingress: &str, service: &str, port: &str) -> Arc<str> {
    format!("ingress/{namespace}/{ingress}/{service}/{port}").into()
}
