//! The two interfaces and the bridge that they are ports of, as the kernel has them.

use lasthop_agent::Side;
use lasthop_kernel::netlink::{Interface, Rtnetlink};
use lasthop_kernel::packet_socket::PacketSocketError;

use super::{AgentConfig, AgentError};

/// The interfaces of an agent.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) fixed: Option<Interface>,
    pub(super) mobile: Option<Interface>,
    bridge: Option<Interface>,
}

impl Found {
    /// Asks the kernel for them.
    pub(super) fn query(
        rtnetlink: &mut Rtnetlink,
        config: &AgentConfig,
    ) -> Result<Self, AgentError> {
        let all = rtnetlink.interfaces()?;
        let named = |name: &str| all.iter().find(|interface| interface.name == name).cloned();
        let (fixed, mobile) = (named(&config.fixed_if), named(&config.mobile_if));
        let controller = [&fixed, &mobile].into_iter().flatten().find_map(|port| port.controller);
        let bridge = match &config.bridge {
            Some(name) => named(name),
            None => all.iter().find(|interface| Some(interface.index) == controller).cloned(),
        };
        Ok(Self { fixed, mobile, bridge })
    }

    /// The interface of that side.
    pub(super) fn interface(&self, side: Side) -> Option<&Interface> {
        match side {
            Side::Fixed => self.fixed.as_ref(),
            Side::Mobile => self.mobile.as_ref(),
        }
    }

    /// The addresses that this host itself answers to on the bridge.
    pub(super) fn own(&self) -> Vec<[u8; 6]> {
        let all = [&self.fixed, &self.mobile, &self.bridge];
        all.into_iter().flatten().filter_map(|interface| interface.mac).collect()
    }
}

/// Sees to it that the interfaces are ports of one bridge, making it if the configuration names one.
pub(super) fn join(rtnetlink: &mut Rtnetlink, config: &AgentConfig) -> Result<Found, AgentError> {
    let found = Found::query(rtnetlink, config)?;
    let missing =
        |name: &String| AgentError::Interface(PacketSocketError::NoInterface(name.clone()));
    let fixed = found.fixed.as_ref().ok_or_else(|| missing(&config.fixed_if))?;
    let mobile = found.mobile.as_ref().ok_or_else(|| missing(&config.mobile_if))?;
    let Some(name) = &config.bridge else {
        let same = fixed.controller.is_some() && fixed.controller == mobile.controller;
        return if same {
            Ok(found)
        } else {
            let (fixed, mobile) = (fixed.name.clone(), mobile.name.clone());
            Err(AgentError::NotBridged { fixed, mobile })
        };
    };
    rejoin(rtnetlink, name, [fixed, mobile])?;
    Found::query(rtnetlink, config)
}

/// Makes interfaces ports of the bridge `name`, which is made if it is not there.
pub(super) fn rejoin<'a>(
    rtnetlink: &mut Rtnetlink,
    name: &str,
    interfaces: impl IntoIterator<Item = &'a Interface>,
) -> Result<(), AgentError> {
    if rtnetlink.add_bridge(name)? {
        tracing::info!(bridge = name, "the bridge was made; it stays when the agent ends");
    }
    let bridge = rtnetlink.interface(name)?.index;
    for interface in interfaces {
        match interface.controller {
            Some(index) if index == bridge => {}
            Some(_) => {
                let (interface, bridge) = (interface.name.clone(), name.to_owned());
                return Err(AgentError::OtherBridge { interface, bridge });
            }
            None => rtnetlink.join_bridge(interface.index, bridge)?,
        }
    }
    Ok(())
}
