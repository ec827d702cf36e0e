//! Bowline's own kinds on the cluster at hand: the definitions in `deploy/crds` are accepted,
//! established and served, by kubectl as a user would do it.

use bowline_testing::Cluster;
use std::path::Path;

#[tokio::test]
async fn bowlines_definitions_are_accepted_and_served() {
    let cluster = Cluster::start().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/crds");
    assert!(folder.is_dir(), "{} is missing; make it with\n  bowline crds", folder.display());
    let folder = folder.display().to_string();
    cluster.kubectl(&["apply", "-f", &folder], "").ok();
    let again = cluster.kubectl(&["apply", "-f", &folder], "").ok();
    assert!(again.lines().all(|line| line.ends_with(" unchanged")), "{again}");
    cluster
        .kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "-f", &folder], "")
        .ok();
    let names = cluster.kubectl(&["get", "-f", &folder, "-o", "name"], "").ok();
    assert!(names.lines().count() >= 6, "{names}");
    for name in names.lines() {
        let plural = name.split_once('/').expect("kind/name").1;
        cluster.owns("customresourcedefinition", plural);
        cluster.kubectl(&["get", plural, "-A"], "").ok();
        let text = cluster
            .kubectl(
                &["explain", &format!("{}.spec", plural.split('.').next().unwrap_or_default())],
                "",
            )
            .ok();
        assert!(text.contains("DESCRIPTION:"), "{text}");
    }
}
