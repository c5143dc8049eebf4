//! Pingora with nothing around it: what a proxy of it costs before it does anything of its own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use pingora::Result;
use pingora::server::Server;
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session};

/// The engines, in turn.
struct Bare {
    engines: Vec<SocketAddr>,
    next: AtomicUsize,
}

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _session: &mut Session, _context: &mut ()) -> Result<Box<HttpPeer>> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(HttpPeer::new(self.engines[next % self.engines.len()], false, String::new())))
    }
}

/// Serves at the first address, before the others, with the settings of Pingora that Homing runs with.
pub fn serve(address: SocketAddr, engines: Vec<SocketAddr>) -> ! {
    let configuration =
        ServerConf { threads: 1, work_stealing: false, upstream_keepalive_pool_size: 1024, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, configuration);
    server.bootstrap();
    let bare = Bare { engines, next: AtomicUsize::new(0) };
    let mut proxy = pingora_proxy::http_proxy_service(&server.configuration, bare);
    proxy.add_tcp(&address.to_string());
    server.add_service(proxy);
    server.run_forever()
}
