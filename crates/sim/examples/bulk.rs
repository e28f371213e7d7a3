//! One long transfer over one simulated radio, measured.
//!
//! `cargo run -p lasthop-sim --release --example bulk -- --rate 20Mbit/s --delay 20ms --loss 5%`

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use lasthop_radio::{
    Direction, Errors, LinkConfig, Loss, Pacing, Pause, QueueLimit, RadioConfig, RateStep,
    RateSteps, Reorder, Share,
};
use lasthop_sim::bulk::{self, BulkConfig, BulkReport, Wired};
use lasthop_sim::hop::Hop;
use lasthop_sim::naive::Naive;
use lasthop_units::{Bytes, Duration, Rate, Seed, parse_duration};

#[derive(Parser)]
#[command(about = "Measures one long transfer over one simulated radio")]
struct Options {
    /// The transport on the hop.
    #[arg(long, value_enum, default_value_t = Scheme::Srp)]
    transport: Scheme,
    /// The radio's rate in both directions.
    #[arg(long, default_value = "20Mbit/s")]
    rate: Rate,
    /// The rate on the content's way changes: `10s:4Mbit/s,20s:20Mbit/s`.
    #[arg(long, value_delimiter = ',')]
    steps: Vec<String>,
    /// One-way delay.
    #[arg(long, default_value = "20ms", value_parser = parse_duration)]
    delay: Duration,
    /// The radio's queue, in packets.
    #[arg(long, default_value_t = 100)]
    queue: u32,
    /// The longest IP packet.
    #[arg(long, default_value_t = 1500)]
    mtu: u32,
    /// Uniform loss, both directions.
    #[arg(long, default_value = "0%")]
    loss: Share,
    /// Share of time in fades, both directions.
    #[arg(long, default_value = "0%")]
    fade: Share,
    /// Mean fade.
    #[arg(long, default_value = "17ms", value_parser = parse_duration)]
    fade_mean: Duration,
    /// Silences of both directions: `10s:2.8s,20s:1s` are start and length.
    #[arg(long, value_delimiter = ',')]
    pause: Vec<String>,
    /// Share of packets that are held back, and how long: `1% by 5ms`.
    #[arg(long)]
    reorder: Option<Reorder>,
    /// The endpoints are told when the radio falls silent and returns.
    #[arg(long)]
    link_events: bool,
    /// From the mobile to the base instead of the other way.
    #[arg(long)]
    up: bool,
    /// Associations that share the radio.
    #[arg(long, default_value_t = 1)]
    mobiles: usize,
    /// Connections per association.
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Each association begins this much after the one before.
    #[arg(long, default_value = "0s", value_parser = parse_duration)]
    stagger: Duration,
    /// A wired path of this rate, 25 ms long, feeds the base.
    #[arg(long)]
    wired: Option<Rate>,
    /// How long, in virtual seconds.
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// What of it is left out of the averages, in seconds.
    #[arg(long, default_value_t = 2.0)]
    warm_up: f64,
    /// Seeds, one run each.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    seed: Vec<u64>,
    /// The samples of the last run as CSV.
    #[arg(long)]
    csv: Option<PathBuf>,
    /// The time between two samples.
    #[arg(long, default_value = "100ms", value_parser = parse_duration)]
    sample: Duration,
    /// Print every datagram.
    #[arg(long)]
    verbose: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Scheme {
    /// The hop as it is deployed.
    Srp,
    /// The same without the seal, to compare.
    SrpUnsealed,
    /// Go-back-N, for testing the simulator itself.
    Naive,
}

fn main() -> Result<()> {
    let options = Options::parse();
    for seed in &options.seed {
        let report = run(&options, &options.config(*seed)?)?;
        println!("seed             {seed}\n{report}");
        if let Some(path) = &options.csv {
            std::fs::write(path, report.csv()).with_context(|| path.display().to_string())?;
        }
        ensure!(report.wrong.is_none(), "a wrong byte was delivered");
    }
    Ok(())
}

fn run(options: &Options, config: &BulkConfig) -> Result<BulkReport> {
    Ok(match options.transport {
        Scheme::Srp => bulk::run(&Hop::default(), config)?,
        Scheme::SrpUnsealed => bulk::run(&Hop { sealed: false, ..Hop::default() }, config)?,
        Scheme::Naive => bulk::run(&Naive::default(), config)?,
    })
}

impl Options {
    fn config(&self, seed: u64) -> Result<BulkConfig> {
        let link = self.link()?;
        let mut radio = RadioConfig::both(link);
        if !self.steps.is_empty() {
            let content = if self.up { &mut radio.up } else { &mut radio.down };
            content.pacing = self.pacing()?;
        }
        Ok(BulkConfig {
            radio,
            direction: if self.up { Direction::Up } else { Direction::Down },
            mobiles: self.mobiles,
            connections: self.connections,
            stagger: self.stagger,
            wired: self.wired.map(|rate| Wired {
                rate,
                delay: Duration::from_millis(25),
                buffer: Bytes::from_kib(256),
            }),
            link_events: self.link_events,
            duration: Duration::try_from_secs_f64(self.seconds).context("--seconds")?,
            warm_up: Duration::try_from_secs_f64(self.warm_up).context("--warm-up")?,
            sample: self.sample,
            seed: Seed::from_u64(seed),
            verbose: self.verbose,
            ..BulkConfig::default()
        })
    }

    fn link(&self) -> Result<LinkConfig> {
        let mut losses = Vec::new();
        if self.loss.0 > 0.0 {
            losses.push(Loss::lose(Errors::Uniform(self.loss.0)));
        }
        if self.fade.0 > 0.0 {
            losses.push(Loss::lose(Errors::Fade { mean: self.fade_mean, share: self.fade.0 }));
        }
        let pauses = self.pause.iter().map(|text| {
            let (start, duration) = pair(text)?;
            Ok(Pause::once(parse_duration(start)?, parse_duration(duration)?))
        });
        Ok(LinkConfig {
            pacing: Pacing::Rate(self.rate),
            delay: self.delay,
            queue: QueueLimit::Packets(self.queue),
            mtu: self.mtu,
            losses,
            pauses: pauses.collect::<Result<_>>()?,
            reorder: self.reorder,
            ..LinkConfig::default()
        })
    }

    fn pacing(&self) -> Result<Pacing> {
        let steps = self.steps.iter().map(|text| {
            let (at, rate) = pair(text)?;
            Ok(RateStep { at: parse_duration(at)?, rate: rate.parse()? })
        });
        Ok(Pacing::Steps(RateSteps {
            initial: self.rate,
            steps: steps.collect::<Result<_>>()?,
            period: None,
        }))
    }
}

fn pair(text: &str) -> Result<(&str, &str)> {
    match text.split_once(':') {
        Some(pair) => Ok(pair),
        None => bail!("`{text}` is not two values with a colon between them"),
    }
}
