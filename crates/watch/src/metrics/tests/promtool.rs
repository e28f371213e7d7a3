//! The same texts before Prometheus's own tool, where it is installed.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use super::{DASHBOARD, everything, queries};

/// None where the tool is missing.
fn promtool(args: &[&str], input: &str) -> Option<Output> {
    let mut child = Command::new("promtool")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .inspect_err(|e| lasthop_testing::skip(format_args!("promtool: {e}")))
        .ok()?;
    // One that ends early has its reasons, and says them.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    Some(child.wait_with_output().unwrap())
}

/// The older format, which is what the tool's lints read: counters and infos are named as their
/// samples are, and there are neither units nor an end.
fn older(text: &str) -> String {
    let mut out = String::new();
    let mut help = None;
    for line in text.lines() {
        if line.starts_with("# HELP ") {
            help = Some(line);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.rsplit_once(' ').unwrap();
            let (new, kind) = match kind {
                "counter" => (format!("{name}_total"), kind),
                "info" => (format!("{name}_info"), "gauge"),
                _ => (name.to_owned(), kind),
            };
            let help = help.take().unwrap().replacen(name, &new, 1);
            out += &format!("{help}\n# TYPE {new} {kind}\n");
        } else if !line.starts_with("# ") {
            out += &format!("{line}\n");
        }
    }
    out
}

#[test]
fn prometheus_s_lints_have_nothing_to_say() {
    for text in everything() {
        let Some(output) = promtool(&["check", "metrics"], &older(&text)) else { return };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}\n{text}");
    }
}

#[test]
fn prometheus_s_own_reader_of_openmetrics_takes_every_text() {
    for text in everything() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("text");
        // It reads recorded metrics only: those have a time at the end of each line.
        let recorded = text.lines().map(|line| match line.starts_with('#') {
            true => format!("{line}\n"),
            false => format!("{line} 1700000000\n"),
        });
        std::fs::write(&file, recorded.collect::<String>()).unwrap();
        let blocks = folder.path().join("blocks");
        let args = ["tsdb", "create-blocks-from", "openmetrics"];
        let paths = [file.to_str().unwrap(), blocks.to_str().unwrap()];
        let Some(output) = promtool(&[args.as_slice(), &paths].concat(), "") else { return };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}\n{text}");
    }
}

#[test]
fn prometheus_understands_every_query_of_the_dashboard() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut asked = Vec::new();
    queries(&dashboard, &mut asked);
    let rule = |(n, query): (usize, &String)| {
        let query = query.replace("$__rate_interval", "1m").replace("$__range", "1h");
        serde_json::json!({ "record": format!("query:{n}"), "expr": query })
    };
    let rules: Vec<_> = asked.iter().enumerate().map(rule).collect();
    let group = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    let folder = tempfile::tempdir().unwrap();
    // What is JSON is YAML too.
    let file = folder.path().join("rules.yml");
    std::fs::write(&file, group.to_string()).unwrap();
    let Some(output) = promtool(&["check", "rules", file.to_str().unwrap()], "") else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
