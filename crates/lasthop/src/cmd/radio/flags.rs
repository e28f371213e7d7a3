//! The flags that describe a link, three times over.

use clap::Args;
use lasthop_radio::{
    LinkSettings, LossList, PauseList, QueueLimit, Reorder, Share, Span, StepList,
};
use lasthop_units::Rate;

/// Flags with `$prefix` before each name.
macro_rules! link_flags {
    ($name:ident, $prefix:literal, $heading:literal) => {
        #[derive(Args, Clone, Debug)]
        #[command(next_help_heading = $heading)]
        pub(super) struct $name {
            /// How fast packets leave
            #[arg(id = concat!($prefix, "rate"), long, value_name = "RATE")]
            rate: Option<Rate>,
            /// Changes of the rate: '4Mbit/s at 10s, 20Mbit/s at 20s'
            #[arg(id = concat!($prefix, "steps"), long, value_name = "STEPS")]
            steps: Option<StepList>,
            /// Begin the steps anew after this long
            #[arg(id = concat!($prefix, "steps-repeat"), long, value_name = "TIME")]
            steps_repeat: Option<Span>,
            /// A mahimahi trace in place of a rate
            #[arg(id = concat!($prefix, "trace"), long, value_name = "FILE")]
            trace: Option<String>,
            /// One-way delay
            #[arg(id = concat!($prefix, "delay"), long, value_name = "TIME")]
            delay: Option<Span>,
            /// How much may wait: '100 packets', 64KiB, 50ms
            #[arg(id = concat!($prefix, "queue"), long, value_name = "LIMIT")]
            queue: Option<QueueLimit>,
            /// Mark packets (ECN) that find so much waiting: '15 packets', 20KiB, 10ms
            #[arg(id = concat!($prefix, "ecn-mark"), long, value_name = "LIMIT")]
            ecn_mark: Option<QueueLimit>,
            /// The longest IP datagram carried
            #[arg(id = concat!($prefix, "mtu"), long, value_name = "BYTES")]
            mtu: Option<u32>,
            /// Which packets are lost: 5%, 'burst 5% length 3', 'fade 10% mean 17ms'
            #[arg(id = concat!($prefix, "loss"), long, value_name = "LOSS")]
            loss: Option<LossList>,
            /// When the radio is silent: '2.8s at 4s every 10s'
            #[arg(id = concat!($prefix, "pause"), long, value_name = "PAUSE")]
            pause: Option<PauseList>,
            /// The MAC's delay for each transmission
            #[arg(id = concat!($prefix, "mac-delay"), long, value_name = "TIME")]
            mac_delay: Option<Span>,
            /// Let the MAC delay keep the channel busy
            #[arg(id = concat!($prefix, "mac-occupies"), long, value_name = "BOOL",
                          num_args = 0..=1, default_missing_value = "true", require_equals = true)]
            mac_occupies: Option<bool>,
            /// Hold some packets back: '1% by 10ms'
            #[arg(id = concat!($prefix, "reorder"), long, value_name = "REORDER")]
            reorder: Option<Reorder>,
            /// Deliver some packets twice
            #[arg(id = concat!($prefix, "duplicate"), long, value_name = "SHARE")]
            duplicate: Option<Share>,
            /// The most packets held at once, waiting and in flight
            #[arg(id = concat!($prefix, "capacity"), long, value_name = "PACKETS")]
            capacity: Option<u32>,
        }

        impl $name {
            /// The settings that these flags give.
            pub(super) fn settings(&self) -> LinkSettings {
                let flags = self.clone();
                LinkSettings {
                    rate: flags.rate,
                    steps: flags.steps,
                    steps_repeat: flags.steps_repeat,
                    trace: flags.trace,
                    delay: flags.delay,
                    queue: flags.queue,
                    ecn_mark: flags.ecn_mark,
                    mtu: flags.mtu,
                    mac_delay: flags.mac_delay,
                    mac_occupies: flags.mac_occupies,
                    loss: flags.loss,
                    pause: flags.pause,
                    reorder: flags.reorder,
                    duplicate: flags.duplicate,
                    capacity: flags.capacity,
                }
            }
        }
    };
}

link_flags!(BothFlags, "", "Both directions");
link_flags!(UpFlags, "up-", "Up, from the mobile to the base");
link_flags!(DownFlags, "down-", "Down, from the base to the mobile");
