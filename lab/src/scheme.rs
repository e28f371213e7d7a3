//! Ways of carrying a connection across the lab.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use lasthop_kernel::netns::Netns;
use lasthop_units::Duration;

use crate::client::Via;
use crate::error::LabError;
use crate::key::{Key, Secret};
use crate::process::Daemon;
use crate::topology::{BASE_MAC, Family, Lab, RADIO, has_congestion_control};
use crate::wait::wait_for_listener;

/// A way of carrying a connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// The kernel's TCP from end to end, with this congestion control at both ends.
    Kernel(String),
    /// `lasthop base` and `lasthop mobile` with TCP on the hop, this congestion control there.
    SplitTcp(String),
    /// `lasthop base` and `lasthop mobile` with SRP on the hop.
    Srp,
    /// `lasthop base` and `lasthop mobile` with Mobile TCP on the hop, over UDP and sealed as SRP is.
    MobileTcp,
}

/// A hop of `lasthop base` and `lasthop mobile`, in the command's own words.
#[derive(Clone, Default, Debug)]
pub struct Hop {
    /// Arguments of both, such as `--hop` and its value.
    pub both: Vec<String>,
    /// More for the base.
    pub base: Vec<String>,
    /// More for the mobile.
    pub mobile: Vec<String>,
    /// By raw frames of the radio's interfaces, which must be Ethernet.
    pub ethernet: bool,
    /// The mobile is not told where on the link the base is.
    pub find: bool,
    /// Without keys, by explicit choice.
    pub bare: bool,
    /// Packets go too, by TUN devices: those of the mobile from [`PACKET_ADDRESSES`].
    pub packets: bool,
    /// Connections leave from [`OWN_ADDRESS`], and their fixed hosts are acknowledged what this has, in the base's own word.
    pub acknowledge: Option<String>,
}

/// An address of the mobile's own.
pub const OWN_ADDRESS: &str = "10.9.0.8";

/// The addresses that a mobile's packets have, of IPv4 and IPv6.
pub const PACKET_ADDRESSES: [&str; 2] = ["10.9.0.7", "fd09::7"];
/// The base's on its device.
pub const PACKET_ROUTERS: [&str; 2] = ["10.9.0.1", "fd09::1"];

impl Hop {
    /// The hop called `name`, over UDP and sealed.
    pub fn new(name: &str) -> Self {
        Self { both: words(&["--hop", name]), ..Self::default() }
    }

    /// The hop of SRP, with packets beside the streams.
    pub fn with_packets() -> Self {
        Self { packets: true, ..Self::new("srp") }
    }

    /// The kernel's TCP on the hop, with this congestion control.
    pub fn split_tcp(congestion: &str) -> Self {
        let both = words(&["--hop", "split-tcp", "--congestion", congestion]);
        Self { both, ..Self::default() }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

impl Scheme {
    /// The congestion control that the scheme needs of the kernel.
    pub fn congestion(&self) -> Option<&str> {
        match self {
            Self::Kernel(name) | Self::SplitTcp(name) => Some(name),
            Self::Srp | Self::MobileTcp => None,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(name) => f.pad(&format!("kernel-{name}")),
            Self::SplitTcp(name) => f.pad(&format!("split-tcp-{name}")),
            Self::Srp => f.pad("srp"),
            Self::MobileTcp => f.pad("mobile-tcp"),
        }
    }
}

/// Parses what [`Display`](fmt::Display) shows.
impl FromStr for Scheme {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        match s {
            "srp" => return Ok(Self::Srp),
            "mobile-tcp" => return Ok(Self::MobileTcp),
            _ => {}
        }
        let kernel = s.strip_prefix("kernel-").and_then(named).map(Self::Kernel);
        let split = s.strip_prefix("split-tcp-").and_then(named).map(Self::SplitTcp);
        kernel.or(split).ok_or_else(|| {
            format!("`{s}` is not a scheme such as srp, split-tcp-bbr or kernel-cubic")
        })
    }
}

/// Between which hosts a hop is, and by which addresses.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// The base.
    pub base: &'a Netns,
    /// The mobile.
    pub mobile: &'a Netns,
    /// Where the base listens.
    pub listen: SocketAddr,
    /// Where the mobile reaches it.
    pub reached: SocketAddr,
    /// Where the mobile's proxy listens.
    pub proxy: SocketAddr,
    /// The fixed host.
    pub server: IpAddr,
}

/// A scheme at work: the processes that it needs, until it is dropped.
#[derive(Debug)]
pub struct Carrier {
    via: Via,
    daemons: Vec<Daemon>,
    /// How the base is started again, which is the first of the daemons.
    base: Option<(Netns, Vec<String>)>,
    program: PathBuf,
    /// Held while the processes may read them.
    _keys: Option<[Key; 2]>,
    _settings: Option<Secret>,
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
        let hop = match scheme {
            Scheme::Kernel(name) => {
                lab.set_congestion(name)?;
                return Ok(Self {
                    via: Via::Direct,
                    daemons: Vec::new(),
                    base: None,
                    program: program.to_owned(),
                    _keys: None,
                    _settings: None,
                });
            }
            Scheme::SplitTcp(name) => {
                if !has_congestion_control(&lab.base, name)? {
                    return Err(LabError::NoCongestionControl(name.clone()));
                }
                Hop::split_tcp(name)
            }
            Scheme::Srp => Hop::new("srp"),
            Scheme::MobileTcp => Hop::new("mobile-tcp"),
        };
        Self::start_hop(&hop, lab, family, program, patience)
    }

    /// Starts `lasthop base` and `lasthop mobile` with this hop between them.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_hop(
        hop: &Hop,
        lab: &Lab,
        family: Family,
        program: &Path,
        patience: Duration,
    ) -> Result<Self, LabError> {
        let places = Places {
            base: &lab.base,
            mobile: &lab.mobile,
            listen: lab.base_address(family),
            reached: lab.base_from_mobile(family),
            proxy: lab.proxy_address(),
            server: lab.server_address(family).ip(),
        };
        Self::between(hop, &places, program, patience)
    }

    /// The same between any two hosts.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn between(
        hop: &Hop,
        places: &Places<'_>,
        program: &Path,
        patience: Duration,
    ) -> Result<Self, LabError> {
        let Places { listen, reached, proxy, server, .. } = *places;
        let (mut base, mut mobile) = (words(&["base"]), words(&["mobile"]));
        if hop.ethernet {
            base.extend(words(&["--carrier", "ethernet", "--interface", RADIO]));
            let mac = if hop.find { String::new() } else { format!("/{BASE_MAC}") };
            mobile.extend(words(&["--base", &format!("ether:{RADIO}{mac}")]));
        } else {
            base.extend(words(&["--listen", &listen.to_string()]));
            mobile.extend(words(&["--base", &reached.to_string()]));
        }
        let keys = if hop.bare { None } else { Some([Key::generate()?, Key::generate()?]) };
        match &keys {
            Some([of_base, of_mobile]) => {
                base.extend(words(&[
                    "--key",
                    &of_base.secret.path(),
                    "--allow",
                    &of_mobile.public,
                ]));
                mobile.extend(words(&[
                    "--key",
                    &of_mobile.secret.path(),
                    "--base-key",
                    &of_base.public,
                ]));
            }
            None => [&mut base, &mut mobile]
                .into_iter()
                .for_each(|args| args.extend(words(&["--seal", "none"]))),
        }
        mobile.extend(words(&["--proxy", &proxy.to_string()]));
        let settings = match &keys {
            Some([_, of_mobile]) if hop.packets => {
                Some(Secret::settings(&packet_settings(&of_mobile.public, ""))?)
            }
            Some([_, of_mobile]) => {
                let settings = |who: &String| {
                    Secret::settings(&format!(
                        "[[mobiles]]\nkey = {:?}\naddress = [{OWN_ADDRESS:?}]\nacknowledge = {who:?}\n",
                        of_mobile.public
                    ))
                };
                hop.acknowledge.as_ref().map(settings).transpose()?
            }
            None => None,
        };
        if let Some(settings) = &settings {
            base.extend(words(&["--config", &settings.path()]));
        }
        if hop.packets {
            mobile.extend(words(&["--tun", &PACKET_ADDRESSES.join(",")]));
        }
        if server.is_loopback() {
            // A base does not let mobiles reach itself unless told to.
            base.extend(words(&["--allow-target", &server.to_string()]));
        }
        base.extend(hop.both.iter().chain(&hop.base).cloned());
        mobile.extend(hop.both.iter().chain(&hop.mobile).cloned());
        let daemons =
            vec![spawn(places.base, program, &base)?, spawn(places.mobile, program, &mobile)?];
        let mut carrier = Self {
            via: Via::Socks5(proxy),
            daemons,
            base: Some((places.base.clone(), base)),
            program: program.to_owned(),
            _keys: keys,
            _settings: settings,
        };
        let what = "the start of base and mobile";
        wait_for_listener(places.mobile, proxy, patience, what, || carrier.check())?;
        Ok(carrier)
    }

    /// Kills the base, without a word to anybody.
    pub fn kill_base(&mut self) {
        if let Some(daemon) = self.daemons.first_mut().filter(|_| self.base.is_some()) {
            daemon.kill();
        }
    }

    /// Kills the base, without a word to anybody, and starts it again.
    ///
    /// # Errors
    ///
    /// It could not be started.
    pub fn restart_base(&mut self) -> Result<(), LabError> {
        if let (Some((host, args)), Some(daemon)) = (&self.base, self.daemons.first_mut()) {
            daemon.kill();
            *daemon = spawn(host, &self.program, args)?;
        }
        Ok(())
    }

    /// Ends the mobile, which says goodbye.
    pub fn stop_mobile(&mut self) {
        if self.daemons.len() > 1 {
            self.daemons.pop();
        }
    }

    /// The processes at the base and at the mobile, if the scheme has some.
    pub fn daemons(&self) -> &[Daemon] {
        &self.daemons
    }

    /// The same, to be paused or ended.
    pub fn daemons_mut(&mut self) -> &mut [Daemon] {
        &mut self.daemons
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

/// What a base needs to know of packets; `more` is said of its device.
pub(crate) fn packet_settings(mobile: &str, more: &str) -> String {
    format!(
        "[tun]\naddress = {PACKET_ROUTERS:?}\n{more}[[mobiles]]\nkey = {mobile:?}\n\
         tun = {PACKET_ADDRESSES:?}\n"
    )
}

fn spawn(host: &Netns, program: &Path, args: &[String]) -> Result<Daemon, LabError> {
    let mut command = host.command(program);
    // No status socket is wanted at the usual place, where a base at work may have its own.
    command.args(args).env("XDG_RUNTIME_DIR", "/dev/null");
    Daemon::spawn(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_read_as_they_are_shown() {
        for name in ["srp", "mobile-tcp", "split-tcp-bbr", "kernel-cubic"] {
            assert_eq!(name.parse::<Scheme>().unwrap().to_string(), name);
        }
        for bad in ["", "kernel-", "split-tcp", "tcp"] {
            assert!(bad.parse::<Scheme>().unwrap_err().contains(bad));
        }
    }
}
