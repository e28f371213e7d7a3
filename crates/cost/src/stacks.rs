//! The stacks that are measured.

use lasthop_study::reproduce::processing::Missing;

use crate::ethernet::Ethernet;
use crate::kernel::{Hosts, InOneThread, WithEcho};
use crate::meter::{Entry, Subject};
use crate::options::Options;
use crate::pair::{Pair, Wire};
use crate::socket::{Buffering, Direct, Light, Sockets, Standard};
use crate::stack::{Conn, Endpoint, Mobile, Stack, TcpIp, Variant};

impl<S: Stack, L: Sockets<S>, W: Wire> Subject for Pair<S, L, W> {
    #[inline]
    fn carry(&mut self, from: usize, data: &[u8], out: &mut [u8]) -> Result<(), String> {
        Pair::carry(self, from, data, out).map_err(|e| e.to_string())
    }

    /// The acknowledgement, if there is one yet.
    #[inline]
    fn settle(&mut self) {
        self.take(0);
    }
}

/// Our stacks in user space.
pub(crate) fn ours() -> Vec<Entry> {
    let tcp = || TcpIp::pair(Variant::WHOLE);
    let own = || Standard::new(Buffering::Own);
    let shared = || Standard::new(Buffering::Shared);
    let unsummed = Variant { checksum: false, ..Variant::WHOLE };
    let without_ip = Variant { ip: false, ..Variant::WHOLE };
    vec![
        Entry::new("tcp-ip", "TCP/IP, standard socket layer", Pair::new(tcp(), own)),
        Entry::new(
            "tcp-ip-shared",
            "TCP/IP, standard socket layer with TCP's buffers",
            Pair::new(tcp(), shared),
        ),
        Entry::new("tcp-ip-light", "TCP/IP, light socket layer", Pair::new(tcp(), Light::default)),
        Entry::new("tcp-ip-protocol", "TCP/IP alone", Pair::new(tcp(), || Direct)),
        Entry::new(
            "tcp-ip-unsummed",
            "TCP/IP alone, its checksum left to a card",
            Pair::new(TcpIp::pair(unsummed), || Direct),
        ),
        Entry::new("tcp-protocol", "TCP alone", Pair::new(TcpIp::pair(without_ip), || Direct)),
    ]
}

/// Mobile TCP in user space (MOB-47): without a socket layer, and under either.
pub(crate) fn mobile(entries: &mut Vec<Entry>, not_measured: &mut Vec<Missing>) {
    let mut add = |stack: &'static str, title, pad, over: fn(Connected) -> Box<dyn Subject>| {
        match Mobile::pair(pad) {
            Some(pair) => entries.push(Entry::boxed(stack, title, over(pair))),
            None => not_measured.push(unopened(stack)),
        }
    };
    let light: fn(Connected) -> Box<dyn Subject> = |pair| Box::new(Pair::new(pair, Light::default));
    add("mobile-tcp", "Mobile TCP, light socket layer", 0, light);
    add("mobile-tcp-24", "Mobile TCP, light socket layer, 24 bytes more", 24, light);
    add("mobile-tcp-standard", "Mobile TCP, standard socket layer", 0, |pair| {
        Box::new(Pair::new(pair, || Standard::new(Buffering::Own)))
    });
    add("mobile-tcp-protocol", "Mobile TCP alone", 0, |pair| Box::new(Pair::new(pair, || Direct)));
    add("mobile-tcp-uncopied", "Mobile TCP, light socket layer that copies nothing", 0, |pair| {
        Box::new(Pair::new(pair, Light::uncopied))
    });
    let stack = "mobile-tcp-endpoint";
    match Endpoint::pair() {
        Some(pair) => entries.push(Entry::new(
            stack,
            "Mobile TCP's whole endpoint, light socket layer",
            Pair::new(pair, Light::default),
        )),
        None => not_measured.push(unopened(stack)),
    }
}

fn unopened(stack: &str) -> Missing {
    Missing { stack: stack.into(), why: "the connection did not open".into() }
}

/// Two ends of Mobile TCP and their connection's names.
type Connected = ([Mobile; 2], [Conn; 2]);

/// The kernel's stacks, as far as they can be had here.
pub(crate) fn kernels(
    options: &Options,
    entries: &mut Vec<Entry>,
    not_measured: &mut Vec<Missing>,
) {
    let mut add = |stack: &'static str, title, made: Result<Box<dyn Subject>, String>| match made {
        Ok(subject) => entries.push(Entry::boxed(stack, title, subject)),
        Err(why) => not_measured.push(Missing { stack: stack.into(), why }),
    };
    add(
        "kernel-loopback",
        "the kernel's TCP/IP over loopback",
        boxed(InOneThread::loopback().map_err(|e| e.to_string())),
    );
    let hosts = match options.namespaces {
        true => Hosts::new().map_err(|e| e.to_string()),
        false => Err("namespaces were not asked for".to_owned()),
    };
    let on = |made: fn(&Hosts) -> std::io::Result<Box<dyn Subject>>| match &hosts {
        Ok(hosts) => made(hosts).map_err(|e| e.to_string()),
        Err(why) => Err(why.clone()),
    };
    add(
        "kernel-veth",
        "the kernel's TCP/IP over veth",
        on(|hosts| Ok(Box::new(InOneThread::across(hosts)?))),
    );
    add(
        "kernel-veth-threads",
        "the kernel's TCP/IP over veth, two threads",
        on(|hosts| Ok(Box::new(WithEcho::across(hosts)?))),
    );
    add(
        "mobile-tcp-ethernet",
        "Mobile TCP in raw frames over veth",
        on(|_| {
            let wire = Ethernet::new().map_err(std::io::Error::other)?;
            let pair = Mobile::pair(0).ok_or(std::io::ErrorKind::NotConnected)?;
            Ok(Box::new(Pair::over(wire, pair, Light::default)))
        }),
    );
}

fn boxed<T: Subject + 'static>(made: Result<T, String>) -> Result<Box<dyn Subject>, String> {
    made.map(|subject| Box::new(subject) as Box<dyn Subject>)
}
