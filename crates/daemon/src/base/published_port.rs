use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use lasthop_hop::seal::PublicKey;
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

/// All of a base's, by whose they are.
#[derive(Debug, Default)]
pub(super) struct PublishedPorts {
    ports: Vec<PublishedPort>,
    by_mobile: BTreeMap<Option<PublicKey>, Vec<usize>>,
}

impl PublishedPorts {
    /// One for each rule, none listening.
    ///
    /// # Errors
    ///
    /// Which address cannot be had, and why.
    pub(super) fn bind<'a>(
        rules: impl IntoIterator<Item = &'a Published>,
    ) -> Result<Self, (SocketAddr, io::Error)> {
        let mut all = Self::default();
        for rule in rules {
            let port = PublishedPort::new(*rule).map_err(|e| (rule.listen, e))?;
            all.by_mobile.entry(rule.mobile).or_default().push(all.ports.len());
            all.ports.push(port);
        }
        Ok(all)
    }

    /// Port `n` of [`iter`](Self::iter).
    pub(super) fn get(&self, n: usize) -> Option<&PublishedPort> {
        self.ports.get(n)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &PublishedPort> {
        self.ports.iter()
    }

    /// Whose there are: `None` for those of whichever mobile came last.
    pub(super) fn mobiles(&self) -> impl Iterator<Item = Option<PublicKey>> {
        self.by_mobile.keys().copied()
    }

    /// Listens on a mobile's ports, or does not.
    pub(super) fn set_listening(&mut self, mobile: Option<PublicKey>, open: bool) {
        for n in self.by_mobile.get(&mobile).into_iter().flatten() {
            self.ports[*n].set_listening(open);
        }
    }

    /// Closes all.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl PublishedPort {
    fn new(rule: Published) -> io::Result<Self> {
        // Only listening shows whether the port is free.
        let fd = tcp::listen(rule.listen)?;
        tcp::stop_listening(&fd);
        Ok(Self { rule, fd, open: false })
    }

    fn set_listening(&mut self, open: bool) {
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
