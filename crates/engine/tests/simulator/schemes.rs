//! Each scheme does something, and does it in the right direction.

use std::cell::RefCell;
use std::rc::Rc;

use lasthop_engine::Observed;
use lasthop_scenario::Schemes;
use lasthop_sim::net::{Datagram, Observer, Sight, TapPoint};
use lasthop_units::{Scheme, WorksAt};
use lasthop_wire::tcp::Flags;

use super::*;

/// Nine disconnections of two seconds.
const GAPS: &str = "[handoff]\ncells = [\"radio\"]\nfirst = \"5s\"\npause = \"2s\"\n\
                    every = \"10s\"\ncount = 9\n";

/// Two bases with a mobile router and two hosts behind it, one of which is next to it.
const TRAIN: &str = r#"
duration = "100s"
[node]
server = "fixed-host"
base = "base"
train = "mobile-router"
laptop = "mobile-host"
phone = "mobile-host"
[link.wire]
between = ["server", "base"]
rate = "100Mbit/s"
delay = "50ms"
[link.radio]
between = ["base", "train"]
rate = "2Mbit/s"
delay = "20ms"
forward.loss = "5%"
[link.wlan]
between = ["train", "laptop"]
rate = "11Mbit/s"
delay = "5ms"
[link.cable]
between = ["train", "phone"]
[flow.one]
from = "server"
to = "laptop"
scheme = "$one"
[flow.two]
from = "server"
to = "phone"
scheme = "$two"
[tcp]
stack = "ns2"
"#;

fn filled(scheme: &str, radio: &str, rest: &str) -> String {
    download(scheme, "ns2", radio, rest)
}

fn goodput(scheme: &str, radio: &str, rest: &str) -> f64 {
    metric(&run(&filled(scheme, radio, rest), 1), "download.goodput_bps")
}

/// SNP-3, MTC-5, DDA-1, CC-4, EBS-1: whoever repairs the hop's losses beats TCP that must do so
/// itself.
#[test]
fn helpers_in_the_path_beat_plain_tcp_on_a_lossy_hop() {
    let lossy = "forward.loss = \"5%\"";
    let none = goodput("none", lossy, "");
    for scheme in Scheme::ALL.into_iter().filter(|s| s.traits().place == WorksAt::Path) {
        if scheme.traits().needs_mobile_router {
            continue;
        }
        let helped = goodput(scheme.name(), lossy, "");
        assert!(helped > 1.5 * none, "{scheme}: {helped} against {none}");
    }
}

/// LLT-1: agents that read TCP are of no use to a flow that is encrypted, whose packets they hand on;
/// a link that recovers by itself still is.
#[test]
fn encryption_takes_the_agents_that_read_tcp_away() {
    let encrypted = |scheme: &str| {
        let source = filled(scheme, "forward.loss = \"5%\"", "");
        let source = source.replace("to = \"phone\"", "to = \"phone\"\nencrypted = true");
        metric(&run(&source, 1), "download.goodput_bps")
    };
    let none = encrypted("none");
    for scheme in ["snoop", "m-tcp"] {
        let useless = encrypted(scheme);
        assert!((0.8..1.2).contains(&(useless / none)), "{scheme}: {useless} against {none}");
    }
    for scheme in ["delayed-dupacks", "congestion-coherence"] {
        let helped = encrypted(scheme);
        assert!(helped > 1.5 * none, "{scheme}: {helped} against {none}");
    }
    assert!((encrypted("none") - goodput("none", "forward.loss = \"5%\"", "")).abs() < 1e-9);
}

/// LLT-1, FRZ-3: what is done at the mobile's own TCP needs nobody on the way.
#[test]
fn encryption_leaves_the_schemes_of_the_mobile_alone() {
    for scheme in ["freeze", "ll-freeze", "atcp", "fast-rtx-handoff"] {
        let plain = filled(scheme, "", GAPS);
        let encrypted = plain.replace("to = \"phone\"", "to = \"phone\"\nencrypted = true");
        let [plain, encrypted] =
            [plain, encrypted].map(|source| metric(&run(&source, 1), "download.goodput_bps"));
        assert!((plain - encrypted).abs() < 1e-9, "{scheme}: {plain} and {encrypted}");
    }
}

/// SNP-7: what the hop's full queue drops is congestion, which snoop lets the sender see. Hidden, it
/// would drive the sender's window to where most of a burst is dropped again and again.
#[test]
fn snoop_leaves_the_losses_of_a_full_queue_to_the_sender() {
    let short = "queue = \"20 packets\"";
    let [none, snoop] = ["none", "snoop"].map(|scheme| {
        let outcome = run(&filled(scheme, short, "max-window = 64\n"), 1);
        assert!(metric(&outcome, "radio.forward.queue_drops") > 10.0, "{scheme}");
        metric(&outcome, "download.goodput_bps")
    });
    assert!(snoop > 0.95 * none, "{snoop} against {none}");
}

/// SNP-7, OBB-4: nor does an agent hide what a queue drops that it does not see, unless its hop loses
/// much beside that.
#[test]
fn what_an_unseen_queue_drops_is_left_to_the_sender() {
    let modem = "[link.usb]\nbetween = [\"base\", \"modem\"]\nrate = \"100Mbit/s\"\n\
                 delay = \"0ms\"\n[link.radio]\nqueue = \"25 packets\"\n";
    let text = TRAIN
        .replace("phone = \"mobile-host\"", "modem = \"router\"")
        .replace("[\"base\", \"train\"]", "[\"modem\", \"train\"]")
        .replace("[link.radio]\n", modem)
        .replace("delay = \"50ms\"", "delay = \"20ms\"")
        .replace("stack = \"ns2\"", "stack = \"modern\"\nvariant = \"cubic\"\nsack = true\n$agent");
    let begin = text.find("[link.cable]").unwrap();
    let text = text.replace(&text[begin..text.find("[flow.one]").unwrap()], "");
    let begin = text.find("[flow.two]").unwrap();
    let text = text.replace(&text[begin..text.find("[tcp]").unwrap()], "");
    let clean = text.replace("forward.loss = \"5%\"\n", "");
    let snoop = "[agent.snoop]\ntick = \"20ms\"\ncache = 1024\nuse-sack = true\ngo-back = true\n";
    let obtcp = "[agent.obtcp]\ntimers = true\ntick = \"20ms\"\ncache = 1024\npartial-acks = true\n\
                 detect-lost-retransmissions = true\n";
    let rate = |text: &str, scheme: &str, agent: &str| {
        let text = text.replace("$one", scheme).replace("$agent", agent);
        metric(&run(&text, 1), "one.goodput_bps")
    };
    let none = rate(&clean, "none", "");
    for (scheme, agent) in [("snoop", snoop), ("obtcp", obtcp)] {
        let heeding = format!("{agent}heed-backlog = true\n");
        let [without, with] = [agent, &heeding].map(|agent| rate(&clean, scheme, agent));
        assert!(without < 0.93 * none, "{scheme}: {without} against {none}");
        assert!(with > 0.98 * none, "{scheme}: {with} against {none}");
        let [without, with] = [agent, &heeding].map(|agent| rate(&text, scheme, agent));
        assert!(with > 0.97 * without, "{scheme}, lossy: {with} against {without}");
    }
}

/// FRZ-3, LLT-6, ATR-3, 3DA-1: whoever tells the sender of the link's return beats TCP that waits
/// for its timer.
#[test]
fn schemes_of_the_mobile_beat_plain_tcp_over_disconnections() {
    let none = goodput("none", "", GAPS);
    for scheme in Scheme::ALL.into_iter().filter(|s| s.traits().place == WorksAt::Mobile) {
        let helped = goodput(scheme.name(), "", GAPS);
        assert!(helped > 1.1 * none, "{scheme}: {helped} against {none}");
    }
}

/// MTC-3, MTC-4, MTC-5, MTC-7: M-TCP is of use over disconnections of any length and over handoffs,
/// to Reno and to CUBIC with SACK: a pause costs little more than its own time.
#[test]
fn m_tcp_beats_plain_tcp_over_disconnections_and_handoffs() {
    let west = "[link.to-east]\nbetween = [\"backbone\", \"base\"]\n\
                [link.to-west]\nbetween = [\"backbone\", \"west\"]\n\
                [link.other]\nbetween = [\"west\", \"phone\"]\nrate = \"2Mbit/s\"\n\
                delay = \"10ms\"\n[flow";
    let nodes = "base = \"base\"\nbackbone = \"router\"\nwest = \"base\"";
    let with_another_base = |text: String| {
        let text = text.replacen("[flow", west, 1);
        let text = text.replace("[\"server\", \"base\"]", "[\"server\", \"backbone\"]");
        text.replace("base = \"base\"", nodes)
    };
    let cells = "[\"radio\", \"other\"]";
    for (stack, pause) in [("ns2", 0.5), ("ns2", 2.0), ("ns2", 5.0), ("modern", 0.5)]
        .into_iter()
        .chain([("modern", 2.0), ("modern", 5.0)])
    {
        let gaps = GAPS.replace("2s", &format!("{pause}s"));
        let moves = gaps.replace("[\"radio\"]", cells);
        for (bases, rest) in [(1, gaps), (2, moves)] {
            let rate = |scheme: &str| {
                let text = download(scheme, stack, "", &rest);
                let text = if bases == 1 { text } else { with_another_base(text) };
                metric(&run(&text, 1), "download.goodput_bps")
            };
            let (none, helped) = (rate("none"), rate("m-tcp"));
            let away = 1.0 - 0.09 * (pause + 0.5);
            assert!(helped > 1.05 * none, "{stack}, {pause} s: {helped} against {none}");
            assert!(helped > 0.8 * 2e6 * away, "{stack}, {pause} s: {helped}\n{rest}");
        }
    }
}

/// MET-8, FRZ-1, LLT-3: a warning comes a tenth of a second ahead unless the scenario says otherwise,
/// and keeps the sender's timer from expiring.
#[test]
fn a_warning_spares_the_sender_its_timeouts() {
    let timeouts = |rest: &str| {
        let outcome = run(&filled("freeze", "", &format!("{GAPS}{rest}")), 1);
        metric(&outcome, "download.fixed_timeouts")
    };
    assert!(timeouts("") < 1.0);
    assert!(timeouts("[signals]\npredicted.lead = \"0s\"\n") >= 9.0);
}

/// OBM-11, EXP-S7: snoop for one mobile and obTCP for another through one base, each of use; so is
/// help beside none.
#[test]
fn mobiles_at_one_base_have_agents_of_their_own() {
    let of = |one: &str, two: &str| {
        let outcome = run(&TRAIN.replace("$one", one).replace("$two", two), 1);
        let rate = |flow: &str| metric(&outcome, &format!("{flow}.goodput_bps"));
        (rate("one"), rate("two"), outcome)
    };
    let (bare, _, _) = of("none", "none");
    let (obtcp, snoop, both) = of("obtcp", "snoop");
    assert!(obtcp > 1.3 * bare && snoop > 1.3 * bare, "{obtcp} and {snoop} against {bare}");
    assert!(metric(&both, "base.snoop.local_retransmits") > 10.0);
    assert!(metric(&both, "base.obtcp-base.local_retransmits") > 10.0);
    assert!(metric(&both, "train.obtcp-router.snacks") > 10.0);
    assert!((0.5..=1.0).contains(&metric(&both, "fairness")));
    let (helped, alone, _) = of("snoop", "none");
    assert!(helped > 1.3 * alone, "{helped} against {alone}");
}

/// RWC-5: of 32 packets, the flow whose priority doubles gets 21.
#[test]
fn a_priority_moves_the_window_from_one_flow_to_the_other() {
    let text = TRAIN.replace("$one", "rwc").replace("$two", "rwc");
    let text = text.replace("to = \"phone\"", "to = \"laptop\"").replace("\"5%\"", "\"none\"");
    let rwc = "[rwc]\npackets = 32\nchanges = [{ at = \"5s\", flow = \"one\", priority = 2 }]\n\
               [measure]\nfrom = \"10s\"\n";
    let outcome = run(&format!("{text}max-window = 200\n{rwc}"), 1);
    let (one, two) = (metric(&outcome, "one.goodput_bps"), metric(&outcome, "two.goodput_bps"));
    assert!((1.8..2.0).contains(&(one / two)), "{one} to {two}");
}

/// MTC-7, SNP-11: every scheme of the path goes on at the next base.
#[test]
fn agents_follow_a_mobile_to_its_next_base() {
    for scheme in Scheme::ALL.into_iter().filter(|s| s.traits().place == WorksAt::Path) {
        if scheme.traits().needs_mobile_router {
            continue;
        }
        let text = format!("scheme = \"{scheme}\"\n{CELLS}every = \"4s\"\ncount = 3\n");
        let down =
            text.replace("from = \"phone\"\nto = \"server\"", "from = \"server\"\nto = \"phone\"");
        assert!(run(&down, 1).completed, "{scheme}");
        assert!(run(&text, 1).completed, "{scheme} upwards");
    }
}

/// Schemes of different places help the same flow together.
#[test]
fn an_agent_and_the_mobile_help_one_flow_together() {
    let radio = "forward.loss = \"3%\"";
    let both = goodput("[\"snoop\", \"freeze\"]", radio, GAPS);
    let (snoop, freeze) = (goodput("snoop", radio, GAPS), goodput("freeze", radio, GAPS));
    assert!(both > snoop.max(freeze), "{both} against {snoop} and {freeze}");
}

#[test]
fn what_does_not_go_together_is_refused_with_what_does() {
    let told = refusal(&filled("[\"snoop\", \"obtcp\"]", "", ""));
    assert!(
        told.starts_with("x.toml:2: scheme: `obtcp` cannot be combined with `snoop`"),
        "{told}"
    );
    assert!(told.contains("can be combined with: fast-rtx-handoff, freeze"), "{told}");
    assert!(refusal(&filled("[\"srp\", \"atcp\"]", "", "")).contains("with `srp`"));
    assert!(refusal(&filled("[\"none\", \"atcp\"]", "", "")).contains("`none` cannot be"));
    assert!(refusal(&filled("[]", "", "")).contains("the list is empty"));
    assert!(refusal(&filled("[\"snoop\", \"frieze\"]", "", "")).contains("mean `freeze`?"));
    let mixed = TRAIN.replace("to = \"phone\"", "to = \"laptop\"");
    let told = refusal(&mixed.replace("$one", "snoop").replace("$two", "none"));
    assert!(told.contains("flow.two.scheme: the agents of snoop see all packets of"), "{told}");
    let told = refusal(&mixed.replace("$one", "rwc").replace("$two", "none"));
    assert!(told.contains("rwc divides the window among all flows of `laptop`"), "{told}");
    assert_eq!(Schemes::one(Scheme::Snoop).name(), "snoop");
}

#[test]
fn what_a_scheme_needs_and_does_not_find_is_told() {
    let told = refusal(&filled("obtcp", "", ""));
    assert!(told.starts_with("x.toml:2: ") || told.contains("flow.download"), "{told}");
    assert!(told.contains("needs a mobile router between base and mobile host"), "{told}");
    let told = refusal(&filled("snoop", "", "").replace("base = \"base\"", "base = \"router\""));
    assert!(told.contains("snoop needs a base on the way"), "{told}");
    let told = refusal(&TRAIN.replace("$one", "ebsn").replace("$two", "none"));
    assert!(told.contains("ebsn recovers on the link between a base and"), "{told}");
}

#[test]
fn parameters_are_read_swept_and_refused_by_name() {
    let rest =
        "[agent.snoop]\nthreshold = 2\ntimer = \"200ms\"\ncache = 50\n[mobile.freeze]\nacks = 2\n";
    assert!(goodput("[\"snoop\", \"freeze\"]", "forward.loss = \"2%\"", rest) > 0.0);
    for (rest, key, told) in [
        ("[agent.snoop]\nthreshhold = 2", "agent.snoop.threshhold", "did you mean `threshold`?"),
        ("[agent.snoop]\ntimer = \"soon\"", "agent.snoop.timer", "`measured`, `stock` or a time"),
        ("[agent.obtcp]\ncache = 3", "agent.obtcp.cache", "3 is less than 16"),
        ("[agent.link]\ncopies = 300", "agent.link.copies", "300 is more than"),
        ("[mobile.atcp]\ndelay = \"2s\"", "mobile.atcp.delay", "longer than 500ms"),
        ("[mobile.atcp]\ncalm = \"9KiB\"", "mobile.atcp.calm", "only an agent at the edge"),
        ("[mobile.freeze]\nacks = 9", "mobile.freeze.acks", "9 is more than 8"),
        ("[rwc]\npriorities = { downlod = 2 }", "rwc.priorities.downlod", "no flow `downlod`"),
        ("[rwc]\npackets = 0", "rwc.packets", "nothing could ever be sent"),
    ] {
        let text = filled("none", "", rest);
        let line =
            text.lines().position(|l| rest.ends_with(l) && !l.is_empty()).expect("there") + 1;
        let said = refusal(&text);
        assert!(said.starts_with(&format!("x.toml:{line}: {key}: ")), "{said}");
        assert!(said.contains(told), "{said}");
    }
    let swept = filled("snoop", "", "[sweep]\n\"agent.snoop.threshold\" = [1, 2, 3]\n");
    let study = Study::parse(Path::new("x.toml"), &swept).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(study.points().len(), 3);
}

/// MOB-1, MOB-11: a full packet on the hop is 16 bytes and its data where TCP's is 40 and, with
/// timestamps, 12 more; 24 bytes of padding make up for it.
#[test]
fn mobile_tcp_saves_24_bytes_of_each_packet_on_the_hop() {
    let full = |scheme: &str, rest: &str| {
        let quick = "[measure]\nfrom = \"2s\"\n";
        let text = filled(scheme, "", &format!("variant = \"newreno\"\n{rest}{quick}"));
        let outcome = run(&text.replace("to = \"phone\"", "to = \"phone\"\ntcp.mss = 1000"), 1);
        let [bytes, packets] =
            ["bytes", "packets"].map(|what| metric(&outcome, &format!("radio.forward.{what}")));
        bytes / packets
    };
    let packet = |pad: u32| format!("[mobile-tcp]\npacket = 1000\npad = {pad}\n");
    let [tcp, bare, padded] =
        [full("none", ""), full("mobile-tcp", &packet(0)), full("mobile-tcp", &packet(24))];
    assert!((tcp - 1040.0).abs() < 1.0, "{tcp}");
    assert!((bare - 1016.0).abs() < 1.0, "{bare}");
    assert!((padded - 1040.0).abs() < 1.0, "{padded}");
}

/// A file of 100 kB through two handoffs of 2.8 s, over radios that carry 256 bytes at once. The mobile
/// opens the connection, whichever way the file goes.
fn journey(scheme: &str, up: bool, radio: &str) -> String {
    let text =
        CELLS.replace("rate = \"1Mbit/s\"\n", &format!("rate = \"100kbit/s\"\nmtu = 256\n{radio}"));
    let text = text.replace(
        "first = \"2s\"\npause = \"1s\"",
        "first = \"3s\"\npause = \"2.8s\"\nevery = \"6s\"\ncount = 2",
    );
    let traffic = match up {
        true => "{ file = { size = \"102400 B\" } }",
        false => "{ request-response = { request = \"1 B\", response = \"102400 B\", count = 1 } }",
    };
    let text = text.replace("{ file = { size = \"1MB\" } }", traffic);
    helped_by(scheme, &format!("{text}[tcp]\nstack = \"bsd-1990s\"\n[measure]\nbytes = true\n"))
}

/// The longest segments' payloads, what SYNs announce, and resets, at the fixed host.
#[derive(Default)]
struct Segments {
    longest: u32,
    announced: Vec<Option<u16>>,
    resets: u32,
}

impl Observer for Segments {
    fn handle_packet(&mut self, _: Time, _: TapPoint, _: Sight, packet: &Datagram) {
        let Some(segment) = packet.tcp() else { return };
        self.longest = self.longest.max(segment.len);
        self.resets += u32::from(segment.flags.contains(Flags::RST));
        if segment.flags.contains(Flags::SYN) {
            self.announced.push(segment.options.mss);
        }
    }
}

/// Lets the file arrive, to the byte and without a reset at any host, and tells what the fixed host saw
/// and how many connections it accepted.
fn arrived(text: &str) -> (Segments, u64) {
    let study = Study::parse(Path::new("x.toml"), text).unwrap_or_else(|e| panic!("{e}"));
    let seed = Seed::from_u64(1);
    let scenario = study.scenario(&study.points()[0], seed).expect("a scenario");
    let seen = Rc::new(RefCell::new(Segments::default()));
    let Observed { outcome, hosts } =
        Simulator.observed(&scenario, seed, "server", seen.clone()).expect("runs");
    assert!(outcome.completed, "{outcome:?}\n{text}");
    let received = metric(&outcome, "upload.received_bytes") as u64;
    assert_eq!(received - u64::from(text.contains("1 B")), 102_400, "{outcome:?}\n{text}");
    assert!(metric(&outcome, "upload.wrong") < 0.5, "{outcome:?}\n{text}");
    let resets: u64 = hosts.iter().map(|(_, stats)| stats.resets_sent).sum();
    assert_eq!(resets, 0, "{text}");
    let server = hosts.iter().find(|(name, _)| name == "server").expect("a host");
    let accepted = server.1.accepted;
    (Rc::into_inner(seen).expect("nobody watches").into_inner(), accepted)
}

#[test]
fn every_scheme_moves_a_file_both_ways() {
    for scheme in SCHEMES {
        for up in [true, false] {
            let still = journey(scheme, up, "").replace("pause = \"2.8s\"", "pause = \"0s\"");
            let (seen, accepted) = arrived(&still);
            assert_eq!((seen.resets, accepted), (0, 1), "{scheme}, up: {up}");
        }
    }
}

/// MHP-24: no scheme's handoffs reset a connection or open it anew at the fixed host.
#[test]
fn every_scheme_survives_handoffs_and_the_fixed_host_notices_nothing() {
    for scheme in SCHEMES {
        for up in [true, false] {
            let (seen, accepted) = arrived(&journey(scheme, up, ""));
            assert_eq!((seen.resets, accepted), (0, 1), "{scheme}, up: {up}");
        }
    }
}

/// MOB-1: frames of the hop cross a channel that both directions take turns on, too, and what one
/// direction carries is the other's loss.
#[test]
fn every_scheme_moves_a_file_over_a_half_duplex_radio() {
    for scheme in SCHEMES {
        for up in [true, false] {
            let (seen, accepted) = arrived(&journey(scheme, up, "half-duplex = true\n"));
            assert_eq!((seen.resets, accepted), (0, 1), "{scheme}, up: {up}");
        }
    }
    let both = |radio: &str| {
        let back = "[flow.back]\nfrom = \"phone\"\nto = \"server\"\n";
        let text =
            filled("none", radio, "").replace("[flow.download]", &format!("{back}[flow.download]"));
        let outcome = run(&text, 1);
        let rates =
            ["download", "back"].map(|flow| metric(&outcome, &format!("{flow}.goodput_bps")));
        (rates[0] + rates[1], outcome)
    };
    let (apart, _) = both("");
    let (turns, outcome) = both("half-duplex = true");
    assert!(apart > 2.4e6 && (1.7e6..2e6).contains(&turns), "{apart} and {turns}");
    assert!(metric(&outcome, "radio.forward.utilisation") > 0.95, "{outcome:?}");
    assert!(outcome.metrics.iter().all(|(name, _)| !name.starts_with("radio.backward")));
}

/// LNK-3: without help small segments pass the whole path: the mobile takes their size from its
/// interface when it sends, and announces it in its SYN when it receives.
#[test]
fn unhelped_tcp_uses_the_hops_segments_all_the_way() {
    for up in [true, false] {
        let still = journey("none", up, "").replace("pause = \"2.8s\"", "pause = \"0s\"");
        let (seen, _) = arrived(&still);
        assert_eq!(seen.longest, 216);
        assert_eq!(seen.announced.iter().flatten().min(), Some(&216));
    }
}

/// MOB-23, MOB-26, MOB-28: Mobile TCP repairs the hop's losses at the hop's rate, where TCP on the same
/// hop takes them for congestion, and without loss it is no worse.
#[test]
fn mobile_tcp_beats_tcp_on_the_same_lossy_hop() {
    let none = goodput("mobile-tcp", "", "[agent]\nbuffer = \"32KiB\"\n");
    assert!(none > 1.9e6 * 0.97, "{none}");
    for loss in [5, 10, 20] {
        let radio = format!("forward.loss = \"{loss}%\"");
        let [split, mobile] = ["split-tcp", "mobile-tcp"]
            .map(|scheme| goodput(scheme, &radio, "[agent]\nbuffer = \"32KiB\"\n"));
        assert!(mobile > 1.3 * split, "{loss} %: {mobile} against {split}");
    }
}

/// ALT-1, ALT-4, ALT-6: one TCP from end to end, with shorter packets on the hop than TCP has, and
/// losses repaired there.
#[test]
fn the_unsplit_alternative_compresses_and_repairs() {
    let hop = |scheme: &str| {
        let outcome = run(&filled(scheme, "forward.loss = \"5%\"", ""), 1);
        let [bytes, packets] =
            ["bytes", "packets"].map(|what| metric(&outcome, &format!("radio.forward.{what}")));
        (bytes / packets, metric(&outcome, "download.goodput_bps"), outcome)
    };
    let (plain, none, _) = hop("none");
    let (compressed, helped, outcome) = hop("mobile-tcp-unsplit");
    assert!(compressed < plain - 15.0, "{compressed} against {plain}");
    assert!(helped > 1.5 * none, "{helped} against {none}");
    assert!(metric(&outcome, "base.unsplit.local_retransmits") > 100.0);
    assert!(metric(&outcome, "phone.unsplit.compressed") > 100.0);
    assert!(metric(&outcome, "download.acked_early_bytes") < 0.5);
}

/// ns-2's packets without counted headers are shorter on the air.
#[test]
fn headers_can_be_free() {
    let busy = |headers: &str| {
        let text = format!("headers = \"{headers}\"\n{}", filled("none", "", ""));
        let outcome = run(&text, 1);
        metric(&outcome, "radio.forward.bytes") / metric(&outcome, "radio.forward.packets")
    };
    let saved = busy("counted") - busy("free");
    assert!((39.0..41.0).contains(&saved), "{saved}");
}

#[test]
fn the_example_of_all_schemes_can_be_run() {
    let path =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/sim-schemes.toml"));
    let study = Study::load(path).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(study.points().len(), 14 * 3 * 2);
    for point in study.points() {
        let scenario = study.scenario(point, Seed::from_u64(1)).expect("builds");
        Simulator.check(&scenario).unwrap_or_else(|e| panic!("{}: {e}", point.label()));
    }
}

/// OBB-3: after a handoff the mobile router reports to the base that it is at.
#[test]
fn a_mobile_router_reports_to_its_new_base() {
    let text = TRAIN.replace("$one", "obtcp").replace("$two", "obtcp");
    let text = text.replace("base = \"base\"", "base = \"base\"\nwest = \"base\"");
    let text = text.replace(
        "[link.wlan]",
        "[link.spur]\nbetween = [\"base\", \"west\"]\n[link.other]\nbetween = [\"west\", \"train\"]\n\
         rate = \"2Mbit/s\"\ndelay = \"20ms\"\nforward.loss = \"5%\"\n[link.wlan]",
    );
    let moved = format!(
        "{text}[handoff]\nmobile = \"train\"\ncells = [\"radio\", \"other\"]\nfirst = \"10s\"\n\
         pause = \"200ms\"\n"
    );
    let outcome = run(&moved, 1);
    assert!(metric(&outcome, "west.obtcp-base.local_retransmits") > 100.0, "{outcome:?}");
}

/// CC-2: links mark at half of their queue where congestion coherence needs marks and the scenario
/// names no threshold.
#[test]
fn links_mark_by_default_where_marks_are_needed() {
    let outcome = run(&filled("congestion-coherence", "queue = \"10 packets\"", ""), 1);
    assert!(metric(&outcome, "radio.forward.marked") > 0.0, "{outcome:?}");
}
