use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use lasthop_kernel::tcp;

use crate::publish::Published;

/// A port of the base at which fixed hosts connect to a mobile's server. While the mobile is away it
/// stays bound but does not listen: the kernel refuses connections.
#[derive(Debug)]
pub(super) struct PublishedPort {
    pub(super) rule: Published,
    pub(super) fd: OwnedFd,
    open: bool,
}

impl PublishedPort {
    /// One for each rule, none listening.
    pub(super) fn bind_all<'a>(
        rules: impl IntoIterator<Item = &'a Published>,
    ) -> Result<Vec<Self>, (SocketAddr, io::Error)> {
        rules.into_iter().map(|rule| Self::new(*rule).map_err(|e| (rule.listen, e))).collect()
    }

    fn new(rule: Published) -> io::Result<Self> {
        // Only listening shows whether the port is free.
        let fd = tcp::listen(rule.listen)?;
        tcp::stop_listening(&fd);
        Ok(Self { rule, fd, open: false })
    }

    pub(super) fn set_listening(&mut self, open: bool) {
        if open == self.open {
            return;
        }
        self.open = open;
        if !open {
            return tcp::stop_listening(&self.fd);
        }
        if let Err(error) = tcp::listen_again(&self.fd) {
            // Tried again when a mobile comes or goes.
            self.open = false;
            tracing::warn!(listen = %self.rule.listen, %error, "cannot listen on a published port");
        }
    }
}
