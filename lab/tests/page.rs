//! The page of a real mobile in a real browser: a slider moves shares of a real hop.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use lasthop_lab::arrivals::Watched;
use lasthop_lab::browser::Browser;
use lasthop_lab::client::{Client, Stop};
use lasthop_lab::http;
use lasthop_lab::scheme::{Carrier, Hop};
use lasthop_lab::topology::{Family, Topology, link};
use lasthop_radio::RadioConfig;
use lasthop_units::{Rate, Seed};

const PATIENCE: Duration = Duration::from_secs(60);
/// Over what time shares are measured.
const WINDOW: Duration = Duration::from_secs(3);
const ENDLESS: u64 = 1 << 40;

/// How many times as much of `a` as of `b` came in the last moments.
fn ratio(a: &Watched, b: &Watched) -> f64 {
    let now = Instant::now();
    let came = |w: &Watched| w.lock().between(now - WINDOW, now).get() as f64;
    came(a) / came(b).max(1.0)
}

/// The row of the connection to this port, in the page.
fn row(port: u16) -> String {
    format!(
        "[...document.querySelectorAll('tr.connection')]\
         .find((row) => row.querySelector('th').textContent.endsWith(':{port}'))"
    )
}

/// Waits until the page and the downloads agree that the first is `low` to `high` times as fast.
fn wait_for_shares(browser: &mut Browser, downloads: &[Watched; 2], low: f64, high: f64) {
    let shown = format!("Number({}?.dataset.bps) / Number({}?.dataset.bps)", row(8001), row(8002));
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shown = browser.evaluate(&shown).unwrap().as_f64().unwrap_or(0.0);
        let came = ratio(&downloads[0], &downloads[1]);
        let right = low..high;
        if right.contains(&shown) && right.contains(&came) {
            return;
        }
        let said = format!("shown {shown}, came {came}, expected {low} to {high}");
        assert!(Instant::now() < deadline, "{said}");
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_slider_in_a_browser_moves_the_shares_of_two_downloads() {
    let Some(program) = common::program() else { return };
    let radio = RadioConfig::both(link(Rate::from_mbps(8), Duration::from_millis(20), 60));
    let Some(lab) = common::lab(&Topology { radio, ..Topology::default() }) else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(&lab.mobile, folder.path(), PATIENCE).unwrap() else {
        return lasthop_testing::skip("no chromium is installed");
    };
    let mut hop = Hop::new("srp");
    let control = folder.path().join("mobile.sock").display().to_string();
    hop.mobile.extend(["--control".to_owned(), control, "--ui".to_owned()]);
    let carrier = Carrier::start_hop(&hop, &lab, Family::V4, &program, PATIENCE).unwrap();

    let (stop, seed) = (Stop::default(), Seed::from_u64(5));
    let downloads = [Watched::default(), Watched::default()];
    let mut ends = Vec::new();
    let mut servers = Vec::new();
    for (port, received) in [8001, 8002].into_iter().zip(&downloads) {
        let address = SocketAddr::new(lab.server_address(Family::V4).ip(), port);
        servers.push(http::start(&lab.fixed, address, seed).unwrap());
        let client = Client::new(&lab.mobile, carrier.via(), address);
        let (received, stop) = (received.clone(), stop.clone());
        ends.push(thread::spawn(move || client.download(ENDLESS, &received, &stop, PATIENCE)));
    }

    browser.open("http://127.0.0.1:8088/").unwrap();
    browser.wait_for(&format!("{} !== undefined", row(8002))).unwrap();
    wait_for_shares(&mut browser, &downloads, 0.6, 1.6);
    let slider = format!("{}.querySelector('input[type=range]')", row(8001));
    browser.wait_for(&format!("!{slider}.disabled && ({slider}.focus(), true)")).unwrap();
    for _ in 0..3 {
        browser.press("ArrowRight", 39).unwrap();
    }
    wait_for_shares(&mut browser, &downloads, 2.8, 5.5);
    browser.press("Home", 36).unwrap();
    wait_for_shares(&mut browser, &downloads, 0.6, 1.6);
    assert_eq!(browser.complaints(), [] as [String; 0]);

    stop.set();
    for end in ends {
        end.join().unwrap().unwrap();
    }
    for received in &downloads {
        assert!(received.lock().is_prefix_of(seed), "wrong bytes");
    }
}
