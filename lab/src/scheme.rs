//! Ways of carrying a connection across the lab.

use std::fmt;
use std::fs::{File, Permissions};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::str::FromStr;
use std::thread;
use std::time::Instant;

use lasthop_linux::keyfile;
use lasthop_linux::netns::Netns;
use lasthop_units::Duration;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::client::Via;
use crate::error::LabError;
use crate::process::Daemon;
use crate::topology::{Family, Lab, has_congestion_control};

const TICK: Duration = Duration::from_millis(20);

/// A way of carrying a connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// The kernel's TCP from end to end, with this congestion control at both ends.
    Kernel(String),
    /// `lasthop base` and `lasthop mobile` with TCP on the hop, this congestion control there.
    SplitTcp(String),
    /// `lasthop base` and `lasthop mobile` with SRP on the hop.
    Srp,
}

impl Scheme {
    /// The congestion control that the scheme needs of the kernel.
    pub fn congestion(&self) -> Option<&str> {
        match self {
            Self::Kernel(name) | Self::SplitTcp(name) => Some(name),
            Self::Srp => None,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(name) => f.pad(&format!("kernel-{name}")),
            Self::SplitTcp(name) => f.pad(&format!("split-tcp-{name}")),
            Self::Srp => f.pad("srp"),
        }
    }
}

/// Parses what [`Display`](fmt::Display) shows.
impl FromStr for Scheme {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        if s == "srp" {
            return Ok(Self::Srp);
        }
        let kernel = s.strip_prefix("kernel-").and_then(named).map(Self::Kernel);
        let split = s.strip_prefix("split-tcp-").and_then(named).map(Self::SplitTcp);
        kernel.or(split).ok_or_else(|| {
            format!("`{s}` is not a scheme such as srp, split-tcp-bbr or kernel-cubic")
        })
    }
}

/// A scheme at work: the processes that it needs, until it is dropped.
#[derive(Debug)]
pub struct Carrier {
    via: Via,
    daemons: Vec<Daemon>,
    /// Held while the processes may read them.
    _keys: Option<[Key; 2]>,
}

impl Carrier {
    /// Starts what `scheme` needs in `lab`, from the `lasthop` command at `program`.
    ///
    /// The processes end with the calling thread at the latest.
    ///
    /// # Errors
    ///
    /// The kernel has no such congestion control, or `base` or `mobile` ended or did not get
    /// ready within `patience`.
    pub fn start(
        scheme: &Scheme,
        lab: &Lab,
        family: Family,
        program: &Path,
        patience: Duration,
    ) -> Result<Self, LabError> {
        match scheme {
            Scheme::Kernel(name) => {
                lab.set_congestion(name)?;
                Ok(Self { via: Via::Direct, daemons: Vec::new(), _keys: None })
            }
            Scheme::SplitTcp(name) => {
                if !has_congestion_control(&lab.base, name)? {
                    return Err(LabError::NoCongestionControl(name.clone()));
                }
                let hop = ["--hop", "split-tcp", "--congestion", name];
                Self::hop(lab, family, program, &hop, patience)
            }
            Scheme::Srp => Self::hop(lab, family, program, &["--hop", "srp"], patience),
        }
    }

    fn hop(
        lab: &Lab,
        family: Family,
        program: &Path,
        hop: &[&str],
        patience: Duration,
    ) -> Result<Self, LabError> {
        let listen = lab.base_address(family).to_string();
        let reach = lab.base_from_mobile(family).to_string();
        let proxy = lab.proxy_address();
        let (base_key, mobile_key) = (Key::generate()?, Key::generate()?);

        let mut base = lab.base.command(program);
        base.args(["base", "--listen", &listen, "--key", &base_key.path()])
            .args(["--allow", &mobile_key.public])
            .args(hop);
        let server = lab.server_address(family).ip();
        if server.is_loopback() {
            // A base does not let mobiles reach itself unless told to.
            base.args(["--allow-target", &server.to_string()]);
        }
        let mut mobile = lab.mobile.command(program);
        mobile
            .args(["mobile", "--base", &reach, "--base-key", &base_key.public])
            .args(["--key", &mobile_key.path(), "--proxy", &proxy.to_string()])
            .args(hop);
        for command in [&mut base, &mut mobile] {
            // No status socket is wanted at the usual place, where a base at work may have its own.
            command.env("XDG_RUNTIME_DIR", "/dev/null");
        }
        let daemons = vec![Daemon::spawn(base)?, Daemon::spawn(mobile)?];
        let keys = Some([base_key, mobile_key]);
        let mut carrier = Self { via: Via::Socks5(proxy), daemons, _keys: keys };
        carrier.wait_for_proxy(&lab.mobile, proxy, patience)?;
        Ok(carrier)
    }

    fn wait_for_proxy(
        &mut self,
        mobile: &Netns,
        proxy: SocketAddr,
        patience: Duration,
    ) -> Result<(), LabError> {
        let deadline = Instant::now() + patience;
        while mobile.enter(|| TcpStream::connect(proxy).is_err())? {
            self.check()?;
            if Instant::now() >= deadline {
                return Err(LabError::TooLong("the start of base and mobile".into()));
            }
            thread::sleep(TICK);
        }
        Ok(())
    }

    /// How a client at the mobile uses the scheme.
    pub fn via(&self) -> Via {
        self.via
    }

    /// Whether everything still runs.
    ///
    /// # Errors
    ///
    /// [`LabError::Ended`] with the last words of what does not.
    pub fn check(&mut self) -> Result<(), LabError> {
        self.daemons.iter_mut().try_for_each(Daemon::check)
    }
}

/// A new key pair whose secret is in a file without a name, which no crash can leave behind.
#[derive(Debug)]
struct Key {
    secret: File,
    public: String,
}

impl Key {
    fn generate() -> Result<Self, LabError> {
        let make = || {
            let keys = keyfile::generate()?;
            let mut secret = File::from(memfd_create("lasthop-key", MemfdFlags::CLOEXEC)?);
            secret.set_permissions(Permissions::from_mode(0o600))?;
            secret.write_all(keys.secret().to_text().as_bytes())?;
            Ok(Self { secret, public: keys.public().to_string() })
        };
        make().map_err(|e| LabError::io("making a key", e))
    }

    /// Where children find the secret while this is held.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.secret.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_read_as_they_are_shown() {
        for name in ["srp", "split-tcp-bbr", "kernel-cubic"] {
            assert_eq!(name.parse::<Scheme>().unwrap().to_string(), name);
        }
        for bad in ["", "kernel-", "split-tcp", "tcp"] {
            assert!(bad.parse::<Scheme>().unwrap_err().contains(bad));
        }
    }
}
