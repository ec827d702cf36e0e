//! The settings of the controllers of a cluster, which a view has to share to decide as they do. Pure.

use bowline_api::names;
use bowline_core::planner::Config;
use k8s_openapi::api::coordination::v1::Lease;

/// The settings of the controllers of a cluster, from their Lease. None: the Lease does not have them.
pub(super) fn settings(lease: &Lease) -> Option<Config> {
    let annotation = |key: &str| lease.metadata.annotations.as_ref()?.get(key);
    Some(Config {
        default_class: annotation(names::ANNOTATION_DEFAULT_CLASS)? == "true",
        default_load_balancer: annotation(names::ANNOTATION_DEFAULT_LOAD_BALANCER)
            .filter(|name| !name.is_empty())
            .map(|name| name.as_str().into()),
    })
}

/// The note that settings are guessed, unless all are given.
pub(super) fn guessed(
    default_class: Option<bool>,
    default_load_balancer: Option<&str>,
) -> Option<String> {
    let class = default_class.is_none().then_some("--default-class=false");
    let name = default_load_balancer.is_none().then_some("no --default-load-balancer");
    let taken: Vec<_> = class.into_iter().chain(name).collect();
    (!taken.is_empty()).then(|| {
        format!(
            "The settings of the controllers are not known. Assumed: {}. Give these flags, or name Bowline's own \
             namespace with --system-namespace.",
            taken.join(" and ")
        )
    })
}
