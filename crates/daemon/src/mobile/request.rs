//! The operator's requests, and reports of bases and handoffs.

use std::time::Duration;

use lasthop_control::{self as control, BaseReport, Handoffs, Link, Reply, Report, Request};
use lasthop_units::LinkEvent;

use super::known_base::{KnownBase, Origin};
use super::{Core, MobileRole, policies};
use crate::config::HopAddress;

impl MobileRole {
    pub(super) fn handle(&mut self, core: &mut Core, request: Request) -> Result<Reply, String> {
        let mut reply = Reply::default();
        match request {
            Request::Handoff { to } => {
                let i = self.station_called(&to)?;
                // Else nothing is to be done, or it is being done.
                if i != self.here {
                    self.move_to(core, i);
                    let latest = self.handoffs.as_ref().and_then(|all| all.latest.as_ref());
                    reply.handoff = latest.map(|handoff| handoff.number);
                }
            }
            Request::Link(Link::Imminent { to: None, in_ms }) => {
                self.handle_imminent_loss(core, Duration::from_millis(in_ms));
            }
            Request::Link(Link::Complete {}) => self.notify_hop(core, LinkEvent::Complete),
            Request::Link(Link::Quality { interface, dbm }) => {
                self.handle_quality(core, interface.as_deref(), dbm)?;
            }
            Request::Priority { of, priority } => {
                self.priorities.set(&of, priority)?;
            }
            Request::Policy { of, policy } => {
                if !self.links.are_used() {
                    return Err(policies::NO_LINKS.to_owned());
                }
                let parse = |policy: String| policies::parse(&policy, self.links.names());
                let policy = policy.map(parse).transpose()?;
                self.priorities.set_policy(core, &of, policy)?;
            }
            Request::Link(Link::Imminent { to: Some(to), in_ms }) => {
                let i = self.station_called(&to)?;
                self.prepare(core, i, Duration::from_millis(in_ms));
            }
            Request::Link(Link::Down { interface }) => {
                self.handle_link(core, interface.as_deref(), true);
            }
            Request::Link(Link::Up { interface }) => {
                self.handle_link(core, interface.as_deref(), false);
            }
            Request::Link(Link::Base { interface, to }) => {
                let i = self.station_called(&to)?;
                self.set_link_base(core, &interface, i)?;
            }
            Request::Reload {} => {
                let why =
                    "a mobile cannot do this: it is a base that reads its configuration again";
                return Err(why.to_owned());
            }
            Request::Drain { .. } => {
                return Err("a mobile cannot do this: it is a base that is emptied".to_owned());
            }
            // Whoever asks for the status does not ask here.
            Request::Status { .. } => {}
        }
        Ok(reply)
    }

    fn station_called(&self, name: &str) -> Result<usize, String> {
        if self.handoffs.is_none() || self.stations.len() < 2 {
            return Err("this mobile knows one base only; to move, it needs [[bases]] in its \
                        configuration"
                .to_owned());
        }
        let known = || {
            let all = self.stations.iter().enumerate();
            all.filter(|(_, station)| station.origin != Origin::Forgotten)
        };
        let called = known().find(|(_, station)| station.name() == name).map(|(i, _)| i);
        called
            .ok_or_else(|| control::unknown_base(name, known().map(|(_, station)| station.name())))
    }

    pub(super) fn add_to_report(&self, core: &Core, report: &mut Report) {
        self.priorities.add_to_report(core, &self.links, report);
        let Some(handoffs) = self.handoffs.as_ref().filter(|_| self.stations.len() > 1) else {
            return;
        };
        let base = |(i, station): (usize, &KnownBase)| {
            let hop = station.part.and_then(|part| core.hop.get(part));
            let state = hop.and_then(|hop| hop.reports(core.now).pop()).map(|hop| hop.state);
            BaseReport {
                name: station.name().to_owned(),
                key: station.config.key.map(|key| key.to_string()),
                address: match &station.config.place {
                    HopAddress::Internet(base) => base.to_string(),
                    HopAddress::Ethernet { interface, .. } => format!("ether:{interface}"),
                },
                state: state.unwrap_or_else(|| "idle".to_owned()),
                current: i == self.here,
                learned: station.origin != Origin::File,
                draining: station.told.map(|told| told.draining),
                load: station.told.map(|told| told.load),
                interface: station.config.interface.clone(),
                handoffs: station.handoffs,
                last_pause_s: station.pause.map(|pause| pause.as_secs_f64()),
            }
        };
        let known = self.stations.iter().enumerate();
        let known =
            known.filter(|(i, station)| *i == self.here || station.origin != Origin::Forgotten);
        report.bases = known.map(base).collect();
        report.handoffs = Some(Handoffs {
            here: handoffs.done,
            refused: handoffs.refused,
            ..Handoffs::default()
        });
        report.handoff.clone_from(&handoffs.latest);
    }
}
