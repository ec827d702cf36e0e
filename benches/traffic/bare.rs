//! Pingora without Bowline's code: one backend, no rules, no limits. The difference from Bowline's proxy is
//! Bowline's cost; the difference from HAProxy and nginx is pingora's. The benchmark runs itself again as
//! this proxy, in a process of its own as the other proxies are.

use async_trait::async_trait;
use pingora_core::server::Server;
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use std::net::SocketAddr;

/// The argument that makes the benchmark this proxy; the listening address and the backend follow it.
pub(crate) const ARGUMENT: &str = "--bare-pingora";

struct Bare {
    backend: SocketAddr,
}

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(
        &self,
        _: &mut Session,
        (): &mut (),
    ) -> pingora_core::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.backend, false, String::new())))
    }
}

/// Serves until it is killed.
pub(crate) fn serve(listen: &str, backend: &str, threads: usize) -> ! {
    let backend = backend.parse().expect("an address");
    // As in Bowline's proxy, every thread keeps to its own connections.
    let conf = ServerConf { threads, work_stealing: false, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut proxy = http_proxy_service(&server.configuration, Bare { backend });
    proxy.add_tcp(listen);
    server.add_service(proxy);
    server.run_forever()
}
