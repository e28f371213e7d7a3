//! The page in a real browser, with a process that shares its hop by priorities.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::Process;
use lasthop_control::{Request, Target};
use lasthop_kernel::netns::{Netns, NetnsError};
use lasthop_lab::browser::Browser;
use lasthop_watch::{Handle, Options, serve};

const PATIENCE: Duration = Duration::from_secs(60);
const RIGHT: (&str, u32) = ("ArrowRight", 39);

/// The page of a process with these connections, in a namespace of its own.
struct Scene {
    // In the order in which they have to end.
    browser: Browser,
    process: Process,
    _handle: Handle,
    _folder: tempfile::TempDir,
}

fn scene(connections: &[(&str, &str)]) -> Option<Scene> {
    scene_after(connections, Vec::new())
}

/// The same, of a process that has carried so much in each second before, bit/s.
fn scene_after(connections: &[(&str, &str)], before: Vec<u64>) -> Option<Scene> {
    let host = lasthop_testing::or_skip(Netns::anonymous(), NetnsError::is_unavailable)?;
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(&host, folder.path(), PATIENCE).unwrap() else {
        lasthop_testing::skip("no chromium is installed");
        return None;
    };
    let process = Process::start(folder.path(), connections);
    if !before.is_empty() {
        process.remember(before);
    }
    let ui = "127.0.0.1:0".parse().ok();
    let control = process.path.clone();
    let options = Options { ui, metrics: None, control, own: false };
    // Its thread inherits the namespace.
    let handle = host.enter(|| serve(options)).unwrap().unwrap();
    browser.open(&format!("http://{}/", handle.ui().unwrap())).unwrap();
    browser.wait_for("document.querySelector('#state.live') !== null").unwrap();
    Some(Scene { browser, process, _handle: handle, _folder: folder })
}

fn row(kind: &str, name: &str) -> String {
    format!("document.querySelector('tr[data-{kind}=\"{name}\"]')")
}

/// Waits until the page shows `a` as `times` as fast as `b`, within a tenth.
fn wait_for_ratio(browser: &mut Browser, a: &str, b: &str, times: f64) {
    let (low, high) = (times * 0.9, times * 1.1);
    let ratio = format!(
        "(() => {{ const bps = (row) => Number(row?.dataset.bps); const r = bps({a}) / bps({b}); \
         return r > {low} && r < {high}; }})()"
    );
    browser.wait_for(&ratio).unwrap();
}

fn focus_slider(browser: &mut Browser, row: &str) {
    let focus = format!("{row}.querySelector('input[type=range]').focus(), true");
    browser.wait_for(&focus).unwrap();
}

#[test]
fn who_moves_a_slider_sees_the_shares_move() {
    let connections = [
        ("curl", "mirror.example:443"),
        ("wget", "files.example:80"),
        ("wget", "[2001:db8::1]:80"),
    ];
    let Some(mut scene) = scene(&connections) else { return };
    let (curl, wget) = (row("program", "curl"), row("program", "wget"));
    let browser = &mut scene.browser;
    wait_for_ratio(browser, &curl, &wget, 0.5);
    focus_slider(browser, &curl);
    for _ in 0..3 {
        browser.press(RIGHT.0, RIGHT.1).unwrap();
    }
    wait_for_ratio(browser, &curl, &wget, 2.0);
    let of = Target::Program("curl".to_owned());
    let last = scene.process.asked().pop();
    assert_eq!(last, Some(Request::Priority { of, priority: Some(4) }));
    // One connection of the other program alone.
    focus_slider(browser, &row("connection", "2"));
    browser.press("End", 35).unwrap();
    wait_for_ratio(browser, &row("connection", "2"), &row("connection", "3"), 16.0);
    let mixed = format!("{wget}.querySelector('output').textContent === 'mixed'");
    browser.wait_for(&mixed).unwrap();
    // The default again.
    let reset = format!("{}.querySelector('.dial button').click(), true", row("connection", "2"));
    browser.wait_for(&reset).unwrap();
    wait_for_ratio(browser, &row("connection", "2"), &row("connection", "3"), 1.0);
    let width = browser.evaluate("document.documentElement.scrollWidth <= innerWidth").unwrap();
    assert_eq!(width, true, "nothing sticks out");
    assert_eq!(browser.complaints(), [] as [String; 0]);
}

#[test]
fn the_page_shows_the_last_two_minutes_as_soon_as_it_is_opened() {
    let connections = [("curl", "mirror.example:443")];
    let Some(mut scene) = scene_after(&connections, vec![9_000_000; 120]) else { return };
    let browser = &mut scene.browser;
    for (plot, kind) in [("rate", "stroke"), ("loss", "stroke"), ("queue", "fill")] {
        let path = format!("document.querySelector('#plot-{plot} path.{kind}')");
        // From one edge to the other.
        let whole = format!("/^M0 [^M]*L119 /.test({path}.getAttribute('d'))");
        assert_eq!(browser.evaluate(&whole).unwrap(), true, "{plot}");
    }
    assert_eq!(browser.complaints(), [] as [String; 0]);
}

#[test]
fn several_paths_have_a_table_with_their_rates() {
    let Some(mut scene) = scene(&[("curl", "mirror.example:443")]) else { return };
    let browser = &mut scene.browser;
    let shown = "document.getElementById('paths').checkVisibility()";
    assert_eq!(browser.evaluate(shown).unwrap(), false, "there is one path");
    scene.process.use_paths(&[("modem", 0.8), ("<b>dish", 0.2), ("wlan", 0.0)]);
    let (modem, dish, wlan) = (row("path", "modem"), row("path", "<b>dish"), row("path", "wlan"));
    wait_for_ratio(browser, &modem, &dish, 4.0);
    assert_eq!(browser.evaluate(shown).unwrap(), true);
    let said = |row: &str| {
        format!(
            "[...{row}.cells].map((cell) => cell.textContent).join('|').replaceAll('\u{2013}', '-')"
        )
    };
    let down = format!("{modem}.cells[4].textContent.startsWith('16.')");
    browser.wait_for(&down).unwrap();
    let silent = browser.evaluate(&said(&wlan)).unwrap();
    assert_eq!(
        silent,
        "wlan|-|192.0.2.1:4433|silent|0 bit/s|0 bit/s||2.0 %|41.9 ms|7.5 ms|3.00 MB|0 B"
    );
    assert_eq!(browser.evaluate(&format!("{wlan}.cells[3].className")).unwrap(), "silent");
    // All plots have one scale. A path of one ends at its last value: M117 20.00L118 20.11L119 19.98.
    let ends = |row: &str| {
        format!(
            "(/L119 ([0-9.]+)$/.exec({row}.querySelector('.spark path').getAttribute('d')) ?? [])[1]"
        )
    };
    browser.wait_for(&format!("{} !== undefined", ends(&wlan))).unwrap();
    let heights = format!(
        "Math.abs(100 - {m} - 4 * (100 - {d})) < 20 && 100 - {m} > 70 && {w} === '100.00'",
        m = ends(&modem),
        d = ends(&dish),
        w = ends(&wlan)
    );
    assert_eq!(browser.evaluate(&heights).unwrap(), true);
    let width = browser.evaluate("document.documentElement.scrollWidth <= innerWidth").unwrap();
    assert_eq!(width, true, "nothing sticks out");
    // What goes leaves no row behind.
    scene.process.use_paths(&[("<b>dish", 1.0), ("wlan", 0.0)]);
    let left =
        "[...document.querySelectorAll('#paths tbody tr')].map((row) => row.dataset.path).join()";
    browser.wait_for(&format!("{left} === '<b>dish,wlan'")).unwrap();
    scene.process.use_paths(&[]);
    browser.wait_for(&format!("!{shown}")).unwrap();
    assert_eq!(browser.evaluate("document.querySelectorAll('main b').length").unwrap(), 0);
    assert_eq!(browser.complaints(), [] as [String; 0]);
}

#[test]
fn a_refusal_is_said_and_the_slider_goes_back() {
    let Some(mut scene) = scene(&[("curl", "mirror.example:443")]) else { return };
    scene.process.refuse("priorities are of no use here");
    let browser = &mut scene.browser;
    browser.wait_for(&format!("{} !== null", row("program", "curl"))).unwrap();
    focus_slider(browser, &row("program", "curl"));
    browser.press(RIGHT.0, RIGHT.1).unwrap();
    browser
        .wait_for("document.getElementById('toast').textContent.includes('of no use here')")
        .unwrap();
    let slider = format!("{}.querySelector('input').value === '1'", row("program", "curl"));
    browser.wait_for(&slider).unwrap();
}

#[test]
fn hundreds_of_connections_and_odd_names_are_shown_and_filtered() {
    let evil = "<img src=x onerror=document.title=1>";
    let targets: Vec<String> = (0..400).map(|i| format!("host{i}.example:443")).collect();
    let mut connections: Vec<(&str, &str)> = targets.iter().map(|t| ("curl", t.as_str())).collect();
    connections.push((evil, evil));
    let Some(mut scene) = scene(&connections) else { return };
    let browser = &mut scene.browser;
    let rows = "document.querySelectorAll('tr.connection').length";
    browser.wait_for(&format!("{rows} === 401")).unwrap();
    assert_eq!(browser.evaluate("document.querySelectorAll('main img').length").unwrap(), 0);
    let filter = "(() => { const f = document.getElementById('filter'); f.value = 'HOST39'; \
                  f.dispatchEvent(new Event('input')); return true; })()";
    browser.evaluate(filter).unwrap();
    browser.wait_for(&format!("{rows} === 11")).unwrap();
    let fold = format!("{}.querySelector('.toggle').click(), true", row("program", "curl"));
    browser.wait_for(&fold).unwrap();
    browser.wait_for(&format!("{rows} === 0")).unwrap();
    assert_eq!(browser.complaints(), [] as [String; 0]);
}
