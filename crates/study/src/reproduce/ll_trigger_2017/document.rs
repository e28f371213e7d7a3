//! The report: what was published and what we get.

use super::content::Content;
use super::figures;
use crate::report::{Block, Report, Section};
use crate::reproduce::Setup;
use crate::reproduce::page::{self, inconsistencies, marks, near, note, said, setup};

const SUMMARY: &str = "Before a handoff the mobile's link layer warns its TCP, which closes the window \
    of the fixed sender until the handoff is over. The paper compares that with snoop, M-TCP, \
    splitting, Delayed Dupacks and congestion coherence by a Petri net of which it gives hardly a \
    parameter. What it claims is run here on a set-up of our own; its table of characteristics is \
    answered by measurement, for every scheme.";

pub(super) fn report(content: &Content<'_>) -> Report {
    let sections = vec![
        result(content),
        figures::timeouts(content),
        figures::rates(content),
        figures::throughput(content),
        figures::characteristics(content),
        explained(),
        setup(assumed(), content.published),
        said(content.published),
        inconsistencies(content.published),
        method(),
    ];
    page::report(content.published, SUMMARY, sections)
}

fn result(content: &Content<'_>) -> Section {
    let marks = vec![marks(content.comparison, "the paper prints")];
    page::result(content.criteria, marks, content.request, super::ID)
}

/// Why the results are as they are. A reason belongs here once it has been found.
fn explained() -> Section {
    let notes = vec![
        note(
            "Timeouts with congestion coherence",
            "It treats losses and nothing else, as section II says, so that each handoff costs what it \
             costs Reno. The timer expires about 1, 3, 7 and 15 s after the loss, until an expiry falls \
             behind the handoff; after a handoff of no length duplicates repair one segment of the \
             lost window, and the timer the rest. That gives 2, 4, 6, 6 and 8 timeouts, near the \
             paper's 1, 4, 8, 6 and 9, which do not rise throughout (INC-M8).",
        ),
        note(
            "Timeouts with the proposed method",
            "None. A sender whose window is shut has no retransmission timer, so whatever the \
             handoff time, a warning in time leaves nothing to expire; a warning of 60 ms is in time, \
             as the acknowledgement needs 50. The paper's 1, 2, 2, 4, 4 lie between what the method \
             has with a sender that keeps its timer (ll-freeze+timer: 0, 0.6, 1.5, 1.5, 2.3) and the \
             same with a warning of 100 ms, too short for the queue to drain (2, 2, 4, 4, 6): its \
             sender kept the timer, it seems, though section IV has it fixed. Without a warning the \
             method has hardly fewer timeouts than Reno.",
        ),
        note(
            "Minima (INC-M7)",
            "In a handoff nothing arrives, by whatever scheme: the lowest mean over 1 s is zero \
             for all, and orders nothing. The paper's 50 000 bit/s is what a stop of 1.1 s leaves of \
             a mean over 10 s. Read so, ours has 49.3 kbit/s for the method, and a tenth more or \
             less for M-TCP. The others are at 47 to 49: a handoff of 1 s cannot take a mean over \
             10 s to 24 000, nor to 90. With one of 4 s those that wait for Reno's timer are at 15, \
             those that do not at 32.",
        ),
        note(
            "Recovery: snoop cannot be first",
            "At a handoff its cache is lost with the old base, and what is left is Reno, to the \
             packet: it waits for its timer. The paper's 4 s, before all others, cannot come from \
             snoop, and its own Table I denies it long disconnections. The order that the mechanisms \
             give is the method, splitting and M-TCP close together, then snoop with Reno and \
             Delayed Dupacks (INC-M6).",
        ),
        note(
            "Recovery: splitting need not be last",
            "The surrogate goes to the new base with its bytes and sends from there as soon as the \
             mobile is back; the fixed host notices nothing. The paper's 18 s and 90 bit/s would \
             follow from a state that takes seconds to move, or from one that is lost. Ours is \
             16 KiB, and takes tens of milliseconds. A surrogate without a bound takes all that the \
             fixed host can send, and its move took 5 s here.",
        ),
        note(
            "Delayed Dupacks falls no less (INC-M5)",
            "Its link recovery ends with the base that is left, and it does nothing about handoffs. \
             It is Reno with the cost of link acknowledgements, 3 % of this radio. That it falls least \
             of the older ones is against its mechanism and against the paper's own numbers.",
        ),
        note(
            "Figure 8 grows in steps",
            "Snoop's sender goes on when its timer next expires, about 1, 3 and 7 s after the loss; \
             the method goes on at once. The difference is the rest of that wait, which grows with \
             the timer's doublings and falls between them, and so does the curve.",
        ),
        note(
            "Table I: end to end",
            "M-TCP never acknowledges what the mobile does not have, as section III says and \
             Table I denies (INC-M1). Surrogates acknowledge what they hold.",
        ),
        note(
            "Table I: snoop",
            "At one base it copes with long disconnections, which the paper denies: its local \
             timer finds the radio back within a second. With frequent ones it is worse than \
             nothing. A window that is lost whole brings no duplicates; each repair lets one new \
             segment come, whose duplicate asks for the next, so that one is repaired in each round \
             trip to the fixed host. The new acknowledgements keep Reno's timer from expiring, \
             which would have sent all at once.",
        ),
        note(
            "Table I: bit errors (INC-M10)",
            "What retransmits on the link or at the base copes, Delayed Dupacks among them, whose \
             purpose it is and to which the paper denies it. The method as the paper runs it does \
             not: a handoff's trigger says nothing of bit errors, and the values are Reno's. Split \
             TCP gains a third: on its hop it is Reno still, with its least timeout of 1 s. With 200 ms \
             and half the window there it wins back more than half.",
        ),
        note(
            "Three duplicates and frequent disconnections",
            "Worse than nothing: fast retransmission repairs one segment of a window that is lost \
             whole, at half the window, and starts the timer anew for the rest.",
        ),
        note(
            "What was not run",
            "Home and foreign agents: the time that registration takes stands for them. The \
             paper's use of congestion marks by the method itself (LLT-8): without congestion or \
             bit errors it would do nothing. Figures 1 to 6 show no measurement.",
        ),
    ];
    Section::new("What differs, and why", vec![Block::Notes(notes)])
}

fn assumed() -> Setup {
    let mut setup = Setup::default();
    setup
        .assumed(
            "radio",
            "56 kbit/s, 10 ms, no loss",
            "the top rate of figure 7; headers are not counted, so that this is the top rate",
        )
        .assumed("round trip without queues", "100 ms", "a path through the Internet and a radio")
        .assumed("segments", "536 bytes", "the default of the time")
        .assumed(
            "window",
            "8 segments",
            "4 KiB, the buffer of the time's systems; the queue holds half a second",
        )
        .assumed(
            "retransmission timer",
            "at least 1 s, on a clock of 100 ms",
            "RFC 2988, and a usual clock",
        )
        .assumed(
            "a window that shuts",
            "the sender goes to persist and sends again from what is not acknowledged",
            "BSD's TCP; zero-window acknowledgements stop nobody otherwise",
        )
        .assumed(
            "handoff",
            "a quarter of its time the link is silent, for the rest packets go to the old base and \
             are lost; figure 8 has the link silent all the time",
            "the link's part is the shorter one (section IV)",
        )
        .assumed(
            "handoff time of 0",
            "1 ms of silence",
            "the change of cells alone, which loses what waits at the old base",
        )
        .assumed("handoffs of Table II", "at 80 and 160 s, up to 1 s later", "not said")
        .assumed("handoff of figure 7", "1 s long, and 4 s beside it", "not said")
        .assumed("handoffs of figure 8", "four in 250 s, each varied by 30 %", "not said")
        .assumed(
            "warning",
            "600 ms ahead",
            "a round trip as the sender has it, its window in the queue",
        )
        .assumed(
            "state of agents",
            "split connections and M-TCP take it to the new base, snoop loses it",
            "the paper says that it must be handed over; snoop's is soft",
        )
        .assumed(
            "buffer of surrogates",
            "16 KiB each way",
            "as everywhere; it holds what comes faster than the radio takes it",
        )
        .assumed(
            "congestion coherence",
            "marks at half of the queue's limit of 50, which this window never fills",
            "the paper has no congestion",
        )
        .assumed(
            "long, frequent, high (Table I)",
            "10 s every minute; 0.5 s every 5 s; 5 % of the packets of either direction lost",
            "the paper has words only",
        );
    setup
}

fn method() -> Section {
    let notes = vec![
        note(
            "runs",
            "Each run has a seed of its own, which follows from the seed of the whole, the labels \
             of the cell and the number of the run. Runs differ by when handoffs begin, by how long \
             they are where that varies, and by what is lost.",
        ),
        note("timeouts", "Expiries of the fixed host's retransmission timer, probes not counted."),
        note(
            "minimum and recovery",
            "Means over 1 s and over 10 s, one beginning every 50 ms. The minimum is the lowest \
             around the handoff. The rate is back with the first mean that begins after the handoff \
             and has 99 % of the mean of the 45 s that end 5 s before it.",
        ),
        note(
            "end to end",
            "Every 100 ms the bytes that the fixed host takes for received are held against those \
             that the mobile's application has. A scheme keeps the end-to-end meaning if the first \
             never exceed the second, in runs with ten disconnections.",
        ),
        note(
            "copes with",
            "Of what unhelped Reno loses on the ideal, half at least is won back. The ideal is the \
             radio's rate for the time that it is up, less the share that it loses. Goodput is payload \
             that the application got.",
        ),
        note(
            "changes to TCP on the way",
            "A node between the ends terminates TCP connections, or reads and changes their \
             segments: a fact of what a scheme is built of. A link that recovers by itself is none, \
             though the base takes part in it.",
        ),
        note(
            "encrypted payload",
            "A scheme works with encrypted TCP headers if none of its agents on the way reads them. \
             That is a fact too, and not measured.",
        ),
        near(),
        note(
            "ratio, order",
            "As to the other schemes that the paper prints in the same row and column: ratios \
             within 35 % of the published ones; the same order.",
        ),
    ];
    page::method(notes)
}
