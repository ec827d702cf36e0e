//! Pingora with none of our code: one backend, no rules, no limits. What Bowline's proxy is slower than this
//! is ours to answer for; what this is slower than HAProxy and nginx is the price of pingora. The benchmark
//! runs itself again as this, in a process of its own as the other proxies are.

use async_trait::async_trait;
use pingora_core::server::Server;
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use std::net::SocketAddr;

/// The argument that makes the benchmark this proxy: where to listen and where to send follow.
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
    // As Bowline's: every thread keeps to its own connections.
    let conf = ServerConf { threads, work_stealing: false, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut proxy = http_proxy_service(&server.configuration, Bare { backend });
    proxy.add_tcp(listen);
    server.add_service(proxy);
    server.run_forever()
}
