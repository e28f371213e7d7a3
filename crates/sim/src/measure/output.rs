//! Tables as text: comma-separated values, one observation in a row.

use std::io::{self, Write};

use lasthop_units::Time;
use thiserror::Error;

use super::{FlowRecord, Recorder};

/// A table that could not be written.
#[derive(Debug, Error)]
pub enum OutputError {
    /// As text.
    #[error("writing a table: {0}")]
    Csv(#[from] csv::Error),
    /// The file itself.
    #[error("writing a table: {0}")]
    Io(#[from] io::Error),
    /// As Parquet.
    #[cfg(feature = "parquet")]
    #[error("writing a Parquet table: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
}

/// The columns of a series.
pub(super) const SERIES: [&str; 4] = ["time_s", "flow", "variable", "value"];

/// The columns of flows, and their values. What does not exist is empty.
pub(super) const FLOW: [&str; 16] = [
    "flow",
    "outcome",
    "started_s",
    "established_s",
    "last_byte_s",
    "last_ack_s",
    "until_s",
    "asked_bytes",
    "received_bytes",
    "transfer_time_s",
    "acknowledged_time_s",
    "goodput_bps",
    "segments",
    "retransmits",
    "timeouts",
    "retransmitted_share",
];

/// Writes one row for each (time, flow, variable, value). Times are in seconds, exact to the
/// nanosecond.
///
/// # Errors
///
/// `out` cannot be written.
pub fn write_series_csv(recorder: &Recorder, out: impl Write) -> Result<(), OutputError> {
    let mut table = csv::Writer::from_writer(out);
    table.write_record(SERIES)?;
    for row in recorder.rows() {
        let (at, value) = (seconds(row.at), row.value.to_string());
        table.write_record([&at, recorder.name(row.subject), row.variable.name(), &value])?;
    }
    Ok(table.flush()?)
}

/// Writes one row for each flow, incomplete ones too (MET-13): they have no transfer time.
///
/// # Errors
///
/// `out` cannot be written.
pub fn write_flows_csv<'a>(
    flows: impl IntoIterator<Item = &'a FlowRecord>,
    out: impl Write,
) -> Result<(), OutputError> {
    let mut table = csv::Writer::from_writer(out);
    table.write_record(FLOW)?;
    for flow in flows {
        table.write_record(flow_fields(flow))?;
    }
    Ok(table.flush()?)
}

fn flow_fields(flow: &FlowRecord) -> [String; FLOW.len()] {
    let time = |at: Option<Time>| at.map(seconds).unwrap_or_default();
    let length = |d: Option<_>| time(d.map(|d| Time::ZERO + d));
    [
        flow.flow.clone(),
        flow.outcome().name().to_owned(),
        seconds(flow.started),
        time(flow.established),
        time(flow.last_byte),
        time(flow.last_ack),
        seconds(flow.until),
        flow.asked.map(|asked| asked.get().to_string()).unwrap_or_default(),
        flow.received.get().to_string(),
        length(flow.transfer_time()),
        length(flow.acknowledged_time()),
        flow.goodput().as_bps().to_string(),
        flow.sender.segments.to_string(),
        flow.sender.retransmits.to_string(),
        flow.sender.timeouts.to_string(),
        retransmitted_share(flow).to_string(),
    ]
}

/// MET-11: retransmissions for each segment sent.
pub(super) fn retransmitted_share(flow: &FlowRecord) -> f64 {
    flow.sender.retransmits as f64 / flow.sender.segments.max(1) as f64
}

fn seconds(at: Time) -> String {
    let nanos = at.as_nanos();
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

#[cfg(test)]
pub(super) mod tests {
    use lasthop_units::Bytes;

    use super::*;
    use crate::measure::{Counters, FlowMeter, Sampling, Variable};

    pub(in crate::measure) fn recorder() -> Recorder {
        let mut recorder = Recorder::new(Sampling::CHANGES, 100);
        let flow = recorder.add_subject("down, first");
        let link = recorder.add_subject("hop");
        recorder.set(Time::from_nanos(1_000_000_001), flow, Variable::Srtt, 0.1);
        recorder.set(Time::from_secs(2), link, Variable::QueueBytes, 4500.0);
        recorder
    }

    pub(in crate::measure) fn flows() -> Vec<FlowRecord> {
        let sender = Counters { segments: 100, retransmits: 25, timeouts: 2 };
        let mut done = FlowMeter::new("done", Some(Bytes::new(1000)), Time::from_secs(1));
        done.established(Time::from_millis(1500));
        let short = done.clone();
        done.received(Time::from_secs(3), Bytes::new(1000));
        let until = Time::from_secs(9);
        let mut short = short.record(until, Counters::default());
        short.flow = "short".to_owned();
        vec![done.record(until, sender), short]
    }

    fn text(write: impl FnOnce(&mut Vec<u8>) -> Result<(), OutputError>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_series_has_one_row_for_each_value() {
        assert_eq!(
            text(|out| write_series_csv(&recorder(), out)),
            "time_s,flow,variable,value\n\
             1.000000001,\"down, first\",srtt_s,0.1\n\
             2.000000000,hop,queue_bytes,4500\n"
        );
    }

    /// MET-8, MET-13: an incomplete flow has its row, and nothing where it has no value.
    #[test]
    fn flows_have_one_row_each() {
        let table = text(|out| write_flows_csv(&flows(), out));
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines[0], FLOW.join(","));
        assert_eq!(
            lines[1],
            "done,complete,1.000000000,1.500000000,3.000000000,,9.000000000,1000,1000,\
             2.000000000,,4000,100,25,2,0.25"
        );
        assert_eq!(
            lines[2],
            "short,incomplete,1.000000000,1.500000000,,,9.000000000,1000,0,,,0,0,0,0,0"
        );
        assert_eq!(lines.len(), 3);
    }
}
