use lasthop_scenario::Ordered;

use super::*;

fn record(seed: u64, trace: &str) -> Record {
    let point = serde_json::from_str("\"00112233445566778899aabbccddeeff\"").expect("a hash");
    Record {
        point,
        run: 0,
        seed,
        commit: "abc".to_string(),
        parameters: Ordered(vec![("handoff.pause".to_string(), "1s".to_string())]),
        drawn: Ordered::default(),
        completed: true,
        trace: trace.to_string(),
        metrics: Ordered(vec![("b".to_string(), Some(0.1)), ("a".to_string(), None)]),
    }
}

fn open(directory: &Path) -> Result<Results, ResultsError> {
    Results::open(directory, "abc", false)
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

#[test]
fn a_record_is_a_line_that_reads_back() {
    let record = record(7, "00ff");
    let line = record.line();
    assert_eq!(
        line,
        "{\"point\":\"00112233445566778899aabbccddeeff\",\"run\":0,\"seed\":7,\"commit\":\"abc\",\
         \"parameters\":{\"handoff.pause\":\"1s\"},\"completed\":true,\"trace\":\"00ff\",\
         \"metrics\":{\"b\":0.1,\"a\":null}}"
    );
    assert_eq!(serde_json::from_str::<Record>(&line).expect("reads"), record);
}

/// A mean over runs that were kept is that over the same runs as they ended, to the last digit.
#[test]
fn numbers_read_back_to_the_last_digit() {
    let mut random = lasthop_units::Seed::from_u64(1).stream("numbers");
    for _ in 0..10_000 {
        let value = match f64::from_bits(random.next_u64()) {
            value if value.is_finite() => value,
            _ => random.uniform(),
        };
        let metrics = Ordered(vec![("x".to_string(), Some(value))]);
        let record = Record { metrics, ..record(1, "x") };
        let read: Record = serde_json::from_str(&record.line()).expect("reads");
        assert_eq!(read, record, "{value:?}");
    }
}

#[test]
fn a_directory_of_another_commit_is_refused_with_the_remedy() {
    let directory = directory();
    open(directory.path()).expect("opens");
    let error = Results::open(directory.path(), "def", false).expect_err("refused").to_string();
    assert!(error.contains("manifest.json") && error.contains("abc") && error.contains("def"));
    assert!(error.contains("another directory") && error.contains("--allow-other-commit"));
    Results::open(directory.path(), "def", true).expect("opens");
}

#[test]
fn runs_of_another_commit_inside_are_refused_too() {
    let directory = directory();
    let other = Record { commit: "def".to_string(), ..record(1, "x") };
    open(directory.path()).expect("opens").writer(Shard::ALL).append(&other).expect("writes");
    let error = open(directory.path()).expect_err("refused").to_string();
    assert!(error.contains("runs-0-of-1-000.jsonl") && error.contains("def"), "{error}");
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let directory = directory();
    fs::write(directory.path().join("thesis.tex"), "x").expect("writes");
    let error = open(directory.path()).expect_err("refused").to_string();
    assert!(error.contains("not empty"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).expect("reads").count(), 1);
}

#[test]
fn each_process_writes_a_file_of_its_own() {
    let directory = directory();
    let results = open(directory.path()).expect("opens");
    for seed in 0..3 {
        results.writer(Shard::ALL).append(&record(seed, "x")).expect("writes");
    }
    assert!(directory.path().join("runs-0-of-1-002.jsonl").exists());
    assert_eq!(open(directory.path()).expect("opens").records().count(), 3);
}

#[test]
fn damage_is_told_with_its_line_except_at_the_end() {
    let directory = directory();
    open(directory.path()).expect("opens");
    let file = directory.path().join("runs-0-of-1-000.jsonl");
    let good = record(1, "x").line();
    fs::write(&file, format!("{good}\n{{\"point\": 5")).expect("writes");
    assert_eq!(open(directory.path()).expect("opens").records().count(), 1);
    fs::write(&file, format!("{good}\n{{\"point\": 5\n{good}\n")).expect("writes");
    let error = open(directory.path()).expect_err("refused").to_string();
    assert!(error.contains("000.jsonl:2: ") && error.contains("delete the line"), "{error}");
}

#[test]
fn two_results_of_one_run_must_agree() {
    let directory = directory();
    let results = open(directory.path()).expect("opens");
    let mut writer = results.writer(Shard::ALL);
    writer.append(&record(1, "x")).expect("writes");
    writer.append(&record(1, "x")).expect("writes");
    assert_eq!(open(directory.path()).expect("opens").records().count(), 1);
    writer.append(&record(1, "y")).expect("writes");
    assert!(
        open(directory.path()).expect_err("refused").to_string().contains("seed 1 of point 0011")
    );
}

#[test]
fn the_scenario_is_kept_beside_its_runs() {
    let directory = directory();
    let results = open(directory.path()).expect("opens");
    let hash = results.keep_scenario("duration = \"1s\"").expect("writes");
    assert_eq!(results.keep_scenario("duration = \"1s\"").expect("writes"), hash);
    let kept = directory.path().join(format!("scenario-{}.toml", &hash[..16]));
    assert_eq!(fs::read_to_string(kept).expect("reads"), "duration = \"1s\"");
}

#[test]
fn an_older_or_newer_format_is_refused() {
    // In the first, runs depended on the order of a file's links.
    for format in [1, 99] {
        let directory = directory();
        let text = format!("{{\"format\": {format}, \"commit\": \"abc\"}}");
        fs::write(directory.path().join(MANIFEST), text).expect("writes");
        let error = Results::open(directory.path(), "abc", true).expect_err("refused").to_string();
        assert!(error.contains(&format!("format {format},")), "{error}");
    }
}
