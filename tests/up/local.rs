//! The load balancer `local` that `bowline up` creates, and what becomes of objects that name none.

use crate::bowline::{Bowline, Start};
use bowline_testing::{Scratch, until};
use serde_json::Value;
use std::net::TcpListener;

fn json(scratch: &Scratch, server: &Bowline, args: &[&str]) -> Result<Value, String> {
    let args = [&["get", "-o", "json"], args].concat();
    let text = scratch.kubectl(&server.kubeconfig, &args).success()?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// The uid of `local`, if it is not being deleted.
fn local(scratch: &Scratch, server: &Bowline) -> Result<String, String> {
    let found = json(scratch, server, &["lb", "local"])?;
    let metadata = &found["metadata"];
    let uid = metadata["uid"].as_str().filter(|_| metadata["deletionTimestamp"].is_null());
    uid.map(str::to_owned).ok_or_else(|| metadata.to_string())
}

#[test]
fn a_local_that_is_being_deleted_is_told_at_the_start_and_created_again_when_it_is_gone() {
    let scratch = Scratch::new();
    let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port");
    let service = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\n\
         spec: {{type: LoadBalancer, ports: [{{port: {}}}]}}\n",
        port.port()
    );
    let file = scratch.write("service.yaml", &service).display().to_string();
    let mut server = Start::kept(&scratch).arg("-f").arg(&file).ready();
    let before = local(&scratch, &server).expect("local");
    until("it is held", || {
        let found = json(&scratch, &server, &["lb", "local"])?;
        let finalizers = found["metadata"]["finalizers"].to_string();
        if finalizers.contains("in-use") { Ok(()) } else { Err(finalizers) }
    });
    scratch.kubectl(&server.kubeconfig, &["delete", "lb", "local", "--wait=false"]).ok();
    until("the Service is told what became of the default", || {
        let events = scratch.kubectl(&server.kubeconfig, &["get", "events"]).success()?;
        let told = events.contains("load balancer \"local\", the default one, is being deleted");
        if told { Ok(()) } else { Err(events) }
    });
    assert_eq!(server.stop(), Some(0));

    let mut server = Start::kept(&scratch).ready();
    let log = server.service.log();
    assert!(log.contains("The load balancer \"local\" is being deleted"), "{log}");
    scratch.kubectl(&server.kubeconfig, &["delete", "service", "web"]).ok();
    let after = until("there is another one", || local(&scratch, &server));
    assert_ne!(after, before);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn without_a_default_load_balancer_an_ingress_without_a_class_is_left_alone() {
    const INGRESS: &str = "\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec: {rules: [{host: web.example}]}
";
    let scratch = Scratch::new();
    let file = scratch.write("ingress.yaml", INGRESS).display().to_string();
    let mut server =
        Start::new(&scratch).arg("--no-default-load-balancer").arg("-f").arg(&file).ready();
    let class = json(&scratch, &server, &["ingressclass", "bowline"]).expect("the class");
    assert_eq!(class["spec"]["controller"], "bowline.dev/ingress");
    let ingress = json(&scratch, &server, &["ingress", "web"]).expect("the Ingress");
    assert_eq!(ingress["spec"]["ingressClassName"], Value::Null, "{ingress:#}");
    assert_eq!(server.stop(), Some(0));
}
