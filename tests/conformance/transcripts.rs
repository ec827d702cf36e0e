//! Replays every scenario under `transcripts/`. One test a file, so that a failure has a name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/transcripts")
}

macro_rules! scenarios {
    ($($name:ident)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                bowline_testing::transcript::run(&folder().join(concat!(stringify!($name), ".json"))).await;
            }
        )*
        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

scenarios! {
    bodies_that_cannot_be_read
    bodies_too_large_are_refused
    cel_rules_are_enforced
    config_maps_and_secrets
    crds_are_accepted_then_served
    crds_that_make_no_sense_are_refused
    custom_objects_are_pruned_and_defaulted
    custom_objects_are_validated
    delete_checks_its_preconditions
    deletecollection_takes_what_a_selector_names
    deployments_and_stateful_sets
    endpoint_slices_follow_services_and_pods
    field_validation_is_strict_lax_or_loud
    finalizers_hold_an_object_back
    ingresses_are_validated
    json_patch
    lists_are_selected
    lists_come_in_pages_of_one_snapshot
    lists_may_be_sets_and_maps
    merge_patch
    metadata_is_validated
    names_are_generated
    namespaces_take_their_objects_along
    objects_are_created_once_and_found_by_name
    owners_take_their_dependents_along
    paths_that_lead_nowhere
    pods_are_stored_with_their_defaults
    printer_columns_of_custom_objects
    protobuf_is_read
    replace_needs_the_version_it_read
    requests_need_a_token
    resource_versions_mean_what_they_say
    service_addresses_are_held_once
    services_are_validated
    services_get_defaults_and_addresses
    status_and_scale_of_custom_objects
    strategic_merge_patch
    the_client_chooses_the_form
    the_other_kinds
    watches_can_begin_with_a_list
    watches_resume_where_they_left_off
    what_is_not_implemented_is_refused
}

#[test]
fn every_scenario_file_is_run() {
    let files: BTreeSet<String> = std::fs::read_dir(folder())
        .expect("the folder of transcripts")
        .map(|entry| entry.expect("a folder entry").path())
        .map(|path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned())
        .collect();
    assert_eq!(files, NAMES.iter().map(ToString::to_string).collect());
}
