//! Tables as text: comma-separated values, one observation in a row.

use std::io::{self, Write};

use lasthop_units::Time;
use thiserror::Error;

use super::Recorder;

/// A table that could not be written.
#[derive(Debug, Error)]
pub enum OutputError {
    /// As text.
    #[error("writing a table: {0}")]
    Csv(#[from] csv::Error),
    /// The file itself.
    #[error("writing a table: {0}")]
    Io(#[from] io::Error),
}

/// The columns of a series.
const SERIES: [&str; 4] = ["time_s", "flow", "variable", "value"];

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

fn seconds(at: Time) -> String {
    let nanos = at.as_nanos();
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Sampling, Variable};

    #[test]
    fn a_series_has_one_row_for_each_value() {
        let mut recorder = Recorder::new(Sampling::CHANGES, 100);
        let flow = recorder.add_subject("down, first");
        let link = recorder.add_subject("hop");
        recorder.set(Time::from_nanos(1_000_000_001), flow, Variable::Srtt, 0.1);
        recorder.set(Time::from_secs(2), link, Variable::QueueBytes, 4500.0);
        let mut out = Vec::new();
        write_series_csv(&recorder, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "time_s,flow,variable,value\n\
             1.000000001,\"down, first\",srtt_s,0.1\n\
             2.000000000,hop,queue_bytes,4500\n"
        );
    }
}
