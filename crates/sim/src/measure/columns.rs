//! The same tables as Parquet files, for runs whose text would be too long.

use std::io::Write;

use lasthop_units::{Duration, Time};
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};

use super::output::{FLOW, OutputError, SERIES, retransmitted_share};
use super::{FlowRecord, Recorder, Row};

/// Rows written at a time: what a writer keeps in memory.
const ROWS: usize = 1 << 20;

/// The values of a column.
enum Column {
    Text(Vec<ByteArray>),
    Number(Vec<f64>),
    Count(Vec<i64>),
    OptionalNumber(Vec<Option<f64>>),
    OptionalCount(Vec<Option<i64>>),
}

/// Writes the table of [`write_series_csv`](super::write_series_csv).
///
/// # Errors
///
/// `out` cannot be written.
pub fn write_series_parquet(
    recorder: &Recorder,
    out: impl Write + Send,
) -> Result<(), OutputError> {
    let groups = recorder.rows().chunks(ROWS).map(|rows| series_columns(recorder, rows));
    // A table without rows has columns nevertheless.
    let schema = schema(&SERIES, &series_columns(recorder, &[]))?;
    write(schema, groups, out)
}

/// Writes the table of [`write_flows_csv`](super::write_flows_csv).
///
/// # Errors
///
/// `out` cannot be written.
pub fn write_flows_parquet<'a>(
    flows: impl IntoIterator<Item = &'a FlowRecord>,
    out: impl Write + Send,
) -> Result<(), OutputError> {
    let flows: Vec<_> = flows.into_iter().collect();
    let schema = schema(&FLOW, &flow_columns(&[]))?;
    write(schema, flows.chunks(ROWS).map(flow_columns), out)
}

fn series_columns(recorder: &Recorder, rows: &[Row]) -> Vec<Column> {
    let flow = |row: &Row| ByteArray::from(recorder.name(row.subject));
    vec![
        Column::Number(rows.iter().map(|row| row.at.as_secs_f64()).collect()),
        Column::Text(rows.iter().map(flow).collect()),
        Column::Text(rows.iter().map(|row| ByteArray::from(row.variable.name())).collect()),
        Column::Number(rows.iter().map(|row| row.value).collect()),
    ]
}

fn flow_columns(flows: &[&FlowRecord]) -> Vec<Column> {
    let text = |f: fn(&FlowRecord) -> &str| {
        Column::Text(flows.iter().map(|flow| ByteArray::from(f(flow))).collect())
    };
    let number =
        |f: fn(&FlowRecord) -> f64| Column::Number(flows.iter().map(|flow| f(flow)).collect());
    let time = |f: fn(&FlowRecord) -> Option<Time>| {
        let seconds = flows.iter().map(|flow| f(flow).map(Time::as_secs_f64));
        Column::OptionalNumber(seconds.collect())
    };
    let length = |f: fn(&FlowRecord) -> Option<Duration>| {
        let seconds = flows.iter().map(|flow| f(flow).map(|length| length.as_secs_f64()));
        Column::OptionalNumber(seconds.collect())
    };
    let count = |f: fn(&FlowRecord) -> u64| {
        Column::Count(flows.iter().map(|flow| signed(f(flow))).collect())
    };
    let asked = flows.iter().map(|flow| flow.asked.map(|asked| signed(asked.get())));
    vec![
        text(|flow| &flow.flow),
        text(|flow| flow.outcome().name()),
        number(|flow| flow.started.as_secs_f64()),
        time(|flow| flow.established),
        time(|flow| flow.last_byte),
        time(|flow| flow.last_ack),
        number(|flow| flow.until.as_secs_f64()),
        Column::OptionalCount(asked.collect()),
        count(|flow| flow.received.get()),
        length(FlowRecord::transfer_time),
        length(FlowRecord::acknowledged_time),
        count(|flow| flow.goodput().as_bps()),
        count(|flow| flow.sender.segments),
        count(|flow| flow.sender.retransmits),
        count(|flow| flow.sender.timeouts),
        number(retransmitted_share),
    ]
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

impl Column {
    fn field(&self, name: &str) -> Result<TypePtr, ParquetError> {
        let (physical, logical) = match self {
            Self::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Self::Number(_) | Self::OptionalNumber(_) => (Physical::DOUBLE, None),
            Self::Count(_) | Self::OptionalCount(_) => (Physical::INT64, None),
        };
        let repetition = match self {
            Self::OptionalNumber(_) | Self::OptionalCount(_) => Repetition::OPTIONAL,
            _ => Repetition::REQUIRED,
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_logical_type(logical)
            .with_repetition(repetition)
            .build()?;
        Ok(field.into())
    }

    fn write(&self, writer: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        match self {
            Self::Text(values) => writer.typed::<ByteArrayType>().write_batch(values, None, None),
            Self::Number(values) => writer.typed::<DoubleType>().write_batch(values, None, None),
            Self::Count(values) => writer.typed::<Int64Type>().write_batch(values, None, None),
            Self::OptionalNumber(values) => {
                let (there, levels) = split(values);
                writer.typed::<DoubleType>().write_batch(&there, Some(&levels), None)
            }
            Self::OptionalCount(values) => {
                let (there, levels) = split(values);
                writer.typed::<Int64Type>().write_batch(&there, Some(&levels), None)
            }
        }
        .map(drop)
    }
}

/// The values that exist, and for each row whether it has one.
fn split<T: Copy>(values: &[Option<T>]) -> (Vec<T>, Vec<i16>) {
    let levels = values.iter().map(|value| i16::from(value.is_some())).collect();
    (values.iter().flatten().copied().collect(), levels)
}

fn schema(names: &[&str], columns: &[Column]) -> Result<TypePtr, ParquetError> {
    let fields = names.iter().zip(columns).map(|(name, column)| column.field(name));
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    Ok(Type::group_type_builder("table").with_fields(fields).build()?.into())
}

fn write<W: Write + Send>(
    schema: TypePtr,
    groups: impl Iterator<Item = Vec<Column>>,
    out: W,
) -> Result<(), OutputError> {
    let properties = WriterProperties::builder().set_created_by("lasthop".to_owned()).build();
    let mut file = SerializedFileWriter::new(out, schema, properties.into())?;
    for columns in groups {
        let mut group = file.next_row_group()?;
        for column in &columns {
            if let Some(mut writer) = group.next_column()? {
                column.write(&mut writer)?;
                writer.close()?;
            }
        }
        group.close()?;
    }
    file.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::output::tests::{flows, recorder};
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::{Field, Row as Read};

    fn rows(file: Vec<u8>) -> Vec<Read> {
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
        reader.get_row_iter(None).unwrap().map(Result::unwrap).collect()
    }

    fn fields(row: &Read) -> Vec<(String, Field)> {
        row.get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect()
    }

    #[test]
    fn a_series_comes_back() {
        let mut file = Vec::new();
        write_series_parquet(&recorder(), &mut file).unwrap();
        let rows = rows(file);
        assert_eq!(rows.len(), 2);
        let expected = [
            ("time_s", Field::Double(1.000_000_001)),
            ("flow", Field::Str("down, first".to_owned())),
            ("variable", Field::Str("srtt_s".to_owned())),
            ("value", Field::Double(0.1)),
        ];
        assert_eq!(fields(&rows[0]), expected.map(|(name, field)| (name.to_owned(), field)));
    }

    /// MET-13: what an incomplete flow does not have is null.
    #[test]
    fn flows_come_back_with_their_gaps() {
        let mut file = Vec::new();
        write_flows_parquet(&flows(), &mut file).unwrap();
        let rows = rows(file);
        let (done, short) = (fields(&rows[0]), fields(&rows[1]));
        assert_eq!(done.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), FLOW);
        assert_eq!(
            (&done[1].1, &done[9].1),
            (&Field::Str("complete".to_owned()), &Field::Double(2.0))
        );
        assert_eq!((&done[7].1, &done[11].1), (&Field::Long(1000), &Field::Long(4000)));
        assert_eq!(
            (&short[1].1, &short[9].1),
            (&Field::Str("incomplete".to_owned()), &Field::Null)
        );
    }

    #[test]
    fn an_empty_table_has_its_columns() {
        let mut file = Vec::new();
        write_flows_parquet(&[], &mut file).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        assert_eq!((schema.num_columns(), rows_of(&reader)), (FLOW.len(), 0));
    }

    fn rows_of(reader: &SerializedFileReader<bytes::Bytes>) -> i64 {
        reader.metadata().file_metadata().num_rows()
    }
}
